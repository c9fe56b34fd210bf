"""Results that may be of another row of the pool than they seem: refused by line."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from botorch.exceptions import InputDataError
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.strategies.data.columns import Column
from botorch_sparse.strategies.data.row_matching import ROUNDING, on_host
from botorch_sparse.suggest.candidate_pool import Pool, has_features, unfit
from botorch_sparse.suggest.csv_cells import (
    DATE,
    cells_are_equal,
    half_unit,
    is_blank,
    is_missing,
    key_form,
    number,
    says_failed,
    size_of,
    spreadsheet_form,
)
from botorch_sparse.suggest.csv_text import TextTable, quoted

# Of the different values of a column these many are as short as a cell by chance:
# a tenth has one digit less than the others.
SHORT = 0.15


def check_no_results(pool: Pool) -> None:
    """Refuse candidates that have values of the target, which would not count.

    It is asked where no file has a result.

    Raises:
        InputDataError: If there is one.
    """
    name, cells = pool.text.name, pool.text.columns.get(pool.target, [])
    told = (number(cell) is not None or says_failed(cell) for cell in cells)
    row = next((i for i, is_told in enumerate(told) if is_told), None)
    if row is None:
        return
    reason = (
        f"{quoted(cells[row].strip())} is a result in the column of the target, but no "
        "results are named, or they are empty; give the file as results too (--results "
        f"{name}), or leave the column out with --ignore {quoted(pool.target)}."
    )
    raise pool.text.error(row, pool.target, reason)


def check_keys(text: TextTable, key: str, rows: Sequence[int], pool: Pool) -> None:
    """Refuse keys of no row that a spreadsheet may have changed, or without features.

    A row without a value, or that failed, carries no data and needs no features.

    Args:
        text: Results.
        key: The column of their keys.
        rows: Their rows of the pool, -1 for none.
        pool: The candidates.

    Raises:
        InputDataError: If there is such a key.
    """
    unknown = [i for i, row in enumerate(rows) if row < 0]
    if not unknown:
        return
    keys = list(map(str, pool.table.keys or ()))
    forms = {key_form(name): row for row, name in enumerate(keys)}
    nowhere = f"{pool.text.name} has no row with this key"
    for i in unknown:
        meant = forms.get(key_form(text.columns[key][i]))
        if meant is not None and not _has_others(text, i, meant, pool):
            raise text.error(
                i,
                key,
                f"{nowhere}, but one with {quoted(keys[meant])}. If a spreadsheet has "
                "changed the key, keep that column as text there; write the key as in "
                f"{pool.text.name}.",
            )
    for i in unknown:
        cell = text.columns[pool.target][i]
        is_silent = is_missing(cell) or says_failed(cell)
        if not is_silent and not has_features(text.columns, i, pool):
            raise unusable(text, i, pool, "mend the key, or leave the row out")


def _has_others(text: TextTable, i: int, row: int, pool: Pool) -> bool:
    """Whether a result has all features, some of which are not those of a row."""
    return has_features(text.columns, i, pool) and any(
        not cells_are_equal(text.columns[name][i], _own(row, name, pool), rounded=True)
        for name in (str(spec.label) for spec in pool.table.columns)
    )


def ignore_hint(name: str, pool: Pool) -> str:
    """What to do where results lack a feature: names, too, are one in few rows."""
    cells = pool.text.columns[name]
    is_name = name in pool.forms and len(set(cells)) == len(cells) > 1
    ways = []
    if is_name and len(pool.table.columns) > 1:
        ways.append(f"if it names rows, leave it out with --ignore {quoted(name)}")
    if pool.key is None:
        ways.append("or name rows by a --key")
    return f"; {', '.join(ways)}" if ways else ""


def unusable(text: TextTable, i: int, pool: Pool, advice: str) -> InputDataError:
    """The error for a result of no row of the pool that does not fit it either."""
    column, reason = unfit(text.columns, i, pool) or (pool.target, "")
    if column in pool.forms and column not in text.columns:
        reason += ignore_hint(column, pool)
    if pool.key is not None:
        reason = (
            f"{pool.text.name} has no row with this key, and the features of "
            f"{text.name} do not fit it either (column {quoted(column)}: {reason})"
        )
        column = pool.key
    return text.error(i, column, f"{reason}; {advice}.")


def check_features(text: TextTable, rows: Sequence[int], pool: Pool) -> None:
    """Refuse results whose features are not those of the row that their key names.

    Cells may be rounded or missing. Numbers are compared with numbers only; text that
    is none of the column's categories says nothing: a spreadsheet writes dates anew.

    Args:
        text: Results.
        rows: Their rows of the pool, -1 for none.
        pool: The candidates.

    Raises:
        InputDataError: If a feature contradicts the key.
    """
    for spec in pool.table.columns:
        name = str(spec.label)
        others = {spreadsheet_form(str(kind)) for kind in spec.categories or ()}
        for i, cell in enumerate(text.columns.get(name, ())):
            own = _own(rows[i], name, pool)
            if rows[i] < 0 or is_blank(cell):
                continue
            says_one = (
                spreadsheet_form(cell) in others if others else number(cell) is not None
            )
            if says_one and not cells_are_equal(cell, own, rounded=True):
                reason = (
                    f"{quoted(cell.strip())} is not {quoted(own)}, which line "
                    f"{pool.text.lines[rows[i]]} of {pool.text.name} has for this key; "
                    "mend the key or the cell, or give the column of the results "
                    "another name if it is not that feature."
                )
                raise text.error(i, name, reason)


def check_names(text: TextTable, rows: Sequence[int], pool: Pool) -> None:
    """Refuse results whose names are not those of the rows that their features are of.

    Names are columns that were left out, as each row has a text of its own. A date that
    no row has says nothing: a spreadsheet writes it anew.

    Args:
        text: Results.
        rows: Their rows of the pool, -1 for none.
        pool: The candidates, without a key.

    Raises:
        InputDataError: If a name contradicts the features.
    """
    for name in pool.names:
        known = set(map(spreadsheet_form, pool.text.columns[name]))
        for i, cell in enumerate(text.columns.get(name, ())):
            if rows[i] < 0 or is_missing(cell):
                continue
            own = _own(rows[i], name, pool)
            says_one = spreadsheet_form(cell) in known or not DATE.fullmatch(
                cell.strip()
            )
            if says_one and spreadsheet_form(cell) != spreadsheet_form(own):
                reason = (
                    f"it has {quoted(cell.strip())}, and the row with these features, "
                    f"{pool.name(rows[i])}, has {quoted(own)}; name rows by --key "
                    f"{quoted(name)}, or leave the column out with --ignore "
                    f"{quoted(name)} if it names no rows."
                )
                raise text.error(i, name, reason)


def _own(row: int, name: str, pool: Pool) -> str:
    return pool.text.columns[name][row].strip()


def check_rounded(
    text: TextTable, unknown: Sequence[tuple[int, Tensor]], pool: Pool
) -> None:
    """Refuse results of no row whose features look like those of one, rounded.

    Args:
        text: Results.
        unknown: Which of them are of no row, with `d` encoded features.
        pool: The candidates.

    Raises:
        InputDataError: If there is such a result.
    """
    has_numbers = any(spec.categories is None for spec in pool.table.columns)
    if not unknown or not has_numbers:
        return
    rounding = _Rounding(pool, text)
    for i, x in unknown:
        cells = {name: column[i].strip() for name, column in text.columns.items()}
        if found := rounding.find(cells, on_host(x)):
            row, name = found
            reason = (
                f"no row of {pool.text.name} has {quoted(cells[name])} and the other "
                f"features. The nearest one is line {pool.text.lines[row]}, with "
                f"{quoted(_own(row, name, pool))}: if that was rounded, write all "
                "digits; if it was not, zeros behind it; or name rows by a --key."
            )
            raise text.error(i, name, reason)


class _Rounding:
    """Finds rows of a pool that cells may be, rounded.

    A cell that is as short as many of the column, one of a few values that come again
    and again, or one that has lost zeros as few others have in its column of the
    results, is not taken for rounded. O(A d log A) once, then O(log A + b d)
    for a row of cells that `b` rows are near in the column of most values.
    """

    def __init__(self, pool: Pool, text: TextTable) -> None:
        self._sizes = {
            name: Counter(size for cell in column if (size := size_of(cell)))
            for name, column in text.columns.items()
        }
        self._columns = pool.table.columns
        self._X = on_host(pool.table.X)
        self._width = np.ptp(self._X, axis=0)
        numbers = [spec.start for spec in self._columns if spec.categories is None]
        self._values = {
            start: np.unique(self._X[:, start], return_counts=True) for start in numbers
        }
        self._first = max(numbers, key=lambda start: len(self._values[start][0]))
        self._order = np.argsort(self._X[:, self._first])
        self._sorted = self._X[self._order, self._first]
        self._share: dict[tuple[int, int], float] = {}

    def find(
        self, cells: Mapping[str, str], x: NDArray[np.float64]
    ) -> tuple[int, str] | None:
        """The nearest row that `d` features may be, and the column that is farthest."""
        halves = [self._half_unit(cells[str(s.label)], x, s) for s in self._columns]
        if all(half is None for half in halves):
            return None
        tolerance = ROUNDING * np.minimum(np.abs(x), self._width)
        scale = np.full(len(x), np.inf)
        for spec, half in zip(self._columns, halves, strict=True):
            if half is not None:
                tolerance[spec.start] = scale[spec.start] = half
        value, around = x[self._first], tolerance[self._first]
        begin = np.searchsorted(self._sorted, value - around, "left")
        end = np.searchsorted(self._sorted, value + around, "right")
        rows = self._order[begin:end]
        distance = np.abs(self._X[rows] - x)
        is_near = (distance <= tolerance).all(-1)
        if not is_near.any():
            return None
        rows, parts = rows[is_near], distance[is_near] / scale
        nearest = int(parts.max(-1).argmin())
        farthest = int(parts[nearest].argmax())
        column = next(s for s in self._columns if farthest < s.start + s.width)
        return int(rows[nearest]), str(column.label)

    def _half_unit(
        self, cell: str, x: NDArray[np.float64], spec: Column
    ) -> float | None:
        """How far a column of a row may be from a cell; None if that is not rounded."""
        if spec.categories is not None:
            return None
        value, half = float(x[spec.start]), half_unit(cell)
        if half <= ROUNDING * min(abs(value), float(self._width[spec.start])):
            return None
        if self._is_cut(cell, str(spec.label)) or self._is_usual(
            value, half, spec.start
        ):
            return None
        return half * (1 - 1e-9)  # a tie has come from either side

    def _is_cut(self, cell: str, name: str) -> bool:
        """Whether zeros may have been dropped: of `k` digits, in one of 10^k cells."""
        sizes, (decimals, digits) = self._sizes[name], size_of(cell) or (0, 0)
        longer = [a - decimals for a, b in sizes if a > decimals and b > digits]
        if not longer:
            return False
        num_short = sum(num for (a, _), num in sizes.items() if a <= decimals)
        expected = sizes.total() / 10 ** max(longer)
        return num_short <= 3 * expected + (max(longer) == 1)

    def _is_usual(self, value: float, half: float, start: int) -> bool:
        """Whether values as short as this one are usual in a column."""
        values, counts = self._values[start]
        decimals = -round(np.log10(2 * half))
        if (start, decimals) not in self._share:
            is_short = np.round(values, decimals) == values
            self._share[start, decimals] = float(is_short.mean())
        place = min(int(np.searchsorted(values, value)), len(values) - 1)
        repeats = 2 * len(values) <= len(self._X) and counts[place] > 1
        is_one = bool(repeats and values[place] == value)
        return is_one or self._share[start, decimals] >= SHORT
