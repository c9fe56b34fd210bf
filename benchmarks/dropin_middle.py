"""The drop-in between 500 and 3,000 observations, beside `SingleTaskGP`.

Ten functions, smooth and rough, with and without noise, in 2 to 20 dimensions. Inputs
are uniform in the box, and noise has a share of the standard deviation of the values.
Both models have BoTorch's defaults. RMSE, negative log predictive density (NLPD) and
the coverage of 95% intervals are those of noisy observations at other uniform points,
in standard deviations of the function. A step is what a loop does: a model built and
fitted, and `qLogExpectedImprovement` with q = 10 maximized.

Runs are kept in a JSON file, one for each function, size, seed and model.

`OMP_NUM_THREADS=1 python -m benchmarks.dropin_middle --store FILE.json`; `--report`
prints what is there and runs nothing.
"""

import argparse
import math
import statistics
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import (
    Ackley,
    Branin,
    Griewank,
    Hartmann,
    Levy,
    Rastrigin,
    Rosenbrock,
    StyblinskiTang,
    SyntheticTestFunction,
)
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.measure import seconds
from benchmarks.store import Record, Store
from botorch_sparse.models import SparseSingleTaskGP

SIZES = (600, 1000, 1500, 3000)
NUM_TEST = 2000
Q = 10
MODELS: dict[str, type[SingleTaskGP]] = {
    "exact": SingleTaskGP,
    "sparse": SparseSingleTaskGP,
}
# What is to be reached: steps this much faster at a size; NLPD and coverage.
FASTER = {1500: 4.0, 3000: 15.0}
MORE_NLPD = 0.05
COVERAGE = (0.90, 0.98)


class Problem(NamedTuple):
    """A function, and the noise of its observations in its standard deviations."""

    function: Callable[[], SyntheticTestFunction]
    noise: float


PROBLEMS = {
    "branin2": Problem(Branin, 0.0),
    "branin2-noisy": Problem(Branin, 0.3),
    "rosenbrock4": Problem(partial(Rosenbrock, dim=4), 0.01),
    "ackley4": Problem(partial(Ackley, dim=4, bounds=[(-5.0, 10.0)] * 4), 0.001),
    "rastrigin3": Problem(partial(Rastrigin, dim=3), 0.1),
    "hartmann6": Problem(Hartmann, 0.0),
    "hartmann6-noisy": Problem(Hartmann, 0.3),
    "griewank8": Problem(partial(Griewank, dim=8, bounds=[(-5.0, 5.0)] * 8), 0.01),
    "styblinski10": Problem(partial(StyblinskiTang, dim=10), 0.1),
    "levy20": Problem(partial(Levy, dim=20), 0.1),
}


class Data(NamedTuple):
    """Observations, those at other points, and the box."""

    X: Tensor
    Y: Tensor
    test_X: Tensor
    test_Y: Tensor
    bounds: Tensor


def draw(name: str, n: int, seed: int) -> Data:
    """Data of one seed; smaller sizes have the first rows of larger ones."""
    problem = PROBLEMS[name]
    f = problem.function().to(torch.float64)
    g = torch.Generator().manual_seed(seed)
    low, high = f.bounds

    def observations(num: int) -> tuple[Tensor, Tensor]:
        U = torch.rand(num, f.dim, generator=g, dtype=torch.float64)
        X = low + (high - low) * U
        noise = torch.randn(num, generator=g, dtype=torch.float64)
        return X, torch.stack([-f(X, noise=False), noise], -1)

    test_X, test = observations(NUM_TEST)
    X, observed = observations(max(SIZES))
    unit = test[:, 0].std()

    def standard(Y: Tensor) -> Tensor:
        values = (Y[:, 0] - test[:, 0].mean()) / unit + problem.noise * Y[:, 1]
        return values.unsqueeze(-1)

    Y, test_Y = standard(observed), standard(test)
    return Data(X[:n], Y[:n], test_X, test_Y, f.bounds)


def run(model_name: str, data: Data, seed: int, with_step: bool) -> Record:
    """Fit and score a model, and take a step if asked to."""
    d = data.X.shape[-1]
    transform = Normalize(d, bounds=data.bounds)
    model = MODELS[model_name](data.X, data.Y, input_transform=transform)

    def fit() -> None:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        model.posterior(data.test_X[:1])

    def choose() -> None:
        optimize_acqf(
            qLogExpectedImprovement(model, data.Y.max()),
            data.bounds,
            q=Q,
            num_restarts=5,
            raw_samples=128,
            options={"seed": seed, "maxiter": 100},
        )

    torch.manual_seed(seed)
    fit_seconds = seconds(fit)
    step = fit_seconds + seconds(choose) if with_step else math.nan
    with torch.no_grad():
        posterior = model.posterior(data.test_X, observation_noise=True)
    error, variance = data.test_Y - posterior.mean, posterior.variance
    nlpd = 0.5 * ((2 * math.pi * variance).log() + error.square() / variance)
    return {
        "rmse": float(error.square().mean().sqrt()),
        "nlpd": float(nlpd.mean()),
        "coverage": float((error.abs() <= 1.96 * variance.sqrt()).double().mean()),
        "noise": float(model.likelihood.noise.sqrt() * model.outcome_transform.stdvs),
        "inducing": getattr(model, "num_inducing", len(data.X)),
        "fit_seconds": fit_seconds,
        "step_seconds": step,
    }


def key(name: str, n: int, seed: int, model: str) -> str:
    """What a run is known by."""
    return f"{name}/{n}/{seed}/{model}"


def run_missing(store: Store, args: argparse.Namespace) -> None:
    """Run what is not stored; both models of a setting one after the other."""
    for n in args.sizes:
        for name in args.problems:
            for seed in range(args.seeds):
                data = draw(name, n, seed)
                for model in args.models:
                    where = key(name, n, seed, model)
                    if where in store.records:
                        continue
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        with_step = seed < args.step_seeds
                        store.add(where, run(model, data, seed, with_step))
                    print(where, store.records[where], flush=True)


def report(store: Store, args: argparse.Namespace) -> None:
    """A table for each size, and how often each target was reached."""
    print("medians over the seeds; exact / sparse; step: how many times faster")
    for n in args.sizes:
        reached = dict.fromkeys(("nlpd", "coverage", "step"), 0)
        rows = [_row(store, name, n, args.seeds, reached) for name in args.problems]
        rows = [row for row in rows if row]
        if rows:
            print(f"n = {n}")
            print(
                "  function          seeds     m  RMSE         NLPD           coverage"
            )
            print("\n".join(rows))
            faster = f", at least {FASTER[n]:.0f}" if n in FASTER else ""
            print(
                f"  of {len(rows)}: NLPD within {MORE_NLPD} {reached['nlpd']}; "
                f"coverage in {COVERAGE} where exact is {reached['coverage']}; faster"
                f"{faster} {reached['step']}"
            )
    print(store.made(store.records))


def _row(
    store: Store, name: str, n: int, seeds: int, reached: dict[str, int]
) -> str | None:
    """One function at one size; None if nothing is stored."""
    pairs = [
        (store.records[a], store.records[b])
        for seed in range(seeds)
        if (a := key(name, n, seed, "exact")) in store.records
        and (b := key(name, n, seed, "sparse")) in store.records
    ]
    if not pairs:
        return None

    def both(what: str) -> tuple[float, float]:
        exact, sparse = zip(*((a[what], b[what]) for a, b in pairs), strict=True)
        return statistics.median(exact), statistics.median(sparse)

    rmse, nlpd, coverage = both("rmse"), both("nlpd"), both("coverage")
    more = statistics.median(b["nlpd"] - a["nlpd"] for a, b in pairs)
    steps = [
        a["step_seconds"] / b["step_seconds"]
        for a, b in pairs
        if not math.isnan(a["step_seconds"] + b["step_seconds"])
    ]
    fits = statistics.median(a["fit_seconds"] / b["fit_seconds"] for a, b in pairs)
    faster = statistics.median(steps) if steps else math.nan
    is_sound = [COVERAGE[0] <= share <= COVERAGE[1] for share in coverage]
    reached["nlpd"] += more <= MORE_NLPD
    reached["coverage"] += is_sound[1] or not is_sound[0]
    reached["step"] += faster >= FASTER.get(n, 1.0)
    m = both("inducing")[1]
    return (
        f"  {name:17} {len(pairs):5} {m:5.0f}  {rmse[0]:.3f} / {rmse[1]:.3f}  "
        f"{nlpd[0]:+.3f} / {nlpd[1]:+.3f}  {coverage[0]:.3f} / {coverage[1]:.3f}  "
        f"fit {fits:.1f}, step {faster:.1f} ({both('step_seconds')[1]:.1f} s)"
    )


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--step-seeds", type=int, default=1, help="that take a step")
    parser.add_argument("--store", type=Path, help="JSON file, read and extended")
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args(arguments)
    store = Store(args.store)
    if not args.report:
        run_missing(store, args)
    report(store, args)


if __name__ == "__main__":
    main()
