r"""The local bound over all rows of a table, a pass over them only where it matters.

.. math:: 1 + \max_x \frac{\max\{\sum_s \mathrm{cov}_{fb}(x, x_s)^2,
    \sum_s (w(x)^\top w(x_s))^2\}}{\lambda \, \mathrm{var}_{fb}(x)}

The sum of embedded covariances bounds the ratio of this posterior with its inducing set
frozen; the sum of full ones (Lemma 3 of [Calandriello2020]_ as its code has it) stands
for the exact GP's ratio, up to Lemma 2's factor. The full sum alone is not a bound on
this posterior's ratio, since residual covariances may be negative.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from botorch_sparse.acquisition.ratios import LocalBound, local_ratio, local_sum
from botorch_sparse.optim.points import POINTS_AT_A_TIME, Covariances

# Likely points that are looked at for each place: some of them are known.
LOOKED_AT = 3


class LocalSums:
    """Sums of squared covariances of all rows with the points of a batch.

    Points that join the batch once more bring the same squares, which are kept as far
    as `square_memory` goes. A product has room for some points; where new ones leave
    some of it, those that may join next are in it. It takes the variances of all rows.

    Args:
        points: The rows.
    """

    def __init__(self, points: Covariances) -> None:
        self._points = points
        variance = points.all_variances()
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

        Args:
            rows: The points.
            likely: So many rows that may join next; None where a place costs as much
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
