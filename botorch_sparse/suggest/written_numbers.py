"""Checks that numbers are written in one way: their marks, and their units.

A cell that is read without an error may still mean another number: `1.127` beside
`862`, or `0.48` in one file and `49 %` in another.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line.csv_cells import (
    ONE_UNIT_ALONE,
    ONE_UNIT_SHARE,
    POINTED,
    UNIT_SIGNS,
    has_comma,
    has_no_value,
    has_point,
    looks_like_number,
    number,
    sets_unit_apart,
    unit_of,
    without_unit,
)
from botorch_sparse.suggest.csv_reader import TextTable

# A number with three digits behind its only mark, a point, and not 0 before it.
THREE_BEHIND = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
WHOLE = re.compile(r"[+-]?\d+")
NUMBER_BEGINS = frozenset("+-.0123456789")
# The unit in the name of a column: T [K], T (K), T/K.
UNIT_BEHIND = re.compile(r"\s*(\[[^]]*\]|\([^)]*\)|/[^/]*)$")
# What stands there is a unit if it is one of these, in small letters.
UNITS = frozenset(
    "% \u2030 mol% wt% vol% ppm ppb \u00b0c \u00b0f k kg g mg \u00b5g mol mmol l ml "
    "\u00b5mol \u00b5l \u00b5m m cm mm nm s min h d bar mbar pa kpa mpa atm psi v mv a "
    "ma w rpm eq \u20ac $ g/l mg/l \u00b5g/l ng/l mg/ml \u00b5g/ml mg/g mol/l mmol/l "
    "\u00b5mol/l ml/min ng nmol k\u03c9 kw mw kj j hz khz".split()
)
# Before a slash and another unit they are prices.
CURRENCIES = frozenset("\u20ac $ \u00a3 chf".split())
# How else some are written.
SYNONYMS = {
    **{
        "c": "\u00b0c",
        "degc": "\u00b0c",
        "f": "\u00b0f",
        "ug": "\u00b5g",
        "ul": "\u00b5l",
    },
    **dict.fromkeys(["hr", "hrs", "hour", "hours"], "h"),
    **{"sec": "s", "mins": "min", "day": "d", "days": "d", "equiv": "eq"},
    **{"eur": "\u20ac", "usd": "$", "percent": "%", "umol": "\u00b5mol"},
    **{"ug/l": "\u00b5g/l", "ug/ml": "\u00b5g/ml", "um": "\u00b5m"},
}
# A duration in two units.
HOURS_MINUTES = re.compile(
    r"\d+\s*(h|hrs?|hours?)\s*\d+\s*(m|mins?|minutes?)?", re.IGNORECASE
)
HOUR_AND_MINUTE = ("h", "min")


def check_marks(text: TextTable, column: str) -> None:
    """Check that marks in the numbers of a column can be read in one way.

    Points may separate thousands in texts, unless they were named as decimal marks.
    Where commas are decimal, no number has a point alone.
    """
    if text.decimal == ",":
        _check_no_points(text, column)
        return
    cells = text.typed[column]
    is_clear = text.decimal == "." or text.is_workbook
    if is_clear or not any("." in cell for cell in cells):
        return
    bare = (without_unit(cell.strip()) for cell in cells if "." in cell)
    if not all(THREE_BEHIND.fullmatch(cell) for cell in bare if has_point(cell)):
        return
    cells = _bare(text, column)
    if both := _first_two(cells, THREE_BEHIND.fullmatch, WHOLE.fullmatch):
        row, other = both
        cell = cells[row]
        reason = (
            f"{short_repr(cell)} may be {cell.replace('.', '')} or {float(cell):g}, "
            f"beside {short_repr(cells[other])} in line {text.lines[other]}: if points "
            "are decimal marks, say --decimal .; if they separate thousands, take them "
            "out (and say --decimal , if commas are decimal marks)."
        )
        raise text.error(row, column, reason)


def check_points_beside_commas(
    files: Sequence[tuple[TextTable, Sequence[str]]],
) -> None:
    """Check that no points can separate thousands where other columns have commas.

    Args:
        files: Each of them, and its columns of numbers.
    """
    commas = [(text, column) for text, _ in files for column in text.commas]
    pairs = [(text, column) for text, columns in files for column in columns]
    for text, column in pairs if commas else ():
        if text.is_workbook:
            continue
        cells = _bare(text, column) if column in text.columns else []
        pointed = [row for row, cell in enumerate(cells) if has_point(cell)]
        if pointed and all(POINTED.fullmatch(cells[row]) for row in pointed):
            (other, name), cell = commas[0], cells[pointed[0]]
            reason = (
                f"the point in {short_repr(cell)} may separate thousands, as commas "
                f"are decimal marks in column {short_repr(name)} of {other.name}; "
                f"write {cell.replace('.', '')}, or if it is a decimal mark "
                f"{cell.replace('.', ',')}, and call with --decimal ','."
            )
            raise text.error(pointed[0], column, reason)


def _check_no_points(text: TextTable, column: str) -> None:
    """Check that numbers of a column have commas alone as decimal marks."""
    cells = _bare(text, column)
    if (both := _first_two(cells, _has_decimal_point, has_comma)) is None:
        return
    row, other = both
    reason = (
        f"{short_repr(cells[row])} has a point and {short_repr(cells[other])} in "
        f"line {text.lines[other]} a comma; with --decimal ',' numbers have commas "
        "alone. Take out the marks between thousands, and write all of the column "
        "alike."
    )
    raise text.error(row, column, reason)


def _bare(text: TextTable, column: str) -> list[str]:
    """The cells of a column as they were typed, without units."""
    return [without_unit(cell.strip()) for cell in text.typed[column]]


def _has_decimal_point(cell: str) -> bool:
    """Whether a cell is a number whose point cannot separate thousands."""
    return has_point(cell) and not POINTED.fullmatch(cell)


def _first_two(
    cells: Sequence[str], one: Callable[[str], object], two: Callable[[str], object]
) -> tuple[int, int] | None:
    """The places of the first cells of two kinds; None without one of either."""
    first = next((i for i, cell in enumerate(cells) if one(cell)), None)
    other = next((i for i, cell in enumerate(cells) if two(cell)), None)
    return None if first is None or other is None else (first, other)


def check_one_unit(text: TextTable, column: str, *, may_be_text: bool = False) -> None:
    """Check that numbers of which most have one unit all have it.

    Args:
        text: The file.
        column: One of its columns.
        may_be_text: Whether the cells may be names; then a few may have another unit.
    """
    cells = text.columns[column]
    if all(cell[-1:].isdigit() and cell[0] in NUMBER_BEGINS for cell in cells):
        return  # most columns of numbers: nothing more to look at in a long pool
    units = Counter(unit_of(cell) for cell in cells if not has_no_value(cell))
    known = [(num, unit) for unit, num in units.items() if unit is not None]
    if not known or len(units) < 2:
        return
    num, unit = max(known)
    is_alone = len(known) == 1 and any(map(sets_unit_apart, cells))
    share = ONE_UNIT_ALONE if is_alone else ONE_UNIT_SHARE
    is_measured = not may_be_text and None not in units  # each a number with a unit
    if num <= share * units.total() and not is_measured:
        return
    odd = (i for i, x in enumerate(cells) if not has_no_value(x) and unit_of(x) != unit)
    # A word is refused as such, once all numbers have the unit.
    row = next(i for i in odd if unit_of(cells[i]) or looks_like_number(cells[i]))
    remedy = ", or declare the column as --text" * may_be_text
    reason = (
        f"{short_repr(cells[row])} is not in {short_repr(unit)}, as most cells of "
        f"the column are; write all in one unit{remedy}."
    )
    raise text.error(row, column, reason)


def mixed_units(cells: Sequence[str]) -> list[str]:
    """The units of a column if most of its cells are numbers, and they have several.

    Where some are hours and minutes in one cell, such as 1h30, `2h` is a number too.
    """
    counts = Counter(cells)
    both = [cell for cell in counts if HOURS_MINUTES.fullmatch(cell)]
    durations = [x for x in counts if _plain(unit_of(x) or "") in HOUR_AND_MINUTE]
    units = {cell: unit_of(cell) for cell in counts if sets_unit_apart(cell)}
    units |= {cell: unit_of(cell) for cell in durations if both}
    measured = {*units, *both}
    num = sum(counts[x] for x in counts if x in measured or number(x) is not None)
    known = (*(HOUR_AND_MINUTE if both else ()), *filter(None, units.values()))
    kinds = dict.fromkeys(known)
    return [*kinds] if len(kinds) > 1 and 2 * num > len(cells) else []


def notes_on_units(text: TextTable, columns: Iterable[str]) -> Iterator[str]:
    """Notes on columns whose cells have another unit than their name."""
    for column in columns:
        named, unit = named_unit(column), text.units.get(column)
        if named and unit and _plain(named) != _plain(unit):
            yield (
                f"{text.name}: the cells of column {short_repr(column)} are in "
                f"{short_repr(unit)}, and its name ends with {short_repr(named)}. They "
                f"are numbers in {short_repr(unit)}; correct the name or the cells"
            )


def named_unit(column: str) -> str | None:
    """The unit at the end of a column's name, if it is one that many columns have."""
    found = UNIT_BEHIND.search(column)
    named = "" if found is None else found[1].strip("[](/) ")
    return named if _is_unit(named) else None


def note_on_unit_column(
    text: TextTable, column: str, kinds: Iterable[str]
) -> Iterator[str]:
    """A note on a column with several units, as most people write them."""
    units = [*filter(None, dict.fromkeys(kinds))]
    if len(units) > 1 and all(map(_is_unit, units)):
        yield (
            f"{text.name}: the cells of column {short_repr(column)}, "
            f"{short_list(units, 4)}, are units. Numbers in another column are taken "
            "as they are, whatever their unit; write all in one"
        )


def _is_unit(text: str) -> bool:
    """Whether a text is a unit that many columns have, or a price of one."""
    currency, _, unit = text.partition("/")
    return _plain(text) in UNITS or (
        _plain(currency) in CURRENCIES and _plain(unit) in UNITS
    )


def _plain(unit: str) -> str:
    """A unit in small letters, as most people write it."""
    plain = "".join(unit.translate(UNIT_SIGNS).split()).lower().rstrip(".")
    return SYNONYMS.get(plain, plain)


def check_units(
    text: TextTable, others: Sequence[TextTable], columns: Iterable[str]
) -> None:
    """Check that columns have no other units than in the files before."""
    for name, before in product(columns, others):
        own, other = text.units.get(name), before.units.get(name)
        if own and other and own != other:
            raise InputDataError(
                f"{text.name}: column {short_repr(name)} is in {short_repr(own)}, "
                f"and in {short_repr(other)} in {before.name}; write it in one unit."
            )


def check_units_in_all(texts: Sequence[TextTable], columns: Iterable[str]) -> None:
    """Check that numbers of a column have a unit in all files, or in none."""
    for column in columns:
        first: dict[bool, tuple[TextTable, int]] = {}
        for text in texts:
            cells = text.columns.get(column, ())
            row = next((i for i, x in enumerate(cells) if number(x) is not None), None)
            if row is not None:
                first.setdefault(column in text.units, (text, row))
        if len(first) == 2:
            (text, row), (other, place) = first[True], first[False]
            reason = (
                f"{short_repr(text.typed[column].iat[row].strip())} has a unit, and "
                f"{short_repr(other.typed[column].iat[place].strip())} in "
                f"{other.place(place)} of {other.name} has none; write both in one "
                "unit, or both without."
            )
            raise text.error(row, column, reason)
