r"""A square root of a low-rank update that is as small as the update.

Conditioning on `q` points changes :math:`B` to :math:`L_B (I + P P^\top) L_B^\top`
with :math:`p_s = w(x_s) / \sqrt{d_s}`. A new factor costs an `m x m` matrix for each
batch of fantasies. Instead, with :math:`R R^\top = I + P^\top P` (`q x q`),

.. math::
    F = I - P R^{-\top} (R + I)^{-1} P^\top, \qquad F F^\top = (I + P P^\top)^{-1},

[Andrews1968]_, so that :math:`F^\top w(x)` takes the place of :math:`w(x)`: a sum of
squares again, without the subtraction of the usual downdate.

References:
    .. [Andrews1968]
        A. Andrews. A square root formulation of the Kalman covariance equations. AIAA
        Journal 6(6), 1968.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_sparse.linear_operators import UpdatableCholeskyLinearOperator
from botorch_sparse.posteriors.factorization import inner_cholesky
from botorch_sparse.posteriors.features import by_rows


class LowRankUpdate(NamedTuple):
    """The map `F^T` of whitened features; all fields are `batch_shape x q x m`."""

    added: Tensor  # the rows `phi(x_s) / d_s^(1/2)` before any whitening
    rows: Tensor  # the rows `p_s`
    gain: Tensor  # `R^-T (R + I)^-1 P^T`

    @classmethod
    def from_rows(cls, added: Tensor, rows: Tensor) -> "LowRankUpdate":
        """The update of `rows`. Cost: O(q^2 m)."""
        eye = torch.eye(rows.shape[-2], dtype=rows.dtype, device=rows.device)
        R = inner_cholesky(eye + rows @ rows.mT)
        gain = torch.linalg.solve_triangular(R + eye, rows, upper=False)
        gain = torch.linalg.solve_triangular(R.mT, gain, upper=True)
        return cls(added=added, rows=rows, gain=gain)

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the update."""
        return self.rows.shape[:-2]

    def apply(self, w: Tensor) -> Tensor:
        r"""The rows :math:`F^\top w` for rows `w` (`... x r x m`). O(q m) for a row."""
        return by_rows(
            w, self.batch_shape, lambda w: w - (w @ self.rows.mT) @ self.gain
        )

    def apply_transpose(self, w: Tensor) -> Tensor:
        r"""The rows :math:`F w` for rows `w` (`... x r x m`). O(q m) for a row."""
        return by_rows(
            w, self.batch_shape, lambda w: w - (w @ self.gain.mT) @ self.rows
        )


def absorb(
    chol_inner: Tensor, weights: Tensor, updates: tuple[LowRankUpdate, ...]
) -> tuple[Tensor, Tensor]:
    """The factor `L_B` (`batch_shape x m x m`) with the updates in it, and its `a`.

    Cost: O(m^3) for each element of the batch.
    """
    L_B, v = chol_inner, weights.unsqueeze(-2)
    for update in reversed(updates):
        v = update.apply_transpose(v)
    for update in updates:
        B = UpdatableCholeskyLinearOperator(L_B).add_low_rank(update.added.mT)
        L_B = B.cholesky().to_dense()
    # B'^-1 b is the old L_B^-T F a, and L_B'^-1 b is the new a.
    v = torch.linalg.solve_triangular(chol_inner.mT, v.mT, upper=True)
    return L_B, (L_B.mT @ v).squeeze(-1)
