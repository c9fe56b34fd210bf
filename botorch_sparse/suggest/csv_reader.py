"""Tables as people save them: text by column, and errors that name the line."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from botorch.exceptions import InputDataError
from numpy.typing import NDArray

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line import printable
from botorch_sparse.command_line.csv_cells import (
    COMMA,
    POINTED,
    check_header,
    days_of,
    floats_of,
    has_no_value,
    is_missing,
    looks_like_date,
    looks_like_number,
    marks_hint,
    number,
    shared_unit,
    with_minus,
    with_point,
    without_unit,
)
from botorch_sparse.suggest.table_files import SEPARATORS, read_records

# Lines that are looked at for a comma that is no mark between cells, at most; and how
# many kinds a column has whose other cells are odd.
MOST_SHIFTED, FEW_KINDS = 100, 12
# A line break in the name of a column, which stands for a blank.
NAME_BREAK = re.compile(r"\s*[\r\n]\s*")
# What may be one number with a decimal comma.
DECIMALS = re.compile(r"-?\d+,(\d|0\d)")
# What may be one number with commas between thousands.
BY_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
# Spaces that do not break a line, or are narrow, are plain ones; those without width
# are none.
SPACES = str.maketrans(
    dict.fromkeys("\u00a0\u2007\u2009\u202f", " ") | dict.fromkeys("\u200b\ufeff")
)


@dataclass(frozen=True, eq=False)
class TextTable:
    """The cells of a file with one header row.

    Attributes:
        name: The file's name in messages.
        columns: The `A` cells of each column by its name: trimmed, with plain spaces,
            and numbers with decimal points.
        typed: The same cells as they stand in the file.
        lines: `A` numbers of the lines in which the rows begin, from 1.
        key: The column that names the rows in messages.
        decimal: The decimal mark of the file; None for a point that nobody named.
        commas: Columns whose commas can be decimal marks alone, where nobody named one.
        units: Of columns whose cells are numbers with a unit; `columns` lack them.
        dates: Columns of dates; `columns` have days as spreadsheets count them.
        notes: How the file was read, where that is no matter of course.
        unread: What the file holds beside the table, in messages.
        faults: Of columns: the first cell that has no value to be read, in messages.
        coloured: Of columns: the cells with a colour, where these are few.
        separator: The mark between cells; of a workbook, the one of a CSV file with
            this decimal mark.
        is_workbook: Whether its cells are numbers, and not how somebody wrote them.
        sheets: Of a workbook: see `Records`.
    """

    name: str
    columns: dict[str, list[str]]
    typed: pd.DataFrame
    lines: Sequence[int]
    key: str | None = None
    decimal: str | None = None
    commas: Collection[str] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    dates: Collection[str] = ()
    notes: Sequence[str] = ()
    unread: Sequence[str] = ()
    faults: Mapping[str, str] = field(default_factory=dict)
    coloured: Mapping[str, Sequence[str]] = field(default_factory=dict)
    separator: str = ","
    is_workbook: bool = False
    sheets: Mapping[str, Collection[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def has_commas(self) -> bool:
        """Whether commas are decimal marks, in some columns at least."""
        return self.decimal == "," or bool(self.commas)

    def error(self, row: int, column: str, reason: str) -> InputDataError:
        """An error that names file, line, key and column, to be raised."""
        where = f"{self.name}, {self.place(row)}, column {short_repr(column)}"
        return InputDataError(f"{where}: {reason}")

    def place(self, row: int) -> str:
        """The line of a row, and its key, for messages."""
        line = f"line {self.lines[row]}"
        if self.key is None:
            return line
        return f"{line} (key {short_repr(self.columns[self.key][row])})"

    def need(self, columns: Iterable[str], why: str) -> None:
        """Check that there are columns."""
        for column in columns:
            if column not in self.columns:
                raise InputDataError(
                    f"{self.name} has no column {short_repr(column)}, {why}; its "
                    f"columns are {short_list(self.columns, 8)}."
                    + _separator_hint(self.columns)
                    + (self._sheet_hint(column) or self._header_hint(column))
                )

    def _header_hint(self, column: str) -> str:
        """Advice on a column whose name is in a line below the first, else nothing."""
        for place, line in zip(self.lines, self.typed.to_numpy().tolist(), strict=True):
            cells = [cell.strip() for cell in line]
            if column not in cells:
                continue
            start = f" Line {place} has {short_repr(column)}: if it has the"
            if all(number(cell) is None for cell in cells):
                return f"{start} names of the columns, take out the lines above it."
            if cells[0] == column:
                return f"{start} values of all rows, exchange lines and columns."
        return ""

    def _sheet_hint(self, column: str) -> str:
        """Advice on a column that the sheet lacks, where there are several."""
        if len(self.sheets) < 2:
            return ""
        first, *others = self.sheets
        found = [x for x in others if " ".join(column.split()) in self.sheets[x]]
        why = f", and {short_repr(found[0])} has such a column" if found else ""
        meant = short_repr(found[0]) if found else f"one of {short_list(others, 3)}"
        return (
            f" The first sheet, {short_repr(first)}, is read{why}; if {meant} is "
            "meant, move it to the front."
        )

    def check_cells(self, columns: Iterable[str | None]) -> None:
        """Check that cells have values that can be read, where they are not empty."""
        for column in columns:
            if column is not None and (fault := self.faults.get(column)):
                raise InputDataError(
                    f"{self.name}, column {short_repr(column)}: {fault}."
                )

    def texts(self, column: str) -> list[str]:
        """The cells of a column."""
        cells = self.columns[column]
        if "" in cells:
            row, reason = cells.index(""), "the cell is empty; fill it in, or leave "
            reason = self._odd_row(row) or f"{reason}the row out."
            raise self.error(row, column, reason)
        return cells

    def numbers(self, column: str) -> NDArray[np.float64]:
        """The cells of a column as finite numbers.

        Raises:
            InputDataError: If one is empty, or is no finite number.
        """
        cells = self.texts(column)
        values = self._floats(column)
        if values is None:
            row = next(i for i, cell in enumerate(cells) if number(cell) is None)
            reason = f"{short_repr(cells[row])} is no number; a finite one is needed"
            raise self.error(row, column, f"{reason}{marks_hint(cells[row], cells)}.")
        return values

    def _floats(self, column: str) -> NDArray[np.float64] | None:
        """The cells of a column if all are finite numbers, with checked points."""
        values = floats_of(self.columns[column])
        is_checked = self.decimal == "," and values is not None
        for row in range(len(self) if is_checked else 0):
            self.check_point(row, column)
        return values

    def values(
        self, column: str, *, is_text: bool = False
    ) -> NDArray[np.float64] | list[str]:
        """The cells of a feature as numbers if all of them are, else as text.

        Raises:
            InputDataError: If a cell is empty; or if more than half of the known cells
                look like numbers or dates, but some cells do not.
        """
        cells = self.columns[column]
        if "" in cells:
            row = cells.index("")
            raise self.error(row, column, self._odd_row(row) or _empty(cells, column))
        if is_text:
            return cells
        if (values := self._floats(column)) is not None:
            return values
        counts = Counter(cells)  # of few categories in many rows
        num_known = sum(n for cell, n in counts.items() if not is_missing(cell))
        num_dates = sum(n for cell, n in counts.items() if looks_like_date(cell))
        if 2 * num_dates > num_known:
            raise self._date_error(column)
        num_like = sum(n for cell, n in counts.items() if looks_like_number(cell))
        if 2 * num_like <= num_known:
            return cells
        row = next(i for i, cell in enumerate(cells) if number(cell) is None)
        hint = marks_hint(cells[row], cells) or f"; correct it{self._comma_hint(row)}"
        reason = (
            f"{short_repr(cells[row])} is no number, but most cells of the column look "
            f"like numbers{hint}, declare the column as --text, or leave it out with "
            f"--ignore {short_repr(column)}."
        )
        raise self.error(row, column, reason)

    def _comma_hint(self, row: int) -> str:
        """Advice on a row that may have a comma within a cell; else nothing."""
        last = [*self.columns.values()][-1]
        is_longer = last[row] != "" and "" in last and self.separator == ","
        return ", put cells with a comma in quotes" * is_longer

    def _odd_row(self, row: int) -> str:
        """Advice on a row that is none: of units, a total, a heading; else nothing."""
        columns = self.columns.values()
        advice = "the cell is empty, and the line looks like {}; take the line out."
        if row == 0 < len(self) - 1 and any(
            cells[0] and number(cells[0]) is None and floats_of(cells[1:]) is not None
            for cells in columns
        ):
            return advice.format("one of units")
        num_empty = sum(not cells[row] for cells in columns)
        if row == len(self) - 1 and 2 * num_empty > len(columns):
            return advice.format("a total or a remark")
        alone = [cells[row] for cells in columns if cells[row]]
        if len(alone) == 1 < len(columns) - 1 and number(alone[0]) is None:
            return (
                f"the line has {short_repr(alone[0])} alone, as a heading has; take it "
                "out, or fill in its other cells."
            )
        return ""

    def _date_error(self, column: str) -> InputDataError:
        """The error for a feature of dates that cannot be told."""
        cells = self.columns[column]
        row = next((i for i, cell in enumerate(cells) if not looks_like_date(cell)), 0)
        what = "is no date, but most cells of the column look like dates"
        if looks_like_date(cells[row]):
            what = (
                "looks like a date, but no one form fits all cells of the column, or "
                "days and months may be either"
            )
        reason = (
            f"{short_repr(cells[row])} {what}; write year, month and day in each cell, "
            "such as 2026-01-31, declare the column as --text, or leave it out with "
            f"--ignore {short_repr(column)}."
        )
        return self.error(row, column, reason)

    def different(self, column: str) -> list[str]:
        """The cells of a column that names rows."""
        cells = self.texts(column)
        if len(set(cells)) == len(cells):
            return cells
        seen: dict[str, int] = {}
        row = next(i for i, cell in enumerate(cells) if seen.setdefault(cell, i) != i)
        before = self.lines[seen[cells[row]]]
        reason = f"line {before} has the same key; each row needs its own."
        raise self.error(row, column, reason)

    def check_point(self, row: int, column: str) -> None:
        """Check that a point separates no thousands, where commas are decimal marks."""
        if self.decimal != "," or "." not in self.columns[column][row]:
            return
        typed = self.typed[column].iat[row].strip()
        typed = without_unit(typed) if column in self.units else typed
        if POINTED.fullmatch(typed):
            ways = [typed.replace(".", ""), ",".join(typed.rsplit(".", 1))]
            reason = (
                f"with --decimal ',' the point in {short_repr(typed)} may separate "
                f"thousands; write {' or '.join(ways)}, whichever it is."
            )
            raise self.error(row, column, reason)


def read_table(
    path: Path,
    *,
    key: str | None = None,
    decimal: str | None = None,
    unitless: Collection[str] = (),
    numeric: Collection[str] = (),
    may_be_dates: Callable[[str], bool] = lambda column: True,
    may_have_commas: Callable[[str], bool] = lambda column: False,
) -> TextTable:
    """Read a CSV file, gzip or plain, or .xlsx, with pandas; blank lines are left out.

    Cells are separated by commas. They are separated by semicolons or by tabs if the
    header row has only these outside of quotes, or by the mark in a first line
    `sep=;`. Columns that have neither a name nor cells are left out, as spreadsheets
    write them.

    An empty file has no columns. Cells of the key keep their decimal marks. A column
    whose numbers have the same unit, which most cells have, or some of a `numeric` one,
    has the numbers alone, but for those that are `unitless`. A column whose cells are
    dates has days, if it `may_be_dates`. Where no `decimal` mark is named, commas are
    decimal marks in a column that `may_have_commas`, if none can separate thousands.

    Raises:
        InputDataError: If the file cannot be read, has no header row, repeats or leaves
            out a column's name, or has rows longer than the header.
    """
    name = printable(str(path))
    records = read_records(path, name, decimal or ".")
    frame = records.frame
    plain = frame.fillna("").apply(lambda cells: cells.str.translate(SPACES))
    trimmed = plain.apply(lambda cells: cells.str.strip())
    is_filled = trimmed != ""
    has_cells = is_filled.any(axis=1)
    if not has_cells.any():
        return TextTable(name, {}, frame, [])
    trimmed, is_filled = trimmed[has_cells], is_filled[has_cells]
    num_cells = frame[has_cells].notna().sum(axis=1)
    header = [NAME_BREAK.sub(" ", label) for label in trimmed.iloc[0]]
    _check_title(name, is_filled, header)
    _check_repeated(name, trimmed)
    check_header(name, [label for label in header if label])
    _check_rows(name, header, is_filled, num_cells)
    _check_nameless(name, header[: num_cells.iloc[0]], trimmed)
    places = {label: place for place, label in enumerate(header) if label}
    typed = frame[has_cells].iloc[1:][list(places.values())].fillna("")
    columns = {label: trimmed[p].tolist()[1:] for label, p in places.items()}
    units, dates, commas = dict[str, str](), list[str](), list[str]()
    for label in [label for label in columns if label != key]:
        cells = columns[label] = list(map(with_minus, columns[label]))
        has_unit, is_numeric = label not in unitless, label in numeric
        if has_unit and (unit := shared_unit(cells, are_numbers=is_numeric)):
            units[label] = unit
            columns[label] = list(map(without_unit, cells))
        elif may_be_dates(label) and (days := days_of(cells)) is not None:
            dates.append(label)
            columns[label] = days
        is_open = decimal is None and may_have_commas(label)
        if is_open and _has_decimal_commas(columns[label], is_numeric):
            commas.append(label)
        if decimal == "," or label in commas:
            columns[label] = list(map(with_point, columns[label]))
    return TextTable(
        name,
        columns,
        typed.set_axis(list(places), axis=1),
        typed.index.tolist(),
        key if key in columns else None,
        decimal=decimal,
        commas=commas,
        units=units,
        dates=dates,
        notes=records.notes,
        unread=[
            *records.unread,
            *_empty_lines(has_cells),
            *_shifted_lines(trimmed.iloc[1:], [*places.values()], records.separator),
        ],
        faults={
            label: faults[place]
            for label, place in places.items()
            for faults in (records.faults, records.key_faults)[: 1 + (label == key)]
            if place in faults
        },
        coloured={
            label: records.coloured[place]
            for label, place in places.items()
            if place in records.coloured
        },
        separator=records.separator or (";" if decimal == "," else ","),
        is_workbook=not records.separator,
        sheets=records.sheets,
    )


def _has_decimal_commas(cells: Sequence[str], is_numeric: bool) -> bool:
    """Whether numbers of a column have commas, none of which can separate thousands.

    Args:
        cells: Its cells, without units.
        is_numeric: Whether all cells have to be numbers; else words make it text.
    """
    if not any("," in cell for cell in cells):
        return False
    known = {cell for cell in cells if not has_no_value(cell)}
    numbers = {cell for cell in known if looks_like_number(cell)}
    marked = {cell for cell in numbers if "," in cell}
    is_clear = all(
        COMMA.fullmatch(cell) and not BY_THOUSANDS.fullmatch(cell) for cell in marked
    )
    are_whole = all(
        number(cell) is not None and "." not in cell for cell in numbers - marked
    )
    is_text = numbers != known and not is_numeric
    return bool(marked) and is_clear and are_whole and not is_text


def _empty_lines(has_cells: "pd.Series[bool]") -> Iterator[str]:
    """A message on the first empty line within the table, unless it is written so."""
    filled = np.flatnonzero(has_cells)[1:]  # without the header
    gaps = np.flatnonzero(np.diff(filled) > 1)
    if 0 < 2 * len(gaps) <= len(filled):
        line, last = has_cells.index[[filled[gaps[0]] + 1, filled[-1]]]
        yield f"line {line} is empty; what stands below it, to line {last}, is read too"


def _shifted_lines(
    trimmed: pd.DataFrame, places: Sequence[int], mark: str
) -> Iterator[str]:
    """A message on lines in which a comma may be a part of a cell.

    They are those with a last cell, where others have none. Their cells are like those
    of the other lines from some place on only if they are shifted by one; or the last
    cell of each is a digit behind a whole number, as of 78,5.
    """
    is_full = trimmed[places[-1]] != ""
    if mark != "," or len(places) < 3 or not 0 < is_full.sum() < len(trimmed):
        return
    shorter = trimmed[~is_full]
    columns = [_of_column(shorter[place].tolist()) for place in places[:-1]]
    full = trimmed.loc[is_full, places].iloc[:MOST_SHIFTED]
    rows = full.to_numpy().tolist()
    odd = [i for i, row in enumerate(rows) if _is_shifted(row, columns)]
    if not odd and all(DECIMALS.fullmatch(",".join(row[-2:])) for row in rows):
        odd = [*range(len(rows))]
    if odd:
        first = rows[odd[0]]
        yield (
            f"{short_list(['line ' + str(full.index[i]) for i in odd], 3, show=str)}: "
            "they have a last cell, which other lines lack, and may have a comma in "
            f"one, such as {short_repr(','.join(first))}. A text with a comma needs "
            "quotes, and a decimal comma too"
        )


def _of_column(cells: Sequence[str]) -> Callable[[str], bool]:
    """Whether a cell is like those of a column: one of them, or of many numbers one."""
    kinds = {*cells}
    are_numbers = len(kinds) > FEW_KINDS and floats_of([*kinds]) is not None
    return lambda cell: cell in kinds or (are_numbers and number(cell) is not None)


def _is_shifted(row: Sequence[str], columns: Sequence[Callable[[str], bool]]) -> bool:
    """Whether the cells behind some place fit the columns before theirs, and else not.

    Then the cells on either side of that place are two parts of one.
    """
    for place in range(1, len(columns)):
        rest = range(place, len(columns))
        if all(columns[k](row[k + 1]) for k in rest):
            return not all(columns[k](row[k]) for k in rest)
    return False


def _check_repeated(name: str, trimmed: pd.DataFrame) -> None:
    """Check that no line has names of the columns again, in this order or another."""
    header = trimmed.iloc[0].tolist()
    rows = trimmed.iloc[1:]
    rows = rows[rows.isin(header).all(axis=1)]  # few, if any
    cells = zip(rows.index, rows.to_numpy().tolist(), strict=True)
    again = [line for line, row in cells if sorted(row) == sorted(header)]
    if len([*filter(None, header)]) > 1 and again:
        raise InputDataError(
            f"{name}, line {again[0]}, has the names of the columns again; "
            "take it out, and if another table begins there, give it as a file of its "
            "own."
        )


def _check_title(name: str, is_filled: pd.DataFrame, header: list[str]) -> None:
    """Check that the first line is no title above the header."""
    num_filled = is_filled.sum(axis=1)
    if num_filled.iloc[0] > 1 or (num_filled <= 1).all() or _separator_hint(header):
        return
    line, then = is_filled.index[0], (num_filled > 1).idxmax()
    title = short_repr(next(filter(None, header)))
    raise InputDataError(
        f"{name}, line {line}: {title} is the only cell, as of a title, and "
        f"line {then} has several; the names of the columns come first. Take out the "
        "lines above them."
    )


def _check_rows(
    name: str, header: list[str], is_filled: pd.DataFrame, num_cells: "pd.Series[int]"
) -> None:
    """Check that rows have no cells beyond the header, and more than one."""
    width = 1 + max(place for place, label in enumerate(header) if label)
    is_wrong = is_filled.iloc[:, num_cells.iloc[0] :].any(axis=1)
    if width > 1:
        is_wrong |= num_cells == 1
    if is_wrong.any():
        line = is_wrong.idxmax()
        advice = "Take the line out if it is no row."
        if num_cells[line] > width:
            advice = "Text that holds a comma needs quotes."
        raise InputDataError(
            f"{name}, line {line}: there are {num_cells[line]} cells, but the header "
            f"has {width}. {advice}{_separator_hint(header)}"
        )


def _check_nameless(name: str, header: list[str], trimmed: pd.DataFrame) -> None:
    """Check that columns without a name have no cells."""
    for place, label in enumerate(header):
        cells = trimmed[place].iloc[1:]
        if not label and (is_filled := cells != "").any():
            line = is_filled.idxmax()
            raise InputDataError(
                f"Column {place + 1} of {name} has no name in the header row, but "
                f"{short_repr(cells[line])} in line {line}; name the column or take it "
                "out."
            )


def _empty(cells: Sequence[str], column: str) -> str:
    """Advice for empty cells of a feature that does not cost their rows.

    Where each value stands once, above empty cells, these may be merged with it.
    """
    known = [*filter(None, cells)]
    how = "where cells are text, by a word such as none"
    if cells[0] and 1 < len({*known}) == len(known) <= len(cells) / 2:
        how = "by the value above it, if it means that, as cells that were merged do"
    return (
        f"the cell is empty, as are {cells.count('')} of {len(cells)} of the column; "
        f"fill it in ({how}), or leave the column out with --ignore "
        f"{short_repr(column)}."
    )


def _separator_hint(header: Iterable[str]) -> str:
    """Advice for a header row that may have another separator."""
    names = "".join(header)
    known = {**SEPARATORS, "|": "bars"}
    marks = [name for mark, name in known.items() if mark in names]
    if not marks:
        return ""
    return (
        f" There are {' and '.join(marks)} in the names of columns: if cells are "
        "separated by them, save the file with commas between cells instead."
    )
