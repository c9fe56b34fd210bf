r"""What turns `k_S(x)` into a mean and a variance, the same bits for each candidate.

The posterior is an exact GP's with pseudo-observations at the inducing points
(`posteriors/pseudo_data.py`). With the factor `F` of their covariance,

.. math:: f(x) = F^{-1} k_S(x), \qquad \mu(x) = c(x) + z^\top f(x), \qquad
    \mathrm{var}(x) = k(x, x) - |f(x)|^2

of which the mean is one more row of the same substitution. Every product has one shape:
`TILE` columns (on an accelerator as many as the pool says), the last tile padded, and
rows in blocks that are padded to multiples of `ROWS`. So the bits of a column depend on
its candidate and the posterior, not on which candidates share the tile nor on how many
there are.

On the host a product that threads share may be cut in another way for each number of
them. So a product has one thread, and threads take whole batches of tiles.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.pseudo_data import pseudo_data, whitening_matrix
from botorch_sparse.threads import one_thread

# Columns of a tile, and what numbers of rows are padded to: below eight rows and at a
# single column libraries take other paths, whose bits depend on the number of threads.
TILE = 512
ROWS = 8
# The most tiles of a batch, and bytes of its `k_S(x)` and `f(x)`, which fit the cache.
TILES = 8
CACHE = 2**21
# Rows of a block: few long products, and blocks whose inverses are accurate.
BLOCK_SIZE = 64


class Block(NamedTuple):
    """One block of rows of the substitution."""

    rows: slice
    before: slice
    inverse: Tensor  # F_ii^-1
    coupling: Tensor  # F_ii^-1 F_i,<i


@dataclass(frozen=True, eq=False)
class Embedding:
    """The factor `F` in blocks, bordered by the row of the mean."""

    posterior: NystromPosterior
    factor: Tensor  # `F`, `m x m`
    observations: Tensor  # `z`, the whitened pseudo-observations, `m`
    blocks: list[Block]  # of `F` and the mean's row, padded by the identity

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: NystromPosterior, *, is_awaited: bool = True) -> "Embedding":
        """The embedding of a posterior. Cost: O(m^3).

        If not `is_awaited`, all of it may be NaN; see `pseudo_data`.
        """
        F, z = pseudo_data(posterior, is_awaited=is_awaited)
        return cls(posterior, F, z, _blocks(F, z))

    @cached_property
    def whitening(self) -> Tensor:
        """The matrix that turns `k_S(x)` into `w(x)`, `m x m`. Cost: O(m^3), once."""
        with one_thread():
            return whitening_matrix(self.posterior)

    @property
    def num_rows(self) -> int:
        """The number `m` of inducing points and the mean's row, padded; 0 without."""
        return self.blocks[-1].rows.stop if self.blocks else 0

    @property
    def num_tiles(self) -> int:
        """Tiles of a batch of products."""
        tile = 2 * max(self.num_rows, 1) * TILE * self.factor.element_size()
        return min(TILES, max(CACHE // tile, 1))

    def moments(self, K: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """What tiles add to the mean, and take from the variance: `t x width` each.

        `K` is their `k_S(x)`, `t x num_rows x width`, zero below the `m` rows; `f` has
        its shape and is overwritten.
        """
        t, m = len(K), len(self.factor)
        for rows, before, inverse, coupling in self.blocks:
            torch.bmm(inverse.expand(t, -1, -1), K[:, rows], out=f[:, rows])
            if before.stop:
                coupling = coupling.expand(t, -1, -1)
                f[:, rows].baddbmm_(coupling, f[:, before], alpha=-1)
        mean = f[:, m].clone()
        f[:, m] = 0.0
        return mean, f.square_().sum(1)

    def features(self, K: Tensor) -> tuple[Tensor, Tensor]:
        r"""`w(x)` and :math:`(I - L_B^\top L_B) w(x)`, `m x k` each, from `k_S(x)`."""
        L_B = self.posterior.chol_inner
        w = self.whitening @ K
        return w, w - L_B.mT @ (L_B @ w)

    def condition(self) -> Tensor:
        r"""How much more than its rounding a solution can be wrong by, a scalar.

        With `D` the diagonal blocks, whose inverses are rounded as well, errors of `f`
        are at most :math:`c \epsilon |F^{-1}| |D| |D^{-1}| |F| |f|`, whatever the scale
        of the rows.
        """
        F, product = self.factor, self.factor.abs()
        eye = torch.eye(len(F), dtype=F.dtype)
        for block in self.blocks:
            rows = slice(block.rows.start, min(block.rows.stop, len(F)))
            own = block.inverse[: rows.stop - rows.start, : rows.stop - rows.start]
            product[rows] = F[rows, rows].abs() @ (own.abs() @ product[rows])
        inverse = torch.linalg.solve_triangular(F, eye, upper=False)
        return (inverse.abs() @ product).norm()


def padded(size: int, multiple: int = ROWS) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def size_of(rows: Tensor | slice) -> int:
    """How many candidates these are."""
    return len(rows) if isinstance(rows, Tensor) else rows.stop - rows.start


def in_tiles(columns: Tensor) -> Tensor:
    """Columns tile by tile, `t x k x TILE`."""
    return columns.unflatten(1, (-1, TILE)).transpose(0, 1)


def _blocks(F: Tensor, z: Tensor) -> list[Block]:
    """Those of `F` and a row that adds up `z'f`."""
    m = len(F)
    size = padded(m + 1) if m else 0
    whole = torch.eye(size, dtype=F.dtype, device=F.device)
    if m:
        whole[:m, :m] = F
        whole[m, :m] = -z
    eye = torch.eye(BLOCK_SIZE, dtype=F.dtype, device=F.device)
    blocks = []
    for start in range(0, size, BLOCK_SIZE):
        rows, before = slice(start, min(start + BLOCK_SIZE, size)), slice(0, start)
        corner = whole[rows, rows]
        own = eye[: len(corner), : len(corner)]
        inverse = torch.linalg.solve_triangular(corner, own, upper=False)
        blocks.append(Block(rows, before, inverse, inverse @ whole[rows, before]))
    return blocks
