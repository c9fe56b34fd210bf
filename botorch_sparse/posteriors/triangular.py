"""Triangular systems of many right-hand sides, by products of blocks on a device.

On an accelerator cuBLAS' substitution reaches a fifth of what its products do in
float64. So rows are taken in blocks: what is known is subtracted by a product, and the
inverse of a diagonal block multiplies what is left. A row of the residual is bounded as
that of a substitution is, times the condition of its diagonal block: squared norms of
the features of smooth kernels are off by some 1e-13 in place of 1e-14.
"""

import torch
from torch import Tensor

# Rows of a block, and columns below which a substitution launches less.
BLOCK_ROWS = 128
MANY_COLUMNS = 1024


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool) -> Tensor:
    """`A^-1 B` as `torch.linalg.solve_triangular` has it, `batch_shape x m x k`.

    On a device many columns of one matrix in float64, whose gradient nobody wants, are
    solved for in blocks. Cost: O(m^2 k).
    """
    has_graph = torch.is_grad_enabled() and (A.requires_grad or B.requires_grad)
    is_large = A.shape[-1] > BLOCK_ROWS and B.shape[-1] >= MANY_COLUMNS
    is_one = A.dim() == 2 and B.dim() == 2 and B.dtype == torch.float64
    if B.is_cpu or has_graph or not (is_large and is_one):
        return torch.linalg.solve_triangular(A, B, upper=upper)
    return _by_blocks(A, B, upper)


def _by_blocks(A: Tensor, B: Tensor, upper: bool) -> Tensor:
    m, X = len(A), torch.empty_like(B)
    eye = torch.eye(BLOCK_ROWS, dtype=A.dtype, device=A.device)
    starts = range(0, m, BLOCK_ROWS)
    for start in reversed(starts) if upper else starts:
        rows = slice(start, min(start + BLOCK_ROWS, m))
        known = slice(rows.stop, m) if upper else slice(0, start)
        left = torch.addmm(B[rows], A[rows, known], X[known], alpha=-1)
        own = eye[: rows.stop - start, : rows.stop - start]
        inverse = torch.linalg.solve_triangular(A[rows, rows], own, upper=upper)
        X[rows] = inverse @ left
    return X
