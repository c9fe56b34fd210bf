"""Rows that the rows before them say least of."""

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.kernels import dense_covariance, in_double, prior_variance


@torch.no_grad()
def rows_by_leverage(
    kernel: Kernel, X: Tensor, noise: Tensor, num: int, forced: Tensor
) -> Tensor:
    r"""Greedy choice of the largest residual leverage.

    The next row is :math:`\arg\max_i \sigma_U^2(x_i) / d_i`, with the posterior
    variance given noisy observations of the rows `U` that are chosen: a pivoted
    Cholesky factorization of `K + D`. Observed values do not matter. Elements of a
    batch share the choice by the sum of their leverages.

    Args:
        kernel: The kernel.
        X: `batch_shape x n x d` inputs.
        noise: `batch_shape x n` noise variances, positive.
        num: Rows to choose, forced ones included.
        forced: Rows to begin with.

    Returns:
        `num` indices in the order of choice; the first ones are the choice of fewer.
        Cost: O(n num^2) time and O(n num) memory, and `num` columns of the kernel
        matrix, in float64. Nothing is copied to the host.
    """
    kernel, X, noise = in_double(kernel, X.dtype), X.double(), noise.double()
    variance = prior_variance(kernel, X)
    columns = variance.new_zeros(num, *variance.shape)
    chosen = list(forced.to(X.device).unsqueeze(-1).unbind())
    taken = variance.new_zeros(X.shape[-2])
    for t in range(num):
        if t >= len(forced):
            leverage = (variance / noise).reshape(-1, X.shape[-2]).sum(0)
            chosen.append((leverage + taken).argmax(keepdim=True))
        j = chosen[t]
        taken.index_fill_(0, j, -torch.inf)
        known, pivot = columns[:t], (variance + noise).index_select(-1, j)
        cross = dense_covariance(kernel, X, X.index_select(-2, j)).squeeze(-1)
        explained = torch.einsum("t...n,t...k->...n", known, known.index_select(-1, j))
        columns[t] = (cross - explained) / pivot.sqrt()
        variance = (variance - columns[t].square()).clamp_min(0.0)
    return torch.cat(chosen) if chosen else forced
