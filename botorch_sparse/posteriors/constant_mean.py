r"""A constant prior mean that the data decide on.

The best constant by generalized least squares,

.. math:: \hat c = \frac{1^\top \Sigma^{-1} y}{1^\top \Sigma^{-1} 1}, \qquad
    \Sigma = \Phi^\top \Phi + D,

is the intercept of the ridge regression that the posterior mean is. A constant added to
all observations moves it by as much, and leaves `y - c` as it was.
"""

from dataclasses import replace

import torch
from gpytorch.means import ConstantMean, Mean
from torch import Tensor

from botorch_sparse.posteriors.batching import solve_rows
from botorch_sparse.posteriors.inner_factor import inner_cholesky
from botorch_sparse.posteriors.nystrom import NystromPosterior


def constant_mean(value: Tensor) -> Mean:
    """A prior mean of one value, a scalar tensor, without gradient."""
    mean = ConstantMean()
    mean.raw_constant = torch.nn.Parameter(value.detach(), requires_grad=False)
    return mean.eval()


@torch.no_grad()
def condition_with_constant_mean(
    prior: NystromPosterior, X: Tensor, Y: Tensor, noise: Tensor
) -> NystromPosterior:
    """Condition on data whose constant mean is estimated from them.

    Args:
        prior: An unbatched posterior without data; its mean has no part in it.
        X: `n x d` points.
        Y: `n` observations.
        noise: `n` noise variances, positive.

    Returns:
        The posterior with that mean. Cost: O(n m^2).
    """
    both = torch.stack([Y, torch.ones_like(Y)])
    blank = replace(prior, mean_module=constant_mean(Y.new_zeros(())))
    gram, moments = blank.statistics(X, both, noise)
    B = prior.chol_inner @ prior.chol_inner.mT + gram
    return with_constant_mean(prior, B, moments.squeeze(-1), (both / noise).sum(-1))


@torch.no_grad()
def with_constant_mean(
    prior: NystromPosterior, B: Tensor, moments: Tensor, sums: Tensor
) -> NystromPosterior:
    r"""The posterior of data that are known by their sums. Cost: O(m^3).

    Args:
        prior: As in `condition_with_constant_mean`.
        B: `m x m`, :math:`I + \Phi D^{-1} \Phi^\top`.
        moments: `2 x m`, :math:`\Phi D^{-1}` times `y` and `1`.
        sums: :math:`1^\top D^{-1}` times `y` and `1`.
    """
    L_B = inner_cholesky(B)
    a, a_1 = solve_rows(L_B, moments)
    least = torch.finfo(sums.dtype).eps * sums[1]  # what rounding may leave of it
    c = (sums[0] - a_1 @ a) / torch.maximum(sums[1] - a_1 @ a_1, least)
    return replace(
        prior,
        mean_module=constant_mean(c),
        chol_inner=L_B,
        weights=a - c * a_1,
    )
