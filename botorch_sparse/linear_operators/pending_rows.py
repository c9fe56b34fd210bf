r"""The row by which one more pending point lowers the inverse :math:`I - U'U`.

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
"""

import torch
from torch import Tensor


def direction(U: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """What the rows `U` leave of `w`, and the gain `w'a`.

    Args:
        U: `batch_shape x j x m` rows.
        w: `batch_shape x m`.

    Returns:
        `a`, `batch_shape x m`, and `w'a`, `batch_shape`. Cost: O(m j).
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
    """The rows `U` and one more, made safe against rounding.

    Args:
        U: `batch_shape x j x m` rows.
        u: `batch_shape x m`, which may have more batch dimensions.
        room: How many rows beyond m there may be before they are folded to m.

    Returns:
        At most m + `room` rows. Cost: O(m j), and O(m^3) where they are folded.
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
