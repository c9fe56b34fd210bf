r"""The low-rank prior of the training points, whose `log_prob` is the fit objective.

With the features :math:`\Phi` of the inducing points, the residual `r`, and the noise
variances `D` that the likelihood adds, the objective is the DTC likelihood or the
collapsed bound [Titsias2009]_, Eq. 9:

.. math::
    \log N(y; c, \Phi^\top \Phi + D) - \tfrac12 \sum_i r(x_i, x_i) / d_i.

GPyTorch's likelihoods rebuild the distribution from its class, mean and covariance, so
all that the objective needs travels in the covariance operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from linear_operator.operators import (
    AddedDiagLinearOperator,
    LinearOperator,
    RootLinearOperator,
)
from linear_operator.utils.memoize import cached
from torch import Tensor

from botorch_sparse.argument_checks import short_repr
from botorch_sparse.kernels import kernel_for_fit
from botorch_sparse.posteriors import (
    FoldedData,
    NystromFeatures,
    RepeatedRows,
    fold_repeats,
)
from botorch_sparse.posteriors.factorization import (
    RELATIVE_RESIDUAL_OF_FITS,
    factorize_batch,
)
from botorch_sparse.posteriors.objective import low_rank_objective

if TYPE_CHECKING:
    from linear_operator.operators.linear_operator_representation_tree import (
        LinearOperatorRepresentationTree,
    )
    from linear_operator.utils.getitem import IndexType


class NystromPriorLinearOperator(LinearOperator):
    r"""The covariance :math:`\Phi^\top \Phi` of points, as what it is made of.

    It carries its fields through a likelihood to `NystromPrior.log_prob`, which never
    forms the features. `X` are `batch_shape x n_u x d` different points, and `rows`
    says which of them each of the `n` rows is.
    """

    def __init__(
        self,
        X: Tensor,
        *,
        features: NystromFeatures,
        rows: RepeatedRows | None,
        with_residual: bool,
    ) -> None:
        super().__init__(X, features=features, rows=rows, with_residual=with_residual)
        self.X = X
        self.features = features
        self.rows = rows
        self.with_residual = with_residual

    def objective(self, error: Tensor, noise: Tensor) -> Tensor:
        """The objective of `batch_shape x n` errors and noise variances. O(n_u m^2)."""
        data = FoldedData(error.double(), noise.double(), error.new_zeros(()))
        if self.rows is not None:
            data = fold_repeats(self.rows, data.Y, data.noise)
        value = low_rank_objective(
            self.features, self.X, data.Y, data.noise, with_residual=self.with_residual
        )
        return (value + data.log_likelihood_gain).to(error.dtype)

    @cached(name="evaluated")
    def evaluate(self) -> RootLinearOperator:
        """The features of all rows, with all gradients. Cost: O(n m^2)."""
        known = self.features
        exact = NystromFeatures.of(known.covar_module, known.inducing_points)
        phi = exact.features(self.X.to(known.inducing_points)).to(self.X)
        if self.rows is not None:
            phi = phi[..., self.rows.inverse, :]
        return RootLinearOperator(phi.expand(*self.batch_shape, *phi.shape[-2:]))

    def root_decomposition(self, method: str | None = None) -> LinearOperator:
        """The features are the root."""
        return self.evaluate()

    def representation(self) -> tuple[Tensor, ...]:
        """The evaluated operator's tensors, which carry the kernel's gradient."""
        return self.evaluate().representation()

    def representation_tree(self) -> LinearOperatorRepresentationTree:
        """How to build the evaluated operator from its tensors."""
        return self.evaluate().representation_tree()

    def _size(self) -> torch.Size:
        n = self.X.shape[-2] if self.rows is None else len(self.rows.inverse)
        batches = (self.X.shape[:-2], self.features.chol_inducing.shape[:-2])
        return torch.Size((*torch.broadcast_shapes(*batches), n, n))

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.evaluate()._matmul(rhs)

    def _diagonal(self) -> Tensor:
        return self.evaluate()._diagonal()

    def _transpose_nonbatch(self) -> LinearOperator:
        return self

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> LinearOperator:
        if torch.Size(batch_shape) == self.batch_shape:
            return self
        return self.evaluate()._expand_batch(batch_shape)

    def _getitem(
        self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType
    ) -> LinearOperator:
        return self.evaluate()._getitem(row_index, col_index, *batch_indices)


class NystromPrior(MultivariateNormal):
    r"""A Gaussian with a Nystrom covariance and the low-rank objective as `log_prob`.

    `log_prob` is the objective once a likelihood has added its noise. It costs
    O(n m^2), whatever `gpytorch.settings.fast_computations` says, and repeated points
    count once.

    `SparseSingleTaskGP` makes it in train mode. GPyTorch makes others of it, from a
    mean and a covariance.

    Args:
        mean: `batch_shape x n`.
        covariance_matrix: `batch_shape x n x n`, a tensor or a linear operator.
        validate_args: As in `MultivariateNormal`.

    Raises:
        InputDataError: If these are something else, such as a kernel.
    """

    def __init__(
        self,
        mean: Tensor | LinearOperator,
        covariance_matrix: Tensor | LinearOperator | None = None,
        validate_args: bool = False,
    ) -> None:
        for given in (mean, covariance_matrix):
            if not isinstance(given, Tensor | LinearOperator):
                raise InputDataError(
                    f"Got mean={short_repr(mean)} and covariance_matrix="
                    f"{short_repr(covariance_matrix)}; need `n` numbers and an `n x n` "
                    "matrix, each a tensor or a linear operator. For the prior of a "
                    "kernel call SparseSingleTaskGP(X, Y, covar_module=kernel) in "
                    "train mode, or NystromPosterior.prior(kernel, inducing_points)."
                )
        super().__init__(mean, covariance_matrix, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """The objective at `value`, a `batch_shape x n` tensor of observations.

        Raises:
            UnsupportedError: If the covariance is not the low-rank prior's plus a
                diagonal of noise: without noise the distribution is degenerate, and
                anything else would cost O(n^3).
        """
        noisy = self.lazy_covariance_matrix
        prior = getattr(noisy, "_linear_op", noisy)
        if isinstance(noisy, AddedDiagLinearOperator) and isinstance(
            prior, NystromPriorLinearOperator
        ):
            noise = noisy._diag_tensor.diagonal(dim1=-1, dim2=-2)
            return prior.objective(value - self.mean, noise)
        raise UnsupportedError(
            "The low-rank objective needs the prior of a model in train mode plus a "
            f"diagonal of noise; the covariance is a {type(noisy).__name__} of "
            f"{type(prior).__name__}. Call likelihood(model(X)).log_prob(Y) with a "
            "Gaussian likelihood, and do not scale or slice the prior. For a dense "
            "log_prob give its mean and covariance_matrix to MultivariateNormal."
        )


def nystrom_prior(
    covar_module: Kernel,
    mean_module: Mean,
    inducing_points: Tensor,
    X: Tensor,
    rows: RepeatedRows | None = None,
    *,
    with_residual: bool = True,
) -> NystromPrior:
    """The prior at `X` in terms of Nystrom features, float64, repeats embedded once.

    Inducing points that the others explain nearly are left out. With the residual the
    objective is the collapsed bound, else the DTC likelihood. It costs O(n m^2), `n`
    without repeats.
    """
    if rows is not None and len(rows.first) == len(rows.inverse):
        rows = None
    points = X if rows is None else X[..., rows.first, :]
    mean = mean_module(points)
    covariance = NystromPriorLinearOperator(
        points,
        features=_features(
            kernel_for_fit(covar_module, X.dtype), inducing_points.double()
        ),
        rows=rows,
        with_residual=with_residual,
    )
    return NystromPrior(mean if rows is None else mean[..., rows.inverse], covariance)


def _features(kernel: Kernel, S: Tensor) -> NystromFeatures:
    """Features whose factor has no gradient: the objective differentiates `K_SS`."""
    with torch.no_grad():
        factor = factorize_batch(kernel(S).to_dense(), RELATIVE_RESIDUAL_OF_FITS)
    return NystromFeatures.from_factor(kernel, S, factor)
