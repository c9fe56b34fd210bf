"""The table of what can be measured, from its file."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from torch import Tensor

from botorch_sparse.csv_text import TextTable, read_table, shown
from botorch_sparse.lab_pool import Pool
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.near_rows import KnownRows


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


def _check_no_twins(text: TextTable, X: Tensor) -> None:
    """Without a key no two rows may have the same features."""
    before = KnownRows(X).find(X)
    row = next((i for i, j in enumerate(before) if i != j), None)
    if row is not None:
        raise InputDataError(
            f"{text.name}, lines {text.lines[before[row]]} and {text.lines[row]}: the "
            "two rows have the same features; leave one out, or name rows by a --key."
        )
