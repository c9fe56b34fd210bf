"""What a laboratory keeps in files: what can be measured, and what has been."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.csv_text import TextTable, number, read_table, shown
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.columns import Column, few
from botorch_sparse.strategies.near_rows import KnownRows, NearRows


@dataclass(frozen=True, eq=False)
class Pool:
    """The candidates as text and as numbers.

    Attributes:
        text: The cells of the file.
        table: The rows in the encoding of the model.
        key: The column that names the rows; None if their features do.
        target: The column of the results that is optimized.
    """

    text: TextTable
    table: CandidateTable
    key: str | None
    target: str

    def name(self, row: int) -> str:
        """What messages call a row."""
        name = f"line {self.text.lines[row]} of {self.text.name}"
        if self.key is None:
            return name
        return f"{shown(self.text.columns[self.key][row].strip())} ({name})"


@dataclass(frozen=True)
class Results:
    """Measurements in the order of their file: of rows of the pool, and others.

    A laboratory may take out of the pool what it has used up. What it measured there
    says as much as before, if the file has the features.

    Attributes:
        name: What messages call the file.
        rows: `n` rows of the pool, repeats allowed.
        values: `n` values of the target.
        failed: Rows whose measurement failed.
        points: `k x d` encoded features of what is no row of the pool.
        point_values: `k` values of the target there.
        beside: What messages call these.
        left_out: What they call results that cannot be used.
    """

    name: str
    rows: list[int]
    values: list[float]
    failed: list[int] = field(default_factory=list)
    points: list[list[float]] = field(default_factory=list)
    point_values: list[float] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.values) + len(self.point_values)


def read_pool(
    path: Path,
    key: str | None,
    target: str,
    as_text: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> Pool:
    """The table of candidates.

    Args:
        path: CSV file.
        key: Column that names its rows, each of them once; None if features do.
        target: Column of the results; in this table it is ignored.
        as_text: Columns of categories, whatever their cells look like.
        ignored: Columns that are left out.

    Raises:
        InputDataError: If the table cannot be used.
    """
    if key == target:
        raise InputDataError(f"The --key and the --target are both {shown(target)}.")
    if key is not None and key in ignored:
        raise InputDataError(f"The --key and one to --ignore are both {shown(key)}.")
    text = read_table(path, key=key)
    if not len(text):
        raise InputDataError(
            f"{text.name} is empty: a header row and candidates are needed."
        )
    text.need([key] if key is not None else [], "the --key")
    text.need(as_text, "which --text names")
    text.need(ignored, "which --ignore names")
    without = {key, target, *ignored}
    labels = [name for name in text.columns if name not in without]
    columns: dict[str, Any] = {
        name: text.texts(name) if name in as_text else text.values(name)
        for name in labels
    }
    if key is not None:
        columns[key] = text.different(key)
    try:
        table = CandidateTable.from_columns(columns, key=key)
    except InputDataError as error:
        raise InputDataError(f"{text.name}: {error}") from error
    if key is None:
        _check_no_twins(text, table.X)
    return Pool(text, table, key, target)


def read_results(path: Path | None, pool: Pool, *, skip_empty: bool = False) -> Results:
    """The measurements so far; none if no file is named, or an empty one.

    Args:
        path: CSV file with the target, and with the key or all features of the rows;
            other columns are ignored. None for a first batch. Results of no row of
            the pool need all features, or are left out.
        pool: The candidates.
        skip_empty: Whether an empty cell of the target is a measurement that failed.

    Raises:
        InputDataError: If the table is not there, or none of it can be used.
    """
    if path is None:
        return Results("the results", [], [])
    if not path.exists():
        raise InputDataError(
            f"There is no file {str(path)!r} for --results; check its name, or "
            "leave --results out for a first batch."
        )
    text = read_table(path, key=pool.key)
    if not text.columns:
        return Results(text.name, [], [])
    text.need([pool.target], "the --target")
    if pool.key is None:
        rows = _rows_by_features(text, pool)
    else:
        rows = _rows_by_key(text, pool.key, pool)
    is_empty = [not cell.strip() for cell in text.columns[pool.target]]
    if any(is_empty) and not skip_empty:
        reason = (
            "the cell is empty; fill it in, leave the row out, or call with "
            "--skip-empty if the measurements without a value failed: then their rows "
            "are not proposed again."
        )
        raise text.error(is_empty.index(True), pool.target, reason)
    return _sort_out(text, pool, rows, is_empty)


def _sort_out(
    text: TextTable, pool: Pool, rows: list[int], is_empty: list[bool]
) -> Results:
    """The results by what they are of: rows of the pool, -1 for none."""
    others = [i for i, row in enumerate(rows) if row < 0]
    fit, X = encode_fit(text.columns, pool, others)
    left_out = sorted(set(others) - set(fit))
    if left_out and len(left_out) == len(text):
        raise _unusable(text, left_out[0], pool)
    inside = [i for i, row in enumerate(rows) if row >= 0 and not is_empty[i]]
    measured = [place for place, i in enumerate(fit) if not is_empty[i]]
    beside = [fit[place] for place in measured]
    return Results(
        text.name,
        rows=[rows[i] for i in inside],
        values=text.only(inside).numbers(pool.target).tolist(),
        failed=[row for i, row in enumerate(rows) if row >= 0 and is_empty[i]],
        points=X[measured].tolist(),
        point_values=text.only(beside).numbers(pool.target).tolist(),
        beside=[text.place(i) for i in beside],
        left_out=[text.place(i) for i in left_out],
    )


def _unusable(text: TextTable, i: int, pool: Pool) -> InputDataError:
    """The error for results none of which can be used, by the first of them."""
    column, reason = _unfit(text.columns, i, pool) or (pool.target, "")
    if pool.key is not None:
        reason = (
            f"{pool.text.name} has no row with this key, and the features of "
            f"{text.name} do not fit it either (column {shown(column)}: {reason})"
        )
        column = pool.key
    return text.error(i, column, f"{reason}; no other result can be used either.")


def encode_fit(
    columns: Mapping[str, Sequence[str]], pool: Pool, rows: Iterable[int]
) -> tuple[list[int], Tensor]:
    """Those of some rows of cells that have all features of the pool.

    Args:
        columns: Cells by the names of their columns.
        pool: The candidates.
        rows: Which rows of the cells.

    Returns:
        The rows, and their `k x d` features in the encoding of the pool.
    """
    fit = [i for i in rows if _unfit(columns, i, pool) is None]
    if not fit:
        return [], pool.table.X[:0]
    cells: dict[str, Any] = {}
    for spec in pool.table.columns:
        texts = [columns[str(spec.label)][i].strip() for i in fit]
        is_text = spec.categories is not None
        cells[str(spec.label)] = texts if is_text else list(map(float, texts))
    return fit, pool.table.encode(cells)


def _unfit(
    columns: Mapping[str, Sequence[str]], i: int, pool: Pool
) -> tuple[str, str] | None:
    """The first column of a row of cells that cannot be encoded, and why not."""
    for spec in pool.table.columns:
        name = str(spec.label)
        if name not in columns:
            return name, "there is no such column"
        if reason := _misfit(columns[name][i].strip(), spec):
            return name, reason
    return None


def _misfit(cell: str, spec: Column) -> str | None:
    """Why a cell cannot be encoded as one of a column; None if it can."""
    if spec.categories is None:
        return None if number(cell) is not None else f"{shown(cell)} is no number"
    if cell in spec.categories:
        return None
    return f"{shown(cell)} is none of its categories, {few(spec.categories)}"


def _rows_by_key(text: TextTable, key: str, pool: Pool) -> list[int]:
    """The rows of the pool with the keys of the results; -1 for none."""
    text.need([key], "the --key")
    known = {name: row for row, name in enumerate(pool.table.keys or ())}
    return [known.get(cell, -1) for cell in text.texts(key)]


def _rows_by_features(text: TextTable, pool: Pool) -> list[int]:
    """The rows that have the features of the results, after rounding to six digits.

    -1 for those that have no row.
    """
    X = pool.table.X
    columns = {str(s.label): s.categories is None for s in pool.table.columns}
    text.need(columns, f"which {pool.text.name} has; or name rows by a --key")
    for label, is_number in columns.items():
        text.numbers(label) if is_number else text.texts(label)
    rows = [-1] * len(text)
    fit, points = encode_fit(text.columns, pool, range(len(text)))
    for i, row in zip(fit, KnownRows(X).find(points), strict=True):
        rows[i] = row
    unknown = [place for place, i in enumerate(fit) if rows[i] < 0]
    if not unknown:
        return rows
    ranges = torch.stack(X.aminmax(dim=0))
    near = NearRows(X, range(len(X)), ranges).find(points[unknown])
    for place, found in zip(unknown, near, strict=True):
        if len(found) > 1:
            which = " and ".join(pool.name(row) for row in found[:2])
            raise InputDataError(
                f"{text.name}, line {text.lines[fit[place]]}: to six digits this is "
                f"{which}; name the rows by a --key."
            )
        rows[fit[place]] = found[0] if found else -1
    return rows


def _check_no_twins(text: TextTable, X: Tensor) -> None:
    """Without a key no two rows may have the same features."""
    before = KnownRows(X).find(X)
    row = next((i for i, j in enumerate(before) if i != j), None)
    if row is not None:
        raise InputDataError(
            f"{text.name}, lines {text.lines[before[row]]} and {text.lines[row]}: the "
            "two rows have the same features; leave one out, or name rows by a --key."
        )
