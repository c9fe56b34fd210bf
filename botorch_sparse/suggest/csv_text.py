"""CSV files as they are typed in a laboratory: text by column, errors by line."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from botorch.exceptions import InputDataError
from numpy.typing import NDArray

from botorch_sparse.suggest.csv_cells import (
    POINTED,
    are_floats,
    comma_hint,
    floats_of,
    has_comma,
    is_missing,
    number,
    with_point,
)
from botorch_sparse.suggest.csv_records import SEPARATORS, csv_records


@dataclass(frozen=True, eq=False)
class TextTable:
    """The cells of a CSV file with one header row, as they stand there.

    Attributes:
        name: What messages call the file.
        columns: The `A` cells of each column by its name, names trimmed, cells not.
        lines: `A` numbers of the lines in which the rows begin, from 1.
        key: The column that names the rows in messages.
        typed: The cells with decimal commas, where `columns` has them with points;
            else empty.
    """

    name: str
    columns: dict[str, list[str]]
    lines: Sequence[int]
    key: str | None = None
    typed: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def as_typed(self) -> Mapping[str, list[str]]:
        """The cells of each column with the decimal marks of the file."""
        return self.typed or self.columns

    def __len__(self) -> int:
        return len(self.lines)

    def error(self, row: int, column: str, reason: str) -> InputDataError:
        """An error that names file, line, key and column, to be raised."""
        where = f"{self.name}, {self.place(row)}, column {quoted(column)}"
        return InputDataError(f"{where}: {reason}")

    def place(self, row: int) -> str:
        """What messages call a row: its line and key."""
        key = "" if self.key is None else f" (key {quoted(self._cell(row, self.key))})"
        return f"line {self.lines[row]}{key}"

    def need(self, columns: Iterable[str], why: str) -> None:
        """Refuse to go on if there is no such column.

        Raises:
            InputDataError: If a column is missing.
        """
        for column in columns:
            if column not in self.columns:
                known = listed_columns(self.columns, most=8)
                raise InputDataError(
                    f"{self.name} has no column {quoted(column)}, {why}; its columns "
                    f"are {known}.{_separator_hint(self.columns)}"
                )

    def texts(self, column: str) -> list[str]:
        """The cells of a column, trimmed.

        Raises:
            InputDataError: If one is empty.
        """
        cells = list(map(str.strip, self.columns[column]))
        if "" in cells:
            reason = "the cell is empty; fill it in, or leave the row out."
            raise self.error(cells.index(""), column, reason)
        return cells

    def numbers(self, column: str) -> NDArray[np.float64]:
        """The cells of a column as finite numbers.

        Raises:
            InputDataError: If one is empty, or is no finite number.
        """
        cells = self.texts(column)
        values = floats_of(cells)
        if values is None:
            row = next(i for i, cell in enumerate(cells) if number(cell) is None)
            reason = f"{quoted(cells[row])} is no number; a finite one is needed"
            raise self.error(row, column, f"{reason}{comma_hint(cells[row])}.")
        self.check_points(column)
        return values

    def values(
        self, column: str, *, is_text: bool = False
    ) -> NDArray[np.float64] | list[str]:
        """The cells of a feature as numbers if all of them are, else as text.

        Args:
            column: The feature.
            is_text: Whether it is text, whatever its cells look like.

        Raises:
            InputDataError: If a cell is empty, or more than half of the cells that are
                no word for a missing value are numbers, with commas or without, but
                not all are without.
        """
        cells = list(map(str.strip, self.columns[column]))
        if "" in cells:
            raise self.error(cells.index(""), column, _empty(cells, column, is_text))
        if is_text:
            return cells
        values = floats_of(cells)
        if values is not None:
            self.check_points(column)
            return values
        counts = Counter(cells)
        num = sum(n for cell, n in counts.items() if number(cell) is not None)
        commas = {cell: n for cell, n in counts.items() if has_comma(cell)}
        known = len(cells) - sum(n for cell, n in counts.items() if is_missing(cell))
        if 2 * (num + sum(commas.values())) <= known and not are_floats(counts):
            return cells
        if commas and 2 * num <= known:
            row = cells.index(next(iter(commas)))
            reason = f"{quoted(cells[row])} is no number{comma_hint(cells[row])}"
        else:
            row = next(i for i, cell in enumerate(cells) if number(cell) is None)
            reason = (
                f"{quoted(cells[row])} is no finite number, but {num} of {len(cells)} "
                "cells of the column are; mend the cell"
            )
        other = f"leave the column out with --ignore {quoted(column)}"
        advice = f"{reason}, declare the column as --text, or {other}."
        raise self.error(row, column, advice)

    def different(self, column: str) -> list[str]:
        """The cells of a column that names rows, trimmed.

        Raises:
            InputDataError: If one is empty or comes twice.
        """
        cells = self.texts(column)
        if len(set(cells)) == len(cells):
            return cells
        seen: dict[str, int] = {}
        row = next(i for i, cell in enumerate(cells) if seen.setdefault(cell, i) != i)
        before = self.lines[seen[cells[row]]]
        reason = f"line {before} has the same key; each row needs its own."
        raise self.error(row, column, reason)

    def only(self, rows: Sequence[int]) -> "TextTable":
        """The table of some of its rows, which keep the numbers of their lines."""
        columns, typed = (
            {name: [cells[row] for row in rows] for name, cells in table.items()}
            for table in (self.columns, self.typed)
        )
        lines = [self.lines[row] for row in rows]
        return TextTable(self.name, columns, lines, self.key, typed)

    def check_points(self, column: str) -> None:
        """Refuse points that may separate thousands, where commas are decimal.

        Raises:
            InputDataError: If there is such a point.
        """
        for row, cell in enumerate(map(str.strip, self.typed.get(column, ()))):
            if POINTED.fullmatch(cell):
                ways = [cell.replace(".", ""), ",".join(cell.rsplit(".", 1))]
                reason = (
                    f"with --decimal ',' the point in {quoted(cell)} may separate "
                    f"thousands; write {' or '.join(ways)}, whichever it is."
                )
                raise self.error(row, column, reason)

    def _cell(self, row: int, column: str) -> str:
        return self.columns[column][row].strip()


def read_table(path: Path, *, key: str | None = None, decimal: str = ".") -> TextTable:
    """Read a CSV file, gzip or plain; blank lines are left out.

    Cells are separated by commas; by semicolons or by tabs where these are what the
    header row has, quotes aside; or by what a first line `sep=;` says. Columns that
    have neither a name nor cells are left out, as spreadsheets write them.

    Args:
        path: The file, in UTF-8.
        key: The column that will name the rows in messages, if it is there.
        decimal: Decimal mark of the numbers; in the key's column nothing is changed.

    Returns:
        The table; without columns if the file is empty.

    Raises:
        InputDataError: If the file cannot be read, has no header row, repeats or leaves
            out a column's name, or has rows of another length than the header.
    """
    name = repr(str(path))[1:-1]
    records = csv_records(path, name)
    _, cells = next(records, (0, []))
    header = [cell.strip() for cell in cells]
    if not any(header):
        return TextTable(name, {}, [])
    check_header(name, list(filter(None, header)))
    lines, rows = _rows(name, header, records)
    columns = [list(column) for column in zip(*rows, strict=True)] or [
        [] for _ in header
    ]
    table = {}
    for place, (label, column) in enumerate(zip(header, columns, strict=True)):
        if label:
            table[label] = column
            continue
        for line, cell in zip(lines, column, strict=True):
            if cell.strip():
                raise _nameless(name, line, place, cell)
    typed = table if decimal == "," else {}
    if typed:
        table = {
            label: cells if label == key else list(map(with_point, cells))
            for label, cells in typed.items()
        }
    return TextTable(name, table, lines, key if key in table else None, typed)


def _empty(cells: Sequence[str], column: str, is_text: bool) -> str:
    """What to do about the empty cells of a feature; to lose its rows is no way out."""
    num, known = cells.count(""), [cell for cell in cells if cell]
    num_numbers = sum(number(cell) is not None or has_comma(cell) for cell in known)
    is_text = is_text or 2 * num_numbers < len(known)
    fill = "write a word such as none" if is_text else "fill it in"
    ignore = f"leave the column out with --ignore {quoted(column)}"
    ways = (ignore, fill) if 2 * num > len(cells) else (fill, ignore)
    others = f", as are {num} of {len(cells)} of the column" * (num > 1)
    return f"the cell is empty{others}; {' or '.join(ways)}."


def _rows(
    name: str, header: list[str], records: Iterable[tuple[int, list[str]]]
) -> tuple[list[int], list[list[str]]]:
    """The lines and the cells of all rows, as many in each as in the header.

    Spreadsheets write empty cells at the end of a row, or leave them out there.
    """
    width = 1 + max(i for i, label in enumerate(header) if label)
    lines, rows = [], []
    for line, cells in records:
        last = max(i for i, cell in enumerate(cells) if cell.strip())
        if width <= last < len(header):
            raise _nameless(name, line, last, cells[last])
        if len(cells) == 1 < width or last >= width:
            raise InputDataError(
                f"{name}, line {line}: there are {len(cells)} cells, but the header "
                f"has {width}. Text that holds a comma needs quotes."
                f"{_separator_hint(header)}"
            )
        lines.append(line)
        rows.append([*cells, *[""] * len(header)][: len(header)])
    return lines, rows


def _nameless(name: str, line: int, place: int, cell: str) -> InputDataError:
    """The error for a cell in a column without a name, to be raised."""
    return InputDataError(
        f"Column {place + 1} of {name} has no name in the header row, but "
        f"{quoted(cell)} in line {line}; name the column or take it out."
    )


def _separator_hint(header: Iterable[str]) -> str:
    """What to do about a header row that may be separated otherwise."""
    marks = [name for mark, name in SEPARATORS.items() if mark in "".join(header)]
    if not marks and "|" in "".join(header):
        return (
            " There are bars in the names of columns: if cells are separated by them, "
            "write sep=| into a line before the header row."
        )
    if not marks:
        return ""
    return (
        f" There are {' and '.join(marks)} in the names of columns: if cells are "
        "separated by them, save the file with commas between cells instead."
    )


def check_header(name: str, header: Sequence[str]) -> None:
    """Refuse a header row that does not name each column once.

    Raises:
        InputDataError: If a name is missing or repeated, or all are numbers.
    """
    if "" in header:
        raise InputDataError(
            f"Column {header.index('') + 1} of {name} has no name in the header row."
        )
    repeated = [cell for cell, count in Counter(header).items() if count > 1]
    if repeated:
        listed = listed_columns(repeated, printable)
        raise InputDataError(f"{name} repeats the column names {listed}.")
    if all(number(cell) is not None for cell in header):
        raise InputDataError(
            f"The first row of {name} holds only numbers; it must name the columns."
        )


def quoted(text: str, most: int = 60) -> str:
    """A text in quotes for a message: cut, and without control characters."""
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def printable(text: str, most: int = 60) -> str:
    """A text for a message as `quoted`, but without quotes."""
    return quoted(text, most)[1:-1]


def listed_columns(
    names: Iterable[str], show: Callable[[str], str] = quoted, most: int = 20
) -> str:
    """The first of the names of columns for a message."""
    known = list(names)
    more = ", ..." if len(known) > most else ""
    return ", ".join(map(show, known[:most])) + more
