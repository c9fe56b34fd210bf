"""Batch dimensions that a factor does not have are more rows for it.

One `m x m` factor for points of shape `t x q x d` would be copied `t` times by a
batched solve; with `t q` rows it is one solve.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def by_rows(
    rows: Tensor, batch_shape: torch.Size, fn: Callable[[Tensor], Tensor]
) -> Tensor:
    """Apply `fn` with the batch dimensions that `batch_shape` lacks moved to the rows.

    Args:
        rows: A `rows_batch x q x c` tensor.
        batch_shape: The batch shape of what `fn` holds. It lacks a dimension of
            `rows_batch` that is not there or has size one.
        fn: Maps `batch x r x c` to `batch x r x k`, each row by itself, for a `batch`
            of as many dimensions as `batch_shape` that broadcasts with it.

    Returns:
        A `broadcast(rows_batch, batch_shape) x q x k` tensor: `fn` of the rows.
    """
    own = len(batch_shape)
    rows = rows[(None,) * max(0, own - rows.dim() + 2)]
    extra = rows.dim() - 2 - own
    ones = [i for i, size in enumerate(batch_shape) if size == 1]
    moved = [*range(extra), *(extra + i for i in ones)]
    beside_rows = list(range(-2 - len(moved), -2))
    sizes = [rows.shape[i] for i in moved]
    flat = rows.movedim(moved, beside_rows).flatten(own - len(ones), -2)
    for i in ones:
        flat = flat.unsqueeze(i)
    result = fn(flat).squeeze(ones)
    return result.unflatten(-2, (*sizes, rows.shape[-2])).movedim(beside_rows, moved)


def solve_rows(L: Tensor, rows: Tensor) -> Tensor:
    """The rows `L^-1 r` for the rows `r`; leading dimensions broadcast.

    Args:
        L: `batch_shape x m x m`, lower triangular.
        rows: `rows_batch x q x m`.

    Returns:
        A `broadcast(rows_batch, batch_shape) x q x m` tensor. Cost: O(m^2) for a row.
    """
    return by_rows(
        rows,
        L.shape[:-2],
        lambda r: torch.linalg.solve_triangular(L, r.mT, upper=False).mT,
    )


def inner_rows(rows: Tensor, vector: Tensor) -> Tensor:
    """Inner products of rows with a vector; leading dimensions broadcast.

    Args:
        rows: `rows_batch x q x m`.
        vector: `batch_shape x m`.

    Returns:
        A `broadcast(rows_batch, batch_shape) x q` tensor. Rows are not copied for the
        batches of the vector.
    """
    product = by_rows(vector.unsqueeze(-2), rows.shape[:-2], lambda v: v @ rows.mT)
    return product.squeeze(-2)
