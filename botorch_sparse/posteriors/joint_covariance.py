"""The joint posterior covariance of many points, not formed before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from linear_operator.operators import LinearOperator
from torch import Tensor

if TYPE_CHECKING:
    from linear_operator.operators.linear_operator_representation_tree import (
        LinearOperatorRepresentationTree,
    )
    from linear_operator.utils.getitem import IndexType


class Embedded(NamedTuple):
    """Points with their features and whitened features."""

    X: Tensor  # `batch_shape x q x d` points
    phi: Tensor  # their features, `batch_shape x q x m`
    w: Tensor  # their whitened features, `batch_shape x q x m`


@dataclass(frozen=True, eq=False)
class JointCovariance:
    """The posterior covariance of `batch_shape x q x d` points, in blocks."""

    kernel: Kernel
    embed: Callable[[Tensor], Embedded]  # the features of points, by the posterior
    batch_shape: torch.Size  # the batch shape of the posterior and the points
    X: Tensor  # the points, in the dtype of the posterior
    chunk_size: int  # rows embedded at a time
    known: Embedded | None = None  # all points embedded, where they are few
    on_dense: Callable[[int], None] | None = None  # called with `q`, if dense

    def block(self, rows: slice, columns: slice) -> Tensor:
        """Some rows and columns, the diagonal not clamped; O(m^2) for each of them."""
        if rows == columns:
            points = self._embedded(rows)
            return self._covariance(points, points)
        q = self.X.shape[-2]
        chosen, others = range(q)[rows], range(q)[columns]
        if len(chosen) > len(others):
            return self.block(columns, rows).mT
        first, size = self._embedded(rows), self.chunk_size
        parts = [
            self._covariance(first, self._embedded(_as_slice(others[i : i + size])))
            for i in range(0, max(1, len(others)), size)
        ]
        return torch.cat(parts, dim=-1)

    def _covariance(self, first: Embedded, second: Embedded) -> Tensor:
        # One tensor for the same points: the kernel's diagonal is then exact.
        kernel, X = self.kernel, first.X
        K = kernel(X) if second is first else kernel(X, second.X)
        return K.to_dense() - first.phi @ second.phi.mT + first.w @ second.w.mT

    def _embedded(self, rows: slice) -> Embedded:
        """Some points and their features, unless these are known."""
        if self.known is not None:
            return Embedded(*(t[..., rows, :] for t in self.known))
        return self.embed(self.X[..., rows, :])


def _as_slice(rows: range) -> slice:
    """The same rows; steps are positive."""
    return slice(rows.start, rows.stop, rows.step)


class PosteriorCovarianceLinearOperator(LinearOperator):
    r"""Covariance of a Nystrom posterior [Calandriello2019]_.

    .. math:: \mathrm{cov}(x, x') = k(x, x') - \phi(x)^\top \phi(x') + w(x)^\top w(x')

    The diagonal, that is all variances, is known; so the choice of an element of the
    batch or of an output costs nothing. A block of rows and columns costs what it
    holds. Everything else forms the `q x q` matrix. Build it with `of`. Results
    may have another dtype: the terms, which nearly cancel, stay in theirs.

    Args:
        variance: `batch_shape x q x 1` posterior variances.
        element: `batch_shape x 1 x 1`, the element of the points' batch, counted in row
            order: a kernel cannot follow operations on batch dimensions.
        joint: The covariance of all elements.
        result_dtype: The dtype of results.
    """

    def __init__(
        self,
        variance: Tensor,
        element: Tensor,
        *,
        joint: JointCovariance,
        result_dtype: torch.dtype,
    ) -> None:
        super().__init__(variance, element, joint=joint, result_dtype=result_dtype)
        self.variance = variance
        self.element = element
        self.joint = joint
        self.result_dtype = result_dtype

    @classmethod
    def of(
        cls, joint: JointCovariance, variance: Tensor, dtype: torch.dtype
    ) -> PosteriorCovarianceLinearOperator:
        """The covariance of points whose variances (`batch_shape x q`) are known.

        Args:
            joint: The covariance.
            variance: Variances, of the batch shape of the points and the posterior.
            dtype: The dtype of results.
        """
        batch_shape = variance.shape[:-1]
        element = torch.arange(batch_shape.numel(), device=variance.device)
        element = element.reshape(*batch_shape, 1, 1)
        return cls(variance.unsqueeze(-1), element, joint=joint, result_dtype=dtype)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of results."""
        return self.result_dtype

    def type(self, dtype: torch.dtype) -> PosteriorCovarianceLinearOperator:
        """The same covariance with results of another dtype."""
        return type(self)(*self._args, joint=self.joint, result_dtype=dtype)

    def to(self, *args: Any, **kwargs: Any) -> LinearOperator:
        """As in `Tensor.to`; see `type`. What goes to another device is dense."""
        like = torch.empty(0, dtype=self.dtype, device=self.device).to(*args, **kwargs)
        if like.device != self.device:
            return to_linear_operator(self.to_dense().to(like))
        return self.type(like.dtype)

    def to_dense(self) -> Tensor:
        """The matrix, `batch_shape x q x q`. Cost: O(q m^2 + q^2 m)."""
        if self.joint.on_dense is not None:
            self.joint.on_dense(self.shape[-1])
        return self._block(slice(None), slice(None))

    def representation(self) -> tuple[Tensor, ...]:
        """The dense matrix, which alone the points and the kernel reach."""
        return to_linear_operator(self.to_dense()).representation()

    def representation_tree(self) -> LinearOperatorRepresentationTree:
        """How to build the dense matrix from itself."""
        return to_linear_operator(self.to_dense()).representation_tree()

    def _diagonal(self) -> Tensor:
        return self.variance.squeeze(-1).to(self.dtype)

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.to_dense() @ rhs

    def _size(self) -> torch.Size:
        return torch.Size((*self.variance.shape[:-1], self.variance.shape[-2]))

    def _transpose_nonbatch(self) -> PosteriorCovarianceLinearOperator:
        return self

    def _block(self, rows: slice, columns: slice) -> Tensor:
        """Some rows and columns of the matrix."""
        block = self.joint.block(rows, columns)
        points = torch.arange(self.shape[-1], device=self.device)
        i, j = points[rows].unsqueeze(-1), points[columns]
        batch_shape = self.joint.batch_shape
        block = block.expand(*batch_shape, *block.shape[-2:])
        block = block.reshape(batch_shape.numel(), *block.shape[-2:])
        own = block.index_select(0, self.element.flatten().long())  # no wait
        own = own.reshape(*self.element.shape[:-2], *block.shape[-2:])
        # The variances are clamped where the residual rounds to below zero.
        return torch.where(i == j, self.variance[..., rows, :], own).to(self.dtype)

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
