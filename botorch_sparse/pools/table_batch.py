r"""A batch of rows of a table under a posterior that stands still.

With the mean frozen at the last feedback, and the pending points `x_s` of the batch,

.. math:: u_t(x) = \mu(x) + \beta^{1/2} \big(\mathrm{var}(x)
    - \textstyle\sum_j (w(x)^\top u_j)^2 \big)^{1/2}

where the rows `u_j` are those of `posteriors/pending_points.py`: the bounds never rise
inside a batch ([Calandriello2020]_, Appendix A.3).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from botorch_sparse.acquisition.ratios import LocalBound
from botorch_sparse.batching.growing_batch import GrowingBatch
from botorch_sparse.batching.rules import Rule
from botorch_sparse.pools.local_bounds import LocalSums
from botorch_sparse.pools.pool_protocol import Covariances


class AppendedVariance(NamedTuple):
    """A point's variance at the start of the batch, and just before it was added."""

    initial: float
    before: float


class TableBatch(GrowingBatch):
    r"""The largest bound, and what a rule looks at; see `GrowingBatch`.

    Args:
        points: The points to choose from.
        rule: What ends the batch; None for no rule.
        reads_late: Whether a bound of all rows stays on a device until it is read.

    Attributes:
        initial: Variances at the start that the host knows, by row.
    """

    def __init__(
        self, points: Covariances, rule: Rule | None, *, reads_late: bool = False
    ) -> None:
        super().__init__(points.noise, rule)
        self.points = points
        self.initial: dict[int, float] = {}
        self._reads_late = reads_late
        self._sums: LocalSums | None = None
        self._num_summed = 0  # points in the sums

    @abstractmethod
    def values(self) -> Tensor:
        """The bounds of all rows, `A`, all of them refreshed."""

    @abstractmethod
    def _append(self, row: int) -> AppendedVariance:
        """Make a row pending."""

    def append(self, row: int) -> None:
        """See `GrowingBatch`."""
        initial, before = self._append(row)
        self.rows.append(row)
        self.initial[row] = initial
        self.variances.append(initial)
        self.variances_before.append(before)
        self.sum_ratio_before = self.sum_ratio
        self.sum_ratio += initial / self.noise
        self.product_ratio *= 1.0 + before / self.noise

    def _likely(self) -> Callable[[int], list[int]] | None:
        """See `LocalSums.add`; no attribute, which would be a reference to itself."""
        return None

    def _largest_local(
        self, covariance: LocalBound, threshold: float
    ) -> float | Tensor:
        self._sums = self._sums or LocalSums(self.points)
        self._sums.add(self.rows[self._num_summed :], self._likely())
        self._num_summed = self.size
        ratio = self._sums.ratio(covariance)
        return ratio if self._reads_late else float(ratio)
