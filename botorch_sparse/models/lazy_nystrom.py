"""A Nystrom kernel matrix whose features are not computed before they are needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from linear_operator.operators import LinearOperator
from linear_operator.utils.memoize import cached
from torch import Tensor

from botorch_sparse.linear_operators import NystromLinearOperator
from botorch_sparse.posteriors import NystromFeatures

if TYPE_CHECKING:
    from linear_operator.utils.getitem import IndexType


class LazyNystromLinearOperator(NystromLinearOperator):
    r"""A `NystromLinearOperator` that knows what its features are made of.

    Everything but the shape computes the `n x m` features once, and is then what the
    parent is. A fit objective that adds up over rows takes `X` and `features_of`
    instead, and never holds them.

    Args:
        X: `batch_shape x n x d` points.
        inducing_points: `batch_shape x m x d` inducing points of the features.
        chol_inducing: `batch_shape x m x m`, the factor `L` of `K_SS`.
        features_of: The posterior whose features :math:`\phi(x) = L^{-1} k_S(x)` they
            are.
        with_residual: Whether `residual` is wanted, else it is None.
    """

    def __init__(
        self,
        X: Tensor,
        inducing_points: Tensor,
        chol_inducing: Tensor,
        *,
        features_of: NystromFeatures,
        with_residual: bool,
    ) -> None:
        LinearOperator.__init__(
            self,
            X,
            inducing_points,
            chol_inducing,
            features_of=features_of,
            with_residual=with_residual,
        )
        self.X = X
        self.features_of = replace(
            features_of, inducing_points=inducing_points, chol_inducing=chol_inducing
        )
        self.with_residual = with_residual

    @cached(name="evaluated")
    def evaluate(self) -> NystromLinearOperator:
        """The same matrix with its features at hand. Cost: O(n m^2)."""
        phi = self.features_of.features(self.X)
        residual = None
        if self.with_residual:
            residual = self.features_of.residual(self.X, phi)
        return NystromLinearOperator(phi, residual)

    @property
    def root(self) -> LinearOperator:
        """The features, `batch_shape x n x m`."""
        return self.evaluate().root

    @property
    def residual(self) -> Tensor | None:  # type: ignore[override]
        """The diagonal that the approximation leaves out, if it is wanted."""
        return self.evaluate().residual

    def representation(self) -> tuple[Tensor, ...]:
        """The evaluated operator's tensors, which carry the kernel's gradient."""
        return self.evaluate().representation()

    def representation_tree(self) -> Any:
        """How to build the evaluated operator from its tensors."""
        return self.evaluate().representation_tree()

    def _size(self) -> torch.Size:
        L, n = self.features_of.chol_inducing, self.X.shape[-2]
        batch_shape = torch.broadcast_shapes(L.shape[:-2], self.X.shape[:-2])
        return torch.Size((*batch_shape, n, n))

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

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        return self.evaluate()._mul_constant(other)
