r"""What GSSBO tells a confidence radius.

References:
    [Wei2025]_ Theorems 5.1 and 5.2.
"""

import math

import torch
from botorch.exceptions import InputDataError

from botorch_sparse.acquisition.confidence import (
    ConfidenceRadius,
    FixedBeta,
    GSSBORadius,
    RadiusStatistics,
    SrinivasCompactRadius,
    SubsetStatistics,
)
from botorch_sparse.models import SubsetSingleTaskGP
from botorch_sparse.models.subset.fixed_subset import all_observations
from botorch_sparse.posteriors import NystromPosterior

RADII = (FixedBeta, GSSBORadius, SrinivasCompactRadius)


def validate_radius(radius: object) -> ConfidenceRadius:
    """Refuse radii that need what a model of a subset does not have.

    Raises:
        InputDataError: If it is not one of `RADII`.
    """
    if not isinstance(radius, RADII):
        names = ", ".join(cls.__name__ for cls in RADII)
        raise InputDataError(
            f"Got radius={radius!r}; need one of {names}, such as FixedBeta(4.0) for "
            "a constant beta. Radii that rest on an information gain need the "
            "posterior of all data: take BBKB."
        )
    return radius


def subset_statistics(
    radius: ConfidenceRadius, model: SubsetSingleTaskGP | None, num_evaluations: int
) -> RadiusStatistics:
    """The statistics that a radius needs, in units of the model's outcomes.

    The spectral error is bounded by the trace of the residual, O(n M^2), for the radii
    that look at it.

    Args:
        radius: The radius.
        model: The model of the subset; None before any feedback.
        num_evaluations: Evaluations so far.
    """
    lam = 1.0 if model is None else float(model.likelihood.noise.detach().mean())
    if not isinstance(radius, GSSBORadius) or model is None:
        return RadiusStatistics(lam=lam, num_evaluations=num_evaluations)
    return _with_errors(model, lam, num_evaluations)


@torch.no_grad()
def _with_errors(
    model: SubsetSingleTaskGP, lam: float, num_evaluations: int
) -> SubsetStatistics:
    r"""With the measured errors of Theorem 5.1; O(n M^2).

    Each of M samples tells of :math:`f(x)` at most what one at x itself would, so that
    :math:`\sigma^2(x) \ge 1 / (1 / k(x, x) + M / \lambda)` for a stationary kernel.
    """
    X, error, _ = all_observations(model)
    S = X[model.subset_indices]
    noise = torch.full_like(error, lam)
    posterior = NystromPosterior.from_data(model.covar_module, X, error, noise, S)
    residual = posterior.residual(X, posterior.features(X))
    k_max = float(model.covar_module(S, diag=True).max())
    return SubsetStatistics(
        lam=lam,
        num_evaluations=num_evaluations,
        lambda_max=float(residual.sum()) / lam,
        feedback_norm=float(error.norm()),
        cross_covariance_norm=k_max * math.sqrt(len(X)),
        min_std=(1 / (1 / k_max + len(S) / lam)) ** 0.5,
    )
