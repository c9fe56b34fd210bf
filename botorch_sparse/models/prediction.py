"""Joint predictions of a Nystrom posterior, and what its inducing points leave out."""

from typing import NamedTuple

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from torch import Tensor

from botorch_sparse.linear_operators import PosteriorCovarianceLinearOperator
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
        A Gaussian over `batch_shape x q`. Cost for `b` batches: O(b q m^2), and
        O(b q^2 m) for the joint covariance, which is not formed for large `q` before
        something asks for it: means and variances of all data stay cheap.
    """
    # One triangular solve for all points: with a batch dimension the m x m factor would
    # be copied for each of its elements.
    Z = X.to(posterior.inducing_points.dtype)
    phi = posterior.features(Z.reshape(-1, Z.shape[-1]))
    w = posterior.whiten(phi)
    phi, w = (F.reshape(*Z.shape[:-1], F.shape[-1]) for F in (phi, w))
    mean = posterior.mean_module(Z) + w @ posterior.weights
    covariance = PosteriorCovarianceLinearOperator(
        Z, phi, w, covar_module=posterior.covar_module
    )
    if Z.shape[-2] > LARGE_Q:
        return MultivariateNormal(mean.to(X.dtype), covariance.to(X.dtype))
    dense = covariance.to_dense().to(X.dtype)
    return MultivariateNormal(mean.to(X.dtype), to_linear_operator(dense))


# Points above which the joint covariance stays a lazy operator.
LARGE_Q = 256


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
