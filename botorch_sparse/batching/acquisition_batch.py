"""A batch of maximizers of an acquisition function under a posterior that is frozen."""

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.frozen import FrozenPosterior
from botorch_sparse.acquisition.pointwise_rules import LocalRatioBound
from botorch_sparse.acquisition.ratios import LocalBound, product_ratio, sum_ratio
from botorch_sparse.batching.growing_batch import GrowingBatch
from botorch_sparse.batching.rules import Rule


class ChosenPoints(NamedTuple):
    """The points of a batch as the user sees them.

    Attributes:
        X: `q x d` points.
        values: `q` values of the acquisition function when each was chosen.
        indices: `q` rows of the choices, or None on a box.
    """

    X: Tensor
    values: Tensor
    indices: Tensor | None


class AcquisitionBatch(GrowingBatch):
    """Grows by the maximizers of an acquisition function; see `GrowingBatch`.

    With several outputs a batch is as far as the one whose variances have shrunk most,
    and variances are in units of the noise.

    Args:
        acqf: An acquisition function that knows `X_pending`; the points of the batch
            become pending there.
        rule: What ends the batch; None for no rule.
        frozen: The posterior that the rule looks at; its points are in the batch.
        **domain: `choices`, or `bounds` and `optimizer_options`, as in
            `RatioBound.maximum`.
    """

    def __init__(
        self,
        acqf: AcquisitionFunction,
        rule: Rule | None,
        frozen: FrozenPosterior,
        **domain: Any,
    ) -> None:
        super().__init__(1.0 if frozen.aug_shape else float(frozen.lam), rule)
        self.acqf = acqf
        self.domain = domain
        self._values: list[float] = []  # of `rows`, when each was chosen
        self._best = -1, torch.nan  # the last maximizer, and its value
        self._look(frozen)

    def _look(self, frozen: FrozenPosterior) -> None:
        """Take in the posterior with the points of the batch."""
        noise, variance, before = frozen.noise, frozen.variance, frozen.variance_before
        self.frozen = frozen
        self.variances = self._largest(variance / noise)
        self.variances_before = self._largest(before / noise)
        self.sum_ratio = float(sum_ratio(variance, noise).max())
        without = sum_ratio(variance[..., :-1], noise[..., :-1])
        self.sum_ratio_before = float(without.max())
        self.product_ratio = float(product_ratio(before, noise).max())

    def _largest(self, ratio: Tensor) -> list[float]:
        """The largest of the outputs' variances, in units of `noise`."""
        largest = ratio.amax(0) if self.frozen.aug_shape else ratio
        values: list[float] = (self.noise * largest).tolist()
        return values

    def _largest_local(self, covariance: LocalBound, threshold: float) -> float:
        bound = LocalRatioBound(self.frozen, covariance=covariance)
        return bound.maximum(**self.domain, enough=threshold)

    @abstractmethod
    def _maximize(self) -> tuple[int, float]:
        """The maximizer of the acquisition function, and its value."""

    @abstractmethod
    def point(self, row: int) -> Tensor:
        """A point by its number, `1 x d`."""

    def argmax(self) -> int:
        """See `GrowingBatch`."""
        self._best = self._maximize()
        return self._best[0]

    def append(self, row: int) -> None:
        """See `GrowingBatch`."""
        best, value = self._best
        self.rows.append(row)
        self._values.append(value if row == best else torch.nan)
        acqf, X, pending = self.acqf, self.point(row), self.acqf.X_pending
        both = X if pending is None else torch.cat([pending.to(X), X], -2)
        is_ucb = isinstance(acqf, BatchUpperConfidenceBound)
        is_shared = is_ucb and acqf.frozen is self.frozen
        acqf.set_X_pending(both)
        self._look(acqf.frozen if is_shared else self.frozen.add(X))

    def found(self) -> ChosenPoints:
        """The points that were appended, without those that were there before."""
        none = self.frozen.X_batch[:0]
        X = torch.cat([self.point(row) for row in self.rows]) if self.rows else none
        values = none.new_tensor(self._values)
        if "choices" not in self.domain:
            return ChosenPoints(X, values, None)
        return ChosenPoints(X, values, torch.tensor(self.rows, device=none.device))
