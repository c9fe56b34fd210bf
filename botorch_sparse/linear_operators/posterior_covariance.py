"""The joint posterior covariance of many points, not formed before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel
    from linear_operator.operators._linear_operator import IndexType


class PosteriorCovarianceLinearOperator(LinearOperator):
    r"""Covariance of a Nystrom posterior [Calandriello2019]_.

    .. math:: \mathrm{cov}(x, x') = k(x, x') - \phi(x)^\top \phi(x') + w(x)^\top w(x')

    The diagonal, that is all variances, costs O(q m); everything else forms the
    `q x q` matrix. The residual's diagonal is clamped at zero.

    Args:
        X: `batch_shape x q x d` points.
        phi: `batch_shape x q x m` Nystrom features.
        w: `batch_shape x q x m` whitened features.
        covar_module: The kernel.
    """

    def __init__(
        self, X: Tensor, phi: Tensor, w: Tensor, *, covar_module: Kernel
    ) -> None:
        super().__init__(X, phi, w, covar_module=covar_module)
        self.X = X
        self.phi = phi
        self.w = w
        self.covar_module = covar_module

    def to_dense(self) -> Tensor:
        """The matrix, `batch_shape x q x q`. Cost: O(q^2 m)."""
        K = self.covar_module(self.X).to_dense().to(self.dtype)
        residual = K - self.phi @ self.phi.mT
        below_zero = residual.diagonal(dim1=-2, dim2=-1).clamp_max(0.0)
        return residual - torch.diag_embed(below_zero) + self.w @ self.w.mT

    def _diagonal(self) -> Tensor:
        k_diag = self.covar_module(self.X, diag=True).to(self.dtype)
        residual = (k_diag - self.phi.square().sum(-1)).clamp_min(0.0)
        return residual + self.w.square().sum(-1)

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.to_dense() @ rhs

    def _size(self) -> torch.Size:
        return torch.Size((*self.w.shape[:-1], self.w.shape[-2]))

    def _transpose_nonbatch(self) -> PosteriorCovarianceLinearOperator:
        return self

    def _getitem(
        self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType
    ) -> LinearOperator:
        dense = to_linear_operator(self.to_dense())
        return dense._getitem(row_index, col_index, *batch_indices)
