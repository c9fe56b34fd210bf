r"""Means and variances of candidates, tile by tile and block by block.

The posterior is that of an exact GP with pseudo-observations at the inducing points
(`posteriors/pseudo_data.py`). With the factor `F` of their covariance,

.. math:: f(x) = F^{-1} k_S(x), \qquad \mu(x) = c(x) + z^\top f(x), \qquad
    \mathrm{var}(x) = k(x, x) - |f(x)|^2

and a forward substitution yields `f` in blocks of rows: every partial sum of its
squares gives an upper bound on the variance.

Every product has one shape: `TILE` columns, the last tile padded, and rows in blocks
that are padded to multiples of `ROWS`. So the bits of a column depend on its candidate
and the posterior, not on which candidates share the tile nor on how many there are.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.pseudo_data import pseudo_data, whitening_matrix

# Columns of a tile, and what numbers of rows are padded to: below eight rows and at a
# single column libraries take other paths, whose bits depend on the number of threads.
TILE = 512
ROWS = 8
BLOCK_SIZE = 32


def padded(size: int) -> int:
    """The next multiple of `ROWS`."""
    return -(-size // ROWS) * ROWS


class Block(NamedTuple):
    """One block of rows of the substitution."""

    rows: slice
    before: slice
    inverse: Tensor  # F_ii^-1
    coupling: Tensor  # F_ii^-1 F_i,<i
    z: Tensor  # ROWS x rows, the first of them z_i


class Embedding:
    """What turns `k_S(x)` into a mean and a variance.

    Args:
        posterior: An unbatched posterior.

    Attributes:
        num_rows: The number `m` of inducing points, padded.
        whitening: The matrix that turns `k_S(x)` into `w(x)`, `m x m`.
    """

    def __init__(self, posterior: NystromPosterior) -> None:
        F, z = pseudo_data(posterior)
        self.posterior = posterior
        self.whitening = whitening_matrix(posterior)
        self.num_rows = padded(len(F))
        self.blocks = [*_blocks(F, z, self.num_rows)]
        self._features = F.new_zeros(self.num_rows, TILE)
        self._scratch = F.new_zeros(BLOCK_SIZE, TILE)
        self._product = F.new_zeros(ROWS, TILE)

    def embed(self, K: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Add what the inducing points explain to prior means, and subtract it.

        Args:
            K: `k_S(x)` of a tile, `num_rows x TILE`, zero below its `m` rows.
            mean: `TILE` prior means, overwritten.
            variance: `TILE` prior variances, overwritten.
        """
        for block in self.blocks:
            f = self._features[block.rows]
            torch.mm(block.inverse, K[block.rows], out=f)
            if block.before.stop > 0:
                f.addmm_(block.coupling, self._features[block.before], alpha=-1)
            torch.mm(block.z, f, out=self._product)
            mean += self._product[0]
            squares = torch.mul(f, f, out=self._scratch[: len(f)])
            variance -= squares.sum(0)


def _blocks(F: Tensor, z: Tensor, size: int) -> list[Block]:
    """The blocks of `F`, padded by rows of the identity."""
    m = len(F)
    padded_F = torch.eye(size, dtype=F.dtype)
    padded_F[:m, :m] = F
    padded_z = F.new_zeros(ROWS, size)
    padded_z[0, :m] = z
    blocks = []
    for start in range(0, size, BLOCK_SIZE):
        rows, before = slice(start, min(start + BLOCK_SIZE, size)), slice(0, start)
        corner = padded_F[rows, rows]
        eye = torch.eye(len(corner), dtype=F.dtype)
        inverse = torch.linalg.solve_triangular(corner, eye, upper=False)
        coupling = inverse @ padded_F[rows, before]
        part = padded_z[:, rows].contiguous()
        blocks.append(Block(rows, before, inverse, coupling, part))
    return blocks
