"""Finding points among others, exactly or within rounding."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from botorch_sparse.strategies.data.rounding import (
    ROUNDING,
    Rounding,
    is_decimal,
    on_host,
)

FAR = 1e100
# The nearest of several is meant where the others are as many times farther.
CLEAR = 100.0


class KnownRows:
    """Finds points among `k x d` others by their bytes. O(k log k) once.

    Args:
        X: The points to be found.
    """

    def __init__(self, X: Tensor) -> None:
        keys = _keys(X)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self.has_copies = bool((self._keys[1:] == self._keys[:-1]).any())

    def find(self, X: Tensor) -> list[int]:
        """The first row that equals each of `b x d` points, -1 for none. O(log k)."""
        keys = _keys(X)
        if len(self._keys) == 0:
            return [-1] * len(keys)
        place = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        found = self._keys[place] == keys
        return np.where(found, self._order[place], -1).tolist()

    def copies(self, x: Tensor) -> list[int]:
        """All rows that equal a point."""
        key = _keys(x.unsqueeze(0))
        start = np.searchsorted(self._keys, key, "left")[0]
        stop = np.searchsorted(self._keys, key, "right")[0]
        rows: list[int] = self._order[start:stop].tolist()
        return rows


def _keys(X: Tensor) -> NDArray[np.void]:
    """The bytes of each row; zero has one sign."""
    X = X.float() if X.dtype == torch.bfloat16 else X  # NumPy has no such type
    rows = np.ascontiguousarray((X.detach() + 0.0).cpu().numpy())
    width = max(1, rows.itemsize * rows.shape[1])
    return rows.view(np.dtype((np.void, width))).reshape(-1)


class NearRows:
    """Finds points among `k x d` others that differ by rounding.

    Entries may differ by `ROUNDING` of what was told, and by no more of the column's
    range than that. Where the column is far from zero they may differ by what is lost
    with its last digits, up to `COARSE` of the range. Next to zero, where `ROUNDING`
    of it is little, they may differ by `ROUNDING` of the range if what was told is the
    other entry rounded to some decimals, or differs as results of arithmetic do.

    Args:
        X: The points to be found.
        number: Their `k` numbers.
        rounding: What rounding may change in their columns.
    """

    def __init__(self, X: Tensor, number: Sequence[int], rounding: Rounding) -> None:
        self.number = number
        self._rounding = rounding
        self._X = on_host(X)
        self._within = _tree(self._X, self._rounding.most)

    @cached_property
    def _beside(self) -> tuple[cKDTree, NDArray[np.float64]]:
        """The points by what a few digits may change, and that."""
        rounding = self._rounding
        unit = np.maximum(rounding.few_digits, ROUNDING * rounding.scale)
        return _tree(self._X, unit), unit

    def find(self, X: Tensor) -> list[list[int]]:
        """For each of `b x d` points the numbers of those that it may be."""
        points, most = on_host(X), self._rounding.most
        far = [self._rounding.reach(x, X.dtype) for x in points]
        near = _ball(self._within, points, most, np.array(far))
        return [
            self._meant(x, np.array(sorted(places)), X.dtype) if places else []
            for x, places in zip(points, near, strict=True)
        ]

    def suspects(self, x: Tensor) -> list[int]:
        """Numbers of the points that one may be to a few digits, the nearest first."""
        tree, unit = self._beside
        point = on_host(x)
        places = np.array(_ball(tree, point[None], unit)[0], dtype=np.int64)
        if not len(places):
            return []
        rows = self._X[places]
        is_near = self._rounding.is_near(point, rows, x.dtype)
        apart = (np.abs(rows - point) / unit).max(-1)[is_near]
        order = np.argsort(apart, kind="stable")
        return [self.number[place] for place in places[is_near][order]]

    def _meant(
        self, x: NDArray[np.float64], places: NDArray[np.int64], dtype: torch.dtype
    ) -> list[int]:
        """Those of a few near ones that a point is, each but once."""
        rounding, rows = self._rounding, self._X[places]
        apart = np.abs(rows - x)
        fine = rounding.fine(x, dtype)
        is_same = apart <= fine
        if not is_same.all(-1).any():
            is_same |= apart <= rounding.lost(x, dtype)
        if not is_same.all(-1).any():
            is_small = apart <= ROUNDING * rounding.width
            is_same |= apart <= rounding.arithmetic
            is_same |= is_small & is_decimal(x, rows)
        chosen = is_same.all(-1)
        _, first = np.unique(rows[chosen], axis=0, return_index=True)
        first = np.sort(first)
        unit = np.where(fine > 0, fine, ROUNDING * rounding.width)
        apart = np.maximum(apart[chosen][first], rounding.ulps(np.abs(x), dtype))
        left = _nearest((apart / unit).max(-1))
        return [self.number[place] for place in places[chosen][first][left]]


def _nearest(apart: NDArray[np.float64]) -> NDArray[np.int64]:
    """The place of the smallest of `k` distances, if it is so clearly; else all."""
    order = np.argsort(apart, kind="stable")
    is_clear = len(apart) > 1 and apart[order[1]] >= CLEAR * apart[order[0]]
    return order[:1] if is_clear else np.arange(len(apart))


def _tree(X: NDArray[np.float64], unit: NDArray[np.float64]) -> cKDTree:
    """Of points in a unit for each column.

    Columns of few values, as one-hot ones, have no balanced tree.
    """
    return cKDTree(_scaled(X, unit), balanced_tree=False, compact_nodes=False)


def _ball(
    tree: cKDTree,
    points: NDArray[np.float64],
    unit: NDArray[np.float64],
    far: float | NDArray[np.float64] = 1.0,
) -> Sequence[list[int]]:
    """For each of `b` points the places of those within so many units per column."""
    near: Sequence[list[int]]
    near = tree.query_ball_point(_scaled(points, unit), far, p=np.inf)
    return near


def _scaled(X: NDArray[np.float64], unit: NDArray[np.float64]) -> NDArray[np.float64]:
    """In some unit; points far away may be infinitely far."""
    with np.errstate(over="ignore"):
        return np.clip(X / unit, -FAR, FAR)
