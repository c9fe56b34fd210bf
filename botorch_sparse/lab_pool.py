"""What can be measured, as text and as numbers, and cells that may be of its rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from botorch_sparse.csv_cells import number
from botorch_sparse.csv_text import TextTable, shown
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.columns import Column, few


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
    fit = [i for i in rows if unfit(columns, i, pool) is None]
    if not fit:
        return [], pool.table.X[:0]
    cells: dict[str, Any] = {}
    for spec in pool.table.columns:
        texts = [columns[str(spec.label)][i].strip() for i in fit]
        is_text = spec.categories is not None
        cells[str(spec.label)] = texts if is_text else list(map(float, texts))
    return fit, pool.table.encode(cells)


def unfit(
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


def has_features(columns: Mapping[str, Sequence[str]], i: int, pool: Pool) -> bool:
    """Whether a row of cells has all features, be it with a category of its own."""
    for spec in pool.table.columns:
        cell = columns.get(str(spec.label), [""] * (i + 1))[i].strip()
        if not cell or (spec.categories is None and number(cell) is None):
            return False
    return True


def _misfit(cell: str, spec: Column) -> str | None:
    """Why a cell cannot be encoded as one of a column; None if it can."""
    if spec.categories is None:
        return None if number(cell) is not None else f"{shown(cell)} is no number"
    if cell in spec.categories:
        return None
    return f"{shown(cell)} is none of its categories, {few(spec.categories)}"
