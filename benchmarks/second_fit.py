"""What the fit to few observations is worth: the bound alone against the default.

A default fit of `SparseSingleTaskGP` maximizes the collapsed bound, and the exact
likelihood of 500 random observations, and keeps what predicts better. Naming
`max_fit_inducing_points` asks for the bound alone. Errors are root mean squares over
held-out rows, in standard deviations of the target: without noise on Hartmann6, as
observed on california_housing.
"""

import argparse
import statistics
from operator import gt, lt

import torch
from botorch.exceptions import InputDataError
from botorch.fit import fit_gpytorch_mll
from botorch.test_functions import Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.dropin_accuracy import shown, split
from benchmarks.measure import seconds
from botorch_sparse.models import SparseSingleTaskGP

SIZE, NOISE = 3000, 0.01
DATA = ("hartmann6", "california_housing")

Rows = tuple[Tensor, Tensor, Tensor, Tensor]


def hartmann(seed: int) -> Rows:
    """Training and test rows of Hartmann6, with noise of 0.01 of its spread."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(2 * SIZE, 6, dtype=torch.float64, generator=generator)
    truth = Hartmann(negate=True)(X).unsqueeze(-1)
    truth = (truth - truth.mean()) / truth.std()
    noise = torch.randn(truth.shape, dtype=truth.dtype, generator=generator)
    Y = truth + NOISE * noise
    return X[:SIZE], Y[:SIZE], X[SIZE:], truth[SIZE:]


def load(name: str, seed: int) -> Rows:
    """Training and test rows of a data set."""
    return hartmann(seed) if name == "hartmann6" else split(name, seed, 50_000, 1)[:4]


def error_and_seconds(rows: Rows, bound_alone: bool) -> tuple[float, float]:
    """The error of a fitted model, and what the fit took."""
    X, Y, test_X, test_Y = rows
    model = SparseSingleTaskGP(X, Y)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    cap = model.max_fit_inducing_points
    options = {"max_fit_inducing_points": cap} if bound_alone else {}
    took = seconds(lambda: fit_gpytorch_mll(mll, **options))
    with torch.no_grad():
        mean = torch.cat([model.posterior(x).mean for x in test_X.split(500)])
    return float((mean - test_Y).square().mean().sqrt()), took


def main(arguments: list[str] | None = None) -> None:
    """Print errors and seconds, means over the seeds with 95% intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(arguments)
    for name in args.data:
        try:
            rows = [load(name, seed) for seed in range(args.seeds)]
        except InputDataError as error:
            print(f"{name}: left out, {error}")
            continue
        found = {}
        for label, alone in (("the bound alone", True), ("both fits", False)):
            results = [error_and_seconds(each, alone) for each in rows]
            errors, took = zip(*results, strict=True)
            found[label] = errors
            print(
                f"{name}, {label}: error {shown(errors)}, median "
                f"{statistics.median(errors):.4f}, fit {shown(took, '{:.1f}')} s",
                flush=True,
            )
        alone, both = found.values()
        counts = [sum(map(compare, both, alone)) for compare in (lt, gt)]
        print(
            f"  both fits: smaller errors for {counts[0]} of {args.seeds} seeds, larger"
            f" ones for {counts[1]}, the bound kept for the others"
        )


if __name__ == "__main__":
    main()
