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

import math

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import (
    AddedDiagLinearOperator,
    InterpolatedLinearOperator,
    LinearOperator,
)
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from botorch_sparse.linear_operators import (
    NystromAddedDiagLinearOperator,
    NystromLinearOperator,
)
from botorch_sparse.posteriors import NystromPosterior, RepeatedRows, fold_repeats

# Features embedded at a time: 16 MB in float64. More than this many are recomputed in
# the backward pass instead of kept.
BLOCK_SIZE = 2**21


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
            return _objective(covariance, value - self.mean)
        if _has_repeats(covariance):
            return _folded_objective(covariance, value - self.mean)
        return super().log_prob(value)


def nystrom_prior(
    features_of: NystromPosterior,
    X: Tensor,
    rows: RepeatedRows | None = None,
    *,
    with_residual: bool = True,
    block_size: int = BLOCK_SIZE,
) -> NystromPrior:
    """The prior at `X` in terms of Nystrom features.

    Args:
        features_of: The features; its data, if any, do not matter.
        X: `n x d` points.
        rows: The repeated rows of `X`, if they are known. Repeats are embedded once.
        with_residual: Whether the objective is the collapsed bound (else the DTC
            likelihood).
        block_size: Features embedded at a time; larger problems are split in rows.

    Returns:
        The distribution. Cost: O(n m^2) time and O(n m) memory, `n` without repeats.
    """
    folds = rows is not None and len(rows.first) < len(rows.inverse)
    points = X[rows.first] if rows is not None and folds else X
    phi, residual = embed(features_of, points, with_residual, block_size)
    mean = features_of.mean_module(points)
    covariance: LinearOperator = NystromLinearOperator(phi, residual)
    if rows is not None and folds:
        index = rows.inverse.unsqueeze(-1)
        covariance = InterpolatedLinearOperator(
            covariance, left_interp_indices=index, right_interp_indices=index
        )
        mean = mean[..., rows.inverse]
    return NystromPrior(mean, covariance)


def embed(
    features_of: NystromPosterior, X: Tensor, with_residual: bool, block_size: int
) -> tuple[Tensor, Tensor | None]:
    """Features `n x m` of the rows of `X`, and their residual `n` if wanted.

    Above `block_size` features, blocks of rows are recomputed in the backward pass, so
    that the kernel's intermediate results are kept for one block only.
    """

    def embed_block(block: Tensor) -> tuple[Tensor, Tensor]:
        phi = features_of.features(block)
        if not with_residual:
            return phi, phi.new_empty(0)
        return phi, features_of.residual(block, phi)

    size = max(1, block_size // max(1, features_of.num_inducing))
    if X.shape[-2] <= size:
        phi, residual = embed_block(X)
    else:
        blocks = [
            checkpoint(
                embed_block, block, use_reentrant=False, preserve_rng_state=False
            )
            for block in X.split(size, dim=-2)
        ]
        phi = torch.cat([phi for phi, _ in blocks], dim=-2)
        residual = torch.cat([residual for _, residual in blocks], dim=-1)
    return phi, residual if with_residual else None


def _objective(covariance: NystromAddedDiagLinearOperator, error: Tensor) -> Tensor:
    r""":math:`\log N(e; 0, \Phi^\top \Phi + D) - \frac12 \sum_i r_i / d_i`."""
    inv_quad = covariance.inv_quad(error.unsqueeze(-1))
    normalizer = error.shape[-1] * math.log(2 * math.pi)
    log_prob = -0.5 * (inv_quad + covariance.logdet() + normalizer)
    return log_prob - covariance.collapsed_penalty()


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
    first = torch.arange(repeated.base_linear_op.shape[-1], device=inverse.device)
    rows = RepeatedRows(first=first, inverse=inverse)  # only its sums are used
    folded = fold_repeats(rows, error, noise.diagonal(dim1=-1, dim2=-2))
    unique = repeated.base_linear_op.add_diagonal(folded.noise)
    return _objective(unique, folded.Y) + folded.log_likelihood_gain
