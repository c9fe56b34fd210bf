"""The posterior whose inducing points are data, with one evaluation of the kernel."""

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from botorch_sparse.kernels import dense_covariance
from botorch_sparse.posteriors.constant_mean import with_constant_mean
from botorch_sparse.posteriors.factorization import factorize_batch, plain_factor
from botorch_sparse.posteriors.features import NystromFeatures
from botorch_sparse.posteriors.inner_factor import inner_cholesky
from botorch_sparse.posteriors.nystrom import NystromPosterior


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
    chunk_size: int,
) -> NystromPosterior:
    r"""`NystromPosterior.from_data` for inducing points among the data.

    The columns of `k_S(X)` at the inducing points are `K_SS`. The host waits for an
    accelerator for the factor of that alone. GPyTorch compares inputs of one shape with
    one another, which the host would wait for: there is one column more, of the first
    point once again.

    Args:
        covar_module: The kernel.
        X: `n x d` points.
        Y: `n` observations.
        noise: `n` noise variances, positive.
        chosen: `m` rows of `X`, the inducing points.
        k_diag: `m` prior variances at them.
        mean_module: The prior mean; None for a constant that the data decide on.
        chunk_size: See `NystromPosterior`.

    Returns:
        The posterior. Cost: O(n m^2) time and O(n m) memory.
    """
    S = X[chosen]
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
