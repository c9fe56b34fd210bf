"""One cell of a CSV file: the number in it, and what may have become of it."""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

# A number with a decimal comma.
COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
# Numbers whose digits are in groups of three, by a comma or by a point.
GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
GROUPED_BY_POINTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+")
# What programs and people write where there is no value.
MISSING = frozenset("na n/a n.a. #n/a #na <na> nan -nan null none".split())


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


def has_comma(cell: str) -> bool:
    """Whether a cell is a number but for its commas."""
    patterns = (COMMA, GROUPED, GROUPED_BY_POINTS)
    return any(pattern.fullmatch(cell) for pattern in patterns)


def comma_hint(cell: str) -> str:
    """What to do about a number with commas; a comma may separate thousands."""
    if not has_comma(cell):
        return ""
    without = cell.replace(",", "")
    if GROUPED_BY_POINTS.fullmatch(cell):
        without = cell.replace(".", "").replace(",", ".")
        return f"; write {without}, with a decimal point and no other mark"
    if not GROUPED.fullmatch(cell):
        return "; write a decimal point, not a comma"
    if cell.count(",") > 1 or "." in cell:
        return f"; write {without}, without commas between thousands"
    point = cell.replace(",", ".")
    return (
        "; its comma may be a thousands separator or a decimal one: write "
        f"{without} or {point}, whichever it is"
    )


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
