"""Finds the rows of a table that points are, after a file has rounded them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RoundedRows:
    """The rows of a table that points were before they were rounded.

    Attributes:
        row: `q` row numbers, -1 where there is none; the nearest where there are more,
            and the first of equal ones.
        count: `q` numbers of different rows that the point can have been. Where it is
            more than one, the rounded point does not say which.
    """

    row: NDArray[np.int64]
    count: NDArray[np.int64]


def match_rounded(X: Tensor, points: Tensor, *, digits: int = 6) -> RoundedRows:
    r"""Find the rows of a table that points come from.

    A point is row :math:`x` if in each column :math:`j` the two differ by at most

    .. math:: \tfrac12 \max(10^{1 - D} |x_j|, \; 10^{-D} \max_i |x_{ij}|)

    so that `D` significant digits suffice, and `D` decimals where the largest entry is
    about one. A point that is a row to the last bit is that row only.

    Cost: O(d (A + q) log A), and for each point the rows that agree in the column that
    tells most.

    Args:
        X: `A x d` table.
        points: `q x d` points.
        digits: The digits `D` that the file kept.
    """
    table = X.detach().cpu().double().numpy()
    wanted = points.detach().cpu().double().numpy()
    slack = _slack(table, wanted, digits)
    width = np.stack([np.diff(w)[:, 0] for w in _windows(table, wanted, slack)], 1)
    row = np.full(len(wanted), -1, dtype=np.int64)
    count = np.zeros(len(wanted), dtype=np.int64)
    by_width = width.argsort(axis=1, kind="stable")
    for j in np.unique(by_width[:, 0]):
        mine = np.flatnonzero(by_width[:, 0] == j)
        order = table[:, j].argsort(kind="stable")
        start, end = _window(table[order, j], wanted[mine, j], slack[mine, j]).T
        for i, first, last in zip(mine, start, end, strict=True):
            near = order[first:last]
            for k in by_width[i, 1:]:
                close = np.abs(table[near, k] - wanted[i, k]) <= slack[i, k]
                near = near[close]
            row[i], count[i] = _nearest(table, near, wanted[i], slack[i])
    return RoundedRows(row, count)


def _slack(
    table: NDArray[np.float64], wanted: NDArray[np.float64], digits: int
) -> NDArray[np.float64]:
    """How far each entry may be off, `q x d`; a little more for sums in float64."""
    relative = 10.0 ** (1 - digits) * np.abs(wanted)
    absolute = 10.0**-digits * np.abs(table).max(axis=0)
    return 0.5 * np.maximum(relative, absolute) * (1 + 10.0 ** (1 - digits))


def _windows(
    table: NDArray[np.float64],
    wanted: NDArray[np.float64],
    slack: NDArray[np.float64],
) -> list[NDArray[np.int64]]:
    d = table.shape[1]
    return [_window(np.sort(table[:, j]), wanted[:, j], slack[:, j]) for j in range(d)]


def _window(
    values: NDArray[np.float64], centre: NDArray[np.float64], slack: NDArray[np.float64]
) -> NDArray[np.int64]:
    """`q x 2` places between which sorted values are near their centres."""
    start = np.searchsorted(values, centre - slack, side="left")
    return np.stack([start, np.searchsorted(values, centre + slack, side="right")], 1)


def _nearest(
    table: NDArray[np.float64],
    near: NDArray[np.int64],
    point: NDArray[np.float64],
    slack: NDArray[np.float64],
) -> tuple[int, int]:
    """The nearest of some rows, and how many different ones there are."""
    if not len(near):
        return -1, 0
    near = np.sort(near)
    off = np.abs(table[near] - point)
    distance = (off / np.where(slack > 0, slack, 1.0)).max(axis=1)
    row = int(near[distance.argmin()])
    is_exact = not off.any(axis=1).all()
    return row, 1 if is_exact else len(np.unique(table[near], axis=0))
