"""Joint predictions of a Nystrom posterior, and what its inducing points leave out."""

from typing import NamedTuple

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior


def predict(posterior: NystromPosterior, X: Tensor) -> MultivariateNormal:
    r"""The joint posterior at `X`.

    .. math::
        \mu(x) = c(x) + w(x)^\top a, \qquad
        \mathrm{cov}(x, x') = k(x, x') - \phi(x)^\top \phi(x') + w(x)^\top w(x')

    Args:
        posterior: An unbatched posterior, in the dtype of `X` or in float64.
        X: A `batch_shape x q x d` tensor.

    Returns:
        A Gaussian over `batch_shape x q`. Cost for `b` batches: O(b q m^2 + b q^2 m).
    """
    # One triangular solve for all points: with a batch dimension the m x m factor would
    # be copied for each of its elements.
    Z = X.to(posterior.inducing_points.dtype)
    phi = posterior.features(Z.reshape(-1, Z.shape[-1]))
    w = posterior.whiten(phi)
    phi, w = (F.reshape(*Z.shape[:-1], F.shape[-1]) for F in (phi, w))
    mean = posterior.mean_module(Z) + w @ posterior.weights
    residual = posterior.covar_module(Z).to_dense() - phi @ phi.mT
    below_zero = residual.diagonal(dim1=-2, dim2=-1).clamp_max(0.0)
    covariance = residual - torch.diag_embed(below_zero) + w @ w.mT
    return MultivariateNormal(
        mean.to(X.dtype), to_linear_operator(covariance.to(X.dtype))
    )


class Residual(NamedTuple):
    """What the inducing points do not explain of the prior variance."""

    trace: float
    fraction: float


@torch.no_grad()
def residual_fraction(
    covar_module: Kernel, X: Tensor, inducing_points: Tensor
) -> Residual:
    r"""The trace of :math:`K - \Phi^\top \Phi`, and its share of the trace of `K`.

    Args:
        covar_module: The kernel.
        X: `n x d` points.
        inducing_points: `m x d` inducing points.

    Returns:
        Both numbers. Cost: O(n m^2) time, O(chunk_size m) memory.
    """
    prior = NystromPosterior.prior(covar_module, inducing_points)
    trace = sum(
        prior.residual(chunk, prior.features(chunk)).sum()
        for chunk in X.split(prior.chunk_size)
    )
    total = covar_module(X, diag=True).sum()
    return Residual(float(trace), float(trace / total))
