"""What a laboratory keeps in files: what can be measured, and what has been."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.csv_text import TextTable, read_table, shown
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.columns import CellError
from botorch_sparse.strategies.points import KnownRows, NearRows


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
    """Measurements of rows of the pool, in the order of their file.

    Attributes:
        name: What messages call the file.
        rows: `n` rows, repeats allowed.
        values: `n` values of the target.
        failed: Rows whose measurement failed.
    """

    name: str
    rows: list[int]
    values: list[float]
    failed: list[int] = field(default_factory=list)


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
            other columns are ignored. None for a first batch.
        pool: The candidates, of which all rows must be.
        skip_empty: Whether an empty cell of the target is a measurement that failed.

    Raises:
        InputDataError: If the table is not there, or cannot be used.
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
    measured = [i for i, empty in enumerate(is_empty) if not empty]
    values = text.only(measured).numbers(pool.target).tolist()
    failed = [row for row, empty in zip(rows, is_empty, strict=True) if empty]
    return Results(text.name, [rows[i] for i in measured], values, failed)


def _rows_by_key(text: TextTable, key: str, pool: Pool) -> list[int]:
    text.need([key], "the --key")
    known = {name: row for row, name in enumerate(pool.table.keys or ())}
    cells = text.texts(key)
    rows = [known.get(cell, -1) for cell in cells]
    if -1 in rows:
        reason = f"{pool.text.name} has no row with this key."
        raise text.error(rows.index(-1), key, reason)
    return rows


def _rows_by_features(text: TextTable, pool: Pool) -> list[int]:
    """The rows that have the features of the results, after rounding to six digits."""
    X = pool.table.X
    columns = {spec.label: spec.categories is None for spec in pool.table.columns}
    labels = [str(label) for label in columns]
    text.need(labels, f"which {pool.text.name} has; or name rows by a --key")
    cells = {
        label: text.numbers(label) if columns[label] else text.texts(label)
        for label in labels
    }
    try:
        points = pool.table.encode(cells)
    except CellError as error:
        raise text.error(error.row, str(error.column), error.reason) from error
    rows = KnownRows(X).find(points)
    unknown = [i for i, row in enumerate(rows) if row < 0]
    if not unknown:
        return rows
    near = NearRows(X, range(len(X)), _scale(X)).find(points[unknown])
    for i, found in zip(unknown, near, strict=True):
        if len(found) != 1:
            raise _no_row(text, i, points[i], found, pool)
        rows[i] = found[0]
    return rows


def _no_row(
    text: TextTable, i: int, point: Tensor, found: Sequence[int], pool: Pool
) -> InputDataError:
    """The error for results of no row of the pool, or of one of several."""
    if found:
        which = " and ".join(pool.name(row) for row in found[:2])
        return InputDataError(
            f"{text.name}, line {text.lines[i]}: to six digits this is {which}; name "
            "the rows by a --key."
        )
    off = (pool.table.X - point).abs() / _scale(pool.table.X)
    nearest = int(off.amax(-1).argmin())
    spec = next(
        spec
        for spec in reversed(pool.table.columns)
        if spec.start <= int(off[nearest].argmax())
    )
    reason = (
        f"no row of {pool.text.name} has these features, to six digits; here it is "
        f"farthest from the nearest one, {pool.name(nearest)}."
    )
    return text.error(i, str(spec.label), reason)


def _check_no_twins(text: TextTable, X: Tensor) -> None:
    """Without a key no two rows may have the same features."""
    before = KnownRows(X).find(X)
    row = next((i for i, j in enumerate(before) if i != j), None)
    if row is not None:
        raise InputDataError(
            f"{text.name}, lines {text.lines[before[row]]} and {text.lines[row]}: the "
            "two rows have the same features; leave one out, or name rows by a --key."
        )


def _scale(X: Tensor) -> Tensor:
    """What rounding is relative to in each column: its `d` largest entries, not 0."""
    return X.abs().amax(dim=0).clamp_min(torch.finfo(X.dtype).tiny)
