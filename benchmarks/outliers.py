"""What outliers cost: predictions and fits of models, and regret of strategies.

A share of the observations is -1e6, or is off by ten standard deviations of the others
either way. Models predict 2,000 new points. Beside the sparse ones stands BoTorch's
exact `RobustRelevancePursuitSingleTaskGP`, on one function, with one seed and the
smallest number of observations, since it takes a minute. Strategies choose 60 of 1,000
random points of a box, each once, and a share of what they are told is -1e6 or 1e4.
Their regret is in standard deviations of the table.

    BENCH_CLOCK=cpu OMP_NUM_THREADS=1 python -m benchmarks.outliers --store FILE.json.gz
    python -m benchmarks.outliers --report benchmarks/results/outliers.json.gz
"""

import argparse
import statistics
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.robust_relevance_pursuit_model import (
    RobustRelevancePursuitSingleTaskGP,
)
from botorch.test_functions import Branin, Hartmann, SyntheticTestFunction
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.measure import seconds
from benchmarks.store import Record, Store, run_or_report
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies import BKB, GPUCB, RandomSearch, ThompsonSampling

NOISE = 0.1  # of a standard deviation
NUM_TEST = 2000
ROWS, EVALUATIONS = 1000, 60
FUNCTIONS: dict[str, Callable[[], SyntheticTestFunction]] = {
    "branin": partial(Branin, negate=True),
    "hartmann6": partial(Hartmann, 6, negate=True),
}
SHARES = (0.0, 0.01, 0.05, 0.1)
KINDS = ("-1e6", "10 sd")
TOLD = {"-1e6": SHARES, "1e4": (0.05,)}  # to strategies
PEER = "BoTorch's robust"
MODELS: dict[str, Callable[..., SingleTaskGP]] = {
    "plain": SparseSingleTaskGP,
    "robust": partial(SparseSingleTaskGP, robust=True),
    PEER: RobustRelevancePursuitSingleTaskGP,
}
STRATEGIES: dict[str, Callable[..., Any]] = {
    "GPUCB": GPUCB,
    "BKB": BKB,
    "Thompson": partial(ThompsonSampling, batch_size=5),
}


def points(name: str, num: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random points of the unit cube, and standardized values, `num x 1`."""
    function = FUNCTIONS[name]()
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(num, function.dim, generator=generator, dtype=torch.float64)
    low, high = function.bounds.double()
    Y = function(low + (high - low) * X).unsqueeze(-1)
    return X, (Y - Y.mean()) / Y.std()


def spoiled(Y: Tensor, share: float, kind: str, seed: int) -> Tensor:
    """Values with noise, a share of which is wrong."""
    generator = torch.Generator().manual_seed(seed)
    Y = Y + NOISE * torch.randn(Y.shape, generator=generator, dtype=Y.dtype)
    wrong = torch.randperm(len(Y), generator=generator)[: round(share * len(Y))]
    signs = 2.0 * torch.randint(2, (len(wrong), 1), generator=generator) - 1.0
    Y[wrong] = Y[wrong] + 10 * signs if kind == "10 sd" else -1e6
    return Y


def predict(model: SingleTaskGP, X: Tensor, f: Tensor) -> Record:
    """Errors of a model that was fitted, and densities of noisy values in the mean."""
    with torch.no_grad():
        posterior = model.posterior(X, observation_noise=True)
    mean, variance = posterior.mean, posterior.variance
    square = (f - mean).square()
    density = ((2 * torch.pi * variance).log() + (square + NOISE**2) / variance) / 2
    return {"rmse": square.mean().sqrt().item(), "nlpd": density.mean().item()}


def model_run(
    kind: str, name: str, share: float, wrong: str, n: int, seed: int
) -> Record:
    """Fit a model and predict."""
    X, f = points(name, n + NUM_TEST, seed)
    Y = spoiled(f[:n], share, wrong, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[kind](X[:n], Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        time = seconds(lambda: fit_gpytorch_mll(mll))
        return {"seconds": time, **predict(model.eval(), X[n:], f[n:])}


def strategy_run(kind: str, name: str, share: float, wrong: str, seed: int) -> Record:
    """Regret of a strategy, of `random` too, on a table."""
    X, f = points(name, ROWS, seed)
    method, _, option = kind.partition(", ")
    strategy = RandomSearch(X, seed=seed)
    if method != "random":
        robust = option == "robust"
        strategy = STRATEGIES[method](X, seed=seed, robust=robust)
    generator = torch.Generator().manual_seed(seed)

    def measure(asked: Tensor) -> Tensor:
        rows = torch.cdist(asked, X).argmin(-1)
        Y = f[rows] + NOISE * torch.randn(len(rows), 1, generator=generator).double()
        is_wrong = torch.rand(len(rows), 1, generator=generator) < share
        return Y.masked_fill(is_wrong, float(wrong))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        time = seconds(lambda: strategy.run(measure, EVALUATIONS, progress=False))
    regret = f.max() - f[strategy.history.indices]
    simple, mean = regret.min().item(), regret.mean().item()
    return {"seconds": time, "simple": simple, "mean": mean}


def run_all(store: Store, args: argparse.Namespace) -> None:
    """Run what is not stored."""
    model_run("plain", args.functions[0], 0.0, KINDS[0], 20, 0)  # what imports take
    for name, share, seed in product(args.functions, SHARES, range(args.seeds)):
        for wrong, n, kind in product(KINDS, args.sizes, MODELS):
            is_left_out = share == 0.0 and wrong != KINDS[0]  # once without any
            if kind == PEER:
                place = (name, n, seed)
                is_left_out |= place != (args.functions[0], min(args.sizes), 0)
            if not is_left_out:
                key = ["model", kind, name, share, wrong, n, seed]
                _add(store, key, partial(model_run, *key[1:]))
        options = [f"{m}, {o}" for m in STRATEGIES for o in ("plain", "robust")]
        for wrong, kind in product(TOLD, ["random", *options]):
            key = ["strategy", kind, name, share, wrong, seed]
            if share in TOLD[wrong]:
                _add(store, key, partial(strategy_run, *key[1:]))


def _add(store: Store, key: list[Any], run: Callable[[], Record]) -> None:
    """Run and keep, unless it is there."""
    name = "/".join(map(str, key))
    if name not in store.records:
        store.add(name, run())


def report(store: Store, args: argparse.Namespace) -> str:
    """Medians over seeds."""
    found: dict[tuple[str, ...], list[Record]] = {}
    for key, record in sorted(store.records.items(), key=lambda item: _order(item[0])):
        found.setdefault(tuple(key.split("/")[:-1]), []).append(record)
    lines = [
        "### Models",
        "",
        *_head("function", "n", "wrong", "model", "RMSE", "NLPD"),
    ]
    lines[-2] += " fit s | times the plain fit |"
    lines[-1] += " --- | --- |"
    for (what, kind, *place), records in found.items():
        if what == "model":
            name, share, wrong, n = place
            time = _median(records, "seconds")
            plain = _median(found[("model", "plain", *place)], "seconds")
            lines.append(
                f"| {name} | {n} | {_wrong(share, wrong)} | {kind} "
                f"| {_median(records, 'rmse'):.3g} | {_median(records, 'nlpd'):.2f} "
                f"| {time:.2g} | {time / plain:.1f} |"
            )
    lines += ["", *_times(found), "", "### Strategies", ""]
    lines += _head("function", "wrong", "method", "mean regret", "best", "s")
    for (what, kind, *place), records in found.items():
        if what == "strategy":
            name, share, wrong = place
            lines.append(
                f"| {name} | {_wrong(share, wrong)} | {kind} "
                f"| {_median(records, 'mean'):.2f} | {_median(records, 'simple'):.2f} "
                f"| {_median(records, 'seconds'):.2g} |"
            )
    return "\n".join(lines)


def _times(found: dict[tuple[str, ...], list[Record]]) -> list[str]:
    """How many times a plain fit a robust one takes, a line for each n."""
    ratios: dict[int, list[float]] = {}
    for (what, kind, *place), records in found.items():
        if what == "model" and kind == "robust":
            plain = _median(found[("model", "plain", *place)], "seconds")
            ratio = _median(records, "seconds") / plain
            ratios.setdefault(int(place[-1]), []).append(ratio)
    return [
        f"A robust fit of {n:,} observations takes {min(each):.1f} to {max(each):.1f} "
        f"times the plain one, {statistics.median(each):.1f} by the median of the rows."
        for n, each in sorted(ratios.items())
    ]


def _order(key: str) -> tuple[Any, ...]:
    """Methods of one setting stand together, few observations and our own first."""
    what, kind, name, share, wrong, *n, seed = key.split("/")
    return what, name, float(share), wrong, [*map(int, n)], kind == PEER, kind, seed


def _head(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]


def _wrong(share: str, wrong: str) -> str:
    """What is wrong, as the tables say it."""
    return f"{float(share):.0%}" + (f" {wrong}" if float(share) else "")


def _median(records: list[Record], name: str) -> float:
    return statistics.median(record[name] for record in records)


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is not stored, or report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", nargs="+", default=[*FUNCTIONS])
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 400, 2000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--store", type=Path, default=None)
    parser.add_argument("--report", type=Path, default=None)
    run_or_report(parser.parse_args(argv), run_all, report)


if __name__ == "__main__":
    main()
