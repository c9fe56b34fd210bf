r"""What turns `k_S(x)` into a mean and a variance, block by block.

The posterior is that of an exact GP with pseudo-observations at the inducing points
(`posteriors/pseudo_data.py`). With the factor `F` of their covariance,

.. math:: f(x) = F^{-1} k_S(x), \qquad \mu(x) = c(x) + z^\top f(x), \qquad
    \mathrm{var}(x) = k(x, x) - |f(x)|^2

and a forward substitution yields `f` in blocks of rows. After some of them, with
:math:`z_>` what is left of `z`, the Cauchy-Schwarz inequality bounds what comes:

.. math:: \mu(x) + \beta^{1/2} \sigma(x) \le \mu_\le(x)
    + (\beta + |z_>|^2)^{1/2} \, \mathrm{var}_\le(x)^{1/2}

Every product has one shape: `TILE` columns, the last tile padded, and rows in blocks
that are padded to multiples of `ROWS`. So the bits of a column depend on its candidate
and the posterior, not on which candidates share the tile nor on how many there are.
"""

from dataclasses import dataclass
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


class Block(NamedTuple):
    """One block of rows of the substitution."""

    rows: slice
    before: slice
    inverse: Tensor  # F_ii^-1
    coupling: Tensor  # F_ii^-1 F_i,<i
    z: Tensor  # ROWS x rows, the first of them z_i


@dataclass(frozen=True, eq=False)
class Embedding:
    """The blocks of `F` and `z`, with the inducing points in an order of their own.

    Attributes:
        posterior: The posterior.
        order: Which inducing point is where, `m`.
        whitening: The matrix that turns `k_S(x)` in that order into `w(x)`, `m x m`.
        blocks: The blocks.
        tails: The norm of what is left of `z` after each number of blocks.
    """

    posterior: NystromPosterior
    order: Tensor
    whitening: Tensor
    blocks: list[Block]
    tails: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: NystromPosterior, sample: Tensor | None) -> "Embedding":
        """The embedding of a posterior.

        Args:
            posterior: An unbatched posterior on the host.
            sample: `m x k` prior covariances `k_S(x)` of some candidates, of which the
                first inducing points explain most; None for the order there is.

        Returns:
            The embedding. Cost: O(m^2 (m + k)).
        """
        F, z = pseudo_data(posterior)
        order = torch.arange(len(F))
        if sample is not None:
            order = greedy_order(F, sample)
            Q, R = torch.linalg.qr(F[order].mT)  # F_p F_p' with F_p = R', F_p = P F Q
            sign = torch.where(R.diagonal() < 0, -1.0, 1.0).to(R)
            F, z = (R * sign.unsqueeze(-1)).mT, sign * (z @ Q)
        blocks = _blocks(F, z)
        squares = [float(block.z.square().sum()) for block in blocks] + [0.0]
        tails = F.new_tensor(squares).flip(0).cumsum(0).flip(0).sqrt()
        whitening = whitening_matrix(posterior)[:, order]
        return cls(posterior, order, whitening, blocks, tails)

    @property
    def num_rows(self) -> int:
        """The number `m` of inducing points, padded."""
        return padded(len(self.order))

    def advance(
        self, level: int, K: Tensor, f: Tensor, mean: Tensor, variance: Tensor
    ) -> None:
        """One block of rows more, for a tile.

        Args:
            level: The number of blocks so far.
            K: The block's rows of `k_S(x)`, `rows x TILE`, zero where padded.
            f: `num_rows x TILE`, whose block is written.
            mean: `TILE` numbers, to which the block's part is added.
            variance: `TILE` numbers, from which it is subtracted.
        """
        block = self.blocks[level]
        new = torch.mm(block.inverse, K)
        if level > 0:
            new.addmm_(block.coupling, f[block.before], alpha=-1)
        f[block.rows] = new
        mean += torch.mm(block.z, new)[0]
        variance -= new.square_().sum(0)


def padded(size: int, multiple: int = ROWS) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def _blocks(F: Tensor, z: Tensor) -> list[Block]:
    """The blocks of `F`, padded by rows of the identity."""
    m, size = len(F), padded(len(F))
    whole = torch.eye(size, dtype=F.dtype)
    whole[:m, :m] = F
    tall = F.new_zeros(ROWS, size)
    tall[0, :m] = z
    blocks = []
    for start in range(0, size, BLOCK_SIZE):
        rows, before = slice(start, min(start + BLOCK_SIZE, size)), slice(0, start)
        corner = whole[rows, rows]
        eye = torch.eye(len(corner), dtype=F.dtype)
        inverse = torch.linalg.solve_triangular(corner, eye, upper=False)
        part = tall[:, rows].contiguous()
        blocks.append(Block(rows, before, inverse, inverse @ whole[rows, before], part))
    return blocks


def greedy_order(F: Tensor, sample: Tensor) -> Tensor:
    """The pseudo-observations, those first that explain most of a sample.

    Args:
        F: `m x m`, the factor of their covariance.
        sample: `m x k` covariances of them with the sample.

    Returns:
        `m` indices. Cost: O(m^2 (m + k)).
    """
    f = torch.linalg.solve_triangular(F, sample, upper=False)
    rest = torch.cat([F, sample], dim=1)  # covariances given those chosen
    left = torch.ones(len(F), dtype=torch.bool)
    most, order = F.square().sum(1), []
    for _ in range(len(F)):
        own, explained = rest[:, : len(F)], rest[:, len(F) :]
        variance = own.square().sum(1)
        score = explained.square().sum(1) / variance.clamp_min(1e-14 * most)
        j = int(torch.where(left, score, -1.0).argmax())
        order.append(j)
        left[j] = False
        q = own[j] / own[j].norm()
        both = torch.cat([q, q @ f])
        rest = rest - torch.outer(own @ q, both)
        f = f - torch.outer(q, q @ f)
    return torch.tensor(order)
