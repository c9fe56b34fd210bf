r"""Squared covariances of rows on the host with the points of a batch.

With :math:`\phi = L_B w`,
:math:`\mathrm{cov}(x, x_s) = k(x, x_s) + w(x)^\top (I - L_B^\top L_B) w(x_s)`.
A pass goes by tiles that stay in the cache while all products with them are made. Every
product has one shape, so that a row's bits do not depend on the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from botorch_sparse.acquisition.ratios import LocalBound, local_ratio, local_sum
from botorch_sparse.optim.embedding import TILE, Embedding
from botorch_sparse.optim.screening import Known
from botorch_sparse.optim.workers import one_thread

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
            kernel = embedding.posterior.covar_module(X).to_dense()
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
def squares_of_all(known: Known, X: Tensor, K: Tensor) -> Tensor:
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
        squares, tiles = X.new_empty(k, 2, num), _tiles(known, X)
        for start in range(0, num, TILE):
            columns = slice(start, min(start + TILE, num))
            cross, kernel = tiles(columns)
            for first, factor in enumerate(factors):
                points = slice(first * POINTS, min((first + 1) * POINTS, k))
                products = torch.mm(factor, cross).view(2, POINTS, TILE)
                products[0] += kernel[first * POINTS :][:POINTS]
                part = products[:, : points.stop - points.start]
                width = columns.stop - start
                torch.square(
                    part[..., :width].transpose(0, 1), out=squares[points, :, columns]
                )
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


def _tiles(known: Known, points: Tensor) -> Tiles:
    """`k_S(x)` of tiles, and their covariances with points (in full groups)."""
    cross, m = known.cross, len(known.embedding.whitening)
    beside, columns = cross.find_beside(points), cross.columns
    if beside is None or columns is None:
        return _computed_tiles(known, points)
    slots, values = torch.cat([cross.slots(), beside]), columns.values
    buffer = points.new_zeros(len(slots), TILE)

    def tile(rows: slice) -> tuple[Tensor, Tensor]:
        if rows.stop - rows.start == TILE:
            torch.index_select(values[:, rows], 0, slots, out=buffer)
        else:
            buffer[:, : rows.stop - rows.start] = values[:, rows].index_select(0, slots)
        return buffer[:m], buffer[m:]

    return tile


def _computed_tiles(known: Known, points: Tensor) -> Tiles:
    cross = known.cross
    kernel = known.embedding.posterior.covar_module

    def tile(rows: slice) -> tuple[Tensor, Tensor]:
        index = torch.arange(rows.start, rows.stop)
        index = torch.cat([index, index[-1:].expand(TILE - len(index))])
        X = cross.X[index]
        groups = [kernel(group, X).to_dense() for group in points.split(POINTS)]
        return cross.of(index), torch.cat(groups)

    return tile
