r"""The shrinking covariance of a point while others are observed, one row at a time.

One more pending point lowers the inverse :math:`I - U'U` by the row

.. math:: a = w - U'Uw, \qquad u = a \sqrt{c / (d + c\,w'a)}

for `c` evaluations of a point, of noise variance `d` each ([Calandriello2020]_,
Appendix A.3).

Rounding may push an eigenvalue of :math:`I - U'U` below zero, by about eps, and with
:math:`|w|^2` eps of order `d` such an error grows with every later row. A second
projection of `a` does not help: it removes errors where `U` has orthonormal rows, and
elsewhere `U a` must be compared with :math:`(I - UU') U w`, which has the same rounding
error as `a`. So `U` is multiplied by 1 - 2 eps with each row: the inverse gains
4 eps :math:`U'U`, which keeps it positive definite for :math:`|w|^2 \lesssim` d / eps
and errs, by at most 4 eps for each row, on the side of too large a variance.

References:
    .. [Calandriello2020]
        D. Calandriello, L. Carratino, A. Lazaric, M. Valko, L. Rosasco. Near-linear
        Time Gaussian Process Optimization with Adaptive Batching and
        Resparsification. ICML 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from botorch.exceptions import BotorchTensorDimensionError
from linear_operator.operators import LinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.memoize import cached
from torch import Tensor

from botorch_sparse.argument_checks import check_tensors

if TYPE_CHECKING:
    from linear_operator.utils.getitem import IndexType


def direction(U: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """What the rows `U` leave of `w` (`a`, `batch_shape x m`), and the gain `w'a`.

    `U` is `batch_shape x j x m`. Cost: O(m j).
    """
    if w.dim() == 1 and U.dim() == 2:
        return (a := torch.addmv(w, U.mT, U @ w, alpha=-1)), gain(w, a)
    a = w - (U.mT @ (U @ w.unsqueeze(-1))).squeeze(-1)
    return a, gain(w, a)


def gain(w: Tensor, a: Tensor) -> Tensor:
    """The gain `w'a` of `a = M w` (`batch_shape x m`) where `0 <= M <= I`, guarded."""
    # w'a >= |a|^2, since M <= I; the right side cannot round below zero.
    return torch.maximum(torch.linalg.vecdot(w, a), torch.linalg.vecdot(a, a))


def append_row(U: Tensor, u: Tensor, room: int = 0) -> Tensor:
    """The rows `U` and one more, folded to m where more than m + `room`.

    `U` is `batch_shape x j x m`, and `u`, `batch_shape x m`, may have more batch
    dimensions. Cost: O(m j), and O(m^3) where rows are folded.
    """
    rows = U.expand(*u.shape[:-1], *U.shape[-2:])
    shrink = 1 - 2 * torch.finfo(u.dtype).eps
    rows = torch.cat([rows, u.unsqueeze(-2)], -2).mul_(shrink)
    return fold(rows) if rows.shape[-2] > rows.shape[-1] + room else rows


def fold(rows: Tensor) -> Tensor:
    """At most m rows with the same U'U; O(m^3) when there are more than m.

    Rows with gradients stay as they are: of rows that are linearly dependent, such as
    zeros, no m rows with the same U'U are differentiable.
    """
    if rows.shape[-2] <= rows.shape[-1] or rows.requires_grad:
        return rows
    # U = QR, so U'U = R'R; orthogonal Q keeps the singular values at most 1.
    return torch.linalg.qr(rows).R


class RankOneUpdatedLinearOperator(LinearOperator):
    r"""The inverse :math:`M = (I + PP')^{-1} = I - U'U`, grown by columns of P.

    In the whitened space of a sparse posterior this is the covariance after the
    hallucinated observations :math:`P = [w_1, w_2, \dots]`, where
    :math:`w_s = w(x_s) / \sqrt{d_s}` [Calandriello2020]_: a variance is then
    :math:`w(x)'Mw(x) = w(x)'w(x) - \sum_j (w(x)'u_j)^2`.

    .. math:: a = w - U'Uw, \qquad u = a / \sqrt{1 + w'a}, \qquad
        U \leftarrow [U; u']

    ``append`` costs O(m j) with j rows, and O(m^3) from j = m on, where the rows are
    folded into m, unless they have gradients. A product costs O(m j) per column,
    ``solve`` and ``logdet`` O(m j^2) once.

    Args:
        U: The ``batch_shape x j x m`` rows, singular values below 1. Start from
            ``identity`` rather than by hand.

    Raises:
        BotorchTensorDimensionError: If ``U`` is not a (batch of) matrices.

    Example:
        >>> operator = RankOneUpdatedLinearOperator.identity(2)
        >>> operator = operator.append(torch.tensor([1.0, 0.0]), weight=3.0)
        >>> operator.diagonal()
        tensor([0.2500, 1.0000])
    """

    def __init__(self, U: Tensor) -> None:
        check_tensors(U=U)
        if U.ndim < 2:
            raise BotorchTensorDimensionError(
                f"U has shape {tuple(U.shape)}; it needs to be `batch_shape x j x m`. "
                "Try RankOneUpdatedLinearOperator.identity(m).append(w)."
            )
        super().__init__(U)
        self.U = U

    @classmethod
    def identity(
        cls,
        m: int,
        batch_shape: torch.Size | tuple[int, ...] = (),
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> RankOneUpdatedLinearOperator:
        """The ``batch_shape x m x m`` identity: nothing appended yet."""
        return cls(torch.zeros(*batch_shape, 0, m, dtype=dtype, device=device))

    @classmethod
    def from_rows(cls, rows: Tensor) -> RankOneUpdatedLinearOperator:
        r"""The operator of all columns of P at once; O(m j min(j, m)).

        With gradients and j > m it is O(j^3).

        .. math:: \begin{bmatrix} I \\ P \end{bmatrix} =
            \begin{bmatrix} R^{-1} \\ U' \end{bmatrix} R, \qquad R'R = I + P'P

        by a QR factorization, whose orthonormal columns keep the eigenvalues of M above
        -eps whatever P is; U is multiplied by 1 - 4 eps for the rest.

        Args:
            rows: The ``batch_shape x j x m`` columns of P, divided by the noise's
                standard deviations.
        """
        rows = fold(rows)
        j = rows.shape[-2]
        eye = torch.eye(j, dtype=rows.dtype, device=rows.device)
        stacked = torch.cat([eye.expand(*rows.shape[:-2], j, j), rows.mT], dim=-2)
        shrink = 1 - 4 * torch.finfo(rows.dtype).eps
        return cls(shrink * torch.linalg.qr(stacked).Q[..., j:, :].mT)

    def new_row(self, w: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        r"""The row u by which appending w lowers M: :math:`M - uu'`; O(m j).

        Args:
            w: The ``batch_shape x m`` column of P, divided by the noise's standard
                deviation.
            weight: How many times w is appended, positive, a number or a
                ``batch_shape`` tensor: :math:`u = a\sqrt{c} / \sqrt{1 + c\,w'a}`.

        Returns:
            The ``batch_shape x m`` row u.

        Raises:
            BotorchTensorDimensionError: If w has not m entries.
        """
        if w.shape[-1] != self.shape[-1]:
            raise BotorchTensorDimensionError(
                f"w has shape {tuple(w.shape)} and needs {self.shape[-1]} entries in "
                f"its last dimension, for an operator of shape {tuple(self.shape)}."
            )
        count = torch.as_tensor(weight, dtype=w.dtype, device=w.device)
        a, gain = direction(self.U, w * count.sqrt().unsqueeze(-1))
        return a / (1 + gain).sqrt().unsqueeze(-1)

    def append(
        self, w: Tensor, weight: Tensor | float = 1.0
    ) -> RankOneUpdatedLinearOperator:
        r"""The operator of :math:`(M^{-1} + c\,ww')^{-1}`; arguments as ``new_row``.

        It keeps its eigenvalues positive, see the module.
        """
        return type(self)(append_row(self.U, self.new_row(w, weight)))

    @property
    @cached(name="inner_chol")
    def _inner_chol(self) -> Tensor:
        # L_G L_G' = G = I - UU'   (j x j); |G| = |M|
        eye = torch.eye(self.U.shape[-2], dtype=self.dtype, device=self.device)
        return psd_safe_cholesky(eye - self.U @ self.U.mT)

    def solve(self, right_tensor: Tensor, left_tensor: Tensor | None = None) -> Tensor:
        r"""The product with :math:`I + PP' = I + U'(I - UU')^{-1}U`; O(m j (j + k)).

        Args:
            right_tensor: Columns, ``batch_shape x m x k``, or one vector of length m.
            left_tensor: Rows, ``batch_shape x l x m``, to multiply the solution by.
        """
        is_vector = right_tensor.ndim == 1
        rhs = right_tensor.unsqueeze(-1) if is_vector else right_tensor
        solution = self._solve(rhs)
        solution = solution.squeeze(-1) if is_vector else solution
        return solution if left_tensor is None else left_tensor @ solution

    def _solve(
        self,
        rhs: Tensor,
        preconditioner: Callable[[Tensor], Tensor] | None = None,
        num_tridiag: int | None = 0,
    ) -> Tensor:
        return rhs + self.U.mT @ torch.cholesky_solve(self.U @ rhs, self._inner_chol)

    def logdet(self) -> Tensor:
        """The ``batch_shape`` log determinant; O(m j^2)."""
        return 2 * self._inner_chol.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def inv_quad(self, inv_quad_rhs: Tensor, reduce_inv_quad: bool = True) -> Tensor:
        r"""The quadratic forms :math:`y'(I + PP')y = |y|^2 + |L_G^{-1}Uy|^2`.

        Args:
            inv_quad_rhs: Columns, ``batch_shape x m x k``, or one vector of length m.
            reduce_inv_quad: Whether to sum over the k columns.
        """
        is_vector = inv_quad_rhs.ndim == 1
        rhs = inv_quad_rhs.unsqueeze(-1) if is_vector else inv_quad_rhs
        inner = torch.linalg.solve_triangular(
            self._inner_chol, self.U @ rhs, upper=False
        )
        terms = rhs.square().sum(-2) + inner.square().sum(-2)
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
        return inv_quad, self.logdet() if logdet else None

    def to_dense(self) -> Tensor:
        """The ``batch_shape x m x m`` matrix I - U'U; O(m^2 j)."""
        eye = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device)
        return eye - self.U.mT @ self.U

    def _matmul(self, rhs: Tensor) -> Tensor:
        return rhs - self.U.mT @ (self.U @ rhs)

    def _diagonal(self) -> Tensor:
        return 1 - self.U.square().sum(-2)

    def _get_indices(
        self, row_index: IndexType, col_index: IndexType, *batch_indices: IndexType
    ) -> Tensor:
        left = self.U.mT[(*batch_indices, row_index)]
        right = self.U.mT[(*batch_indices, col_index)]
        return (row_index == col_index).to(self.dtype) - (left * right).sum(-1)

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> LinearOperator:
        return type(self)(self.U.expand(*batch_shape, *self.U.shape[-2:]))

    def _size(self) -> torch.Size:
        return torch.Size((*self.U.shape[:-2], self.U.shape[-1], self.U.shape[-1]))

    def _transpose_nonbatch(self) -> LinearOperator:
        return self
