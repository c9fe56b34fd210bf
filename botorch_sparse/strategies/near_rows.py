"""Finding points among others, exactly or within rounding."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

# What six significant digits, as in a CSV file, may change in a number.
ROUNDING = 1e-5
DECIMALS = range(1, 16)
FAR = 1e100


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

    Entries may differ by `ROUNDING` of what was told. Next to zero, where that is
    little, they may differ by `ROUNDING` of the column if what was told is the other
    entry rounded to some decimals, or differs from it as results of arithmetic do.

    Args:
        X: The points to be found.
        number: Their `k` numbers.
        scale: `d` what rounding is relative to.
    """

    def __init__(self, X: Tensor, number: Sequence[int], scale: Tensor) -> None:
        self.number = number
        scale = torch.where(scale > 0, scale, 1.0)  # a column of zeros
        self._tolerance = ROUNDING * on_host(scale)
        self._arithmetic = 8 * np.finfo(np.float64).eps * on_host(scale)
        self._X = on_host(X)
        # Columns of few values, as one-hot ones, have no balanced tree.
        self._tree = cKDTree(
            self._scaled(self._X), balanced_tree=False, compact_nodes=False
        )

    def find(self, X: Tensor) -> list[list[int]]:
        """For each of `b x d` points the numbers of those that it may be."""
        points = on_host(X)
        near = self._tree.query_ball_point(self._scaled(points), 1.0, p=np.inf)
        return [
            self._meant(x, np.array(sorted(places))) if places else []
            for x, places in zip(points, near, strict=True)
        ]

    def _scaled(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """In units of the tolerance; points far away may be infinitely far."""
        with np.errstate(over="ignore"):
            return np.clip(X / self._tolerance, -FAR, FAR)

    def _meant(self, x: NDArray[np.float64], places: NDArray[np.int64]) -> list[int]:
        """Those of a few near ones that a point is, each but once."""
        rows = self._X[places]
        distance = np.abs(rows - x)
        is_digit = distance <= ROUNDING * np.abs(x)
        chosen = is_digit.all(-1)
        if not chosen.any():
            is_decimal = (distance <= self._arithmetic) | _is_decimal(x, rows)
            chosen = (is_digit | is_decimal).all(-1)
        _, first = np.unique(rows[chosen], axis=0, return_index=True)
        return [self.number[place] for place in places[chosen][np.sort(first)]]


def _is_decimal(x: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where `d` numbers are those of `k x d` rounded to decimals, and not to zero."""
    rounded = [np.round(rows, decimals) == x for decimals in DECIMALS]
    is_rounded: NDArray[np.bool_] = np.any(rounded, axis=0) & (x != 0)
    return is_rounded


def on_host(X: Tensor) -> NDArray[np.float64]:
    """Numbers in float64 for NumPy."""
    return X.detach().double().cpu().numpy()
