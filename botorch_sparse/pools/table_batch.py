r"""A batch of rows of a table under a posterior that stands still.

With the mean frozen at the last feedback, and the pending points `x_s` of the batch,

.. math:: u_t(x) = \mu(x) + \beta^{1/2} \big(\mathrm{var}(x)
    - \textstyle\sum_j (w(x)^\top u_j)^2 \big)^{1/2}

with the rows `u_j` of `posteriors/pending_points.py`: the bounds never rise inside a
batch ([Calandriello2020]_, Appendix A.3).
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Protocol

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.ratios import LocalBound, local_ratio, local_sum
from botorch_sparse.argument_checks import DTYPES, check_tensors
from botorch_sparse.batching.rules import GrowingBatch, Rule
from botorch_sparse.pools.compact_rows import CompactRows, Rows
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows, Shard
from botorch_sparse.posteriors.nystrom import Moments

# New points of a batch whose squares are computed in one pass over the rows.
POINTS_AT_A_TIME = 8


class Points(Protocol):
    """Rows 0 to A - 1 of a table under a posterior that stands still.

    Attributes:
        noise: Noise variance lambda of one evaluation.
        shard: Which rows of the whole table these are.
    """

    noise: float
    shard: Shard

    def __len__(self) -> int:
        """The number of rows `A`."""
        ...

    @property
    def square_memory(self) -> int:
        """Bytes that a batch may keep of `squared_covariances`."""
        ...

    @property
    def squares_at_a_time(self) -> int:
        """Points whose squared covariances are computed in one pass over the rows."""
        ...

    def moments(self, rows: Tensor) -> Moments:
        """Exact means and variances of `k` rows."""
        ...

    def all_moments(self) -> Moments:
        """Those of all rows, `A` each; embeds what is not embedded yet."""
        ...

    def squared_covariances(self, rows: Tensor) -> Tensor:
        """Squared covariances of `k` rows with all, full and embedded: `k x 2 x A`."""
        ...

    def largest(self, values: Tensor) -> Tensor:
        """The largest of the values of all rows, `A`."""
        ...

    def batch(
        self,
        multiplier: float,
        rule: Rule | None = None,
        selectable: SelectableRows = ALL_ROWS,
    ) -> "TableBatch":
        r"""Start a batch by the bound :math:`\mu(x) + \beta^{1/2} \sigma_t(x)`.

        Args:
            multiplier: What multiplies the Bayesian standard deviation.
            rule: What ends the batch; None for no rule.
            selectable: What may be chosen; all rows by default.
        """
        ...


class TableBatch(GrowingBatch):
    r"""The largest bound, and what a rule looks at; see `GrowingBatch`.

    Args:
        points: The points to choose from.
        rule: What ends the batch; None for no rule.

    Attributes:
        reads_late: Whether a bound of all rows stays on a device until it is read.
        initial: Variances at the start that the host knows, by row.
    """

    reads_late: ClassVar[bool] = False

    def __init__(self, points: Points, rule: Rule | None) -> None:
        super().__init__(points.noise, rule)
        self.points = points
        self.initial: dict[int, float] = {}
        self._sums: LocalSums | None = None
        self._num_summed = 0  # points in the sums

    @abstractmethod
    def values(self) -> Tensor:
        """The bounds of all rows, `A`, all of them refreshed."""

    def stale_values(self) -> Tensor:
        """What the bounds of all rows (`A`) are not above; here they themselves."""
        return self.values()

    def refresh(self, rows: Tensor) -> Tensor:
        """The bounds of `k` rows, which the stale values have from here on."""
        return self.values()[rows]

    @abstractmethod
    def _append(self, row: int) -> tuple[float, float]:
        """Make a row pending; its variance at the start, and just before this."""

    @override
    def append(self, row: int) -> None:
        initial, before = self._append(row)
        self.rows.append(row)
        self.initial[row] = initial
        self.variances.append(initial)
        self.variances_before.append(before)
        self.sum_ratio_before = self.sum_ratio
        self.sum_ratio += initial / self.noise
        self.product_ratio *= 1.0 + before / self.noise

    def _likely(self) -> Callable[[int], list[int]] | None:
        """What `LocalSums.add` takes; an attribute would be a reference to itself."""
        return None

    @override
    def _largest_local(
        self, covariance: LocalBound, threshold: float
    ) -> float | Tensor:
        self._sums = self._sums or LocalSums(self.points)
        self._sums.add(self.rows[self._num_summed :], self._likely())
        self._num_summed = self.size
        ratio = self._sums.ratio(covariance)
        return ratio if self.reads_late else float(ratio)


# Likely points that are looked at for each place: some of them are known.
LOOKED_AT = 3


class LocalSums:
    """Sums of squared covariances of all rows with the points of a batch.

    Points that join the batch once more bring the same squares, which are kept as far
    as `square_memory` goes. A product has room for some points; where new ones leave
    some of it, those that may join next are in it. It takes the variances of all rows.
    """

    def __init__(self, points: Points) -> None:
        self._points = points
        variance = points.all_moments().variance
        self._sums = variance.new_zeros(2, len(points))  # full and embedded
        self._squares: dict[int, Tensor] = {}
        size = self._sums.numel() * self._sums.element_size()
        self._room = points.square_memory // size
        least = torch.finfo(variance.dtype).tiny
        self._scale = points.noise * variance.clamp_min(least)

    def add(
        self, rows: list[int], likely: Callable[[int], list[int]] | None = None
    ) -> None:
        """Add points of the batch. Cost: O(A m) for each new one, else O(A).

        `likely` gives rows that may join next; it is None where a place costs as much
        as a product.
        """
        new = Counter(rows)
        unknown = [row for row in new if not self.knows([row])]
        if unknown and likely is not None:
            unknown += self._next_to(unknown, likely)
        size = self._points.squares_at_a_time
        for start in range(0, len(unknown), size):
            self._add_squares(unknown[start : start + size], new)
        for row, count in new.items():
            self._sums.add_(self._squares[row], alpha=count)

    def knows(self, rows: list[int]) -> bool:
        """Whether the squares of all of these are kept."""
        return all(row in self._squares for row in rows)

    def _next_to(
        self, rows: list[int], likely: Callable[[int], list[int]]
    ) -> list[int]:
        """Rows that take the places which others leave; none where memory is short."""
        places = -len(rows) % POINTS_AT_A_TIME
        if len(self._squares) + len(rows) + places > self._room:
            return []
        others = likely(LOOKED_AT * POINTS_AT_A_TIME) if places else []
        others = [row for row in others if row not in rows and not self.knows([row])]
        return others[:places]

    def ratio(self, covariance: LocalBound) -> Tensor:
        """The largest local bound: a scalar that is not read yet."""
        full, embedded = self._sums
        sums = local_sum(full, embedded, covariance)
        return self._points.largest(local_ratio(sums, self._scale))

    def _add_squares(self, rows: list[int], new: Counter[int]) -> None:
        """Keep the squares of new points while there is room, or sum them up."""
        # Filled in there: a list would be copied from the host.
        fill = partial(torch.full, (1,), device=self._scale.device)
        squares = self._points.squared_covariances(torch.cat([fill(r) for r in rows]))
        for row, square in zip(rows, squares, strict=True):
            if len(self._squares) < self._room:
                self._squares[row] = square
            else:
                self._sums.add_(square, alpha=new.pop(row))


def validate_candidates(X: Rows) -> None:
    """Refuse what is no finite `A x d` table of candidates; see `NystromPool`."""
    if isinstance(X, CompactRows):
        return
    check_tensors(X=X)
    if X.dim() != 2 or X.shape[0] == 0 or X.shape[1] == 0:
        raise BotorchTensorDimensionError(
            f"Got candidates of shape {tuple(X.shape)}; need `A x d` with A, d > 0."
        )
    if X.dtype not in DTYPES or not X.isfinite().all():
        raise InputDataError(
            f"Got candidates of dtype {X.dtype} with {int((~X.isfinite()).sum())} "
            "entries that are not finite; need float32 or float64 without NaN or "
            "infinity."
        )
