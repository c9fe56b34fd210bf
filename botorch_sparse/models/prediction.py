"""Joint predictions of a Nystrom posterior."""

from collections.abc import Callable

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from botorch_sparse.posteriors import (
    KnownFeatures,
    NystromPosterior,
    PosteriorCovarianceLinearOperator,
)
from botorch_sparse.posteriors.features import inner_rows
from botorch_sparse.posteriors.joint_covariance import Embedded, JointCovariance
from botorch_sparse.posteriors.nystrom import Moments, joint_covariance

# Points above which the joint covariance stays a lazy operator.
LARGE_Q = 256


def predict(
    posterior: NystromPosterior,
    X: Tensor,
    *,
    known: KnownFeatures | None = None,
    on_dense: Callable[[int], None] | None = None,
) -> MultivariateNormal:
    r"""The joint posterior at `X`.

    .. math::
        \mu(x) = c(x) + w(x)^\top a, \qquad
        \mathrm{cov}(x, x') = k(x, x') - \phi(x)^\top \phi(x') + w(x)^\top w(x')

    Args:
        posterior: A posterior in the dtype of `X` or in float64.
        X: A `batch_shape x q x d` tensor; `batch_shape` broadcasts with that of the
            posterior.
        known: What `X` begins with, where this posterior's features are known.
        on_dense: Called with `q` when a joint covariance that was not formed here is.

    Returns:
        A Gaussian over `broadcast(batch_shape, posterior.batch_shape) x q`. Cost for
        `b` batches: O(b q m^2), and O(b q^2 m) for the joint covariance, which is not
        formed for large `q` before something asks for it: means and variances of all
        data take O(chunk_size m) memory.
    """
    batch_shape = torch.broadcast_shapes(X.shape[:-2], posterior.batch_shape)
    Z = X.to(posterior.inducing_points.dtype)
    if known is None and Z.shape[-2] > posterior.chunk_size:
        joint = JointCovariance(posterior, Z, on_dense=on_dense)
        return _lazy(joint, posterior.moments(Z), batch_shape, X.dtype)
    if known is None:
        phi = posterior.features(Z)
        w = posterior.whiten(phi)
    else:
        phi, w = known.embed(Z)
    mean = posterior.mean_module(Z) + inner_rows(w, posterior.weights)
    # What is the same for all fantasies is computed once, and expanded after it.
    if Z.shape[-2] > LARGE_Q:
        joint = JointCovariance(posterior, Z, Embedded(Z, phi, w), on_dense)
        variance = posterior.residual(Z, phi) + w.square().sum(-1)
        return _lazy(joint, Moments(mean, variance), batch_shape, X.dtype)
    mean = mean.expand(*batch_shape, Z.shape[-2]).to(X.dtype)
    dense = joint_covariance(posterior.covar_module, Z, phi, w).to(X.dtype)
    dense = dense.expand(*batch_shape, *dense.shape[-2:])
    return MultivariateNormal(mean, to_linear_operator(dense))


def _lazy(
    joint: JointCovariance,
    moments: Moments,
    batch_shape: torch.Size,
    dtype: torch.dtype,
) -> MultivariateNormal:
    """The Gaussian of known moments."""
    mean, variance = (t.expand(*batch_shape, -1) for t in moments)
    covariance = PosteriorCovarianceLinearOperator.of(joint, variance, dtype)
    return MultivariateNormal(mean.to(dtype), covariance)
