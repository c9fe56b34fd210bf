"""Updates of the subset's Cholesky factor against a new factorization, in GSSBO.

`SubsetSingleTaskGP` leaves its factor to GPyTorch: a new one for each choice of rows.
Here it is also updated while the hyperparameters stand: rows that left are deleted one
by one, or, where more than three left, what is left is factorized from the kernel
values that are there; new rows are appended. No drift is looked for, which would cost
more. An iteration learns one observation of Hartmann6, chooses the samples and
maximizes the upper confidence bound. Both strategies are told the same, in turns.
"""

import argparse
import statistics
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator import to_dense
from torch import Tensor

from benchmarks.gssbo_methods import common
from benchmarks.gssbo_speed import NEVER, Design
from benchmarks.measure import seconds
from botorch_sparse.linear_operators import UpdatableCholeskyLinearOperator
from botorch_sparse.models import RefitSchedule, SubsetSingleTaskGP
from botorch_sparse.strategies import GSSBO, Batch
from botorch_sparse.strategies.gssbo import surrogate

SIZES = [60, 100, 300]
LEFT_OUT = 200  # samples beyond M
MAX_SINGLE_DELETIONS = 3


class Factor(NamedTuple):
    """The covariance of the observations of some rows, its factor, and its origin."""

    rows: Tensor
    matrix: Tensor
    chol: Tensor
    hyperparameters: Tensor

    def follow(self, model: SubsetSingleTaskGP) -> "Factor":
        """The factor of a model's rows, those that stay first."""
        rows, origin = model.subset_indices, hyperparameters(model)
        stays = torch.isin(self.rows, rows)
        num_kept = int(stays.sum())
        if num_kept == 0 or not torch.equal(origin, self.hyperparameters):
            return factorized(model)
        kept = stays.nonzero().squeeze(-1)
        matrix = self.matrix[kept][:, kept]
        chol = self.without((~stays).nonzero().squeeze(-1).tolist(), matrix)
        if num_kept < len(rows):
            X = model.train_inputs[0]
            cross = model.covar_module(X[:num_kept], X[num_kept:]).to_dense()
            corner = covariance(model, X[num_kept:])
            chol = UpdatableCholeskyLinearOperator(chol).append(cross, corner).chol
            top = torch.cat([matrix, cross], -1)
            matrix = torch.cat([top, torch.cat([cross.mT, corner], -1)])
        return Factor(rows, matrix, chol, origin)

    def without(self, gone: list[int], matrix: Tensor) -> Tensor:
        """The factor of what is left."""
        if len(gone) > MAX_SINGLE_DELETIONS:
            return torch.linalg.cholesky(matrix)
        operator = UpdatableCholeskyLinearOperator(self.chol)
        for i in reversed(gone):
            operator = operator.delete(i)
        return operator.chol


def factorized(model: SubsetSingleTaskGP) -> Factor:
    """The factor from kernel values."""
    matrix = covariance(model, model.train_inputs[0])
    chol = torch.linalg.cholesky(matrix)
    return Factor(model.subset_indices, matrix, chol, hyperparameters(model))


def covariance(model: SubsetSingleTaskGP, X: Tensor) -> Tensor:
    """The covariance of noisy observations."""
    noise = model.likelihood.noise * torch.ones_like(X[:, 0])
    return model.covar_module(X).to_dense() + noise.diag()


def hyperparameters(model: SubsetSingleTaskGP) -> Tensor:
    """All numbers that the covariance depends on."""
    return torch.cat([T.flatten().double() for T in model.state_dict().values()])


class Substitution(DefaultPredictionStrategy):
    """GPyTorch's predictions by substitution in a factor that is there."""

    chol: Tensor
    weights: Tensor

    @property
    def covar_cache(self) -> Tensor:
        return self.chol

    @property
    def mean_cache(self) -> Tensor:
        return self.weights

    def _exact_predictive_covar_inv_quad_form_root(
        self, chol: Tensor, cross: Any
    ) -> Tensor:
        columns = to_dense(cross).reshape(-1, len(chol)).mT
        root = torch.linalg.solve_triangular(chol, columns, upper=False)
        return root.mT.reshape(cross.shape)


class Updated(SubsetSingleTaskGP):
    """With a factor that follows the rows in use."""

    factor: Factor | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.training and self.prediction_strategy is None:
            with torch.no_grad():
                self.prediction_strategy = self.substitution()
        return super().__call__(*args, **kwargs)

    def substitution(self) -> Substitution:
        """The predictions."""
        known = self.factor
        self.factor = factorized(self) if known is None else known.follow(self)
        X, Y = list(self.train_inputs), self.train_targets
        prior = self.forward(*X)
        strategy = Substitution(X, prior, Y, self.likelihood)
        strategy.chol, error = self.factor.chol, (Y - prior.mean).unsqueeze(-1)
        strategy.weights = torch.cholesky_solve(error, strategy.chol).squeeze(-1)
        return strategy


class Run:
    """A strategy with a model, the first samples told, and its seconds."""

    def __init__(self, model: type, size: int, selection: str, *, fits: bool) -> None:
        problem = Design(size + LEFT_OUT)
        refit = RefitSchedule(every=1) if fits else RefitSchedule(growth=NEVER)
        options: dict[str, Any] = common(problem) | {"refit": refit}
        options |= {"subset_size": size, "selection": selection}
        self.problem, self.strategy = problem, GSSBO(**options)
        self.times: list[float] = []
        with patch.object(surrogate, "SubsetSingleTaskGP", model):
            X = problem.initial()
            self.strategy.tell(X, problem.evaluate(X))
        assert type(self.strategy.model) is model

    def ask(self) -> Batch:
        """A proposal, timed and then forgotten."""
        batches: list[Batch] = []
        self.times.append(seconds(lambda: batches.append(self.strategy.ask())))
        self.strategy.withdraw(batches[0])
        return batches[0]

    def tell(self, X: Tensor) -> None:
        """Feedback, whose time is that of the same iteration."""
        Y = self.problem.evaluate(X)
        self.times[-1] += seconds(lambda: self.strategy.tell(X, Y))

    @property
    def median(self) -> float:
        """Median seconds of an iteration after the first."""
        return statistics.median(self.times[1:])


def compare(size: int, selection: str, repeats: int, *, fits: bool) -> None:
    """Print one line."""
    runs = [
        Run(model, size, selection, fits=fits)
        for model in (SubsetSingleTaskGP, Updated)
    ]
    for _ in range(repeats + 1):
        batches = [run.ask() for run in runs]
        for run in runs:
            run.tell(batches[0].X)
    plain, updated = (run.median for run in runs)
    what = "fitted each time" if fits else "that stand"
    print(
        f"M = {size}, {selection}, hyperparameters {what}: new {1e3 * plain:.1f} ms, "
        f"updated {1e3 * updated:.1f} ms, ratio {plain / updated:.2f}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each size, selection and schedule of fits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for size in args.sizes:
        for fits in (False, True):
            for selection in ("gradient", "recent"):
                repeats = args.repeats // 3 if fits else args.repeats
                compare(size, selection, repeats, fits=fits)


if __name__ == "__main__":
    main()
