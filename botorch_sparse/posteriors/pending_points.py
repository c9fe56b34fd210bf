r"""Pending points under a posterior that stands still, one row each.

.. math:: (I + P P^\top)^{-1} = I - U^\top U, \qquad
    P = [w_1 / \sqrt{d_1}, w_2 / \sqrt{d_2}, \dots]

and a variance with the points pending is
:math:`\mathrm{var}(x) - \sum_j (w(x)^\top u_j)^2` ([Calandriello2020]_, Appendix A.3).
A run of `c` evaluations of one point is one row.
"""

from dataclasses import dataclass

from torch import Tensor

from botorch_sparse.linear_operators.rank_one_updated import append_row, direction

# Rows beyond m that are kept before they are folded, O(m^3), to m.
ROOM = 16


@dataclass(frozen=True, eq=False)
class PendingRow:
    """What a point brings that the pending ones do not explain."""

    a: Tensor  # `aug x m`, `w - U'U w`
    gain: Tensor  # `aug`, `w'a`: the embedded variance of the point

    def u(self, noise: Tensor | float, count: int = 1) -> Tensor:
        r"""The row for `count` evaluations of noise variance `d` each, `aug x m`.

        .. math:: u = a \sqrt{c / (d + c\,w^\top a)}
        """
        return self.a / (noise / count + self.gain).sqrt().unsqueeze(-1)


@dataclass(frozen=True, eq=False)
class PendingRows:
    """The rows `u_j` of pending points; at most `m + ROOM` of them are kept."""

    U: Tensor  # `aug x j x m` rows

    @classmethod
    def none(cls, like: Tensor) -> "PendingRows":
        """No pending points, for whitened features such as `like` (`aug x m`)."""
        return cls(like.new_empty(*like.shape[:-1], 0, like.shape[-1]))

    def row(self, w: Tensor) -> PendingRow:
        """The row of one more point, from its `w(x)`, `aug x m`. O(m j)."""
        return PendingRow(*direction(self.U, w))

    def append(self, u: Tensor) -> "PendingRows":
        """The rows and one more (`aug x m`). O(m j + m^3 / ROOM)."""
        return PendingRows(append_row(self.U, u, ROOM))
