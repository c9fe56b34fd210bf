r"""A constant prior mean that the data decide on.

The best constant by generalized least squares,

.. math:: \hat c = \frac{1^\top \Sigma^{-1} y}{1^\top \Sigma^{-1} 1}, \qquad
    \Sigma = \Phi^\top \Phi + D,

is the intercept of the ridge regression that the posterior mean is. A constant added to
all observations moves it by as much, and leaves `y - c` as it was.
"""

from dataclasses import replace

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, Mean
from torch import Tensor

from botorch_sparse.kernels import dense_covariance
from botorch_sparse.posteriors.factorization import (
    factorize_batch,
    inner_cholesky,
    plain_factor,
)
from botorch_sparse.posteriors.features import NystromFeatures, solve_rows
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
    """Condition on data whose constant mean is estimated from them. Cost: O(n m^2).

    `prior` is unbatched and without data; its mean has no part in it.
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

    `B` is :math:`I + \Phi D^{-1} \Phi^\top`; `moments` (`2 x m`) and `sums` are
    :math:`\Phi D^{-1}` and :math:`1^\top D^{-1}` times `y` and `1`.
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


@torch.no_grad()
def posterior_of_chosen(
    covar_module: Kernel,
    X: Tensor,
    Y: Tensor,
    noise: Tensor,
    chosen: Tensor,
    k_diag: Tensor,
    *,
    mean_module: Mean | None = None,
    chunk_size: int | None = None,
    covariance: Tensor | None = None,
) -> NystromPosterior:
    """`NystromPosterior.from_data` for inducing points among the data, `m` rows of `X`.

    The columns of `k_S(X)` at the inducing points are `K_SS`. The host waits for an
    accelerator for the factor of that alone. GPyTorch compares inputs of one shape with
    one another, which the host would wait for: there is one column more, of the first
    point once again. Without a `mean_module` the data decide on a constant. Where
    `k_S(X)` is known it is the `covariance`, `m x n`. Cost: O(n m^2) time and O(n m)
    memory.
    """
    S, K = X[chosen], covariance
    if K is None:
        K = dense_covariance(covar_module, S, torch.cat([X, X[:1]]))[:, :-1]
    K_SS = K[:, chosen]
    K_SS.diagonal().copy_(k_diag)  # between equal points it is rounded otherwise
    factor, is_regular = plain_factor(K_SS)
    if not is_regular:
        factor = factorize_batch(K_SS, is_singular=True)
    features = NystromFeatures.from_factor(
        covar_module, S, factor, chunk_size=chunk_size
    )
    prior = NystromPosterior.without_data(features, mean_module)
    phi = prior.features_from_covariance(K[factor.index])
    scaled = phi / noise.unsqueeze(-1)
    B = prior.chol_inner + scaled.mT @ phi  # the first is the identity
    if mean_module is None:
        both = torch.stack([Y, torch.ones_like(Y)])
        return with_constant_mean(prior, B, both @ scaled, (both / noise).sum(-1))
    error = Y - mean_module(X)
    return prior.replace_inner(inner_cholesky(B), scaled.mT @ error.unsqueeze(-1))
