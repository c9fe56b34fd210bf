"""CSV files as they are typed in a laboratory: text by column, errors by line."""

import csv
import gzip
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from botorch.exceptions import InputDataError
from numpy.typing import NDArray

# What may stand between cells, by the names of messages.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
# A number with a decimal comma.
COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")


@dataclass(frozen=True, eq=False)
class TextTable:
    """The cells of a CSV file with one header row, as they stand there.

    Attributes:
        name: What messages call the file.
        columns: The `A` cells of each column by its name, names trimmed, cells not.
        lines: `A` numbers of the lines in which the rows begin, from 1.
        key: The column that names the rows in messages.
    """

    name: str
    columns: dict[str, list[str]]
    lines: Sequence[int]
    key: str | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def error(self, row: int, column: str, reason: str) -> InputDataError:
        """An error that names file, line, key and column, to be raised."""
        where = f"{self.name}, {self.place(row)}, column {shown(column)}"
        return InputDataError(f"{where}: {reason}")

    def place(self, row: int) -> str:
        """What messages call a row: its line and key."""
        key = "" if self.key is None else f" (key {shown(self._cell(row, self.key))})"
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
                    f"{self.name} has no column {shown(column)}, {why}; its columns "
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
        values = _floats(cells)
        if values is None:
            row = next(i for i, cell in enumerate(cells) if number(cell) is None)
            reason = f"{shown(cells[row])} is no number; a finite one is needed"
            raise self.error(row, column, f"{reason}{_comma_hint(cells[row])}.")
        return values

    def values(self, column: str) -> NDArray[np.float64] | list[str]:
        """The cells of a column as numbers if all of them are, else as text.

        Raises:
            InputDataError: If a cell is empty, or more than half of the cells are
                numbers, with a decimal comma or point, but not all with a point.
        """
        cells = self.texts(column)
        values = _floats(cells)
        if values is not None:
            return values
        counts = Counter(cells)
        num = sum(n for cell, n in counts.items() if number(cell) is not None)
        commas = {cell: n for cell, n in counts.items() if COMMA.fullmatch(cell)}
        if 2 * (num + sum(commas.values())) <= len(cells) and not _are_floats(counts):
            return cells
        if commas and 2 * num <= len(cells):
            row = cells.index(next(iter(commas)))
            reason = f"{shown(cells[row])} is no number{_comma_hint(cells[row])}"
        else:
            row = next(i for i, cell in enumerate(cells) if number(cell) is None)
            reason = (
                f"{shown(cells[row])} is no finite number, but {num} of {len(cells)} "
                "cells of the column are; mend the cell"
            )
        raise self.error(row, column, f"{reason}, or declare the column as --text.")

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
        columns = {
            name: [cells[row] for row in rows] for name, cells in self.columns.items()
        }
        lines = [self.lines[row] for row in rows]
        return TextTable(self.name, columns, lines, self.key)

    def _cell(self, row: int, column: str) -> str:
        return self.columns[column][row].strip()


def read_table(path: Path, *, key: str | None = None) -> TextTable:
    """Read a CSV file, gzip or plain; blank lines are left out.

    Cells are separated by commas; by semicolons or by tabs where these are what the
    header row has, quotes aside.

    Args:
        path: The file, in UTF-8.
        key: The column that will name the rows in messages, if it is there.

    Returns:
        The table; without columns if the file is empty.

    Raises:
        InputDataError: If the file cannot be read, has no header row, repeats or leaves
            out a column's name, or has rows of another length than the header.
    """
    name = repr(str(path))[1:-1]
    records = csv_records(path, name)
    line, cells = next(records, (0, []))
    header = [cell.strip() for cell in cells]
    if not any(header):
        return TextTable(name, {}, [])
    check_header(name, header)
    lines: list[int] = []
    rows: list[list[str]] = []
    for line, cells in records:
        if len(cells) != len(header):
            raise InputDataError(
                f"{name}, line {line}: there are {len(cells)} cells, but the header "
                f"has {len(header)}. Text that holds a comma needs quotes."
                f"{_separator_hint(header)}"
            )
        lines.append(line)
        rows.append(cells)
    columns = [list(column) for column in zip(*rows, strict=True)] or [
        [] for _ in header
    ]
    table = dict(zip(header, columns, strict=True))
    return TextTable(name, table, lines, key if key in table else None)


def csv_records(path: Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file with the lines in which they begin.

    Args:
        path: The file, in UTF-8, with or without byte order mark.
        name: What messages call it.

    Raises:
        InputDataError: If the file cannot be read as CSV.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    begins = 1
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True, delimiter=_separator(file))
            for cells in reader:
                if any(map(str.strip, cells)):
                    yield begins, cells
                begins = reader.line_num + 1
    except FileNotFoundError:
        raise InputDataError(f"There is no file {name}.") from None
    except UnicodeDecodeError as error:
        raise InputDataError(
            f"{name}, line {_undecodable_line(path)}: byte "
            f"{error.object[error.start]:#04x} is no UTF-8; save the file as CSV in "
            "UTF-8."
        ) from error
    except csv.Error as error:
        raise InputDataError(f"{name}, line {begins}: no CSV ({error}).") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputDataError(f"{name} cannot be read: {reason}.") from error


def _separator(file: TextIO) -> str:
    """What separates the cells of the header row; a comma if that is not certain.

    The file is at its beginning before and after.
    """
    header = next((line for line in file if line.strip(" ,;\t\r\n")), "")
    file.seek(0)
    unquoted = re.sub('"[^"]*"', "", header)
    able = [mark for mark in SEPARATORS if mark in unquoted]
    return able[0] if len(able) == 1 else ","


def _separator_hint(header: Iterable[str]) -> str:
    """What to do about a header row that may be separated otherwise."""
    marks = [name for mark, name in SEPARATORS.items() if mark in "".join(header)]
    if not marks:
        return ""
    return (
        f" There are {' and '.join(marks)} in the names of columns: if cells are "
        "separated by them, save the file with commas between cells instead."
    )


def _undecodable_line(path: Path) -> int:
    """The first line that is no UTF-8; text is decoded in blocks, not by line."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        for line, text in enumerate(file, start=1):
            try:
                text.decode()
            except UnicodeDecodeError:
                return line
    return line


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
        listed = listed_columns(repeated, plain)
        raise InputDataError(f"{name} repeats the column names {listed}.")
    if all(number(cell) is not None for cell in header):
        raise InputDataError(
            f"The first row of {name} holds only numbers; it must name the columns."
        )


def number(cell: str) -> float | None:
    """The finite number in a cell, or None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in cell else None


def shown(text: str, most: int = 60) -> str:
    """A text in quotes for a message: cut, and without control characters."""
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def plain(text: str, most: int = 60) -> str:
    """A text for a message as `shown`, but without quotes."""
    return shown(text, most)[1:-1]


def listed_columns(
    names: Iterable[str], show: Callable[[str], str] = shown, most: int = 20
) -> str:
    """The first of the names of columns for a message."""
    known = list(names)
    more = ", ..." if len(known) > most else ""
    return ", ".join(map(show, known[:most])) + more


def _comma_hint(cell: str) -> str:
    """What to do about a decimal comma."""
    return "; write a decimal point, not a comma" if COMMA.fullmatch(cell) else ""


def _floats(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """All cells as finite numbers, or None."""
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None
    is_sound = np.isfinite(values).all() and not any("_" in cell for cell in cells)
    return values if is_sound else None


def _are_floats(cells: Iterable[str]) -> bool:
    """Whether all cells are numbers for Python, infinite ones and NaN included."""
    try:
        return all(float(cell) is not None for cell in cells)
    except ValueError:
        return False
