r"""Forward substitution for many right-hand sides, as matrix products.

LAPACK's `trsm` is slower than a matrix product for the few hundred rows of a Nystrom
posterior. With the diagonal blocks of the factor inverted (the usual
construction on GPUs; the blocks are small and, in pivot order, well conditioned),

.. math:: x_i = L_{ii}^{-1} b_i - (L_{ii}^{-1} L_{i,<i}) \, x_{<i},

everything is a product, and half of the work of multiplying by the dense inverse.
"""

from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_SIZE = 32


class _Block(NamedTuple):
    """One block of rows."""

    rows: slice
    before: slice
    inverse: Tensor  # L_ii^-1
    coupling: Tensor  # L_ii^-1 L_i,<i


class BlockedSubstitution:
    r"""Solves :math:`L x = b` for a lower triangular `L`; not differentiable.

    Use it where one factor meets thousands of right-hand sides, and
    `torch.linalg.solve_triangular` elsewhere. Cost: O(m^2) for each right-hand side.

    Args:
        L: `m x m`, lower triangular.
        block_size: Rows in a diagonal block.
    """

    def __init__(self, L: Tensor, block_size: int = BLOCK_SIZE) -> None:
        L = L.detach()
        self._blocks = []
        for start in range(0, len(L), block_size):
            rows, before = slice(start, start + block_size), slice(0, start)
            corner = L[rows, rows]
            eye = torch.eye(len(corner), dtype=L.dtype, device=L.device)
            inverse = torch.linalg.solve_triangular(corner, eye, upper=False)
            self._blocks.append(
                _Block(rows, before, inverse, inverse @ L[rows, before])
            )

    @torch.no_grad()
    def solve(self, b: Tensor, out: Tensor | None = None) -> Tensor:
        """The solution for right-hand sides in columns.

        Args:
            b: An `m x c` tensor.
            out: An `m x c` tensor to write to, not `b` itself.

        Returns:
            An `m x c` tensor.
        """
        x = torch.empty_like(b) if out is None else out
        for rows, before, inverse, coupling in self._blocks:
            torch.mm(inverse, b[rows], out=x[rows])
            x[rows].addmm_(coupling, x[before], alpha=-1)
        return x
