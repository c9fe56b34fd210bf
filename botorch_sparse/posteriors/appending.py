"""Appending inducing points to a posterior by border updates of its factors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from botorch_sparse.linear_operators import UpdatableCholeskyLinearOperator
from botorch_sparse.posteriors.factorization import independent_points

if TYPE_CHECKING:
    from botorch_sparse.posteriors.nystrom import NystromPosterior


def append_inducing(
    posterior: NystromPosterior, X_new: Tensor, X: Tensor, Y: Tensor, noise: Tensor
) -> NystromPosterior:
    r"""Append inducing points: border updates of `L` and `L_B`.

    Needs the data again, since the new features must be taken at all of them. New
    points that the present ones explain to rounding are left out.

    Args:
        posterior: An unbatched posterior.
        X_new: A `p x d` tensor of points to append.
        X: All data so far, `n x d`.
        Y: `n` observations.
        noise: `n` noise variances.

    Returns:
        A new posterior, whose `inducing_index` counts through the present inducing
        points and then `X_new`. Cost: O(n (m + p)^2) for the statistics, O(m^2 p) for
        the factors.
    """
    S, m = posterior.inducing_points, posterior.num_inducing
    # Taken once: for fewer rows the kernel would round otherwise, and the points that
    # are independent in one rounding need not be in another.
    cross = posterior.covariance_with_inducing(X_new)
    corner = posterior.covar_module(X_new).to_dense()
    phi = posterior.features_from_covariance(cross)
    kept = independent_points(corner - phi @ phi.mT, corner.diagonal())
    X_new, cross, corner = X_new[kept], cross[:, kept], corner[kept][:, kept]
    grown = replace(
        posterior,
        inducing_points=torch.cat([S, X_new], dim=-2),
        inducing_index=torch.cat([torch.arange(m, device=S.device), m + kept]),
        chol_inducing=_append(posterior.chol_inducing, cross, corner),
    )
    gram, b = grown.statistics(X, Y, noise)
    B_corner = gram[m:, m:] + torch.eye(len(kept), dtype=S.dtype, device=S.device)
    return grown.replace_inner(_append(posterior.chol_inner, gram[:m, m:], B_corner), b)


def _append(L: Tensor, cross: Tensor, corner: Tensor) -> Tensor:
    """Factor of the matrix of `L` bordered by `cross` and `corner`."""
    grown = UpdatableCholeskyLinearOperator(L).append(cross, corner)
    return grown.cholesky().to_dense()
