"""What can be measured, as text and as numbers, and cells that may be of its rows."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.columns import Column, short_list
from botorch_sparse.suggest.csv_cells import is_blank, number, spreadsheet_form
from botorch_sparse.suggest.csv_text import TextTable, quoted

Cells = Mapping[str, Sequence[str]]


@dataclass(frozen=True, eq=False)
class Pool:
    """The candidates as text and as numbers.

    Attributes:
        text: The cells of the file.
        table: The rows in the encoding of the model.
        key: The column that names the rows; None if their features do.
        target: The column of the results that is optimized.
        left_out: Why columns of the file are no features, by their names.
        decimal: Decimal mark of the files.
    """

    text: TextTable
    table: CandidateTable
    key: str | None
    target: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    decimal: str = "."

    @cached_property
    def forms(self) -> dict[str, set[Hashable]]:
        """Of columns of text the forms of their categories, by name."""
        return {
            str(spec.label): {spreadsheet_form(str(kind)) for kind in spec.categories}
            for spec in self.table.columns
            if spec.categories is not None
        }

    @cached_property
    def names(self) -> list[str]:
        """Columns that were left out, and have a text of its own in each row."""
        columns = self.text.columns
        return [x for x in self.left_out if len(set(columns[x])) == len(self.text)]

    @cached_property
    def blank(self) -> list[str]:
        """Columns that were left out, as no row has a value."""
        columns = self.text.columns
        return [x for x in self.left_out if all(map(is_blank, columns[x]))]

    def name(self, row: int) -> str:
        """What messages call a row."""
        name = f"line {self.text.lines[row]} of {self.text.name}"
        if self.key is None:
            return name
        return f"{quoted(self.text.columns[self.key][row].strip())} ({name})"


def encode_fit(
    columns: Cells, pool: Pool, rows: Iterable[int]
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
    cells = {
        str(spec.label): [columns[str(spec.label)][i].strip() for i in fit]
        for spec in pool.table.columns
    }
    return fit, _encode(pool.table, cells)


def _encode(table: CandidateTable, cells: Cells) -> Tensor:
    """The `k x d` features of cells in the encoding of a table."""
    columns: dict[str, Any] = {}
    for spec in table.columns:
        texts = cells[str(spec.label)]
        is_text = spec.categories is not None
        columns[str(spec.label)] = texts if is_text else list(map(float, texts))
    return table.encode(columns)


def with_points(
    table: CandidateTable, points: Sequence[Mapping[str, str]]
) -> CandidateTable:
    """A table that has more rows behind its own, and no keys for them.

    Categories that these alone have get columns of their own, in which the others are
    zero.

    Args:
        table: The candidates.
        points: `k` times the cells of their features.
    """
    if not points:
        return table
    labels = [str(spec.label) for spec in table.columns]
    cells = {name: [point[name] for point in points] for name in labels}
    wide = _widened(table, cells)
    X = torch.cat([wide.X, _encode(wide, cells)])
    return replace(wide, X=X, keys=None, key_names=())


def _widened(table: CandidateTable, cells: Cells) -> CandidateTable:
    """The same rows in an encoding that has the categories of some cells too."""
    specs: list[Column] = []
    parts: list[Tensor] = []
    start = 0
    for spec in table.columns:
        kinds = spec.categories
        if kinds is not None:
            kinds = tuple(dict.fromkeys((*kinds, *cells[str(spec.label)])))
        specs.append(replace(spec, start=start, categories=kinds))
        own = table.X[:, spec.start : spec.start + spec.width]
        parts += [own, own.new_zeros(len(own), specs[-1].width - spec.width)]
        start += specs[-1].width
    names = tuple(name for spec in specs for name in spec.names)
    return replace(
        table, X=torch.cat(parts, dim=1), feature_names=names, columns=tuple(specs)
    )


def unfit(columns: Cells, i: int, pool: Pool) -> tuple[str, str] | None:
    """The first column of a row of cells that cannot be encoded, and why not."""
    for spec in pool.table.columns:
        name = str(spec.label)
        if name not in columns:
            return name, "there is no such column"
        if reason := _misfit(columns[name][i].strip(), spec):
            return name, reason
    return None


def can_be_beside(columns: Cells, i: int, pool: Pool) -> bool:
    """Whether a row of cells that is none of the pool has all features of one.

    It may be the only one of its category, but a category of the pool that is written
    in another way is none.
    """
    if not has_features(columns, i, pool):
        return False
    for spec in pool.table.columns:
        name, kinds = str(spec.label), spec.categories
        cell = columns[name][i].strip()
        is_new = kinds is not None and cell not in kinds
        if is_new and spreadsheet_form(cell) in pool.forms[name]:
            return False
    return True


def has_features(columns: Cells, i: int, pool: Pool) -> bool:
    """Whether a row of cells has all features, be it with a category of its own."""
    for spec in pool.table.columns:
        cell = columns.get(str(spec.label), [""] * (i + 1))[i].strip()
        if not cell or (spec.categories is None and number(cell) is None):
            return False
    return True


def _misfit(cell: str, spec: Column) -> str | None:
    """Why a cell cannot be encoded as one of a column; None if it can."""
    if spec.categories is None:
        return None if number(cell) is not None else f"{quoted(cell)} is no number"
    if cell in spec.categories:
        return None
    return f"{quoted(cell)} is none of its categories, {short_list(spec.categories)}"
