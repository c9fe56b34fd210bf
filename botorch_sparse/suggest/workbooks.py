"""The cells of an .xlsx workbook, as the user of a spreadsheet sees them."""

import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np
import pandas as pd
from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import short_list, short_repr

# What a file raises that is no workbook, or is torn.
UNREADABLE = (
    *(KeyError, ValueError, TypeError, OSError, EOFError),
    *(ParseError, zlib.error, zipfile.BadZipFile),
)
# Parts of number formats that are written as they stand: no per cent; and those that
# are a text or a currency, up to the format of other signs.
LITERAL = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]')
FIRST_FORMAT = re.compile(r'(?:"[^"]*"|\\.|[^;"])*')
WRITTEN = re.compile(
    r'"([^"]*)"|\\(.)|\[\$([^\]-]*)[^\]]*\]|([$\u20ac\u00a3\u00a5])|[_*].'
)
UNIT_SIGN = re.compile(r"[^\W\d_]|[%\u2030\u00b0$\u20ac\u00a3\u00a5]")
# A formula in the XML of a sheet.
FORMULA = re.compile(rb"<(?:\w+:)?f[\s/>]")
AN_HOUR = timedelta(hours=1)
# So many digits of a number are shown by spreadsheets.
DIGITS = 15
# The types of cells with errors, numbers or nothing, and dates or times.
ERROR, NUMBER, DATE = "e", "n", "d"


@dataclass(frozen=True, eq=False)
class Records:
    """All records of a file.

    Attributes:
        frame: The cells as text by the lines in which their records begin, from 1; NaN
            where there is no cell.
        notes: How the file was read, where that is no matter of course.
        unread: What it holds beside the records, in messages.
        faults: Of columns, by place: the first cell that has no value to be read, in
            messages. In `frame` it is empty.
        separator: The mark between cells; empty for workbooks.
    """

    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    separator: str = ""


def read_workbook(content: bytes, name: str, decimal: str = ".") -> Records:
    """The records of the first visible sheet that has cells.

    Cells with a number format in per cent are text such as `48%`, and those that are
    shown with a unit or a currency have it. Times and durations are hours, such as `1.5
    h`. Numbers are written with the decimal mark.

    Raises:
        InputDataError: If the workbook cannot be read, has cells in hidden sheets
            alone, or has hidden rows with cells.
    """
    book = _opened(content, name, computed=True)
    counts = {sheet: _num_filled(sheet) for sheet in book.worksheets}
    filled = [sheet for sheet, num in counts.items() if num]
    if not filled:
        return Records(pd.DataFrame())
    visible = [sheet for sheet in filled if sheet.sheet_state == "visible"]
    if not visible:
        raise InputDataError(
            f"{name}: all sheets with cells are hidden, "
            f"{short_list([sheet.title for sheet in filled], 3)}; show the one that "
            "is meant."
        )
    sheet = visible[0]
    unread = [
        f"sheet {short_repr(other.title)}"
        + ", which is hidden," * (other not in visible)
        + f" is not read; rows with cells: {counts[other]}"
        for other in filled
        if other is not sheet
    ]
    notes = [f"sheet {short_repr(sheet.title)}"] * bool(unread)
    frame, has_times = _texts(sheet, decimal)
    faults: dict[int, str] = {}
    found = (*_merged(sheet), *_errors(sheet), *_unsaved(content, name, sheet))
    for place, fault in found:
        faults.setdefault(place, fault)
    _check_hidden(sheet, frame, name)
    notes += ["times and durations as hours"] * has_times
    if struck := _struck_out(sheet):
        unread.append(
            f"cells that are struck out count as the others: {short_list(struck, 3)}; "
            "empty them if they are not to count"
        )
    return Records(frame, notes, unread, faults)


def _opened(content: bytes, name: str, *, computed: bool) -> Any:
    """A workbook, with the values that were computed or with the formulas."""
    if find_spec("openpyxl") is None:
        raise InputDataError(
            f"{name} is a spreadsheet, which needs openpyxl to be read: pip install "
            "'botorch_sparse[suggest]'. Or save it as CSV, in UTF-8, and name that "
            "file."
        )
    from openpyxl import load_workbook  # an extra

    with warnings.catch_warnings():  # of styles that it does not know
        warnings.simplefilter("ignore", UserWarning)
        try:
            return load_workbook(io.BytesIO(content), data_only=computed)
        except UNREADABLE as error:
            raise InputDataError(
                f"{name} is an archive, and no .xlsx that can be read; save the table "
                "as CSV, in UTF-8, and name that file."
            ) from error


def _num_filled(sheet: Any) -> int:
    """The number of rows with cells that are not empty."""
    rows = sheet.iter_rows(values_only=True)
    return sum(any(value not in (None, "") for value in row) for row in rows)


def _texts(sheet: Any, decimal: str) -> tuple[pd.DataFrame, bool]:
    """The cells as text up to the last ones that are filled, and if some are times."""
    rows, has_times = [], False
    for cells in sheet.iter_rows(min_row=1, min_col=1):
        texts = [_text(cell) for cell in cells]
        if decimal != ".":
            kinds = [cell.data_type for cell in cells]
            texts = [
                text.replace(".", decimal) if kind in (NUMBER, DATE) else text
                for text, kind in zip(texts, kinds, strict=True)
            ]
        rows.append(texts)
        has_times |= any(isinstance(cell.value, time | timedelta) for cell in cells)
    frame = pd.DataFrame(rows, dtype=object)
    is_filled = (frame != "").to_numpy()
    height, width = (1 + is_filled.any(axis=k).nonzero()[0].max() for k in (1, 0))
    frame = frame.iloc[:height, :width]
    return frame.set_axis(np.arange(1, height + 1), axis=0), has_times


def _text(cell: Any) -> str:
    """A cell as text: numbers in full, dates as year, month and day."""
    value = cell.value
    if value is None or cell.data_type == ERROR:
        return ""
    if isinstance(value, float | int) and not isinstance(value, bool):
        if _is_percent(cell.number_format):
            return f"{_plain(Decimal(f'{value:.{DIGITS}g}').scaleb(2))}%"
        is_whole = isinstance(value, int) or value.is_integer()
        text = str(int(value) if is_whole and abs(value) < 2**53 else value)
        return f"{text} {_unit(cell.number_format)}".rstrip()
    if isinstance(value, time):
        value = datetime.combine(date.min, value) - datetime.min
    if isinstance(value, timedelta):
        return f"{_plain(Decimal(f'{value / AN_HOUR:.9f}'))} h"
    if isinstance(value, datetime) and value.time() == time.min:
        value = value.date()
    if isinstance(value, datetime | date):
        return value.isoformat(*[" "] * isinstance(value, datetime))
    return str(value)


def _plain(value: Decimal) -> str:
    """A number without exponent, and without zeros behind the point."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@cache
def _is_percent(number_format: str) -> bool:
    """Whether cells of a number format are shown in per cent."""
    return "%" in LITERAL.sub("", number_format)


@cache
def _unit(number_format: str) -> str:
    """The unit or currency that cells of a number format are shown with; or nothing."""
    first = FIRST_FORMAT.match(number_format)
    found = WRITTEN.findall(first[0] if first else "")
    unit = "".join("".join(parts) for parts in found).replace(" ", "")
    return unit if UNIT_SIGN.search(unit) else ""


def _struck_out(sheet: Any) -> list[str]:
    """The places of filled cells that are struck out."""
    styles = dict[int, bool]()
    places = list[str]()
    for cells in sheet.iter_rows(min_row=1, min_col=1):
        for cell in cells:
            if cell.value is None or not cell.has_style:
                continue
            style = cell.style_id
            if style not in styles:
                styles[style] = bool(cell.font.strike)
            if styles[style]:
                places.append(cell.coordinate)
    return places


def _merged(sheet: Any) -> Iterator[tuple[int, str]]:
    """Columns of cells that are merged with the one above, by their places."""
    for cells in sheet.merged_cells.ranges:
        if cells.max_row > cells.min_row:
            for place in range(cells.min_col - 1, cells.max_col):
                yield (
                    place,
                    f"cells {cells.coord} are merged, so that only the first of them "
                    "has a value; unmerge them, and fill in each",
                )


def _errors(sheet: Any) -> Iterator[tuple[int, str]]:
    """Cells with an error, by the places of their columns."""
    for cells in sheet.iter_rows(min_row=1, min_col=1):
        for place, cell in enumerate(cells):
            if cell.data_type == ERROR:
                yield (
                    place,
                    f"cell {cell.coordinate} holds the error {cell.value}; correct "
                    "the formula, or empty the cell if there is no value yet",
                )


def _unsaved(content: bytes, name: str, sheet: Any) -> Iterator[tuple[int, str]]:
    """Cells with a formula and no value, by the places of their columns.

    A formula whose value is the empty text has one.
    """
    if not _has_formulas(content):
        return
    formulas = _opened(content, name, computed=False)[sheet.title]
    for cells in sheet.iter_rows(min_row=1, min_col=1):
        for place, cell in enumerate(cells):
            if cell.value is not None or cell.data_type != NUMBER:
                continue
            if formulas.cell(cell.row, cell.column).data_type == "f":
                yield (
                    place,
                    f"cell {cell.coordinate} holds a formula without a saved value, "
                    "as some programs write it; open the file in a spreadsheet and "
                    "save it, or write the value",
                )


def _has_formulas(content: bytes) -> bool:
    """Whether some sheet may have formulas."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = [part for part in archive.namelist() if part.endswith(".xml")]
        return any(FORMULA.search(archive.read(part)) for part in parts)


def _check_hidden(sheet: Any, frame: pd.DataFrame, name: str) -> None:
    """Check that no row with cells is hidden."""
    is_filled = (frame != "").any(axis=1)
    hidden = [
        line
        for line, row in sorted(sheet.row_dimensions.items())
        if row.hidden and is_filled.get(line, False)
    ]
    if hidden:
        raise InputDataError(
            f"{name}, sheet {short_repr(sheet.title)}, has lines that are hidden by a "
            f"filter or by hand: {short_list(hidden, 5)}. Clear the filter and show "
            "all rows if they count; if not, delete them, or copy the visible ones "
            "into a new file."
        )
