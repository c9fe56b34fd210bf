"""Fits of models with structure, beside one with a Matern kernel of the same data.

    BENCH_CLOCK=cpu OMP_NUM_THREADS=1 python -m benchmarks.structures  # ten minutes

A smooth function of six features with noise of 10%. `matern` is a scaled Matern-5/2
kernel with GPyTorch's defaults, `default` the kernel of `SparseSingleTaskGP`. The
others are two outputs in one model, the same two in a `ModelListGP`, a category by
`cat_dims`, three tasks in `SparseMultiTaskGP`, a `LinearTruncatedFidelityKernel` of
BoTorch, a sum of two Matern kernels of three features, and warped inputs with noise
variances that are given; these rise along a feature, the noise itself does not.

Seconds are of one fit by `fit_gpytorch_mll` with the first prediction, first as by
default, then with as many inducing points for all models, which are given. Beside them
are their ratios to those of `matern` and `default`, divided by the number of outputs.

Below the table is the memory of a process that takes `LogExpectedImprovement` of a
pool.
"""

import argparse
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.kernels import LinearTruncatedFidelityKernel
from botorch.models.transforms.input import Warp
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from torch import Tensor

from benchmarks.measure import in_fresh_process, seconds
from botorch_sparse.models import SparseMultiTaskGP, SparseSingleTaskGP

DIM, NOISE, NUM_TASKS = 6, 0.1, 3
NUM_TEST = 256
NUM_INDUCING = 300  # that are given, and of the model that a pool is given to
TITLES = (
    "n",
    "structure",
    *("fit", "of matern's", "of default's", "inducing points"),
    *(f"fit, {NUM_INDUCING} given", "of matern's", "of default's"),
)


class Structure(NamedTuple):
    """How a model is made from inducing points, None for its own, and its inputs."""

    make: Callable[[Tensor | None], GPyTorchModel]
    X: Tensor


def data(n: int) -> tuple[Tensor, Tensor]:
    """Points of the unit cube and two outcomes, `n x 6` and `n x 2`."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, DIM, generator=generator, dtype=torch.double)
    f = (3 * X[:, 0] + X[:, 1]).sin() + X[:, 2] * X[:, 3]
    f = f + (2 * X[:, 4] - X[:, 5] ** 2).cos()
    Y = torch.stack([f, -f + X[:, 0]], dim=-1)
    Y = (Y - Y.mean(0)) / Y.std(0)
    return X, Y + NOISE * torch.randn(n, 2, generator=generator, dtype=torch.double)


def scaled_matern(*columns: int) -> Kernel:
    """With one lengthscale for each of some columns."""
    return ScaleKernel(
        MaternKernel(2.5, ard_num_dims=len(columns), active_dims=columns)
    )


def with_tasks(X: Tensor) -> Tensor:
    """The points with a column of tasks in turns."""
    tasks = torch.arange(len(X)).to(X) % NUM_TASKS
    return torch.cat([X, tasks.unsqueeze(-1)], dim=-1)


def with_category(X: Tensor) -> Tensor:
    """The points with four categories for the last column."""
    return torch.cat([X[:, :-1], (4 * X[:, -1:]).floor()], dim=-1)


def structures(X: Tensor, Y: Tensor) -> dict[str, Structure]:
    """All models of the table."""
    y, tasks, categories = Y[:, :1], with_tasks(X), with_category(X)
    fidelity = ScaleKernel(LinearTruncatedFidelityKernel([DIM - 1], dimension=DIM))
    parts = scaled_matern(0, 1, 2), scaled_matern(3, 4, 5)
    variance = (NOISE * (0.5 + X[:, :1])).square()

    def of_kernel(kernel: Kernel) -> Structure:
        return Structure(
            lambda points: SparseSingleTaskGP(
                X, y, covar_module=deepcopy(kernel), inducing_points=points
            ),
            X,
        )

    def listed(points: Tensor | None) -> GPyTorchModel:
        return ModelListGP(
            *(SparseSingleTaskGP(X, f, inducing_points=points) for f in Y.split(1, 1))
        )

    return {
        "matern": of_kernel(scaled_matern(*range(DIM))),
        "default": Structure(
            lambda points: SparseSingleTaskGP(X, y, inducing_points=points), X
        ),
        "two outputs": Structure(
            lambda points: SparseSingleTaskGP(X, Y, inducing_points=points), X
        ),
        "list of two": Structure(listed, X),
        "category": Structure(
            lambda points: SparseSingleTaskGP(
                categories, y, cat_dims=[DIM - 1], inducing_points=points
            ),
            categories,
        ),
        "tasks": Structure(
            lambda points: SparseMultiTaskGP(
                tasks, y, task_feature=DIM, inducing_points=points
            ),
            tasks,
        ),
        "fidelity": of_kernel(fidelity),
        "sum": of_kernel(AdditiveKernel(*parts)),
        "warped, own noise": Structure(
            lambda points: SparseSingleTaskGP(
                X,
                y,
                variance,
                input_transform=Warp(d=DIM, indices=list(range(DIM))),
                inducing_points=points,
            ),
            X,
        ),
    }


def fitted(model: GPyTorchModel, X: Tensor) -> None:
    """Fit a model, and predict."""
    is_list = isinstance(model, ModelListGP)
    kind = SumMarginalLogLikelihood if is_list else ExactMarginalLogLikelihood
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(kind(model.likelihood, model))
        with torch.no_grad():
            model.posterior(X).variance  # noqa: B018 (computed when it is asked for)


def rows_of(n: int) -> list[list[str]]:
    """A row for each structure."""
    rows, took = list[list[str]](), dict[tuple[str, bool], float]()
    for name, structure in structures(*data(n)).items():
        row = [f"{n:,}", name]
        for given in (False, True):
            points = structure.X[:NUM_INDUCING] if given else None
            model, some = structure.make(points), structure.X[:NUM_TEST]
            try:
                spent = seconds(partial(fitted, model, some))
            except ModelFittingError:
                row += ["-"] * (3 if given else 4)
                continue
            parts = getattr(model, "models", [model])
            outputs = sum(part.train_targets.shape[:-1].numel() for part in parts)
            took[name, given] = spent / outputs
            row.append(f"{spent:.3g} s")
            for other in ("matern", "default"):
                of_other = took.get((other, given))
                ratio = took[name, given] / of_other if of_other else None
                row.append("-" if ratio is None else f"{ratio:.2g}")
            if not given:
                row.append(" and ".join(f"{part.num_inducing:,}" for part in parts))
        rows.append(row)
    return rows


def improvement_of_pool(num: int) -> None:
    """`LogExpectedImprovement` of so many points."""
    X, Y = data(2000)
    model = SparseSingleTaskGP(X, Y[:, :1], max_inducing_points=NUM_INDUCING)
    pool = torch.rand(num, 1, DIM, dtype=torch.double)
    with torch.no_grad():
        LogExpectedImprovement(model, best_f=Y[:, 0].max())(pool)


def main(arguments: list[str] | None = None) -> None:
    """Print the table and the memory."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[700, 3000, 4383])
    parser.add_argument("--pool", type=int, default=10**6, help="points of the pool")
    args = parser.parse_args(arguments)
    for row in (TITLES, ["---"] * len(TITLES)):
        print(f"| {' | '.join(row)} |")
    for n in args.sizes:
        for row in rows_of(n):
            print(f"| {' | '.join(row)} |", flush=True)
    one, all_of_them = (
        in_fresh_process(improvement_of_pool, num)[1] for num in (1, args.pool)
    )
    print()
    print(
        f"LogExpectedImprovement of {args.pool:,} points, {NUM_INDUCING} inducing "
        f"points: {all_of_them - one:.2g} GiB more than of one point, the pool's "
        f"{args.pool * DIM * 8 / 2**30:.2g} GiB included; {all_of_them:.2g} GiB in all."
    )


if __name__ == "__main__":
    main()
