r"""The low-rank prior of the training points, whose `log_prob` is the fit objective.

With the features :math:`\Phi` and the residual `r` of `NystromPosterior`, and the
noise variances `D` that the likelihood adds, the objective is the DTC likelihood or the
collapsed bound [Titsias2009]_, Eq. 9:

.. math::
    \log N(y; c, \Phi^\top \Phi + D) - \tfrac12 \sum_i r(x_i, x_i) / d_i.

GPyTorch's likelihoods rebuild the distribution from its class, mean and covariance, so
all that the objective needs travels in the covariance operator: the residual (none for
the DTC likelihood), and which rows are repeats.
"""

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import (
    AddedDiagLinearOperator,
    InterpolatedLinearOperator,
    LinearOperator,
)
from torch import Tensor

from botorch_sparse.linear_operators import (
    NystromAddedDiagLinearOperator,
    NystromLinearOperator,
)
from botorch_sparse.models.lazy_nystrom import LazyNystromLinearOperator
from botorch_sparse.models.low_rank_objective import (
    has_known_hyperparameters,
    low_rank_objective,
)
from botorch_sparse.posteriors import NystromPosterior, RepeatedRows, fold_repeats


class NystromPrior(MultivariateNormal):
    r"""A Gaussian with a Nystrom covariance and the low-rank objective as `log_prob`.

    `log_prob` is the objective once a likelihood has added its noise. It costs
    O(n m^2), whatever `gpytorch.settings.fast_computations` says, and repeated points
    count once. Without noise the distribution is degenerate, and `log_prob` is the
    parent's.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        """The objective at `value`, a `batch_shape x n` tensor of observations."""
        covariance = self.lazy_covariance_matrix
        if isinstance(covariance, NystromAddedDiagLinearOperator):
            noise = covariance.noise
            return _objective(covariance._linear_op, value - self.mean, noise)
        if _has_repeats(covariance):
            return _folded_objective(covariance, value - self.mean)
        return super().log_prob(value)


def nystrom_prior(
    features_of: NystromPosterior,
    X: Tensor,
    rows: RepeatedRows | None = None,
    *,
    with_residual: bool = True,
) -> NystromPrior:
    """The prior at `X` in terms of Nystrom features.

    Args:
        features_of: The features; its data, if any, do not matter.
        X: `batch_shape x n x d` points.
        rows: The repeated rows of `X`, if they are known. Repeats are embedded once.
        with_residual: Whether the objective is the collapsed bound (else the DTC
            likelihood).

    Returns:
        The distribution. Its objective costs O(n m^2), `n` without repeats.
    """
    folds = rows is not None and len(rows.first) < len(rows.inverse)
    points = X[..., rows.first, :] if rows is not None and folds else X
    mean = features_of.mean_module(points)
    covariance: LinearOperator = LazyNystromLinearOperator(
        points,
        features_of.inducing_points,
        features_of.chol_inducing,
        features_of=features_of.feature_map,
        with_residual=with_residual,
    )
    if rows is not None and folds:
        index = rows.inverse.unsqueeze(-1).expand(*covariance.batch_shape, -1, 1)
        covariance = InterpolatedLinearOperator(
            covariance, left_interp_indices=index, right_interp_indices=index
        )
        mean = mean[..., rows.inverse]
    return NystromPrior(mean, covariance)


def _objective(nystrom: NystromLinearOperator, error: Tensor, noise: Tensor) -> Tensor:
    r""":math:`\log N(e; 0, \Phi^\top \Phi + D) - \frac12 \sum_i r_i / d_i`."""
    if isinstance(nystrom, LazyNystromLinearOperator):
        features_of, with_residual = nystrom.features_of, nystrom.with_residual
        if has_known_hyperparameters(features_of):
            return low_rank_objective(
                features_of, nystrom.X, error, noise, with_residual=with_residual
            )
    covariance = nystrom.add_diagonal(noise)
    gaussian = MultivariateNormal(torch.zeros_like(error), covariance)
    with gpytorch.settings.fast_computations(log_prob=True):
        return gaussian.log_prob(error) - covariance.collapsed_penalty()


def _has_repeats(covariance: LinearOperator) -> bool:
    """Whether this is what a likelihood makes of a folded `nystrom_prior`."""
    if not isinstance(covariance, AddedDiagLinearOperator):
        return False
    repeated = covariance._linear_op
    return isinstance(repeated, InterpolatedLinearOperator) and isinstance(
        repeated.base_linear_op, NystromLinearOperator
    )


def _folded_objective(covariance: AddedDiagLinearOperator, error: Tensor) -> Tensor:
    """The objective of all observations from that of the unique points."""
    repeated, noise = covariance._linear_op, covariance._diag_tensor
    inverse = repeated.left_interp_indices.squeeze(-1)
    inverse = inverse.reshape(-1, inverse.shape[-1])[0]  # the same in a batch
    first = torch.arange(repeated.base_linear_op.shape[-1], device=inverse.device)
    rows = RepeatedRows(first=first, inverse=inverse)  # only its sums are used
    folded = fold_repeats(rows, error, noise.diagonal(dim1=-1, dim2=-2))
    objective = _objective(repeated.base_linear_op, folded.Y, folded.noise)
    return objective + folded.log_likelihood_gain
