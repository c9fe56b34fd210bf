"""Several outcomes with BoTorch's own tools: lists of sparse models and of exact ones.

    python -m benchmarks.model_outcomes                  # some ten minutes
    BENCH_CLOCK=cpu python -m benchmarks.model_outcomes  # beside other work

Two objectives and a constraint of C2-DTLZ2 with six inputs, at random points. Seconds
are of one fit of a `ModelListGP`, and of one step: making an acquisition function and
`optimize_acqf` for one point, with 10 restarts of 512 samples. `qLogNEHVI` is the
noisy expected hypervolume improvement with the constraint, over the feasible points
whose means are not dominated; `qLogEI` is the expected improvement of the first
objective under the constraint. Error is the root mean square of the means at 500 other
points, in standard deviations, the largest of the three outcomes.
"""

import argparse
from functools import partial

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.multi_objective.logei import (
    qLogNoisyExpectedHypervolumeImprovement,
)
from botorch.acquisition.multi_objective.objective import (
    IdentityMCMultiOutputObjective,
)
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions.multi_objective import C2DTLZ2
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.mlls import SumMarginalLogLikelihood
from torch import Tensor

from benchmarks.measure import seconds
from botorch_sparse.models import SparseSingleTaskGP

DIM, NUM_TEST = 6, 500
PROBLEM = C2DTLZ2(dim=DIM, negate=True).double()
KINDS = {"sparse": SparseSingleTaskGP, "exact": SingleTaskGP}
CONSTRAINTS = [lambda Y: -Y[..., 2]]  # feasible where they are not positive
TITLES = ("n", "models", "fit", "qLogNEHVI", "qLogEI", "inducing points", "error")


def outcomes(X: Tensor) -> Tensor:
    """Two objectives and the slack of the constraint, `n x 3`."""
    return torch.cat([PROBLEM(X), PROBLEM.evaluate_slack(X)], dim=-1)


def points(num: int, seed: int) -> Tensor:
    """Random points of the unit cube."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(num, DIM, dtype=torch.float64, generator=generator)


def means(models: ModelListGP, X: Tensor) -> Tensor:
    """Posterior means of all outcomes, `n x 3`."""
    with torch.no_grad():
        parts = [models.posterior(x.unsqueeze(-2)).mean for x in X.split(500)]
    return torch.cat(parts).squeeze(-2)


def hypervolume_improvement(models: ModelListGP, X: Tensor) -> AcquisitionFunction:
    """`qLogNEHVI` over the feasible front of the means."""
    mean = means(models, X)
    is_feasible = mean[:, 2] >= 0
    front = X[is_feasible][is_non_dominated(mean[is_feasible][:, :2])]
    acqf = qLogNoisyExpectedHypervolumeImprovement(
        models,
        ref_point=PROBLEM.ref_point,
        X_baseline=front,
        objective=IdentityMCMultiOutputObjective(outcomes=[0, 1]),
        constraints=CONSTRAINTS,
        prune_baseline=True,
    )
    for model in models.models:
        if isinstance(model, SparseSingleTaskGP):
            model.remember(acqf.X_baseline)
    return acqf


def expected_improvement(models: ModelListGP, X: Tensor) -> AcquisitionFunction:
    """`qLogEI` of the first objective over the best feasible mean."""
    mean = means(models, X)
    return qLogExpectedImprovement(
        models,
        best_f=mean[mean[:, 2] >= 0, 0].max(),
        objective=GenericMCObjective(lambda Y, X=None: Y[..., 0]),
        constraints=CONSTRAINTS,
    )


def row(kind: str, num: int, starts: int) -> tuple[object, ...]:
    """What a list of models costs, and how far its means are off."""
    X, test_X = points(num, 0), points(NUM_TEST, 1)
    Y, test_Y = outcomes(X), outcomes(test_X)
    models = ModelListGP(*(KINDS[kind](X, y.unsqueeze(-1)) for y in Y.mT))
    mll = SumMarginalLogLikelihood(models.likelihood, models)
    took = [seconds(partial(fit_gpytorch_mll, mll))]
    size = {"num_restarts": starts, "raw_samples": 51 * starts}
    for make in (hypervolume_improvement, expected_improvement):

        def step(make: object = make) -> None:
            torch.manual_seed(0)
            optimize_acqf(make(models, X), PROBLEM.bounds, q=1, **size)

        took.append(seconds(step))
    sizes = [getattr(model, "num_inducing", num) for model in models.models]
    error = (means(models, test_X) - test_Y).square().mean(0).sqrt() / Y.std(0)
    return num, kind, *took, ", ".join(map(str, sizes)), float(error.max())


def main(arguments: list[str] | None = None) -> None:
    """Print a table of seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 5000])
    parser.add_argument("--exact", type=int, default=2000, help="exact models up to")
    parser.add_argument("--starts", type=int, default=10)
    args = parser.parse_args(arguments)
    print(f"| {' | '.join(TITLES)} |")
    print("|---" * len(TITLES) + "|")
    for num in args.sizes:
        for kind in KINDS:
            if kind == "sparse" or num <= args.exact:
                *first, fit, hypervolume, single, sizes, error = row(
                    kind, num, args.starts
                )
                times = (f"{each:.1f} s" for each in (fit, hypervolume, single))
                cells = [*map(str, first), *times, sizes, f"{error:.3f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
