"""Fits of `SparseSingleTaskGP` beside the exact GP's: quality and seconds.

Twenty of BoTorch's test functions, at two dimensions each where they scale, and ten
targets of real tables (one-hot features where columns are names). `n` random points,
standardized values with noise of 1% or 10% of their spread; of real tables random rows,
as measured. The methods are BoTorch's `SingleTaskGP` (`exact`), `SparseSingleTaskGP`
(`sparse`), and that with `max_fit_inducing_points=256`, which asks for the collapsed
bound alone (`bound`); each with its defaults, fitted by `fit_gpytorch_mll`. And there
is the exact fit in `closed-form`: BoTorch's model, optimizer and parametrization, with
values and gradients by formulas in place of GPyTorch's modules, at 3,000 points in
less than half of the time. Where no exact fit is stored it takes the place of one,
except in the columns of seconds; its own line compares both.

Tables print how much larger the negative log predictive density (NLPD) of up to 1,000
other points is than the exact fit's, noise included: median, the share of cases within
0.03, the largest; and the cases beyond 0.08. What a fit can be blamed for is its
optimum: `worse optimum` counts the cases in which the exact objective at the fit's
hyperparameters is worse by more than 0.01 an observation than at those of the exact
fit, of the cases where both are stored. CPU seconds, and how many times quicker a fit
was, median and least, are of the cases whose runs are of one day and processor: `timed`
of them; in `slower` of these a fit took longer. The plot shows each case.

    OMP_NUM_THREADS=1 python -m benchmarks.fits --store FILE.json.gz
    python -m benchmarks.fits --report benchmarks/results/fits.json.gz --plot fits.png

Each run is kept as soon as it is over; what is there is not run again.
"""

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from botorch import test_functions
from botorch.exceptions import InputDataError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim.closures import get_loss_closure
from botorch.optim.utils import get_parameters
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.outcome_problems import load_outcomes
from benchmarks.pools import available
from benchmarks.store import Record, Store, run_or_report
from botorch_sparse.demo.datasets import load_table
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit.plain_likelihood import Closure, plain_closure

SIZES = (600, 1000, 1500, 3000)
NOISES = (0.01, 0.1)
HELD_OUT, LEAST_HELD_OUT = 1000, 300
WITHIN, FAR, WORSE = 0.03, 0.08, 0.01
DIMENSIONS = {
    "Ackley": (3, 8),
    "DixonPrice": (3, 8),
    "Griewank": (3, 8),
    "Hartmann": (3, 6),
    "Levy": (3, 8),
    "Michalewicz": (2, 5),
    "Powell": (4, 8),
    "Rastrigin": (2, 5),
    "Rosenbrock": (3, 8),
    "StyblinskiTang": (3, 6),
}
FIXED = (
    "Beale",
    "Branin",
    "Bukin",
    "Cosine8",
    "DropWave",
    "EggHolder",
    "HolderTable",
    "Shekel",
    "SixHumpCamel",
    "ThreeHumpCamel",
)
FUNCTIONS = {
    **{f"{name}{d}": (name, d) for name, dims in DIMENSIONS.items() for d in dims},
    **{name: (name, None) for name in FIXED},
}
# Outcomes of tables, by place; None for the target of a table of one.
TARGETS: dict[str, tuple[str, int | None]] = {
    "abalone": ("abalone", None),
    "california_housing": ("california_housing", None),
    "sgemm_gpu": ("sgemm_gpu", 0),
    "nas_bench_macro": ("nas_bench_macro", 0),
    **{f"redoxmers-{j}": ("redoxmers", j) for j in range(3)},
    **{f"dye_lasers-{j}": ("dye_lasers", j) for j in range(3)},
}
OWN_NOISE = 0.0  # of what was measured
MODELS: dict[str, type[SingleTaskGP]] = {
    "exact": SingleTaskGP,
    "sparse": SparseSingleTaskGP,
    "bound": SparseSingleTaskGP,
    "closed-form": SingleTaskGP,
}
OPTIONS: dict[str, dict[str, Any]] = {"bound": {"max_fit_inducing_points": 256}}


class Case(NamedTuple):
    """What is fitted."""

    name: str
    n: int
    noise: float
    seed: int


class Data(NamedTuple):
    """Training rows, and rows that are held out; inputs in the unit cube."""

    X: Tensor
    Y: Tensor
    test_X: Tensor
    test_Y: Tensor


@cache
def table(name: str) -> tuple[Tensor, Tensor]:
    """Features and target of a real table.

    Raises:
        InputDataError: If it is not here.
    """
    source, place = TARGETS[name]
    if place is None:
        rows = load_table(source)
        X, Y = rows.X, rows.Y
    else:
        problem = load_outcomes(source)
        assert problem.X is not None
        X, Y = problem.X, problem.values(torch.arange(len(problem.X)))[:, place]
    low, high = X.amin(0), X.amax(0)
    varies = high > low
    X = ((X - low) / (high - low))[:, varies]
    return X.double(), Y.double()


def draw(case: Case) -> Data:
    """The rows of a case; a table has fewer to hold out where it is short.

    Raises:
        InputDataError: If a table is not here, or has too few rows.
    """
    generator = torch.Generator().manual_seed(case.seed)
    if case.name in FUNCTIONS:
        name, d = FUNCTIONS[case.name]
        kind = getattr(test_functions, name)
        function = kind() if d is None else kind(dim=d)
        num = case.n + HELD_OUT
        X = torch.rand(num, function.dim, generator=generator, dtype=torch.double)
        low, high = function.bounds.double()
        Y = function(low + (high - low) * X)
    else:
        X, Y = table(case.name)
        num = min(case.n + HELD_OUT, len(X))
        if num < case.n + LEAST_HELD_OUT:
            raise InputDataError(f"{case.name} has only {len(X)} rows.")
        rows = torch.randperm(len(X), generator=generator)[:num]
        X, Y = X[rows], Y[rows]
    mean, sd = Y[: case.n].mean(), Y[: case.n].std()
    Y = (Y - mean) / sd
    Y = Y + case.noise * torch.randn(num, generator=generator, dtype=torch.double)
    n, Y = case.n, Y.unsqueeze(-1)
    return Data(X[:n], Y[:n], X[n:], Y[n:])


def execute(case: Case, method: str) -> Record:
    """One fit: seconds, and how well it predicts."""
    data = draw(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        model = MODELS[method](data.X, data.Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        closure = in_closed_form(mll) if method == "closed-form" else None
        fit_gpytorch_mll(mll, closure=closure, **OPTIONS.get(method, {}))
        model.posterior(data.test_X[:1])
        seconds = time.process_time() - start
        with torch.no_grad():
            found = model.posterior(data.test_X, observation_noise=True)
            mean, variance = found.mean, found.variance
    error = data.test_Y - mean
    density = 0.5 * ((2 * math.pi * variance).log() + error.square() / variance)
    covered = (error.abs() <= 1.96 * variance.sqrt()).double()
    return {
        "seconds": round(seconds, 2),
        "nlpd": round(float(density.mean()), 5),
        "rmse": round(float(error.square().mean().sqrt()), 5),
        "coverage": round(float(covered.mean()), 4),
        "noise": model.likelihood.noise.item(),
        "loss": round(exact_loss(model, data), 5),
    }


def in_closed_form(mll: ExactMarginalLogLikelihood) -> Closure:
    """The exact objective and its gradient by formulas, of any number of points."""
    parameters = get_parameters(mll.train(), requires_grad=True)
    closure = plain_closure(mll, parameters, most_points=len(mll.model.train_targets))
    assert closure is not None
    return closure


@torch.no_grad()
def exact_loss(model: SingleTaskGP, data: Data) -> float:
    """The exact objective of an observation at a fit's hyperparameters, negated."""
    exact = SingleTaskGP(data.X, data.Y)
    state = model.state_dict()
    exact.load_state_dict({name: state[name] for name in exact.state_dict()})
    mll = ExactMarginalLogLikelihood(exact.likelihood, exact).train()
    return get_loss_closure(mll)().item()


def key_of(case: Case, method: str) -> str:
    """The key of a run in the store."""
    return f"{case.name}/{case.n}/{case.noise:g}/{case.seed}/{method}"


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """All that were asked for, small ones first."""
    here = set(available([n for n in args.names if n in TARGETS], table))
    for seed in range(args.seeds):
        for n in args.sizes:
            for name in args.names:
                if name in FUNCTIONS:
                    yield from (Case(name, n, noise, seed) for noise in args.noises)
                elif name in here:
                    yield Case(name, n, OWN_NOISE, seed)


def run_all(store: Store, args: argparse.Namespace) -> None:
    """Run what is not stored yet."""
    for case in cases(args):
        for method in args.methods:
            key = key_of(case, method)
            if key in store.records:
                continue
            try:
                found = execute(case, method)
            except InputDataError:
                break  # too few rows
            store.add(key, found)
            print(f"{key}: {found}", flush=True)


Pair = tuple[Case, Record, Record]


def pairs(store: Store, args: argparse.Namespace, method: str) -> list[Pair]:
    """Cases of which the method and an exact fit are stored, and both runs."""
    found = list[Pair]()
    for name in args.names:
        for n in args.sizes:
            for noise in (*args.noises, OWN_NOISE):
                for seed in range(args.seeds):
                    case = Case(name, n, noise, seed)
                    ours = store.records.get(key_of(case, method))
                    exact = exact_run(store, case, method)
                    if ours is not None and exact is not None:
                        found.append((case, ours, exact))
    return found


def exact_run(store: Store, case: Case, method: str) -> Record | None:
    """The exact fit that a method is compared with.

    What no run of BoTorch's has is of the run in closed form, but for seconds.
    """
    exact = store.records.get(key_of(case, "exact"), {})
    closed = store.records.get(key_of(case, "closed-form"), {})
    if method == "closed-form":
        closed = {}
    return {n: v for n, v in closed.items() if n != "seconds"} | exact or None


def report(store: Store, args: argparse.Namespace) -> str:
    """Markdown: a line for each size of each method, and what is far."""
    head = [
        "method",
        "n",
        "cases",
        "NLPD beyond exact, median",
        f"within {WITHIN}",
        f"within {FAR}",
        "largest",
        "worse optimum",
        "timed",
        "exact, s",
        "fit, s",
        "times quicker, median",
        "least",
        "slower",
    ]
    rows, far = [head, ["---"] * len(head)], list[str]()
    for method in args.methods:
        if method == "exact":
            continue
        every = pairs(store, args, method)
        for n in args.sizes:
            of_size = [pair for pair in every if pair[0].n == n]
            if of_size:
                rows.append([f"**{method}**", f"{n:,}", *cells_of(of_size)])
        far += [
            f"- {method}, {case.name}, n = {case.n:,}, noise {case.noise:g}, "
            f"seed {case.seed}: {ours['nlpd']:.3f}, exact {exact['nlpd']:.3f}"
            f"{objectives_of((case, ours, exact))}"
            for case, ours, exact in every
            if ours["nlpd"] - exact["nlpd"] > FAR and method == "sparse"
        ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", *far])


def cells_of(found: Sequence[Pair]) -> list[str]:
    """Figures of some cases."""
    beyond = [ours["nlpd"] - exact["nlpd"] for _, ours, exact in found]
    shares = [
        f"{statistics.mean(each <= limit for each in beyond):.0%}"
        for limit in (WITHIN, FAR)
    ]
    median, largest = f"{statistics.median(beyond):+.4f}", f"{max(beyond):+.3f}"
    known = [ours["loss"] - exact["loss"] for _, ours, exact in with_losses(found)]
    worse = f"{sum(each > WORSE for each in known)} of {len(known)}" if known else "-"
    return [str(len(found)), median, *shares, largest, worse, *times_of(found)]


def with_losses(found: Sequence[Pair]) -> list[Pair]:
    """The cases of which both objectives are stored."""
    return [pair for pair in found if "loss" in pair[1] and "loss" in pair[2]]


def objectives_of(pair: Pair) -> str:
    """Both objectives of an observation, where they are stored; larger is better."""
    return "".join(
        f" (objectives {-ours['loss']:.3f} and {-exact['loss']:.3f})"
        for _, ours, exact in with_losses([pair])
    )


def times_of(found: Sequence[Pair]) -> list[str]:
    """How many cases were timed side by side, and seconds and ratios of these."""
    timed = [
        (exact["seconds"], ours["seconds"])
        for _, ours, exact in found
        if "seconds" in exact and machine_of(ours) == machine_of(exact)
    ]
    if not timed:
        return ["0", *"-----"]
    seconds = [f"{statistics.median(each):.3g}" for each in zip(*timed, strict=True)]
    quicker = [exact / ours for exact, ours in timed]
    ratios = f"{statistics.median(quicker):.2g}", f"{min(quicker):.2g}"
    slower = sum(ratio < 1 for ratio in quicker)
    return [str(len(timed)), *seconds, *ratios, str(slower)]


def machine_of(run: Record) -> str:
    """Date, processor, threads and torch of a run, without its commit."""
    return str(run["made"]).partition(", ")[2]


def plot(store: Store, args: argparse.Namespace) -> None:
    """NLPD of the sparse fit against the exact one's, a point for each case."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0, 5.0), layout="constrained")
    axes = figure.subplots()
    for n in args.sizes:
        found = [pair for pair in pairs(store, args, "sparse") if pair[0].n == n]
        x = [exact["nlpd"] for *_, exact in found]
        y = [ours["nlpd"] for _, ours, _ in found]
        axes.scatter(x, y, s=12, label=f"n = {n:,}")
    axes.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=0.8)
    axes.set(xlabel="NLPD, exact fit", ylabel="NLPD, SparseSingleTaskGP")
    axes.legend()
    figure.savefig(args.plot)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is not stored yet, and print the table."""
    args = _parse(arguments)
    store = run_or_report(args, run_all, report)
    if args.plot is not None:
        plot(store, args)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    several: Callable[..., Any] = partial(parser.add_argument, nargs="*")
    names, methods = [*FUNCTIONS, *TARGETS], list(MODELS)
    several("--names", choices=names, default=names)
    several("--sizes", type=int, default=list(SIZES))
    several("--noises", type=float, default=list(NOISES))
    several("--methods", choices=methods, default=methods)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    parser.add_argument("--plot", type=Path, help="picture of the cases")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
