"""A batch that grows point by point until its rule ends it."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

from botorch_sparse.acquisition.ratios import LocalBound
from botorch_sparse.batching.rules import Rule

# Called with the number of points chosen so far; whether to choose another one.
ContinueFunction: TypeAlias = Callable[[int], bool]


def always_continue(num_points: int) -> bool:
    """Go on whatever was chosen."""
    return True


class AskLimit:
    """Says after each point of a batch whether the next one is chosen.

    Args:
        max_seconds: No further point is begun after so long; None for no end.
        progress: Called with the number of points so far, where there are more.

    Attributes:
        is_over: Whether the time was over.
    """

    def __init__(
        self,
        max_seconds: float | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> None:
        seconds = float("inf") if max_seconds is None else max_seconds
        self._end = time.perf_counter() + seconds
        self._progress = progress
        self._shown = 0
        self.is_over = False

    def __call__(self, num_points: int) -> bool:
        """Whether to choose another point."""
        self.show(num_points)
        self.is_over = time.perf_counter() >= self._end
        return not self.is_over

    def show(self, num_points: int) -> None:
        """Call `progress`, if it has not heard of so many points."""
        if self._progress is not None and num_points > self._shown:
            self._shown = num_points
            self._progress(num_points)


# By how much, relative to the threshold, bounds at a batch's own points must exceed it
# to end the batch: more than they and those of a pass may differ by rounding.
MARGIN = 1e-3


class GrowingBatch(ABC):
    r"""What a rule looks at (a `BatchView`), and maximizers one after the other.

    Args:
        noise: Lambda, the noise variance of an evaluation.
        rule: What ends the batch; None for no rule.

    Attributes:
        rows: Numbers of the points that were appended.
        variances: :math:`\mathrm{var}_{fb}(x_s)` of its points.
        variances_before: :math:`\mathrm{var}_{s-1}(x_s)` of its points.
        sum_ratio: :math:`1 + \sum_s \mathrm{var}_{fb}(x_s) / \lambda`.
        sum_ratio_before: The same without the last point.
        product_ratio: :math:`\prod_s (1 + \mathrm{var}_{s-1}(x_s) / \lambda)`.
    """

    def __init__(self, noise: float, rule: Rule | None) -> None:
        self.noise = noise
        self.rule = rule
        self.rows: list[int] = []
        self.variances: list[float] = []
        self.variances_before: list[float] = []
        self.sum_ratio = self.sum_ratio_before = self.product_ratio = 1.0
        # The largest local bound when it was last looked for, and the sum rule's then.
        self._last_local: dict[LocalBound, tuple[float | Tensor, float]] = {}

    @property
    def size(self) -> int:
        """Points in the batch."""
        return len(self.variances)

    @abstractmethod
    def argmax(self) -> int:
        """The number of the point of largest value; ties go to the lowest."""

    @abstractmethod
    def append(self, row: int) -> None:
        """Make a point pending: it counts in the values and for the rule."""

    @property
    def is_exhausted(self) -> bool:
        """Whether another point would be in vain."""
        return False

    def is_over(self) -> bool:
        """Whether the rule ends the batch; never without points or a rule."""
        if self.rule is None or not self.size:
            return False
        bound = self.rule.bound(self)
        return not float(bound) <= self.rule.ratio_threshold  # NaN ends it too

    def choose(
        self, limit: int, goes_on: ContinueFunction = always_continue
    ) -> list[int]:
        """Maximizers, one after the other, until the batch is over.

        Args:
            limit: The largest number of them, at least one.
            goes_on: Asked after each; see `Pace`.

        Returns:
            Their numbers, all of which are appended but maybe the last; none where the
            batch is over already.
        """
        chosen: list[int] = []
        while len(chosen) < limit and not self.is_over():
            chosen.append(self.argmax())
            if not goes_on(len(chosen)):
                break
            if len(chosen) < limit:
                self.append(chosen[-1])
                if self.is_exhausted:
                    break
        return chosen

    def local_ratio(self, covariance: LocalBound, threshold: float) -> float | Tensor:
        """The largest local bound, or a bound of it on the same side of `threshold`.

        By Cauchy-Schwarz a point raises it by at most `var_fb(x_s) / lam`, so that
        looking for it, which on a table costs O(A m) and all variances, is put off
        until it matters. The bounds at the batch's own points are lower bounds: where
        they are above the threshold, the batch is over, and the answer is the largest
        of them.

        Args:
            covariance: Which sums of covariances; see `ratios.local_sum`.
            threshold: What it is compared with.

        Returns:
            A number, or a scalar on the device that is not read yet.
        """
        known, total = self._last_local.get(covariance, (1.0, 1.0))
        raised = self.sum_ratio - total
        bound = float(known) + raised
        if bound <= threshold or not raised:
            return bound
        lower = self.local_at_own(covariance)
        if lower > threshold * (1.0 + MARGIN):
            return lower
        largest = self._largest_local(covariance, threshold)
        self._last_local[covariance] = largest, self.sum_ratio
        return largest

    def local_at_own(self, covariance: LocalBound) -> float:
        """The largest local bound at the batch's own points; one if it is not known."""
        return 1.0

    @abstractmethod
    def _largest_local(
        self, covariance: LocalBound, threshold: float
    ) -> float | Tensor:
        """The largest local bound over the domain, or a lower one above a threshold."""
