"""Trimmed cells of a CSV file: the header, and what one cell may mean."""

import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from unicodedata import normalize

import numpy as np
from botorch.exceptions import InputDataError
from numpy.typing import NDArray

from botorch_sparse.argument_checks import short_list

# A number with a decimal comma.
COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
# Numbers whose digits are in groups of three, separated by commas or by points.
GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
GROUPED_BY_POINTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+")
# A number whose point may separate thousands where commas are decimal marks.
POINTED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
# A number whose digits are in groups of three, separated by spaces or apostrophes.
SPACED = re.compile(r"[+-]?\d{1,3}([ '\u2019]\d{3})+([.,]\d*)?")
# A number with the minus behind it, as some programs write it.
MINUS_BEHIND = re.compile(r"\d+([.,]\d*)?-")
# Digits with marks, of which spaces and apostrophes stand before three digits.
DIGITS = r"[+-]?\d(?:[\d.,]|[ '\u2019](?=\d{3}(?!\d)))*"
# A number and a unit behind it, which has no digits and is one word, such as mol % too.
WITH_UNIT = re.compile(
    rf"({DIGITS}(?:[eE][+-]?\d+)?)\s*"
    r"([^\W\d_][^\d\s]*(?:\s+%)?|[%\u2030\u00b0$\u20ac\u00a3\u00a5][^\d\s]*)"
)
# A number and a currency before it.
WITH_CURRENCY = re.compile(
    rf"(EUR|USD|GBP|CHF|JPY|CNY|(?:US)?\$|[\u20ac\u00a3\u00a5])\s*({DIGITS})"
)
# Where a larger share of a column's cells has one unit, it is meant for all of them;
# and where more than half have it, and the others have no unit.
ONE_UNIT_SHARE, ONE_UNIT_ALONE = 0.75, 0.5
# Signs in units that look like others and mean the same.
UNIT_SIGNS = str.maketrans(
    {"\u00ba": "\u00b0", "\u02da": "\u00b0", "\u03bc": "\u00b5"}
    | {"\u2103": "\u00b0C", "\u2109": "\u00b0F"}
)
# Signs as wide as those of Chinese and Japanese, which begin here, and the plain ones.
FULL_WIDTH = {0xFEE0 + plain: plain for plain in range(0x21, 0x7F)}
# Signs in texts that look like others: dashes, and Cyrillic letters.
LOOK_ALIKE = str.maketrans(
    "\u2010\u2011\u2012\u2013\u2014\u2212"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425"
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445",
    "------ABEKMHOPCTXaeopcyx",
)
# A minus or a dash before the digits of a cell, which is no ASCII hyphen.
TYPOGRAPHIC_MINUS = re.compile(r"\A[\u2212\u2013](?=\d)")
# Programs and people write these where there is no value.
MISSING = frozenset("na n/a n.a. #n/a #na <na> nan -nan null none".split())
# In a feature this word is a category of its own, which messages advise to write.
NONE = "none"
# A text that may be a date, which spreadsheets write in another form.
DATE = re.compile(r"\d{1,4}[-./: ]+\w{1,9}[-./: ]+\d{1,4}\b.*")
# A text that is one, in an order of day, month and year that people use.
CALENDAR = re.compile(
    r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}-\d{1,2}-\d{4}"
    r"|\d{1,2}([/.])\d{1,2}\3(\d{4}|\d{2})"
    r"|\d{1,2}[- ][A-Za-z]{3,9}[- ]\d{4}|[A-Za-z]{3,9} \d{1,2}, \d{4})"
    r"([T ]\d{1,2}:\d{2}(:\d{2})?)?"
)
# Its forms. Between points the day comes first, else the month may.
DATE_FORMS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d.%m.%y"),
    *("%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%d-%B-%Y", "%b %d, %Y", "%B %d, %Y"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y"),
)
TIMES = ("", " %H:%M", " %H:%M:%S")
# The day that spreadsheets count from.
DAY_ZERO = datetime(1899, 12, 30)
ONE_DAY = timedelta(days=1)
# The word for a measurement that will have no value.
FAILED = "failed"


def shared_unit(cells: Sequence[str], *, are_numbers: bool = False) -> str | None:
    """The unit of all numbers in a column; None where they have none, or several.

    Other texts may stand among them if most cells have the unit, words for a failure
    and for no value aside.

    Args:
        cells: The column.
        are_numbers: Whether all cells have to be numbers; then a few with it do.
    """
    first = next((cell for cell in cells if not has_no_value(cell)), "")
    if looks_like_number(first):
        return None  # most columns: nothing more to look at
    units = Counter[str]()
    num, is_apart = 0, are_numbers
    for cell, count in Counter(cells).items():
        if has_no_value(cell):
            continue
        if (unit := unit_of(cell)) is not None:
            units[unit] += count
            is_apart |= sets_unit_apart(cell)
        elif looks_like_number(cell):
            return None
        if len(units) > 1:
            return None
        num += count
    least = ONE_UNIT_ALONE if is_apart else ONE_UNIT_SHARE
    shared = (unit for unit, n in units.items() if are_numbers or n > least * num)
    return next(shared, None)


def sets_unit_apart(cell: str) -> bool:
    """Whether a cell is a number and a unit behind a blank or a sign, unlike `1a`."""
    unit = unit_of(cell)
    return unit is not None and (" " in cell or not unit[0].isalpha())


def unit_of(cell: str) -> str | None:
    """The unit of the number in a cell; None where there is none."""
    found = _with_unit(cell)
    return None if found is None else "".join(found[1].split())


def without_unit(cell: str) -> str:
    """The number of a cell with a unit; all else as it is."""
    found = _with_unit(cell)
    return cell if found is None else found[0]


def _with_unit(cell: str) -> tuple[str, str] | None:
    """A number and its unit, with one sign for those that look alike; or None.

    A currency may come first; then commas before a point separate thousands.
    """
    if has_no_value(cell):
        return None
    if found := WITH_CURRENCY.fullmatch(cell):
        is_grouped = "." in found[2] and GROUPED.fullmatch(found[2])
        return found[2].replace(",", "") if is_grouped else found[2], found[1]
    found = WITH_UNIT.fullmatch(cell.translate(UNIT_SIGNS))
    return None if found is None else (found[1], found[2])


def with_minus(cell: str) -> str:
    """A cell with a hyphen for the minus or the dash before a number at its start."""
    return cell if cell.isascii() else TYPOGRAPHIC_MINUS.sub("-", cell)


def looks_like_date(cell: str) -> bool:
    """Whether a cell may be a date with day, month and year."""
    return CALENDAR.fullmatch(cell) is not None


def days_of(cells: Sequence[str]) -> list[str] | None:
    """Dates as days that spreadsheets count, with the time of the day behind the point.

    None if some cell is no date, or if days and months may be either: one form has to
    fit all cells. Cells without a value stay as they are.
    """
    known = {cell for cell in cells if not has_no_value(cell)}
    if not known or not all(map(looks_like_date, known)):
        return None
    found = []
    for form in (date + time for date in DATE_FORMS for time in TIMES):
        with suppress(ValueError):
            found.append({cell: _days(cell, form) for cell in known})
    if not found or any(days != found[0] for days in found):
        return None
    return [f"{found[0][cell]:.10g}" if cell in known else cell for cell in cells]


def _days(cell: str, form: str) -> float:
    """Days of a date in a form; ValueError if it has another one."""
    return (datetime.strptime(cell.replace("T", " "), form) - DAY_ZERO) / ONE_DAY


def number(cell: str) -> float | None:
    """The finite number in a cell, or None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in cell else None


def floats_of(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """All cells as finite numbers, or None."""
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None
    is_sound = np.isfinite(values).all() and not any("_" in cell for cell in cells)
    return values if is_sound else None


def looks_like_number(cell: str) -> bool:
    """Whether a cell is a number but for marks between digits, or is infinite."""
    try:
        return not math.isnan(float(cell))
    except ValueError:
        is_spaced = SPACED.fullmatch(cell) is not None
        return has_comma(cell) or is_spaced or MINUS_BEHIND.fullmatch(cell) is not None


def is_missing(cell: str) -> bool:
    """Whether a cell is empty, or a word for no value as NA or NaN."""
    return not cell or cell.casefold() in MISSING


def is_blank(cell: str) -> bool:
    """Whether the cell of a feature has no value; `none` is a category."""
    return is_missing(cell) and cell.casefold() != NONE


def says_failed(cell: str) -> bool:
    """Whether a cell has the word for a measurement that failed."""
    return cell.casefold() == FAILED


def has_no_value(cell: str) -> bool:
    """Whether the cell of a target is empty or has the word for a failure."""
    return is_missing(cell) or says_failed(cell)


def decimals_and_digits(cell: str) -> tuple[int, int] | None:
    """How many decimals and digits a number is written with; None for text."""
    if (exact := _exact(cell)) is None:
        return None
    _, digits, exponent = exact.as_tuple()
    return -int(exponent), len(digits)


def half_unit(cell: str) -> float:
    """Half a unit of the last digit of a number; 0 for text."""
    size = decimals_and_digits(cell)
    return 0.0 if size is None else 0.5 * 10.0 ** -size[0]


def cells_agree(cell: str, other: str) -> bool:
    """Whether two cells mean the same, though a spreadsheet may have rounded one.

    Text may differ in case and spaces, numbers in what rounding to the digits of the
    shorter one, or to six digits, changes.
    """
    if spelling_form(cell) == spelling_form(other):
        return True
    x, y = number(cell), number(other)
    if x is None or y is None:
        return False
    half = max(half_unit(cell), half_unit(other)) * (1 + 1e-9)
    return abs(x - y) <= max(half, 1e-5 * abs(x))


def spreadsheet_form(cell: str) -> Hashable:
    """All that spreadsheets keep of a text: 0007 is 7, and 7.0; spaces may change."""
    return key_form(cell.casefold())


def spelling_form(cell: str) -> Hashable:
    """The same for each spelling of a text: subscripts are digits, dashes hyphens."""
    if not cell.isascii():
        cell = normalize("NFKC", cell.translate(LOOK_ALIKE))
    return spreadsheet_form(cell)


def spelling_difference(cell: str, other: str) -> str:
    """In what two spellings of a text differ, where they look alike in messages."""
    if number(cell) is not None:
        return " as a number"
    if cell.split() == other.split():
        return " but for blanks"
    if cell.lower().split() == other.lower().split():
        return ""
    pairs = ((cell, other), (other, cell))
    signs = [next((c for c in x if c not in y), "") for x, y in pairs]
    shown = ", ".join(f"U+{ord(sign):04X}" for sign in signs if sign)
    return f" but for signs that look alike ({shown})"


def key_form(cell: str) -> Hashable:
    """The same for a key, in which upper and lower case differ."""
    exact = _exact(cell)
    return " ".join(cell.split()) if exact is None else exact


def _exact(cell: str) -> Decimal | None:
    """The number in a cell; None for text, and for numbers beyond a Decimal."""
    try:
        return None if number(cell) is None else Decimal(cell)
    except InvalidOperation:
        return None


def has_comma(cell: str) -> bool:
    """Whether a cell is a number but for its commas."""
    patterns = (COMMA, GROUPED, GROUPED_BY_POINTS)
    return any(pattern.fullmatch(cell) for pattern in patterns)


def has_point(cell: str) -> bool:
    """Whether a cell is a number with a decimal point, perhaps with commas too."""
    return "." in cell and (number(cell) is not None or bool(GROUPED.fullmatch(cell)))


def marks_hint(cell: str, others: Sequence[str]) -> str:
    """Advice for a number with marks that may separate thousands; else nothing.

    Other cells of the column may show by a point that commas do.
    """
    if SPACED.fullmatch(cell):
        digits = re.sub("[ '\u2019]", "", cell)
        two = "; or if these are two numbers, give each a line of its own"
        return f"; take out the marks that separate thousands: {digits}" + two * (
            cell.count(" ") == 1
        )
    plain = cell.translate(FULL_WIDTH)
    if plain != cell and number(without_unit(plain)) is not None:
        return f"; write it in plain signs: {plain}"
    if MINUS_BEHIND.fullmatch(cell):
        return f"; write the minus before the digits: -{cell[:-1]}"
    if not has_comma(cell):
        return ""
    if pointed := next((other for other in [cell, *others] if has_point(other)), ""):
        return (
            f"; the column has points too, such as {pointed}: take out commas that "
            "separate thousands, and write decimal points"
        )
    return (
        "; its comma may be decimal, or separate thousands: write it with a decimal "
        "point and no other mark (--decimal ',' reads all commas as decimal ones)"
    )


def with_point(cell: str) -> str:
    """A number with a decimal comma as one with a point; other cells unchanged."""
    if GROUPED_BY_POINTS.fullmatch(cell):
        cell = cell.replace(".", "")
    elif not COMMA.fullmatch(cell):
        return cell
    return cell.replace(",", ".")


def check_header(name: str, header: Sequence[str]) -> None:
    """Check that a header row names each column once, and not by numbers alone."""
    if "" in header:
        raise InputDataError(
            f"Column {header.index('') + 1} of {name} has no name in the header row."
        )
    repeated = [cell for cell, count in Counter(header).items() if count > 1]
    if repeated:
        raise InputDataError(
            f"{name} repeats the column names {short_list(repeated, 8)}."
        )
    if all(number(cell) is not None for cell in header):
        raise InputDataError(
            f"The first row of {name} holds only numbers; it must name the columns."
        )
