"""The cells of an .xlsx workbook, as the user of a spreadsheet sees them."""

import io
import operator
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from itertools import chain
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError

import numpy as np
import pandas as pd
from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.suggest.cell_marks import few_coloured, marked_cells, partly_struck

# What a file raises that is no workbook, or is torn.
UNREADABLE = (
    *(KeyError, ValueError, TypeError, OSError, EOFError),
    *(ParseError, zlib.error, zipfile.BadZipFile),
)
# What number formats write as it stands, currencies included; what they leave a gap
# for or fill with; and where a part ends.
PIECE = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|\[\$(?P<currency>[^\]-]*)[^\]]*\]'
    r"|(?P<bracket>\[[^\]]*\])|[_*].|(?P<end>;)|(?P<sign>[$\u20ac\u00a3\u00a5])|(?P<rest>.)"
)
UNIT_SIGN = re.compile(r"[^\W\d_]|[%\u2030\u00b0$\u20ac\u00a3\u00a5]")
# What makes a text before a number a part of a name, such as R001, or a remark.
TEXT_SIGN = re.compile(r"[^\W_]")
# Signs before a number that change what it says.
BOUNDS = re.compile(r"[<>~\u2248\u2264\u2265\u2039\u203a\u00b1\u2212\u2013-]")
# Marks of footnotes, and digits that stand behind each number; and how else numbers
# below 0 are written.
FOOTNOTE = re.compile(r"[*\u2020\u2021\u00a7#?!^\u00b2\u00b3\u00b9\u2070-\u2079\d]")
MINUS = re.compile(r"[(\u2212\u2013-]")
# A condition of a part of a number format.
CONDITION = re.compile(r"\[(<=|>=|<>|<|>|=)\s*(-?[\d.]+)\]")
COMPARED: dict[str, Callable[[float, float], bool]] = {
    **{"<": operator.lt, "<=": operator.le, "=": operator.eq},
    **{">": operator.gt, ">=": operator.ge, "<>": operator.ne},
}
SUPERSCRIPT = str.maketrans(
    "0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
# A format that shows whole numbers with zeros before them.
PADDED = re.compile(r"0{2,}")
# A formula in the XML of a sheet.
FORMULA = re.compile(rb"<(?:\w+:)?f[\s/>]")
AN_HOUR = timedelta(hours=1)
# So many digits of a number are shown by spreadsheets.
DIGITS = 15
# So many lines of a sheet may stand above its table, with the header.
TOP_LINES = 20
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
        key_faults: The same of columns whose cells name rows: numbers that are cut.
        coloured: Of columns, by place: the cells with a colour, where these are few.
        separator: The mark between cells; empty for workbooks.
        sheets: Texts in the first lines of visible sheets by name; first the one that
            is read.
    """

    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    key_faults: dict[int, str] = field(default_factory=dict)
    coloured: dict[int, list[str]] = field(default_factory=dict)
    separator: str = ""
    sheets: dict[str, set[str]] = field(default_factory=dict)


def read_workbook(content: bytes, name: str, decimal: str = ".") -> Records:
    """The records of the first visible sheet that has cells.

    Cells are as their number formats show them: `48%`, `555 mg`, `<5`, or words. Times
    and durations are hours, such as `1.5 h`. Numbers are written with the decimal mark.

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
    cells = [cell for cell in chain(*sheet.iter_rows()) if cell.value is not None]
    unsaved = _unsaved(content, name, sheet)
    found = (*_merged(sheet), *_errors(cells), *partly_struck(cells), *unsaved)
    for place, fault in found:
        faults.setdefault(place, fault)
    _check_hidden(sheet, frame, name)
    notes += ["times and durations as hours"] * has_times
    struck, commented = marked_cells(cells)
    if commented:
        shown = short_list(commented, 3, show=str)
        unread.append(f"comments on cells are not read: {shown}")
    if hidden := [*_hidden_columns(sheet, frame)]:
        unread.append(
            f"columns that are hidden count as the others: {short_list(hidden, 5)}"
        )
    if struck:
        unread.append(
            f"cells that are struck out count as the others: {short_list(struck, 3)}; "
            "empty them if they are not to count"
        )
    cut = dict(reversed([*_cut(cells)]))  # the first cell of each column
    sheets = {each.title: _top_texts(each) for each in visible}
    coloured = few_coloured(cells)
    return Records(frame, notes, unread, faults, cut, coloured, sheets=sheets)


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
            return load_workbook(
                io.BytesIO(content), data_only=computed, rich_text=True
            )
        except UNREADABLE as error:
            raise InputDataError(
                f"{name} is an archive, and no .xlsx that can be read; save the table "
                "as CSV, in UTF-8, and name that file."
            ) from error


def _num_filled(sheet: Any) -> int:
    """The number of rows with cells that are not empty."""
    rows = sheet.iter_rows(values_only=True)
    return sum(any(value not in (None, "") for value in row) for row in rows)


def _top_texts(sheet: Any) -> set[str]:
    """The texts in its first lines, with single blanks; one may be the header."""
    rows = sheet.iter_rows(max_row=TOP_LINES, values_only=True)
    texts = (value for value in chain(*rows) if isinstance(value, str))
    return {" ".join(text.split()) for text in texts}


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
        return _number_text(value, cell.number_format)
    if isinstance(value, list):  # of parts with fonts of their own
        return "".join(map(_part_text, value))
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


def _part_text(part: Any) -> str:
    """A part of a cell; digits that are raised, such as a footnote's, stay so."""
    font = getattr(part, "font", None)
    is_raised = font is not None and font.vertAlign == "superscript"
    return str(part).translate(SUPERSCRIPT) if is_raised else str(part)


def _number_text(value: float, number_format: str) -> str:
    """A number in full, with what its format writes before and behind it."""
    part = _part_for(value, _parts(number_format))
    if part.words is not None:
        return part.words
    text = str(
        int(value) if float(value).is_integer() and abs(value) < 2**53 else value
    )
    if scale := 2 * part.is_percent - 3 * part.thousands:
        text = _plain(Decimal(f"{value:.{DIGITS}g}").scaleb(scale))
    if text.isdecimal():
        text = text.zfill(part.num_digits)
    bound = part.bound if value > 0 else ""
    text = f"{bound}{text}{'%' * part.is_percent}{part.marks} {part.unit}".rstrip()
    text = f"{part.before}{text}"
    return f"{text} (shown as {text[1:]})" if value < 0 and part.hides_minus else text


def _part_for(value: float, parts: Sequence["_Part"]) -> "_Part":
    """The part that shows a number: the first whose condition holds, or the last.

    Without a condition the first is for numbers above 0, or from 0 on if there are two
    parts, and the second for those below.
    """
    *others, last = parts[:3]
    for place, part in enumerate(others):
        sign, limit = part.condition or (("<" if place else ">"), 0.0)
        is_usual = part.condition is None and place == 0 and len(others) == 1
        if COMPARED[">=" if is_usual else sign](value, limit):
            return part._replace(hides_minus=part.hides_minus and place > 0)
    is_below_0 = len(others) == 1 and others[0].condition is None
    return last._replace(hides_minus=last.hides_minus and is_below_0)


class _Part(NamedTuple):
    """How a part of a number format shows the numbers that it is for.

    Attributes:
        is_percent: Whether they are shown in per cent.
        thousands: How often they are divided by a thousand.
        bound: A sign before them, such as `<`; or nothing.
        before: A text before them that has a letter or a digit; or nothing.
        num_digits: The least number of digits that whole numbers are shown with.
        unit: A unit or a currency; or nothing.
        words: What is shown in their place; None for the numbers.
        marks: Signs behind them that are no unit, such as those of a footnote.
        condition: For which numbers it is, as a sign and a limit; None for the usual.
        hides_minus: Whether it has no minus and no bracket of its own.
    """

    is_percent: bool = False
    thousands: int = 0
    bound: str = ""
    before: str = ""
    num_digits: int = 1
    unit: str = ""
    words: str | None = None
    marks: str = ""
    condition: tuple[str, float] | None = None
    hides_minus: bool = False


@cache
def _parts(number_format: str) -> tuple[_Part, ...]:
    """The parts of a format, for numbers above, below and at 0."""
    parts = list[list[re.Match[str]]]([[]])
    for piece in PIECE.finditer(number_format):
        if piece["end"]:
            parts.append([])
        else:
            parts[-1].append(piece)
    return tuple(map(_part_of, parts))


def _part_of(pieces: Sequence[re.Match[str]]) -> _Part:
    """One part of a format."""
    names = ("quoted", "escaped", "currency", "sign")
    written = [next((p[n] for n in names if p[n]), "") for p in pieces]
    code = "".join(p["rest"] or " " for p in pieces)
    brackets = (CONDITION.fullmatch(p["bracket"] or "") for p in pieces)
    found = next(filter(None, brackets), None)
    condition = None if found is None else (found[1], float(found[2]))
    if not (digits := re.search(r"[0#?]", code)):
        is_number = bool(re.search(r"[A-Za-z@]", code))  # General, text, dates
        words = None if is_number else "".join(written).strip()
        return _Part(words=words, condition=condition)
    start = digits.start()
    name = "".join(p["quoted"] or p["escaped"] or "" for p in pieces[:start]).lstrip()
    if not TEXT_SIGN.search(name):
        name = ""
    signs = "".join(written[:start]) + code[:start].strip()
    if name:  # what is no part of it is a currency
        written[:start] = [p["currency"] or p["sign"] or "" for p in pieces[:start]]
    unit = "".join(written).replace(" ", "")
    commas = re.search(r"[0#?](,+)(?![0#?.,])", code)
    return _Part(
        is_percent="%" in code,
        thousands=len(commas[1]) if commas else 0,
        bound="" if name else "".join(BOUNDS.findall(signs)),
        before=name,
        num_digits=len(code.strip()) if PADDED.fullmatch(code.strip()) else 1,
        unit=BOUNDS.sub("", unit) if UNIT_SIGN.search(unit) else "",
        marks="" if UNIT_SIGN.search(unit) else "".join(FOOTNOTE.findall(unit)),
        condition=condition,
        hides_minus=not MINUS.search(unit + code),
    )


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


def _errors(cells: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Cells with an error, by the places of their columns."""
    for cell in cells:
        if cell.data_type == ERROR:
            yield (
                cell.column - 1,
                f"cell {cell.coordinate} holds the error {cell.value}; correct the "
                "formula, or empty the cell if there is no value yet",
            )


def _cut(cells: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Whole numbers with more digits than are kept, by the places of their columns."""
    for cell in cells:
        if cell.data_type == NUMBER and abs(cell.value) >= 10**DIGITS:
            yield (
                cell.column - 1,
                f"cell {cell.coordinate} is a number of more than {DIGITS} digits, of "
                "which spreadsheets change the last ones to 0; format the column as "
                "text, and write the keys anew",
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


def _hidden_columns(sheet: Any, frame: pd.DataFrame) -> Iterator[str]:
    """Names of hidden columns with cells; one record may stand for several columns."""
    for columns in sheet.column_dimensions.values():
        if columns.hidden:
            columns.reindex()
            for place in range(columns.min - 1, min(columns.max, frame.shape[1])):
                filled = frame[place][frame[place] != ""]
                yield from filled.iloc[:1]


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
