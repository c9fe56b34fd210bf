"""Which known points are meant by coordinates that were told."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from botorch.exceptions import InputDataError
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from botorch_sparse.strategies.box import Box
from botorch_sparse.strategies.history import History, row_bytes
from botorch_sparse.strategies.trials import PendingTrials

# What six significant digits, as in a CSV file, may change in a number.
ROUNDING = 1e-5
# Nearer to a row than this share of each column's range, a point is taken for the row
# with too few digits.
SUSPICIOUS = 1e-2
DECIMALS = range(1, 16)
FAR = 1e100


class PointFinder:
    """Finds the numbers of points that are told by value.

    Exactly first: rows of the table, in the dtype of what is told, and points that were
    told or proposed before. Then within rounding (see `NearRows`): rows of the table,
    or on a box pending points. While trials are pending, a point that is no row of the
    table but near one is refused.

    Args:
        candidates: `A x d` table; on a box it has no rows.
        box: The continuous domain, or None.
    """

    def __init__(self, candidates: Tensor, box: Box | None) -> None:
        self._candidates = candidates
        self._box = box
        self._known: dict[torch.dtype, KnownRows] = {}
        self._pending: tuple[int, NearRows] | None = None  # and trials proposed by then

    @cached_property
    def _scale(self) -> Tensor:
        """What rounding is relative to in each of the `d` columns."""
        X = self._candidates if self._box is None else self._box.bounds
        low, high = X.detach().double().aminmax(dim=0)
        return torch.maximum(torch.maximum(low.abs(), high.abs()), high - low)

    @cached_property
    def _near_rows(self) -> "NearRows":
        return NearRows(self._candidates, range(len(self._candidates)), self._scale)

    @cached_property
    def _suspects(self) -> tuple[cKDTree, NDArray[np.float64]]:
        """Rows of the table in units of what is near in each column, and the units."""
        low, high = self._candidates.detach().double().aminmax(dim=0)
        rounding = ROUNDING * torch.where(self._scale > 0, self._scale, 1.0)
        unit = _host(torch.maximum(SUSPICIOUS * (high - low), rounding))
        X = _host(self._candidates) / unit
        return cKDTree(X, balanced_tree=False, compact_nodes=False), unit

    def _known_rows(self, dtype: torch.dtype) -> "KnownRows":
        if dtype not in self._known:
            self._known[dtype] = KnownRows(self._candidates.to(dtype))
        return self._known[dtype]

    def find(self, X: Tensor, history: History, trials: PendingTrials) -> list[int]:
        """Numbers of `b x d` points; those that are new get one of the history's.

        O(A log A) at the first call and O(log A) for each point.

        Raises:
            InputDataError: If a point may be several, or is outside of the box.
        """
        known_rows = self._known_rows(X.dtype)
        numbers = known_rows.find(X)
        if X.dtype != self._candidates.dtype and known_rows.has_copies:
            numbers = [
                number if number < 0 else self._one_row(known_rows.copies(x), x, trials)
                for number, x in zip(numbers, X, strict=True)
            ]
        beside = X.to(self._candidates).cpu()
        for i, number in enumerate(numbers):
            known = history.number_of(beside[i]) if number < 0 else None
            numbers[i] = number if known is None else known
        unknown = [i for i, number in enumerate(numbers) if number < 0]
        if unknown:
            for i, near in zip(
                unknown, self._near(X[unknown], trials, history), strict=True
            ):
                numbers[i] = self._one_of(near, X[i], history, trials)
        return numbers

    def _near(
        self, X: Tensor, trials: PendingTrials, history: History
    ) -> list[list[int]]:
        """The numbers that each of `b x d` points may be within rounding."""
        if self._box is None:
            return self._near_rows.find(X)
        if self._pending is None or self._pending[0] != trials.num_proposed:
            points = sorted({trial.point for trial in trials})
            X_pending = history.points(torch.tensor(points, dtype=torch.long))
            near = NearRows(X_pending, points, self._scale)
            self._pending = (trials.num_proposed, near)
        found = self._pending[1].find(X)
        return [[p for p in points if any(trials.at(p))] for points in found]

    def _one_row(self, rows: list[int], x: Tensor, trials: PendingTrials) -> int:
        """The row that is meant by a point with fewer digits than the table has."""
        groups: dict[bytes, list[int]] = {}
        for row in rows:
            groups.setdefault(row_bytes(self._candidates[row]), []).append(row)
        if len(groups) == 1:
            return rows[0]
        waiting = [g for g in groups.values() if any(any(trials.at(r)) for r in g)]
        if len(waiting) == 1:
            return waiting[0][0]
        raise InputDataError(
            f"Got {x.tolist()} of dtype {x.dtype}, in which the rows {rows[:5]} of the "
            f"table are the same, {len(waiting)} of them pending. Tell the ids of "
            f"trials, or points of dtype {self._candidates.dtype}."
        )

    def forget(self) -> None:
        """Look at pending points anew: they are others than before."""
        self._pending = None

    def _one_of(
        self, near: list[int], x: Tensor, history: History, trials: PendingTrials
    ) -> int:
        """The number of a point that is one of a few, or new."""
        if len(near) > 1:
            raise InputDataError(
                f"Got {x.tolist()}, which is within rounding of {len(near)} different "
                f"points, such as {history.points(torch.tensor(near[:2])).tolist()}. "
                "Tell the ids of trials, or keys, or more digits."
            )
        if near:
            return near[0]
        if self._box is None:
            if len(trials):
                self._refuse_near(x)
            return history.add_point(x.to(self._candidates))
        inside = self._box.clamp(x)
        if not self.is_same(x.unsqueeze(0), inside.unsqueeze(0)):
            raise InputDataError(
                f"Got {x.tolist()}, which is outside of the bounds "
                f"{self._box.bounds.tolist()}; need points of the domain."
            )
        return history.add_point(inside)

    def _refuse_near(self, x: Tensor) -> None:
        """Refuse a point that is none of the rows, but near one. O(log A)."""
        tree, unit = self._suspects
        point = _host(x)
        with np.errstate(over="ignore"):
            scaled = np.clip(point / unit, -FAR, FAR)
        distance, row = tree.query(scaled, p=np.inf, distance_upper_bound=1.0)
        if not np.isfinite(distance):
            return
        nearest = self._candidates[int(row)]
        column = int(np.abs(_host(nearest) / unit - scaled).argmax())
        raise InputDataError(
            f"Got {x.tolist()}, which is no row of the table. The nearest one is row "
            f"{int(row)}, {nearest.tolist()}: column {column} (from 0) has "
            f"{point[column]:.10g} instead of {float(nearest[column]):.10g}. Tell ids "
            "of trials, keys, or at least six digits. If another point is meant, tell "
            "it while no trial is pending."
        )

    def is_same(self, X: Tensor, Z: Tensor) -> bool:
        """Whether `b x d` points differ by rounding at most."""
        apart = (X.double() - Z.to(X).double()).abs()
        return bool((apart <= ROUNDING * self._scale.to(apart)).all())

    def copies(self, number: int) -> list[int]:
        """All points with the coordinates of one, itself included. O(log A)."""
        if number >= len(self._candidates):
            return [number]
        known = self._known_rows(self._candidates.dtype)
        return known.copies(self._candidates[number]) if known.has_copies else [number]


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
        self._tolerance = ROUNDING * _host(scale)
        self._arithmetic = 8 * np.finfo(np.float64).eps * _host(scale)
        self._X = _host(X)
        # Columns of few values, as one-hot ones, have no balanced tree.
        self._tree = cKDTree(
            self._scaled(self._X), balanced_tree=False, compact_nodes=False
        )

    def find(self, X: Tensor) -> list[list[int]]:
        """For each of `b x d` points the numbers of those that it may be."""
        points = _host(X)
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


def _host(X: Tensor) -> NDArray[np.float64]:
    return X.detach().double().cpu().numpy()
