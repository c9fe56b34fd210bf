"""One cell of a CSV file: the number in it, and what may have become of it."""

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

# A number with a decimal comma.
COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
# Numbers whose digits are in groups of three, by a comma or by a point.
GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
GROUPED_BY_POINTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+")
# A number with a point that may separate thousands where commas are decimal.
POINTED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
# What programs and people write where there is no value.
MISSING = frozenset("na n/a n.a. #n/a #na <na> nan -nan null none".split())
# In a category a word of its own, which messages advise to write.
NONE = "none"
# A text that may be a date, which spreadsheets write anew.
DATE = re.compile(r"\d{1,4}[-./: ]+\w{1,9}[-./: ]+\d{1,4}\b.*")
# The word for a measurement that will have no value.
FAILED = "failed"


def number(cell: str) -> float | None:
    """The finite number in a cell, or None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in cell else None


def is_missing(cell: str) -> bool:
    """Whether a cell is empty, or a word for no value as NA or NaN."""
    return not cell.strip() or cell.strip().casefold() in MISSING


def is_blank(cell: str) -> bool:
    """Whether a cell of a feature says nothing: none is a category as others are."""
    return is_missing(cell) and cell.strip().casefold() != NONE


def says_failed(cell: str) -> bool:
    """Whether a cell has the word for a measurement that failed."""
    return cell.strip().casefold() == FAILED


def half_unit(cell: str) -> float:
    """Half a unit of the last digit of a number that is written in a cell."""
    exact = _exact(cell)
    return 0.0 if exact is None else 0.5 * 10.0 ** int(exact.as_tuple().exponent)


def cells_are_equal(cell: str, other: str, *, rounded: bool = False) -> bool:
    """Whether two cells mean the same: numbers to six digits, text in any case.

    Args:
        cell: A cell.
        other: Another one.
        rounded: Whether one may be the other, rounded to the digits that it has.
    """
    if spreadsheet_form(cell) == spreadsheet_form(other):
        return True
    x, y = number(cell), number(other)
    if x is None or y is None:
        return False
    half = max(half_unit(cell), half_unit(other)) if rounded else 0.0
    return abs(x - y) <= max(half * (1 + 1e-9), 1e-5 * abs(x))


def spreadsheet_form(cell: str) -> Hashable:
    """What spreadsheets keep of a text: 0007 is 7, and 7.0; spaces may change."""
    return key_form(cell.casefold())


def key_form(cell: str) -> Hashable:
    """The same of a key, in which upper and lower case differ."""
    exact = _exact(cell)
    return " ".join(cell.split()) if exact is None else exact


def size_of(cell: str) -> tuple[int, int] | None:
    """Decimals and digits of the number in a cell; None if there is none."""
    if (exact := _exact(cell)) is None:
        return None
    _, digits, exponent = exact.as_tuple()
    return -int(exponent), len(digits)


def _exact(cell: str) -> Decimal | None:
    """The number in a cell; None if there is none, or none of this size."""
    try:
        return None if number(cell) is None else Decimal(cell.strip())
    except InvalidOperation:
        return None


def has_comma(cell: str) -> bool:
    """Whether a cell is a number but for its commas."""
    patterns = (COMMA, GROUPED, GROUPED_BY_POINTS)
    return any(pattern.fullmatch(cell) for pattern in patterns)


def comma_hint(cell: str) -> str:
    """What to do about a number with commas; a comma may separate thousands."""
    option = "--decimal ',' reads all commas as decimal ones"
    if not has_comma(cell):
        return ""
    without = cell.replace(",", "")
    if GROUPED_BY_POINTS.fullmatch(cell):
        without = cell.replace(".", "").replace(",", ".")
        return f"; write {without}, with a decimal point and no other mark"
    if not GROUPED.fullmatch(cell) or cell.lstrip("+-").startswith("0"):
        return f"; write a decimal point, not a comma ({option})"
    if cell.count(",") > 1 or "." in cell:
        return f"; write {without}, without commas between thousands"
    point = cell.replace(",", ".")
    return (
        "; its comma may be a thousands separator or a decimal one: write "
        f"{without} or {point}, whichever it is ({option})"
    )


def with_point(cell: str) -> str:
    """A cell with a decimal comma as one with a point; others are as they are."""
    number = cell.strip()
    if GROUPED_BY_POINTS.fullmatch(number):
        number = number.replace(".", "")
    elif not COMMA.fullmatch(number):
        return cell
    return number.replace(",", ".")


def floats_of(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """All cells as finite numbers, or None."""
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None
    is_sound = np.isfinite(values).all() and not any("_" in cell for cell in cells)
    return values if is_sound else None


def are_floats(cells: Iterable[str]) -> bool:
    """Whether all cells are numbers for Python, infinite ones and NaN included."""
    try:
        return all(float(cell) is not None for cell in cells)
    except ValueError:
        return False
