"""A Nystrom kernel matrix plus noise, solved in the space of the features.

References:
    .. [Titsias2009]
        M. Titsias. Variational Learning of Inducing Variables in Sparse Gaussian
        Processes. AISTATS 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions import BotorchTensorDimensionError, UnsupportedError
from linear_operator.operators import (
    AddedDiagLinearOperator,
    DiagLinearOperator,
    LinearOperator,
    LowRankRootAddedDiagLinearOperator,
)
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.memoize import cached
from torch import Tensor

from botorch_sparse.linear_operators.nystrom import NystromLinearOperator

if TYPE_CHECKING:
    from linear_operator.utils.getitem import IndexType


class _Gram(torch.autograd.Function):
    """W'W, whose gradient is one product, W (G + G'), where autograd makes two."""

    @staticmethod
    def forward(ctx: Any, W: Tensor) -> Tensor:
        ctx.save_for_backward(W)
        return W.mT @ W

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Tensor:
        (W,) = ctx.saved_tensors
        return W @ (G + G.mT)


class NystromAddedDiagLinearOperator(LowRankRootAddedDiagLinearOperator):
    r"""The covariance of noisy DTC observations, :math:`A = \Phi'\Phi + D`.

    Everything goes through the m x m capacitance, whose eigenvalues are at least 1:

    .. math::
        B &= I + \Phi D^{-1} \Phi', \qquad v = B^{-1} \Phi D^{-1} y \\
        A^{-1} y &= D^{-1} (y - \Phi' v), \qquad
        \log|A| = \log|B| + \log|D| \\
        y'A^{-1}y &= |D^{-1/2} (y - \Phi' v)|^2 + |v|^2

    The last line is a sum of squares, free of the cancellation in
    :math:`y'D^{-1}y - y'D^{-1}\Phi'v`. ``solve``, ``logdet``, ``inv_quad`` and
    ``inv_quad_logdet`` cost O(n m^2) for the first call and O(n m) per column after
    it, and never read ``linear_operator.settings``: importing BoTorch turns the fast
    computations off, and the generic code would then build the n x n matrix.
    ``cholesky``, ``root_decomposition`` and ``to_dense`` do build it.

    Args:
        nystrom_op: The ``batch_shape x n x n`` Nystrom matrix.
        diag_op: The ``batch_shape x n x n`` diagonal :math:`D`, positive.
        preconditioner_override: Kept for the parent's signature; unused.

    Raises:
        UnsupportedError: If an operator is not of the class named above.
        BotorchTensorDimensionError: If the two differ in n.

    Example:
        >>> root = torch.tensor([[1.0], [2.0], [0.0]])
        >>> noise = DiagLinearOperator(torch.tensor([1.0, 1.0, 0.5]))
        >>> covariance = NystromLinearOperator(root) + noise
        >>> covariance.solve(torch.tensor([6.0, 0.0, 1.0]))
        tensor([ 5.0000, -2.0000,  2.0000])
        >>> covariance.logdet().exp()
        tensor(3.)
    """

    def __init__(
        self,
        nystrom_op: NystromLinearOperator,
        diag_op: DiagLinearOperator,
        preconditioner_override: Callable | None = None,
    ) -> None:
        if not isinstance(nystrom_op, NystromLinearOperator) or not isinstance(
            diag_op, DiagLinearOperator
        ):
            raise UnsupportedError(
                "NystromAddedDiagLinearOperator needs a NystromLinearOperator and a "
                f"DiagLinearOperator, got {type(nystrom_op).__name__} and "
                f"{type(diag_op).__name__}. Try nystrom_op.add_diagonal(tensor)."
            )
        if nystrom_op.shape[-1] != diag_op.shape[-1]:
            raise BotorchTensorDimensionError(
                f"The Nystrom matrix has n = {nystrom_op.shape[-1]} rows and the "
                f"diagonal has {diag_op.shape[-1]}; they need the same n."
            )
        super().__init__(
            nystrom_op, diag_op, preconditioner_override=preconditioner_override
        )
        # The parent keeps the operators as they came; these have the common batch.
        self._linear_op, self._diag_tensor = self.linear_ops

    @property
    def noise(self) -> Tensor:
        r"""The ``batch_shape x n`` diagonal :math:`D`."""
        return self._diag_tensor._diagonal()

    @property
    @cached(name="whitened_root")
    def _whitened_root(self) -> Tensor:
        # W = D^-1/2 Phi'   (n x m)
        return self._linear_op.root.to_dense() * self.noise.rsqrt().unsqueeze(-1)

    @property
    @cached(name="chol_cap_mat")
    def chol_cap_mat(self) -> Tensor:
        r"""The ``batch_shape x m x m`` Cholesky factor of B; O(n m^2), cached."""
        W = self._whitened_root
        eye = torch.eye(W.shape[-1], dtype=W.dtype, device=W.device)
        return psd_safe_cholesky(eye + _Gram.apply(W))

    def _whitened_solve(self, rhs: Tensor) -> tuple[Tensor, Tensor]:
        """D^-1/2 (rhs - Phi' v) and v, for ``... x n x k`` columns; O(n m k)."""
        if rhs.shape[-2] != self.shape[-1]:
            raise BotorchTensorDimensionError(
                f"The right-hand side of shape {tuple(rhs.shape)} has {rhs.shape[-2]} "
                f"rows and the operator of shape {tuple(self.shape)} needs "
                f"{self.shape[-1]}. Try unsqueeze(-1) on a batch of vectors."
            )
        W, z = self._whitened_root, rhs * self.noise.rsqrt().unsqueeze(-1)
        v = torch.cholesky_solve(W.mT @ z, self.chol_cap_mat)
        return z - W @ v, v

    def _solve(
        self,
        rhs: Tensor,
        preconditioner: Callable[[Tensor], Tensor] | None = None,
        num_tridiag: int | None = 0,
    ) -> Tensor:
        fit_error, _ = self._whitened_solve(rhs)
        return fit_error * self.noise.rsqrt().unsqueeze(-1)

    def _logdet(self) -> Tensor:
        log_pivots = self.chol_cap_mat.diagonal(dim1=-2, dim2=-1).log()
        return 2 * log_pivots.sum(-1) + self.noise.log().sum(-1)

    def inv_quad(self, inv_quad_rhs: Tensor, reduce_inv_quad: bool = True) -> Tensor:
        """The quadratic forms y'A^-1 y of the columns of ``inv_quad_rhs``; O(n m^2).

        Args:
            inv_quad_rhs: Columns, ``batch_shape x n x k``, or one vector of length n.
            reduce_inv_quad: Whether to sum over the k columns.

        Returns:
            A ``batch_shape`` tensor if reduced or given a vector, else
            ``batch_shape x k``.
        """
        is_vector = inv_quad_rhs.ndim == 1
        rhs = inv_quad_rhs.unsqueeze(-1) if is_vector else inv_quad_rhs
        fit_error, v = self._whitened_solve(rhs)
        terms = fit_error.square().sum(-2) + v.square().sum(-2)
        return terms.sum(-1) if reduce_inv_quad or is_vector else terms

    def inv_quad_logdet(
        self,
        inv_quad_rhs: Tensor | None = None,
        logdet: bool | None = False,
        reduce_inv_quad: bool | None = True,
    ) -> tuple[Tensor | None, Tensor | None]:
        """``inv_quad`` and ``logdet`` from one factorization; None if not asked for."""
        inv_quad = None
        if inv_quad_rhs is not None:
            inv_quad = self.inv_quad(inv_quad_rhs, bool(reduce_inv_quad))
        return inv_quad, self._logdet() if logdet else None

    def collapsed_penalty(self) -> Tensor:
        r"""The trace term that the collapsed bound subtracts [Titsias2009]_ (Eq. 9).

        .. math:: \tfrac12 \textstyle\sum_i r(x_i, x_i) / d_i

        Returns:
            A ``batch_shape`` tensor; zeros if the operator carries no residual.
        """
        residual = self._linear_op.residual
        if residual is None:
            return self.noise.new_zeros(self.batch_shape)
        return 0.5 * (residual / self.noise).sum(-1)

    def _getitem(
        self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType
    ) -> LinearOperator:
        # A slice repeats no row, so the same one twice leaves the diagonal diagonal.
        if isinstance(row_index, slice) and row_index == col_index:
            nystrom_op = self._linear_op._getitem(row_index, col_index, *batch_indices)
            noise = self.noise[(*batch_indices, row_index)]
            return type(self)(nystrom_op, DiagLinearOperator(noise))
        return super()._getitem(row_index, col_index, *batch_indices)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        nystrom_op = self._linear_op._mul_constant(other)
        diag_op = DiagLinearOperator(self.noise * other[..., None])
        if isinstance(nystrom_op, NystromLinearOperator):
            return type(self)(nystrom_op, diag_op)
        return AddedDiagLinearOperator(nystrom_op, diag_op)

    def _svd(self) -> tuple[LinearOperator, Tensor, LinearOperator]:
        # The parent takes signs before it adds a constant diagonal, which zeroes the
        # singular vectors where the Nystrom matrix has eigenvalue 0.
        return LinearOperator._svd(self)
