r"""The local bound over all rows of a table on the host.

With :math:`\phi = L_B w`,
:math:`\mathrm{cov}(x, x_s) = k(x, x_s) + w(x)^\top (I - L_B^\top L_B) w(x_s)`.
A pass goes by batches of tiles that stay in the cache while all products with them are
made. Every product has one shape, so that a row's bits do not depend on the others.

.. math:: 1 + \max_x \frac{\max\{\sum_s \mathrm{cov}_{fb}(x, x_s)^2,
    \sum_s (w(x)^\top w(x_s))^2\}}{\lambda \, \mathrm{var}_{fb}(x)}

The sum of embedded covariances bounds the ratio of this posterior with its inducing set
frozen; the sum of full ones (Lemma 3 of [Calandriello2020]_ as its code has it) stands
for the exact GP's ratio, up to Lemma 2's factor. The full sum alone is not a bound on
this posterior's ratio, since residual covariances may be negative.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from botorch_sparse.acquisition.ratios import LocalBound, local_ratio, local_sum
from botorch_sparse.kernels import dense_covariance
from botorch_sparse.pools.branch_and_bound import (
    CandidateMoments,
    in_tiles,
    padded,
    parts_of,
    size_of,
)
from botorch_sparse.pools.embedding import TILE, Embedding, one_thread, threads_for
from botorch_sparse.pools.pool_protocol import POINTS_AT_A_TIME, Covariances

# Points of a batch in one product with a tile, the missing ones zero.
POINTS = 8

Tiles: TypeAlias = Callable[[slice], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class SquaresAmong:
    """Squared covariances among the points of a batch.

    Attributes:
        rows: `k` of them, each once.
        squares: `2 x k x k`, full and embedded.
        variances: `k`.
    """

    rows: list[int]
    squares: Tensor
    variances: Tensor

    @classmethod
    @torch.no_grad()
    def of(
        cls, rows: list[int], embedding: Embedding, X: Tensor, K: Tensor
    ) -> "SquaresAmong":
        """Those of points (`k x d`), from their `k_S(x)` (`m x k`); O(k m (m + k))."""
        with one_thread():
            w, residual = _features(embedding, K)
            kernel = dense_covariance(embedding.posterior.covar_module, X)
            full = kernel + w.mT @ residual
            squares = torch.stack([full, w.mT @ w]).square_()
        return cls(rows, squares, full.diagonal())

    def largest_ratio(
        self, counts: list[int], covariance: LocalBound, noise: float
    ) -> float:
        """The largest local bound at the points, evaluated `counts` times."""
        full, embedded = self.squares @ self.variances.new_tensor(counts)
        least = torch.finfo(full.dtype).tiny
        sums = local_sum(full, embedded, covariance)
        return float(local_ratio(sums, noise * self.variances.clamp_min(least)).max())


@torch.no_grad()
def squares_of_all(known: CandidateMoments, X: Tensor, K: Tensor) -> Tensor:
    """Squared covariances of all `A` rows with points, `k x 2 x A`.

    Args:
        known: What is known of the rows.
        X: `k x d` points.
        K: `m x k`, their `k_S(x)`.
    """
    k, num = len(X), len(known.mean)
    missing = -k % POINTS
    X = torch.cat([X, X[-1:].expand(missing, -1)])
    K = torch.cat([K, K.new_zeros(len(K), missing)], dim=1)
    with one_thread():
        factors = _factors(known.embedding, K)
    parts = parts_of(num, known.embedding.num_tiles)
    squares = X.new_empty(k, 2, num)
    tiles = _tiles(known, X, padded(parts[0]))
    for columns in parts:
        width, t = size_of(columns), padded(columns) // TILE
        with threads_for(t):
            cross, kernel = tiles(columns)
            for first, factor in zip(range(0, k, POINTS), factors, strict=True):
                part = slice(first, min(first + POINTS, k))
                products = torch.bmm(factor.expand(t, -1, -1), in_tiles(cross))
                products = products.view(t, 2, POINTS, TILE)
                products[:, 0] += in_tiles(kernel[first : first + POINTS])
                products = products[:, :, : part.stop - first].permute(2, 1, 0, 3)
                out = squares[part, :, columns]
                if width == t * TILE:
                    torch.square(products, out=out.unflatten(2, (t, TILE)))
                else:
                    out.copy_(products.square().flatten(2)[..., :width])
    return squares


def _factors(embedding: Embedding, K: Tensor) -> list[Tensor]:
    """What `k_S(x)` of a tile is multiplied by, `2 POINTS x m` for each group."""
    both = torch.stack([part.mT for part in _features(embedding, K)[::-1]])
    groups = (both @ embedding.whitening).split(POINTS, dim=1)
    return [group.reshape(2 * POINTS, -1) for group in groups]


def _features(embedding: Embedding, K: Tensor) -> tuple[Tensor, Tensor]:
    r"""`w(x)` and :math:`(I - L_B^\top L_B) w(x)`, `m x k` each."""
    L_B = embedding.posterior.chol_inner
    w = embedding.whitening @ K
    return w, w - L_B.mT @ (L_B @ w)


def _tiles(known: CandidateMoments, points: Tensor, most: int) -> Tiles:
    """`k_S(x)` of whole tiles, and their covariances with points (in full groups).

    Args:
        known: What is known of the rows.
        points: The points.
        most: Columns of the largest part.
    """
    cross, m = known.cross, len(known.embedding.whitening)
    beside, columns = cross.find_beside(points), cross.columns
    if beside is None or columns is None:
        return _computed_tiles(known, points)
    slots, values = torch.cat([cross.slots(), beside]), columns.values
    buffer = points.new_zeros(len(slots), most)

    def tile(rows: slice) -> tuple[Tensor, Tensor]:
        width = size_of(rows)
        if width == buffer.shape[1]:
            torch.index_select(values[:, rows], 0, slots, out=buffer)
        else:
            buffer[:, :width] = values[:, rows].index_select(0, slots)
        part = buffer[:, : padded(rows)]
        return part[:m], part[m:]

    return tile


def _computed_tiles(known: CandidateMoments, points: Tensor) -> Tiles:
    cross = known.cross
    kernel = known.embedding.posterior.covar_module

    def tile(rows: slice) -> tuple[Tensor, Tensor]:
        index = torch.arange(rows.start, rows.stop)
        index = torch.cat([index, index[-1:].expand(-len(index) % TILE)])
        X = [cross.X[part] for part in index.split(TILE)]
        with one_thread():
            groups = [
                torch.cat([dense_covariance(kernel, group, x) for x in X], dim=1)
                for group in points.split(POINTS)
            ]
        return cross.of(index), torch.cat(groups)

    return tile


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
