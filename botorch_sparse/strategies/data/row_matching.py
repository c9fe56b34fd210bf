"""Finding points among others, exactly or within rounding."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from botorch.exceptions import BotorchTensorDimensionError
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from botorch_sparse.argument_checks import check_tensors

Array: TypeAlias = NDArray[np.float64]
# Different points by their bytes, ascending; where the rows of each begin; the rows.
EqualRows: TypeAlias = tuple[NDArray[np.void], NDArray[np.int64], NDArray[np.int64]]
# What six significant digits, as in a CSV file, may change in a number.
ROUNDING = 1e-5
# Nearer than this share of a column's range, an entry may have lost digits.
SUSPICIOUS = 1e-2
# Six digits may be coarse where a column is far from zero, up to this of its range.
COARSE = 0.1
DECIMALS = range(1, 16)
# Digits that numbers hold whatever was computed with them.
DIGITS = {torch.float64: 12, torch.float32: 7}
FAR = 1e100
# The nearest of several is meant where the others are as many times farther.
CLEAR = 100.0


@dataclass(frozen=True, eq=False)
class Rounding:
    """What rounding may change in the entries of `d` columns.

    Attributes:
        width: `d` ranges of the columns, positive.
        scale: `d` largest magnitudes in them, positive.
        few_digits: `d` distances at which an entry may be another of too few digits.
        dtype: The type of the entries.
    """

    width: Array
    scale: Array
    few_digits: Array
    dtype: torch.dtype

    @classmethod
    def of(cls, ranges: Tensor, dtype: torch.dtype) -> "Rounding":
        """The rounding of columns, by `2 x d` smallest and largest values."""
        low, high = on_host(ranges)
        with np.errstate(over="ignore"):
            width = high - low
        scale = np.maximum(np.abs(low), np.abs(high))
        scale = np.where(scale > 0, scale, 1.0)
        width = np.where(high > low, width, scale)
        few_digits = np.where(high > low, SUSPICIOUS * width, ROUNDING * scale)
        return cls(width, scale, few_digits, dtype)

    @property
    def arithmetic(self) -> Array:
        """`d` errors of results of arithmetic in float64."""
        return 8 * np.finfo(np.float64).eps * self.scale

    @cached_property
    def most(self) -> Array:
        """`d` bounds on all that rounding may change."""
        return np.maximum(self._least, self._coarse)

    @cached_property
    def _least(self) -> Array:
        """`d` bounds on what it may change where no digits are lost."""
        ulps = self.ulps(self.scale, self.dtype)
        return np.maximum(np.maximum(ROUNDING * self.width, ulps), self.arithmetic)

    @cached_property
    def _coarse(self) -> Array:
        return np.minimum(COARSE * self.width, ROUNDING * self.scale)

    def reach(self, x: Array, dtype: torch.dtype) -> float:
        """What part of `most` is needed for a point; less far from zero."""
        if (self._coarse <= self._least).all():
            return 1.0
        bound = np.maximum(self.fine(x, dtype), self.lost(x, dtype))
        return float(min(1.0, (np.maximum(bound, self._least) / self.most).max()))

    def ulps(self, size: Array, dtype: torch.dtype) -> Array:
        """A few units in the last place of numbers of a size, told in a dtype."""
        eps = max(torch.finfo(dtype).eps, torch.finfo(self.dtype).eps)
        return min(2 * eps, ROUNDING) * size

    def fine(self, x: Array, dtype: torch.dtype) -> Array:
        """`d` tolerances for an entry: `ROUNDING` of it, or of the range if less."""
        size = np.abs(x)
        digits = ROUNDING * np.minimum(size, self.width)
        return np.maximum(digits, self.ulps(size, dtype))

    def written(self, x: Array, dtype: torch.dtype) -> Array:
        """`d` tolerances: half a unit of the last digit written, of six at least."""
        return half_units(x, dtype) + self.ulps(np.abs(x), dtype)

    def lost(self, x: Array, dtype: torch.dtype) -> Array:
        """The same where that is little of the range, else 0."""
        is_little = half_units(x, dtype) <= COARSE * self.width
        return np.where(is_little, self.written(x, dtype), 0.0)

    def is_same(self, told: Tensor, points: Tensor) -> bool:
        """Whether `b x d` points differ by rounding at most from those they should be.

        One wait for an accelerator, and others where digits were lost.
        """
        apart, is_off = self._apart(told, points)
        if not is_off.any():
            return True
        x, left = on_host(told[is_off]), on_host(apart[is_off])
        if not np.isfinite(left).all():
            return False
        return bool((left <= self.written(x, told.dtype)).all())

    def is_fine(self, told: Tensor, points: Tensor) -> bool:
        """The same by the ranges of the columns alone, however far from zero."""
        return not self._apart(told, points)[1].any()

    def _apart(self, told: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """`b x d` distances, and which are more than `ROUNDING` of the range."""
        apart = (told.double() - points.to(told).double()).abs()
        return apart, ~(apart <= self._bound(told.dtype, told.device))

    def _bound(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """`d` distances by the range, where the points are: one copy goes there."""
        if (dtype, device) not in self._bounds:
            bound = ROUNDING * self.width + self.ulps(self.scale, dtype)
            self._bounds[dtype, device] = torch.from_numpy(bound).to(device)
        return self._bounds[dtype, device]

    @cached_property
    def _bounds(self) -> dict[tuple[torch.dtype, torch.device], Tensor]:
        return {}

    def is_near(self, x: Array, rows: Array, dtype: torch.dtype) -> NDArray[np.bool_]:
        """Which of `k x d` points one may be to a few digits, `k` truth values."""
        bound = np.maximum(self.few_digits, self.written(x, dtype))
        is_near: NDArray[np.bool_] = np.all(np.abs(rows - x) <= bound, axis=-1)
        return is_near


def half_units(x: Iterable[float], dtype: torch.dtype) -> Array:
    """Half a unit in the last of the digits that numbers were written with.

    Six of them count though they are zeros. Beyond these, zeros before the point do:
    1700000600 is written to the last second, 1700000000 maybe to six digits.
    """
    text = f".{DIGITS.get(dtype, 6)}g"
    return np.array([_half_unit(Decimal(format(v, text))) for v in x], dtype=float)


def _half_unit(written: Decimal) -> float:
    exponent = written.normalize().as_tuple().exponent
    if not isinstance(exponent, int) or not written:  # NaN, or a zero
        return 0.0
    six = written.adjusted() - 5
    place = six if exponent >= six else min(exponent, 0)
    return 0.5 * math.pow(10.0, place)


def is_decimal(x: Array, rows: Array) -> NDArray[np.bool_]:
    """Where `d` numbers are `k x d` others rounded to decimals, and not to zero."""
    rounded = [np.round(rows, decimals) == x for decimals in DECIMALS]
    is_rounded: NDArray[np.bool_] = np.any(rounded, axis=0) & (x != 0)
    return is_rounded


def on_host(X: Tensor) -> Array:
    """Numbers in float64 for NumPy."""
    return X.detach().double().cpu().numpy()


def equal_rows(X: Tensor) -> EqualRows:
    """An index of `k x d` points by their bytes, for `rows_at`. O(k log k)."""
    keys = _keys(X)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    is_first = np.append(np.ones(min(1, len(keys)), bool), keys[1:] != keys[:-1])
    return keys[is_first], np.append(is_first.nonzero()[0], len(keys)), order


def rows_at(known: EqualRows, X: Tensor) -> list[list[int]]:
    """The rows that equal each of `b x d` points, ascending. O(log k) for each."""
    (different, ends, order), keys = known, _keys(X)
    if len(different) == 0:
        return [[] for _ in keys]
    place = np.searchsorted(different, keys).clip(max=len(different) - 1)
    starts = ends[place]
    sizes = np.where(different[place] == keys, ends[place + 1] - starts, 0)
    found = zip(starts.tolist(), sizes.tolist(), order[starts].tolist(), strict=True)
    return [[row] if n == 1 else order[i : i + n].tolist() for i, n, row in found]


def _keys(X: Tensor) -> NDArray[np.void]:
    """The bytes of each row; zero has one sign."""
    X = X.float() if X.dtype == torch.bfloat16 else X  # NumPy has no such type
    X = X.detach()
    X = X if X.dtype == torch.uint8 else X + 0.0
    rows = np.ascontiguousarray(X.cpu().numpy())
    width = max(1, rows.itemsize * rows.shape[1])
    return rows.view(np.dtype((np.void, width))).reshape(-1)


class RowIndex:
    """Finds points among `k x d` others: equal ones, and those that differ by rounding.

    By rounding entries may differ by `ROUNDING` of what was told, and by no more of the
    column's range than that. Where the column is far from zero they may differ by what
    is lost with its last digits, up to `COARSE` of the range. Next to zero, where
    `ROUNDING` of it is little, they may differ by `ROUNDING` of the range if what was
    told is the other entry rounded to some decimals, or differs as results of
    arithmetic do.

    Args:
        X: The points to be found.
        number: Their `k` numbers; their places by default.
        rounding: What rounding may change in their columns; by default in columns that
            range from the smallest to the largest entry.
    """

    def __init__(
        self,
        X: Tensor,
        number: Sequence[int] | None = None,
        rounding: Rounding | None = None,
    ) -> None:
        check_tensors(X=X)
        if X.dim() != 2 or (rounding is None and not len(X)):
            raise BotorchTensorDimensionError(
                f"Got X of shape {tuple(X.shape)}; need `k x d` points."
            )
        self.number = range(len(X)) if number is None else number
        if rounding is None:
            rounding = Rounding.of(torch.stack(X.aminmax(dim=0)), X.dtype)
        self._rounding = rounding
        self._X = on_host(X)

    def _check(self, name: str, X: Tensor, num_dims: int) -> None:
        """Refuse what is no tensor of entries in these columns."""
        check_tensors(**{name: X})
        if X.dim() != num_dims or X.shape[-1] != self._X.shape[-1]:
            raise BotorchTensorDimensionError(
                f"Got {name} of shape {tuple(X.shape)}; need `{'b x ' * (num_dims - 1)}"
                f"{self._X.shape[-1]}`."
            )

    @cached_property
    def _equal(self) -> EqualRows:
        return equal_rows(torch.from_numpy(self._X))

    @cached_property
    def _near(self) -> cKDTree:
        """The points by what rounding may change at most."""
        return _tree(self._X, self._rounding.most)

    @cached_property
    def _beside(self) -> tuple[cKDTree, NDArray[np.float64]]:
        """The points by what a few digits may change, and that."""
        rounding = self._rounding
        unit = np.maximum(rounding.few_digits, ROUNDING * rounding.scale)
        return _tree(self._X, unit), unit

    def equal(self, X: Tensor) -> list[list[int]]:
        """For each of `b x d` points the numbers of those that equal it. O(log k)."""
        self._check("X", X, 2)
        found = rows_at(self._equal, X.double())
        return [[self.number[row] for row in rows] for rows in found]

    def six_digits(self, x: Tensor) -> Tensor:
        """`d` distances that six digits of a point's entries, or arithmetic, allow."""
        self._check("x", x, 1)
        fine = self._rounding.fine(on_host(x), x.dtype)
        return torch.from_numpy(np.maximum(fine, self._rounding.arithmetic))

    def within(self, x: Tensor, tolerance: Tensor) -> list[int]:
        """The numbers of points whose `d` entries are within positive distances.

        One, where that is so much the nearest. O(log k + b d) where `b` are near in all
        columns.
        """
        self._check("x", x, 1)
        self._check("tolerance", tolerance, 1)
        point, unit = on_host(x), on_host(tolerance)
        most = self._rounding.most
        far = float((unit / most).max()) * (1 + 1e-9)
        places = np.array(sorted(_ball(self._near, point[None], most, far)[0]), int)
        apart = np.abs(self._X[places] - point)
        is_near = (apart <= unit).all(-1)
        left = places[is_near][_nearest((apart / unit)[is_near].max(-1, initial=0.0))]
        return [self.number[place] for place in left]

    def find(self, X: Tensor) -> list[list[int]]:
        """For each of `b x d` points the numbers of those that it is by rounding.

        One, where it is so much the nearest; several where that is not clear.
        """
        self._check("X", X, 2)
        points, most = on_host(X), self._rounding.most
        far = [self._rounding.reach(x, X.dtype) for x in points]
        near = _ball(self._near, points, most, np.array(far))
        return [
            self._meant(x, np.array(sorted(places)), X.dtype) if places else []
            for x, places in zip(points, near, strict=True)
        ]

    def nearby(self, x: Tensor) -> list[int]:
        """Numbers of the points that one may be to a few digits, the nearest first."""
        self._check("x", x, 1)
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
        """Which of a few near ones a point is, each but once."""
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
