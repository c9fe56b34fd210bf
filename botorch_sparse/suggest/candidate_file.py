"""The table of what can be measured, from its file."""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.columns import LARGEST_SHARE
from botorch_sparse.strategies.data.row_matching import KnownRows
from botorch_sparse.suggest.candidate_pool import Pool
from botorch_sparse.suggest.csv_cells import is_blank
from botorch_sparse.suggest.csv_text import TextTable, quoted, read_table

# In so few rows a text of its own in each is no surprise.
MANY_ROWS = 20


def read_pool(
    path: Path,
    key: str | None,
    target: str,
    as_text: Sequence[str] = (),
    ignored: Sequence[str] = (),
    *,
    decimal: str = ".",
) -> Pool:
    """The table of candidates.

    Columns without any value are left out, and text that differs in nearly each row.

    Args:
        path: CSV file.
        key: Column that names its rows, each of them once; None if features do.
        target: Column of the results; in this table it is ignored.
        as_text: Columns of categories, whatever their cells look like.
        ignored: Columns that are left out.
        decimal: Decimal mark of this file and of the results.

    Raises:
        InputDataError: If the table cannot be used.
    """
    if key == target:
        raise InputDataError(f"The --key and the --target are both {quoted(target)}.")
    if key is not None and key in ignored:
        raise InputDataError(f"The --key and one to --ignore are both {quoted(key)}.")
    if key is not None and key in as_text:
        raise InputDataError(
            f"The --key and one to --text are both {quoted(key)}; a key is no feature, "
            "and always text."
        )
    if both := next((name for name in as_text if name in ignored), None):
        raise InputDataError(
            f"Both --text and --ignore name {quoted(both)}; keep one of them."
        )
    text = read_table(path, key=key, decimal=decimal)
    if not len(text):
        raise InputDataError(
            f"{text.name} is empty: a header row and candidates are needed."
        )
    text.need([key] if key is not None else [], "the --key")
    text.need(as_text, "which --text names")
    text.need(ignored, "which --ignore names")
    without = {key, target, *ignored}
    labels = [name for name in text.columns if name not in without]
    columns, left_out = _features(text, labels, as_text)
    if key is not None:
        columns[key] = text.different(key)
    try:
        with warnings.catch_warnings():  # `lab_notes` says it with the line
            warnings.simplefilter("ignore", InputDataWarning)
            table = CandidateTable.from_columns(columns, key=key)
    except InputDataError as error:
        raise InputDataError(f"{text.name}: {error}") from error
    if key is None:
        _check_no_twins(text, table.X, left_out)
    return Pool(text, table, key, target, left_out, decimal)


def _features(
    text: TextTable, labels: Sequence[str], as_text: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Columns as numbers or text, and why others are left out, by name.

    Raises:
        InputDataError: If a cell cannot be used, or all columns are left out.
    """
    columns: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in labels:
        if name in as_text:
            columns[name] = text.values(name, is_text=True)
        elif all(map(is_blank, text.columns[name])):
            left_out[name] = "has no value in any row"
        elif are_names(values := text.values(name)):
            left_out[name] = (
                f"has {len(set(values))} different texts in {len(text)} rows, the "
                f"first {quoted(values[0])}, of which nothing can be learned. Write "
                f"numbers (for dates, days), or keep it with --text {quoted(name)}"
            )
        else:
            columns[name] = values
    if left_out and not columns:
        name, reason = next(iter(left_out.items()))
        raise InputDataError(
            f"{text.name} has no column to learn from: {quoted(name)} {reason}."
        )
    return columns, left_out


def are_names(values: Sequence[str] | NDArray[np.float64]) -> bool:
    """Whether the values of a column are text, and nearly each row has its own."""
    num = len(values)
    if not isinstance(values, list) or num <= MANY_ROWS:
        return False
    return len(set(values)) >= LARGEST_SHARE * num


def _check_no_twins(text: TextTable, X: Tensor, left_out: Iterable[str]) -> None:
    """Without a key no two rows may have the same features."""
    able = [x for x in left_out if len(set(text.columns[x])) == len(text)]
    before = KnownRows(X).find(X)
    row = next((i for i, j in enumerate(before) if i != j), None)
    if row is not None:
        twin = before[row]
        raise InputDataError(
            f"{text.name}, lines {text.lines[twin]} and {text.lines[row]}: the two "
            "rows have the same features; leave one out, or name rows by a --key"
            f"{f', as --key {quoted(able[0])}' if able else ''}"
            f"{_difference(text, twin, row, left_out)}."
        )


def _difference(text: TextTable, twin: int, row: int, left_out: Iterable[str]) -> str:
    """What tells two rows apart that have the same features."""
    for name in left_out:
        cells = text.columns[name]
        if cells[twin].strip() != cells[row].strip():
            column = quoted(name)
            return (
                f"; column {column}, which was left out, differs: if it is a feature, "
                f"keep it with --text {column}"
            )
    return ""
