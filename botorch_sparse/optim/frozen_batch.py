"""A batch of maximizers of an acquisition function under a posterior that is frozen."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.frozen import FrozenPosterior
from botorch_sparse.acquisition.pointwise_rules import LocalRatioBound
from botorch_sparse.acquisition.ratios import LocalBound, product_ratio, sum_ratio
from botorch_sparse.optim.pace import GoesOn, always
from botorch_sparse.optim.rules import Rule


class Point(NamedTuple):
    """A point, `1 x d`, its value when it was chosen, and its row among choices."""

    X: Tensor
    value: float
    row: int = -1


class FrozenBatch(ABC):
    """Grows point by point; what a `Rule` sees of it is a `BatchView`.

    With several outputs a batch is as far as the one whose variances have shrunk most,
    and variances are in units of the noise.

    Args:
        acqf: An acquisition function that knows `X_pending`; the points of the batch
            become pending there.
        rule: What ends the batch; None for no rule.
        frozen: The posterior that the rule looks at; its points are in the batch.
        **domain: `choices`, or `bounds` and `optimizer_options`, as in
            `RatioBound.maximum`.

    Attributes:
        chosen: The points that `choose` has chosen.
    """

    def __init__(
        self,
        acqf: AcquisitionFunction,
        rule: Rule | None,
        frozen: FrozenPosterior,
        **domain: Any,
    ) -> None:
        self.acqf = acqf
        self.rule = rule
        self.domain = domain
        self.noise = 1.0 if frozen.aug_shape else float(frozen.lam)
        self.chosen: list[Point] = []
        self._local: dict[LocalBound, tuple[float, float]] = {}
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

    @property
    def size(self) -> int:
        """See `BatchView`."""
        return len(self.frozen.X_batch)

    def local_ratio(self, covariance: LocalBound, threshold: float) -> float:
        """See `BatchView`.

        By Cauchy-Schwarz a point raises it by at most what it adds to the sum bound, so
        that it is maximized only where that could matter.
        """
        known, total = self._local.get(covariance, (1.0, 1.0))
        raised = self.sum_ratio - total
        if known + raised <= threshold or not raised:
            return known + raised
        bound = LocalRatioBound(self.frozen, covariance=covariance)
        largest = self._maximum(bound, threshold)
        self._local[covariance] = largest, self.sum_ratio
        return largest

    def _maximum(self, bound: LocalRatioBound, enough: float) -> float:
        """The largest value over the domain, or one that is more than enough."""
        return bound.maximum(**self.domain, enough=enough)

    @abstractmethod
    def _best(self) -> Point:
        """The maximizer of the acquisition function."""

    def argmax(self) -> Tensor:
        """The point of largest value, `1 x d`."""
        return self._best().X

    def append(self, X: Tensor) -> None:
        """Make a point pending, `1 x d`: it counts in the values and for the rule."""
        acqf, pending = self.acqf, self.acqf.X_pending
        both = X if pending is None else torch.cat([pending.to(X), X], -2)
        is_ucb = isinstance(acqf, BatchUpperConfidenceBound)
        is_shared = is_ucb and acqf.frozen is self.frozen
        acqf.set_X_pending(both)
        self._look(acqf.frozen if is_shared else self.frozen.add(X))

    def is_over(self) -> bool:
        """Whether the rule ends the batch; never without points or a rule."""
        if self.rule is None or not self.size:
            return False
        bound = self.rule.bound(self)
        return not float(bound) <= self.rule.ratio_threshold  # NaN ends it too

    @property
    def is_exhausted(self) -> bool:
        """Whether another point would be in vain."""
        return False

    def choose(self, limit: int, goes_on: GoesOn = always) -> Tensor:
        """Maximizers, one after the other, until the batch is over.

        Args:
            limit: The largest number of them.
            goes_on: Asked after each; see `Pace`.

        Returns:
            `k x d` points, all of which are appended; none where the batch is over
            already.
        """
        self.chosen = []
        while len(self.chosen) < limit and not self.is_over():
            self.chosen.append(self._best())
            self.append(self.chosen[-1].X)
            if not goes_on(len(self.chosen)) or self.is_exhausted:
                break
        none = self.frozen.X_batch[:0]
        return torch.cat([point.X for point in self.chosen]) if self.chosen else none

    @property
    def view(self) -> Self:
        """What a rule sees."""
        return self

    @property
    def values(self) -> Tensor:
        """The values of the points of `chosen`, when each was."""
        values = [point.value for point in self.chosen]
        return self.frozen.X_batch.new_tensor(values)

    @property
    def indices(self) -> Tensor | None:
        """Their rows among choices, if that is where they are from."""
        if "choices" not in self.domain:
            return None
        rows = [point.row for point in self.chosen]
        return torch.tensor(rows, device=self.frozen.X_batch.device)
