r"""Repeated points folded exactly into one point with less noise.

In bandits the same candidate is evaluated many times. `n_i` observations of `x_i` with
noise variances `d_ij` carry the information of one observation with

.. math:: 1 / d_i = \sum_j 1 / d_{ij}, \qquad y_i = d_i \sum_j y_{ij} / d_{ij},

and the log likelihood gains a term that does not depend on the kernel.
"""

import math
from typing import NamedTuple

import torch
from botorch.exceptions import BotorchTensorDimensionError
from torch import Tensor

from botorch_sparse.argument_checks import check_tensors


class RepeatedRows(NamedTuple):
    """Which rows of `X` are the same point; unique points in order of appearance.

    Attributes:
        first: `n_u` indices, the first row of each unique point.
        inverse: `n` indices, the unique point of each row.
    """

    first: Tensor
    inverse: Tensor

    @classmethod
    def find(cls, X: Tensor) -> "RepeatedRows":
        """Find the repeated rows of `X`, a `batch_shape x n x d` tensor.

        In a batch, rows that repeat one another in every element. Cost: O(n d log n).
        """
        check_tensors(X=X)
        if X.dim() < 2:
            raise BotorchTensorDimensionError(
                f"Got X of shape {tuple(X.shape)}; need `batch_shape x n x d`."
            )
        n = X.shape[-2]
        X = X.movedim(-2, 0).flatten(1) if X.dim() > 2 else X
        unique, group = torch.unique(X, dim=0, return_inverse=True)
        rows, num_unique = torch.arange(n, device=X.device), len(unique)
        first = rows.new_full((num_unique,), n).scatter_reduce(0, group, rows, "amin")
        order = first.argsort()
        rank = torch.empty_like(order)
        rank[order] = rows[:num_unique]
        return cls(first=first[order], inverse=rank[group])

    def sum(self, values: Tensor) -> Tensor:
        """Sum `values` (`batch_shape x n`) over the rows of each unique point."""
        sums = values.new_zeros(*values.shape[:-1], self.first.shape[0])
        return sums.index_add(-1, self.inverse, values)


class FoldedData(NamedTuple):
    """Unique points with precision-weighted mean observations.

    Attributes:
        Y: `batch_shape x n_u` precision-weighted means of the observations.
        noise: `batch_shape x n_u` noise variances `d_i` of those means.
        log_likelihood_gain: `batch_shape`. The log likelihood of all observations less
            the one of the folded observations, for DTC and the exact GP alike.
    """

    Y: Tensor
    noise: Tensor
    log_likelihood_gain: Tensor


def fold_repeats(rows: RepeatedRows, Y: Tensor, noise: Tensor) -> FoldedData:
    r"""Fold the observations of repeated points; differentiable in `Y` and `noise`.

    The gain of the log likelihood is

    .. math:: -\tfrac12 \Big[ \sum_{ij} \log 2 \pi d_{ij} - \sum_i \log 2 \pi d_i
        + \sum_{ij} (y_{ij} - y_i)^2 / d_{ij} \Big].

    Args:
        rows: The repeated rows of the inputs.
        Y: `batch_shape x n` observations.
        noise: `batch_shape x n` noise variances, positive.

    Returns:
        The folded observations. Cost: O(n).
    """
    check_tensors(Y=Y, noise=noise)
    n = len(rows.inverse)
    if Y.shape[-1:] != (n,) or noise.shape[-1:] != (n,):
        raise BotorchTensorDimensionError(
            f"Got Y of shape {tuple(Y.shape)} and noise of shape {tuple(noise.shape)} "
            f"for {n} rows; need `batch_shape x {n}` of both."
        )
    precision = noise.reciprocal()
    d = rows.sum(precision).reciprocal()
    y = d * rows.sum(Y * precision)
    log_2pi = math.log(2 * math.pi)
    scatter = ((Y - y[..., rows.inverse]).square() * precision).sum(-1)
    normalizer = (noise.log() + log_2pi).sum(-1) - (d.log() + log_2pi).sum(-1)
    gain = -0.5 * (normalizer + scatter)
    return FoldedData(Y=y, noise=d, log_likelihood_gain=gain)
