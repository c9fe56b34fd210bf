"""Few rows of one task and many of another: what the others are worth.

Each case has `n` rows, a tenth of them of the task that is predicted: two halves of
sgemm_gpu by one of its flags, dye_lasers by one of its fourteen first fragments, and
functions of four features whose tasks have a correlation of 0, 0.5 or 0.9, with noise
of 10%. The methods are `SparseMultiTaskGP` (`sparse`), BoTorch's
`MultiTaskGP` (`exact`) and `SparseSingleTaskGP` of the task's own rows (`alone`), with
defaults, fitted by `fit_gpytorch_mll`.

The table prints medians, over the seeds that every method with a run has, of the
negative log predictive density (NLPD) and the root mean squared error at up to 1,000
other rows of the task, in units of its standard deviation, and CPU seconds of fit and
first prediction.

    OMP_NUM_THREADS=1 python -m benchmarks.tasks --store FILE.json.gz
    python -m benchmarks.tasks --report benchmarks/results/tasks.json.gz

Each run is kept as soon as it is over; what is there is not run again.
"""

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP, SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.fits import table
from benchmarks.paper_problems import text_columns
from benchmarks.pools import available
from benchmarks.store import Record, Store, run_or_report
from botorch_sparse.models import SparseMultiTaskGP, SparseSingleTaskGP

SIZES = (600, 3000, 10_000, 100_000)
MOST_EXACT = 600  # rows of MultiTaskGP, whose fit of 800 takes two minutes
SHARE = 10  # one in so many rows is of the task that is predicted
HELD_OUT = 1000
NOISE = 0.1
FEATURES = 4
WAVES = 500
# A flag of sgemm_gpu, by place: whether a matrix is cached.
FLAG = 12
Tasks = list[tuple[Tensor, Tensor]]  # inputs and values, the task itself first


def correlated(correlation: float, n: int, generator: torch.Generator) -> Tasks:
    """Two functions from a Gaussian process, with noise, at their own points."""
    draw = partial(torch.randn, generator=generator, dtype=torch.double)
    W, phase = 2.0 * draw(FEATURES, WAVES), 2 * math.pi * draw(WAVES)
    own, other = (draw(WAVES) * (2 / WAVES) ** 0.5 for _ in range(2))
    other = correlation * own + (1 - correlation**2) ** 0.5 * other
    found = list[tuple[Tensor, Tensor]]()
    for weights in (own, other):
        X = torch.rand(n + HELD_OUT, FEATURES, generator=generator, dtype=torch.double)
        Y = (X @ W + phase).cos() @ weights
        found.append((X, Y + NOISE * draw(len(Y))))
    return found


def kernels(n: int, generator: torch.Generator) -> Tasks:
    """Matrix products on a GPU, with a flag and without it."""
    X, Y = table("sgemm_gpu")
    return _halves(X, Y, X[:, FLAG] > 0.5, generator)


def molecules(n: int, generator: torch.Generator) -> Tasks:
    """Dyes with one first fragment, and with the other ones."""
    X, Y = table("dye_lasers-0")
    names = next(iter(text_columns("dye_lasers").values()))
    is_own = torch.tensor([each == min(names) for each in names])
    return _halves(X, Y, is_own, generator)


def _halves(X: Tensor, Y: Tensor, is_own: Tensor, generator: torch.Generator) -> Tasks:
    """Rows of a table in a random order, by their task."""
    order = torch.randperm(len(X), generator=generator)
    rows = [order[is_own[order]], order[~is_own[order]]]
    return [(X[which], Y[which]) for which in rows]


CASES: dict[str, Callable[[int, torch.Generator], Tasks]] = {
    **{f"correlation {c:g}": partial(correlated, c) for c in (0.0, 0.5, 0.9)},
    "sgemm_gpu": kernels,
    "dye_lasers": molecules,
}
SOURCES = {"sgemm_gpu": "sgemm_gpu", "dye_lasers": "dye_lasers-0"}


def execute(case: str, n: int, method: str, seed: int) -> Record | None:
    """One fit, or None where there are too few rows."""
    (X, Y), (other_X, other_Y) = CASES[case](n, torch.Generator().manual_seed(seed))
    num, num_other = n // SHARE, n - n // SHARE
    if len(X) < 2 * num or len(other_X) < num_other:
        return None
    other_X, other_Y = other_X[:num_other], other_Y[:num_other]
    test_X, test_Y = X[num:][:HELD_OUT], Y[num:][:HELD_OUT]
    scales = [(each.mean(), each.std()) for each in (Y[:num], other_Y)]
    Y, test_Y = ((each - scales[0][0]) / scales[0][1] for each in (Y, test_Y))
    other_Y = (other_Y - scales[1][0]) / scales[1][1]
    tasks = torch.tensor([0.0] * num + [1.0] * num_other, dtype=torch.double)
    all_X = torch.cat([torch.cat([X[:num], other_X]), tasks.unsqueeze(-1)], dim=-1)
    all_Y = torch.cat([Y[:num], other_Y]).unsqueeze(-1)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        model: SingleTaskGP | MultiTaskGP
        if method == "alone":
            model = SparseSingleTaskGP(X[:num], Y[:num].unsqueeze(-1))
        else:
            kind = {"sparse": SparseMultiTaskGP, "exact": MultiTaskGP}[method]
            model = kind(all_X, all_Y, task_feature=-1, output_tasks=[0])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        model.posterior(test_X[:1])
        seconds = time.process_time() - start
        with torch.no_grad():
            found = model.posterior(test_X, observation_noise=True)
            mean, variance = found.mean.squeeze(-1), found.variance.squeeze(-1)
    squares = (test_Y - mean).square()
    density = 0.5 * ((2 * math.pi * variance).log() + squares / variance)
    return {
        "nlpd": round(float(density.mean()), 4),
        "rmse": round(float(squares.mean().sqrt()), 4),
        "seconds": round(seconds, 2),
    }


METHODS = ("sparse", "exact", "alone")


def key_of(case: str, n: int, method: str, seed: int) -> str:
    """The key of a run in the store."""
    return f"{case}/{n}/{method}/{seed}"


def run_all(store: Store, args: argparse.Namespace) -> None:
    """Run what is not stored yet, small ones first."""
    away = {*SOURCES.values()} - {*available([*SOURCES.values()], table)}
    for n in args.sizes:
        for seed in range(args.seeds):
            for case in CASES:
                for method in args.methods:
                    key = key_of(case, n, method, seed)
                    is_long = method == "exact" and n > MOST_EXACT
                    if key in store.records or is_long or SOURCES.get(case) in away:
                        continue
                    if (found := execute(case, n, method, seed)) is not None:
                        store.add(key, found)
                        print(f"{key}: {found}", flush=True)


def report(store: Store, args: argparse.Namespace) -> str:
    """Medians over the seeds that every method with a run has."""
    head = ["case", "n", "seeds"]
    head += [f"{what}, {m}" for what in ("NLPD", "RMSE", "CPU s") for m in METHODS]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for case in CASES:
        for n in args.sizes:
            found = {
                method: {
                    seed: store.records[key]
                    for seed in range(args.seeds)
                    if (key := key_of(case, n, method, seed)) in store.records
                }
                for method in METHODS
            }
            if not found["sparse"]:
                continue
            common = set.intersection(*(set(runs) for runs in found.values() if runs))
            runs = {
                method: [of_seed[seed] for seed in common if seed in of_seed]
                for method, of_seed in found.items()
            }
            cells = [case, f"{n:,}", str(len(common))]
            for what in ("nlpd", "rmse", "seconds"):
                for method in METHODS:
                    values = [each[what] for each in runs[method]]
                    shown = f"{statistics.median(values):.3g}" if values else "-"
                    cells.append(shown)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, or print what is stored."""
    run_or_report(_parse(arguments), run_all, report)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--sizes", nargs="*", type=int, default=[*SIZES])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
