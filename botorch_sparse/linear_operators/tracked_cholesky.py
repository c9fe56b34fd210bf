"""A Cholesky factor that is updated while that is cheaper, and rebuilt when it drifts.

Every update of a factor adds rounding errors, and nothing takes them away. The matrix
itself only loses and gains rows, without rounding, so that it shows how far the factor
has gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from botorch.exceptions import InputDataError
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_sparse.linear_operators.updatable_cholesky import (
    UpdatableCholeskyLinearOperator,
)

# Largest drift, in roundings of the dtype: 2000 updates of a matrix of 30 to 110 rows
# reach 5 to 12 of them, whatever its condition number is.
TOLERATED_ROUNDINGS = 50
# Rows deleted one by one, each in about 6 passes over the factor, before LAPACK's
# factorization of what is left is faster.
MAX_SINGLE_DELETIONS = 3


@dataclass(frozen=True, eq=False)
class TrackedCholesky:
    r"""A matrix :math:`A`, its factor, and how well they agree.

    Attributes:
        matrix: `batch_shape x m x m`, the matrix.
        operator: Its factor :math:`L`.
        tolerance: The drift above which the factor is rebuilt.
        num_updates: Updates since the factor was built from the matrix.

    Example:
        >>> tracked = TrackedCholesky.build(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
        >>> tracked.delete([0]).operator.chol
        tensor([[2.2361]])
    """

    matrix: Tensor
    operator: UpdatableCholeskyLinearOperator
    tolerance: float
    num_updates: int = 0

    @classmethod
    def build(cls, matrix: Tensor, tolerance: float | None = None) -> "TrackedCholesky":
        """Factorize a positive definite matrix. Cost: O(m^3).

        Args:
            matrix: `batch_shape x m x m`; jitter is added to its diagonal only if the
                factorization fails without, as everywhere in GPyTorch.
            tolerance: Relative drift above which updates rebuild; by default 50
                roundings of the dtype.

        Raises:
            NotPSDError: If the matrix is not positive definite even with jitter.
        """
        if tolerance is None:
            tolerance = TOLERATED_ROUNDINGS * torch.finfo(matrix.dtype).eps
        L = psd_safe_cholesky(matrix)
        return cls(matrix, UpdatableCholeskyLinearOperator(L), tolerance)

    @property
    def chol(self) -> Tensor:
        """The factor, `batch_shape x m x m`."""
        return self.operator.chol

    def drift(self) -> Tensor:
        r"""An estimate of :math:`\|L L^\top - A\|_F / \|A\|_F`, one for each element.

        From the diagonal, which is compared in full, and from one random combination of
        the columns, whose square has the mean :math:`\|L L^\top - A\|_F^2`. Cost:
        O(m^2).
        """
        L, A = self.chol, self.matrix
        generator = torch.Generator().manual_seed(self.num_updates)
        signs = torch.randint(0, 2, (A.shape[-1], 1), generator=generator).to(A)
        v = 2 * signs - 1
        error = (L @ (L.mT @ v) - A @ v).squeeze(-1).norm(dim=-1)
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        of_diagonal = (L.square().sum(-1) - diagonal).norm(dim=-1)
        return torch.maximum(error, of_diagonal) / diagonal.norm(dim=-1)

    def append(self, cross: Tensor, corner: Tensor) -> "TrackedCholesky":
        """With p more rows and columns at the end; O(m^2 p), as the operator's.

        Rows that the others explain to working precision call for a rebuild.
        """
        top = torch.cat([self.matrix, cross], -1)
        matrix = torch.cat([top, torch.cat([cross.mT, corner], -1)], -2)
        try:
            operator = self.operator.append(cross, corner)
        except NotPSDError:
            return self.build(matrix, self.tolerance)
        return self._checked(matrix, operator, 1)

    def delete(self, indices: Sequence[int]) -> "TrackedCholesky":
        """Without some rows and columns.

        A few are deleted from the factor, O(m^2) each; for more of them the matrix that
        is left is factorized, O(m^3), without new kernel values.

        Args:
            indices: Different rows, each in [0, m).

        Raises:
            InputDataError: If an index is out of range or repeats.
        """
        m = self.matrix.shape[-1]
        out = set(indices)
        if len(out) < len(indices) or not out <= set(range(m)):
            raise InputDataError(
                f"Cannot delete rows {list(indices)} of a matrix with {m} rows; they "
                f"must be different and in [0, {m})."
            )
        kept = [i for i in range(m) if i not in out]
        index = torch.tensor(kept, dtype=torch.int64, device=self.matrix.device)
        matrix = self.matrix.index_select(-1, index).index_select(-2, index)
        if len(out) > MAX_SINGLE_DELETIONS:
            return self.build(matrix, self.tolerance)
        operator = self.operator
        for i in sorted(out, reverse=True):
            operator = operator.delete(i)
        return self._checked(matrix, operator, len(out))

    def _checked(
        self, matrix: Tensor, operator: UpdatableCholeskyLinearOperator, count: int
    ) -> "TrackedCholesky":
        """The updated factor, rebuilt if it has drifted."""
        updates = self.num_updates + count
        updated = TrackedCholesky(matrix, operator, self.tolerance, updates)
        if matrix.shape[-1] == 0 or bool((updated.drift() <= self.tolerance).all()):
            return updated
        return self.build(matrix, self.tolerance)
