"""The joint posterior covariance of many points, not formed before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel
    from linear_operator.utils.getitem import IndexType


class PriorCovariance(NamedTuple):
    """The prior covariance of `batch_shape x q x d` points, in blocks.

    Attributes:
        covar_module: The kernel.
        X: The points.
        on_dense: Called with `q` when the posterior's `q x q` matrix is formed.
    """

    covar_module: Kernel
    X: Tensor
    on_dense: Callable[[int], None] | None = None

    def block(self, rows: slice, columns: slice) -> Tensor:
        """Some rows and columns of the matrices of all elements of the batch."""
        if self.X.shape[-2] == 1:
            return self.diagonal()[..., rows].unsqueeze(-1)[..., columns]
        X, X2 = self.X[..., rows, :], self.X[..., columns, :]
        # One tensor for the same points: the kernel's diagonal is then exact.
        K = self.covar_module(X) if rows == columns else self.covar_module(X, X2)
        return K.to_dense()

    def diagonal(self) -> Tensor:
        """The prior variances, `batch_shape x q`."""
        return self.covar_module(self.X, diag=True)


class PosteriorCovarianceLinearOperator(LinearOperator):
    r"""Covariance of a Nystrom posterior [Calandriello2019]_.

    .. math:: \mathrm{cov}(x, x') = k(x, x') - \phi(x)^\top \phi(x') + w(x)^\top w(x')

    The diagonal, that is all variances, costs O(q m); so does the choice of an element
    of the batch or of an output. A block of rows and columns costs what it holds.
    Everything else forms the `q x q` matrix. The residual's diagonal is clamped at
    zero. Build it with `from_features`. Another dtype is that of results: the terms,
    which nearly cancel, stay in the one they are in.

    Args:
        phi: `batch_shape x q x m` Nystrom features.
        w: `batch_shape x q x m` whitened features.
        k_diag: `batch_shape x q x 1` prior variances.
        element: `batch_shape x 1 x 1`, the element of the prior's batch, counted in row
            order: a kernel cannot follow operations on batch dimensions.
        prior: The prior covariance.
        result_dtype: The dtype of results, by default that of `phi`.
    """

    def __init__(
        self,
        phi: Tensor,
        w: Tensor,
        k_diag: Tensor,
        element: Tensor,
        *,
        prior: PriorCovariance,
        result_dtype: torch.dtype | None = None,
    ) -> None:
        result_dtype = result_dtype or phi.dtype
        super().__init__(
            phi, w, k_diag, element, prior=prior, result_dtype=result_dtype
        )
        self.phi = phi
        self.w = w
        self.k_diag = k_diag
        self.element = element
        self.prior = prior
        self.result_dtype = result_dtype

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of results."""
        return self.result_dtype

    def type(self, dtype: torch.dtype) -> PosteriorCovarianceLinearOperator:
        """The same covariance with results of another dtype."""
        return type(self)(*self._args, prior=self.prior, result_dtype=dtype)

    def to(self, *args: Any, **kwargs: Any) -> LinearOperator:
        """As in `Tensor.to`; see `type`. What goes to another device is dense."""
        like = torch.empty(0, dtype=self.dtype, device=self.device).to(*args, **kwargs)
        if like.device != self.device:
            return to_linear_operator(self.to_dense().to(like))
        return self.type(like.dtype)

    @classmethod
    def from_features(
        cls,
        X: Tensor,
        phi: Tensor,
        w: Tensor,
        *,
        covar_module: Kernel,
        on_dense: Callable[[int], None] | None = None,
    ) -> PosteriorCovarianceLinearOperator:
        """The covariance of `X` (`batch_shape x q x d`), whose features are known."""
        batch_shape = torch.broadcast_shapes(*(t.shape[:-2] for t in (X, phi, w)))
        X, phi, w = (t.expand(*batch_shape, *t.shape[-2:]) for t in (X, phi, w))
        prior = PriorCovariance(covar_module, X, on_dense)
        element = torch.arange(batch_shape.numel(), device=X.device)
        element = element.reshape(*batch_shape, 1, 1)
        return cls(phi, w, prior.diagonal().unsqueeze(-1), element, prior=prior)

    def to_dense(self) -> Tensor:
        """The matrix, `batch_shape x q x q`. Cost: O(q^2 m)."""
        if self.prior.on_dense is not None:
            self.prior.on_dense(self.shape[-1])
        return self._block(slice(None), slice(None))

    def representation(self) -> tuple[Tensor, ...]:
        """The dense matrix, which alone the points and the kernel reach."""
        return to_linear_operator(self.to_dense()).representation()

    def representation_tree(self) -> Any:
        """How to build the dense matrix from itself."""
        return to_linear_operator(self.to_dense()).representation_tree()

    def _residual(self) -> Tensor:
        """The residual's diagonal, not clamped."""
        return self.k_diag.squeeze(-1) - self.phi.square().sum(-1)

    def _diagonal(self) -> Tensor:
        variance = self._residual().clamp_min(0.0) + self.w.square().sum(-1)
        return variance.to(self.dtype)

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.to_dense() @ rhs

    def _size(self) -> torch.Size:
        return torch.Size((*self.w.shape[:-1], self.w.shape[-2]))

    def _transpose_nonbatch(self) -> PosteriorCovarianceLinearOperator:
        return self

    def _block(self, rows: slice, columns: slice) -> Tensor:
        """Some rows and columns of the matrix."""
        points = torch.arange(self.shape[-1], device=self.device)
        i, j = points[rows].unsqueeze(-1), points[columns]
        K = self.prior.block(rows, columns).to(self.phi.dtype)
        K = K.reshape(K.shape[:-2].numel(), *K.shape[-2:])
        own = K.index_select(0, self.element.flatten().long())  # no wait, even for one
        K = own.reshape(*self.element.shape[:-2], *K.shape[-2:])
        block = K - self.phi[..., rows, :] @ self.phi[..., columns, :].mT
        below_zero = self._residual().clamp_max(0.0)[..., rows].unsqueeze(-1)
        block = block - torch.where(i == j, below_zero, 0.0)
        block = block + self.w[..., rows, :] @ self.w[..., columns, :].mT
        return block.to(self.dtype)

    def _expand_batch(
        self, batch_shape: torch.Size | list[int]
    ) -> PosteriorCovarianceLinearOperator:
        args = (arg.expand(*batch_shape, *arg.shape[-2:]) for arg in self._args)
        return type(self)(*args, **self._kwargs)

    def _getitem(
        self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType
    ) -> LinearOperator:
        is_block = isinstance(row_index, slice) and isinstance(col_index, slice)
        if not is_block:
            dense = to_linear_operator(self.to_dense())
            return dense._getitem(row_index, col_index, *batch_indices)
        args = (arg[batch_indices] if batch_indices else arg for arg in self._args)
        chosen = type(self)(*args, **self._kwargs)
        if row_index == col_index == slice(None):
            return chosen
        return to_linear_operator(chosen._block(row_index, col_index))
