"""What a laboratory keeps in files: what can be measured, and what has been."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from torch import Tensor

from botorch_sparse.csv_cells import is_missing
from botorch_sparse.csv_text import TextTable, read_table, shown
from botorch_sparse.lab_checks import (
    check_features,
    check_keys,
    check_rounded,
    unusable,
)
from botorch_sparse.lab_pool import Pool, encode_fit
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.near_rows import KnownRows, NearRows
from botorch_sparse.strategies.rounding import Rounding


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
        others: All results of no row of the pool; None if there are no results.
    """

    name: str
    rows: list[int]
    values: list[float]
    failed: list[int] = field(default_factory=list)
    points: list[list[float]] = field(default_factory=list)
    point_values: list[float] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    others: TextTable | None = None

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
        with warnings.catch_warnings():  # `lab_notes` says it with the line
            warnings.simplefilter("ignore", InputDataWarning)
            table = CandidateTable.from_columns(columns, key=key)
    except InputDataError as error:
        raise InputDataError(f"{text.name}: {error}") from error
    if key is None:
        _check_no_twins(text, table.X)
    return Pool(text, table, key, target)


def read_results(
    path: Path | None, pool: Pool, *, skip_empty: bool = False, one_file: bool = False
) -> Results:
    """The measurements so far; none if no file is named, or an empty one.

    Args:
        path: CSV file with the target, and with the key or all features of the rows;
            other columns are ignored. None for a first batch. Results of no row of
            the pool need all features; those of another category are left out.
        pool: The candidates.
        skip_empty: Whether a measurement without a value has failed: one whose target
            is empty, or a word for that as NA.
        one_file: Whether this is the file of the candidates: rows without a value have
            not been measured yet.

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
    cells = text.columns[pool.target]
    if one_file:
        text = text.only([i for i, cell in enumerate(cells) if not is_missing(cell)])
        cells = text.columns[pool.target]
    if pool.key is None:
        rows = _rows_by_features(text, pool)
    else:
        rows = _rows_by_key(text, pool.key, pool)
    is_empty = list(map(is_missing, cells))
    if any(is_empty) and not skip_empty:
        i = is_empty.index(True)
        cell = cells[i].strip()
        what = f"{shown(cell)} is no number" if cell else "the cell is empty"
        reason = (
            f"{what}; fill it in, leave the row out, or call with --skip-empty if the "
            "measurements without a value failed: then their rows are not proposed "
            "again."
        )
        raise text.error(i, pool.target, reason)
    return _sort_out(text, pool, rows, is_empty)


def _sort_out(
    text: TextTable, pool: Pool, rows: list[int], is_empty: list[bool]
) -> Results:
    """The results by what they are of: rows of the pool, -1 for none."""
    others = [i for i, row in enumerate(rows) if row < 0]
    fit, X = encode_fit(text.columns, pool, others)
    left_out = sorted(set(others) - set(fit))
    if left_out and len(left_out) == len(text):
        advice = "no other result can be used either"
        raise unusable(text, left_out[0], pool, advice)
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
        others=text.only(others),
    )


def _rows_by_key(text: TextTable, key: str, pool: Pool) -> list[int]:
    """The rows of the pool with the keys of the results; -1 for none."""
    text.need([key], "the --key")
    known = {name: row for row, name in enumerate(pool.table.keys or ())}
    rows = [known.get(cell, -1) for cell in text.texts(key)]
    check_keys(text, key, rows, pool)
    check_features(text, rows, pool)
    return rows


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
    near = NearRows(X, range(len(X)), Rounding.of(ranges, X.dtype)).find(
        points[unknown]
    )
    for place, found in zip(unknown, near, strict=True):
        if len(found) > 1:
            which = " and ".join(pool.name(row) for row in found[:2])
            raise InputDataError(
                f"{text.name}, line {text.lines[fit[place]]}: to six digits this is "
                f"{which}; name the rows by a --key."
            )
        rows[fit[place]] = found[0] if found else -1
    others = [(fit[place], points[place]) for place in unknown if rows[fit[place]] < 0]
    check_rounded(text, others, pool)
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
