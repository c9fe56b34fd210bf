r"""A batch that grows point by point under a posterior that stands still.

With the mean frozen at the last feedback, and the pending points `x_s` of the batch,

.. math:: u_t(x) = \mu(x) + \beta^{1/2} \big(\mathrm{var}(x)
    - \textstyle\sum_j (w(x)^\top u_j)^2 \big)^{1/2}

where the rows `u_j` are those of `posteriors/pending.py`: the bounds never rise inside
a batch ([Calandriello2020]_, Appendix A.3).
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor

from botorch_sparse.acquisition.ratios import LocalBound
from botorch_sparse.optim.local_sums import LocalSums
from botorch_sparse.optim.pace import GoesOn, always
from botorch_sparse.optim.points import Points
from botorch_sparse.optim.rules import Rule

# By how much, relative to the threshold, bounds at a batch's own points must exceed it
# to end the batch: more than they and those of a pass may differ by rounding.
MARGIN = 1e-3


class Appended(NamedTuple):
    """A point's variance at the start of the batch, and just before it was added."""

    initial: float
    before: float


class BatchState(ABC):
    r"""The largest bound, and what a rule looks at.

    Args:
        points: The points to choose from.
        rule: What ends the batch; None for no rule.
        reads_late: Whether a bound of all rows stays on a device until it is read.

    Attributes:
        rows: The rows in the batch.
        initial: Variances at the start that the host knows, by row.
        variances: `var_fb(x_s)` of its points.
        variances_before: `var_{s-1}(x_s)` of its points.
        sum_ratio: :math:`1 + \sum_s \mathrm{var}_{fb}(x_s) / \lambda`.
        sum_ratio_before: The same without the last point.
        product_ratio: :math:`\prod_s (1 + \mathrm{var}_{s-1}(x_s) / \lambda)`.
    """

    def __init__(
        self, points: Points, rule: Rule | None, *, reads_late: bool = False
    ) -> None:
        self.points = points
        self.noise = points.noise
        self.rule = rule
        self.rows: list[int] = []
        self.initial: dict[int, float] = {}
        self.variances: list[float] = []
        self.variances_before: list[float] = []
        self.sum_ratio = self.sum_ratio_before = self.product_ratio = 1.0
        self._local = _LocalRatio(points, reads_late)

    @property
    def size(self) -> int:
        """Points in the batch."""
        return len(self.rows)

    @abstractmethod
    def argmax(self) -> int:
        """The row of largest bound; ties go to the lowest."""

    @abstractmethod
    def values(self) -> Tensor:
        """The bounds of all rows, `A`, all of them refreshed."""

    @abstractmethod
    def _append(self, row: int) -> Appended:
        """Make a row pending."""

    def append(self, row: int) -> None:
        """Make a row pending: it counts in the variances and for the rule."""
        initial, before = self._append(row)
        self.rows.append(row)
        self.initial[row] = initial
        self.variances.append(initial)
        self.variances_before.append(before)
        self.sum_ratio_before = self.sum_ratio
        self.sum_ratio += initial / self.noise
        self.product_ratio *= 1.0 + before / self.noise

    def is_over(self) -> bool:
        """Whether the rule ends the batch; never without points or a rule."""
        if self.rule is None or not self.rows:
            return False
        bound = self.rule.bound(self)
        return not float(bound) <= self.rule.ratio_threshold  # NaN ends it too

    def choose(self, limit: int, goes_on: GoesOn = always) -> list[int]:
        """Maximizers, one after the other, until the batch is over.

        Args:
            limit: The largest number of them, at least one.
            goes_on: Asked after each; see `Pace`.

        Returns:
            Their rows, all of which are appended but maybe the last; none where the
            batch is over already.
        """
        chosen: list[int] = []
        while len(chosen) < limit and not self.is_over():
            chosen.append(self.argmax())
            if not goes_on(len(chosen)):
                break
            if len(chosen) < limit:
                self.append(chosen[-1])
        return chosen

    def local_ratio(self, covariance: LocalBound, threshold: float) -> float | Tensor:
        """The largest local bound, or a bound of it on the same side of `threshold`.

        By Cauchy-Schwarz a point raises it by at most `var_fb(x_s) / lam`, so that a
        pass over all rows, O(A m) and all variances, is put off until it matters. The
        bounds at the batch's own points are lower bounds: where they are above the
        threshold, the batch is over, and the answer is the largest of them.

        Args:
            covariance: Which sums of covariances; see `ratios.local_sum`.
            threshold: What it is compared with.

        Returns:
            A number, or a scalar on the device that is not read yet.
        """
        return self._local.bound(self, covariance, threshold)

    def local_at_own(self, covariance: LocalBound) -> float:
        """The largest local bound at the batch's own points; one if it is not known."""
        return 1.0


class _LocalRatio:
    """The local bound at the last pass, and what it can have become since."""

    def __init__(self, points: Points, reads_late: bool) -> None:
        self._points, self._reads_late = points, reads_late
        self._sums: LocalSums | None = None
        self._size = 0  # points in the sums
        # The bound at the last pass, and the sum rule's.
        self._known: dict[LocalBound, tuple[float | Tensor, float]] = {}

    def bound(
        self, batch: BatchState, covariance: LocalBound, threshold: float
    ) -> float | Tensor:
        """See `BatchState.local_ratio`."""
        known, total = self._known.get(covariance, (1.0, 1.0))
        bound = float(known) + batch.sum_ratio - total
        if bound <= threshold or (
            batch.size == self._size and covariance in self._known
        ):
            return bound
        lower = batch.local_at_own(covariance)
        if lower > threshold * (1.0 + MARGIN):
            return lower
        self._sums = self._sums or LocalSums(self._points)
        self._sums.add(batch.rows[self._size :])
        self._size = batch.size
        ratio = self._sums.ratio(covariance)
        known = ratio if self._reads_late else float(ratio)
        self._known[covariance] = known, batch.sum_ratio
        return known

    def note(self, unread: Tensor, value: float) -> None:
        """Take in a bound that was read from a device."""
        for covariance, (known, total) in self._known.items():
            if known is unread:
                self._known[covariance] = value, total
