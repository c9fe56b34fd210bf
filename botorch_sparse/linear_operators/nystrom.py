"""The Nystrom approximation of a kernel matrix.

References:
    .. [Calandriello2019]
        D. Calandriello, L. Carratino, A. Lazaric, M. Valko, L. Rosasco. Gaussian
        Process Optimization with Adaptive Sketching: Scalable and No Regret. COLT 2019.

    .. [Titsias2009]
        M. Titsias. Variational Learning of Inducing Variables in Sparse Gaussian
        Processes. AISTATS 2009.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from botorch.exceptions import BotorchTensorDimensionError
from linear_operator.operators import (
    DiagLinearOperator,
    LinearOperator,
    LowRankRootLinearOperator,
    to_linear_operator,
)
from torch import Tensor

if TYPE_CHECKING:
    from linear_operator.utils.getitem import IndexType

    from botorch_sparse.linear_operators.nystrom_added_diag import (
        NystromAddedDiagLinearOperator,
    )


class NystromLinearOperator(LowRankRootLinearOperator):
    r"""A Nystrom kernel matrix, :math:`Q = \Phi'\Phi` [Calandriello2019]_.

    .. math:: Q_{ij} = \phi(x_i)'\phi(x_j), \qquad \phi(x) = L^{-1} k_S(x),
        \qquad LL' = K_{SS}

    Row i of ``root`` is :math:`\phi(x_i)'`. The operator also carries the diagonal
    that the approximation leaves out, :math:`r_i = k(x_i, x_i) - \phi(x_i)'\phi(x_i)`.
    It is NOT part of the matrix: the collapsed bound [Titsias2009]_ needs it once the
    noise is known (see ``NystromAddedDiagLinearOperator.collapsed_penalty``).

    A product costs O(n m) per column and the diagonal O(n m). Adding a diagonal
    operator gives a ``NystromAddedDiagLinearOperator``.

    Args:
        root: The ``batch_shape x n x m`` features.
        residual: The ``batch_shape x n`` diagonal :math:`r`, non-negative, or None
            when no collapsed bound is wanted.

    Raises:
        BotorchTensorDimensionError: If ``residual`` does not have one entry per row
            of ``root`` and the same batch shape.

    Example:
        >>> root = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
        >>> operator = NystromLinearOperator(root, residual=torch.full((3,), 0.5))
        >>> operator.to_dense()
        tensor([[1., 1., 0.],
                [1., 2., 2.],
                [0., 2., 4.]])
        >>> operator.add_jitter(0.1).collapsed_penalty()
        tensor(7.5000)
    """

    def __init__(
        self, root: Tensor | LinearOperator, residual: Tensor | None = None
    ) -> None:
        root = to_linear_operator(root)
        if residual is not None and residual.shape != root.shape[:-1]:
            raise BotorchTensorDimensionError(
                f"Got a residual of shape {tuple(residual.shape)} for a root of shape "
                f"{tuple(root.shape)}; it needs one entry per row, shape "
                f"{tuple(root.shape[:-1])}. Try residual.expand(root.shape[:-1])."
            )
        # Positional, so that the residual follows the root through representation(),
        # dtype and device changes, and every operation on batch dimensions.
        args = (root,) if residual is None else (root, residual)
        LinearOperator.__init__(self, *args)
        self.root = root
        self.residual = residual

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> LinearOperator:
        expanded = super()._expand_batch(batch_shape)
        if self.residual is None or expanded is self:
            return expanded
        residual = self.residual.expand(*batch_shape, self.shape[-1])
        return type(self)(expanded.root, residual)

    def _getitem(
        self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType
    ) -> LinearOperator:
        selected = super()._getitem(row_index, col_index, *batch_indices)
        if self.residual is None or not isinstance(selected, NystromLinearOperator):
            return selected
        return type(self)(selected.root, self.residual[(*batch_indices, row_index)])

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        if not (other > 0).all():  # no longer positive semi-definite
            return super()._mul_constant(other)
        root = self.root.to_dense() * other.sqrt()[..., None, None]
        residual = None
        if self.residual is not None:
            residual = self.residual * other[..., None]
        return type(self)(root, residual)

    def __add__(
        self, other: Tensor | LinearOperator | float
    ) -> LinearOperator | Tensor:
        if isinstance(other, DiagLinearOperator):
            return self._add_diag_operator(other)
        return super().__add__(other)

    def add_diagonal(self, diag: Tensor) -> NystromAddedDiagLinearOperator:
        """Add ``diag``, of shape ``batch_shape x n``, ``batch_shape x 1`` or empty."""
        return self._add_diag_operator(super().add_diagonal(diag)._diag_tensor)

    def _add_diag_operator(
        self, diag_op: DiagLinearOperator
    ) -> NystromAddedDiagLinearOperator:
        # Here, since the two operators name each other.
        from botorch_sparse.linear_operators.nystrom_added_diag import (
            NystromAddedDiagLinearOperator,
        )

        return NystromAddedDiagLinearOperator(self, diag_op)
