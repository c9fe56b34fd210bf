"""The exact posterior of a table."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.optim.exact_pool import ExactPool
from botorch_sparse.optim.pace import GoesOn, always
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies.folded import FoldedValues
from botorch_sparse.strategies.history import History, evaluations_at
from botorch_sparse.strategies.prior import Prior
from botorch_sparse.strategies.table import TableView, posterior_of_data


@dataclass(frozen=True, eq=False)
class ExactTable(TableView):
    """The exact posterior, updated one evaluation at a time.

    Runs of one candidate share a row of the factor; once there are twice as many rows
    as unique points, the folded data are factorized anew, so that rows stay within a
    constant of the unique points.

    Attributes:
        num_learned: Evaluations in it.
        num_rebuilt: Evaluations when the data were last factorized anew.
        num_unique: Unique points in it.
    """

    pool: ExactPool
    num_learned: int = 0
    num_rebuilt: int = 0
    num_unique: int = 0

    def blank(self, prior: Prior) -> Self:
        """See `TableView`."""
        pool = exact_pool(self.pool.X, prior)
        return replace(
            self, prior=prior, pool=pool, num_learned=0, num_rebuilt=0, num_unique=0
        )

    @property
    def posterior(self) -> None:
        """None: there are no inducing points."""
        return None

    @torch.no_grad()
    def posterior_of(self, history: History) -> NystromPosterior | None:
        """See `TableView`. Cost: O(n^3)."""
        if self.num_learned == 0:
            return None
        data = evaluations_at(history, history.folded(self.num_learned))
        X = self.source.inputs(data.X)
        return posterior_of_data(self.prior, X, X, data)

    def num_inducing(self) -> int:
        """Unique points in the exact posterior."""
        return self.num_unique

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """See `TableView`."""
        if bool((point < len(self.pool)).all()):
            return self._variances_at(point)
        X = self.source.inputs(history.points(point))
        return self.pool.variance_at(X, point).cpu()

    def learned(
        self, prior: Prior, history: History, values: FoldedValues, chosen: Tensor
    ) -> Self:
        """See `TableView`. Cost: O(A n) for each new evaluation."""
        if prior is not self.prior:
            return self.blank(prior)._rebuilt(history, values)
        new = slice(self.num_learned, int(values.counts.sum()))
        point, Y = history.point[new], history.values[new] / prior.scale
        beside = bool((point >= len(self.pool)).any())
        if beside or self.num_learned == 0:
            return self._rebuilt(history, values)
        pool = self.pool.fork()
        for row, y in zip(point.tolist(), Y.tolist(), strict=True):
            pool.append(row, y)
        if pool.num_rows > 2 * len(values) + 32:
            return self._rebuilt(history, values)
        num_unique = len(values)
        return replace(self, pool=pool, num_learned=new.stop, num_unique=num_unique)

    def _rebuilt(self, history: History, values: FoldedValues) -> Self:
        """With the folded data factorized anew."""
        data = evaluations_at(history, values)
        pool, prior = exact_pool(self.pool.X, self.prior), self.prior
        X, noise = self.source.inputs(data.X), prior.lam / data.counts
        pool.rebuild(X, data.Y / prior.scale, noise)
        num = int(values.counts.sum())
        return replace(
            self,
            pool=pool,
            num_learned=num,
            num_rebuilt=num,
            num_unique=len(values),
        )


def exact_pool(X: Tensor, prior: Prior) -> ExactPool:
    """The candidates under a prior, without data."""
    mean = prior.mean_module
    return ExactPool(
        X,
        prior.covar_module,
        prior.lam,
        mean_module=mean,
        has_constant=mean is None,
    )


@torch.no_grad()
def uncertainty_sampling(
    pool: ExactPool,
    pending: list[int],
    max_variance: float,
    limit: int,
    choosable: Choosable = ALL,
    goes_on: GoesOn = always,
) -> list[int]:
    r"""Points of largest exact variance, one after the other ([Calandriello2020]_).

    Algorithm 3, with variances where it prints standard deviations: its argument needs
    :math:`\max_x \mathrm{var}(x) / \lambda \le 1/P`.

    Args:
        pool: The exact posterior of data that are all zero.
        pending: Candidates that are pending already.
        max_variance: Where to stop, :math:`\lambda / P`.
        limit: Largest number of points.
        choosable: Which candidates may be chosen.
        goes_on: Asked after each; see `Pace`.

    Returns:
        Candidates; none where the variance is small enough already. Cost: O(A n) for
        each, with `n` points in the posterior.
    """
    batch = pool.batch(1.0, None, choosable)
    for row in pending:
        batch.append(row)
    chosen: list[int] = []
    while len(chosen) < limit:
        row = batch.argmax()
        batch.append(row)
        if not batch.variances_before[-1] > max_variance:
            break
        chosen.append(row)
        if not goes_on(len(chosen)):
            break
    return chosen
