"""Columns of the candidates that may mean something else than they were read as."""

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from itertools import combinations
from typing import Literal

import numpy as np

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line.csv_cells import is_blank, number, spelling_form
from botorch_sparse.suggest.candidate_pool import Matrix, Pool
from botorch_sparse.suggest.other_units import kelvin_among
from botorch_sparse.suggest.written_numbers import (
    mixed_units,
    named_unit,
    note_on_unit_column,
    notes_on_units,
)

# So few categories are no surprise, however few rows there are.
FEW_CATEGORIES = 5
# In so few rows a feature may count them by chance.
FEW_ROWS = 5
# Parts of names of columns that number the rows.
COUNTS = re.compile(
    r"(^|[\W_])(id|index|idx|no|nr|num|number|sample|row)([\W_]|$)|#", re.IGNORECASE
)
# Cells that spreadsheets and this program take for numbers, and that may be names.
LEADING_ZERO, WITH_EXPONENT = re.compile(r"0\d+"), re.compile(r"\d+[eE]\d+")
CODE = re.compile(r"\d+([eE]\d+)?")
A_TIME = re.compile(r"\d{1,3}:\d{2}(:\d{2})?")
# Numbers as people write them: limits, ranges, ratios and powers of ten.
MARKED = re.compile(
    r"(([<>~\u2248\u2264\u2265]=?|ca\.?)\s*)?\d[\d.,]*"
    r"(\s*([-\u2013:/^]|[x\u00d7*\u00b7]\s*10\s*\^?)\s*[-\u2013\u2212]?\d[\d.,]*)?"
)
# Names of columns of ratios; and of numbers that are no dates.
RATIO = re.compile(
    r"(?<![a-z])ratio(?!n)|verh[\u00e4a]ltnis|rapport|sto[iy]?ch|equiv|\u00e4quiv|\beq\b"
    r"|\w ?: ?\w",
    re.IGNORECASE,
)
QUANTITY = re.compile(
    r"conc|konz|loading|beladung|dose|dosis|amount|menge|temp|pressure"
    r"|druck|\bph\b|mol|mass|volum|weight|gewicht",
    re.IGNORECASE,
)
# Names of columns that no number measures.
SUBSTANCES = re.compile(
    r"(catalyst|ligand|solvent|base|acid|additive|reagent|salt|metal|precursor|type"
    r"|operator|supplier)s?",
    re.IGNORECASE,
)
# Words that stand for no value, and signs; where a column has + too, - is its contrary.
UNKNOWN = frozenset("tbd t.b.d. unknown unbekannt inconnu - -- ? ?? / .".split())
# How spreadsheets show what they take for a day of a month, in some languages.
MONTHS = "jan feb f\u00e9v mar mrz m\u00e4r apr avr may mai jun jul aug sep okt oct nov"
MONTH = f"({MONTHS.replace(' ', '|')}|dec|dez)"
DAY = re.compile(rf"\d{{1,2}}[. -]+{MONTH}\.?|{MONTH}[ -]\d{{1,2}}", re.IGNORECASE)
# A remark behind a category: a word in brackets, or question marks.
REMARK = re.compile(r"\s+[(\[][^()\[\]]*[)\]]$|\s*\?+$")
# Blanks, but for those between digits, brackets, and hyphens between letters.
LOOSE = re.compile(r"(?<=[^\W\d_])[)\]]?-(?=[^\W\d_])|[()\[\]]|(?<!\d)\s+|\s+(?!\d)")
# What joins the parts of a category, in any order.
JOINED = re.compile(r"\s*[/+]\s*")
# Categories are compared up to so many; a letter is mistyped in names of so many, once
# in so many of the cells with the right one.
MOST_COMPARED, LONG_NAME, RARE = 100, 5, 0.25
# Short names of substances that differ in the order of two letters, or in one more.
SUBSTANCES_ALIKE = frozenset(
    "dcm dmc dce dec dme dem tea tae dipa dipea dppb dppbz".split()
)
# Na is sodium.
SODIUM = "Na"


def notes_on_columns(pool: Pool, as_text: Collection[str]) -> Iterator[str]:
    """Notes on all features, in their order."""
    num = len(pool)
    for note in notes_on_units(pool.text, [*pool.features, pool.cost_column or ""]):
        yield f"note: {note}."
    yield from _key_notes(pool)
    for spec in pool.table.columns:
        column = str(spec.label)
        if _counts_rows(pool, column):
            yield _count_note(pool, column)
        yield from _kelvin_notes(pool, column)
        yield from _spreadsheet_notes(pool, column)
        if _may_be_codes(pool, column):
            yield _code_note(pool, column)
        if column in pool.categories and column not in {*as_text, *pool.smiles}:
            yield from _order_notes(pool, column)
            yield from _unknown_notes(pool, column)
            yield from _twin_notes(pool, column)
            yield from _unit_notes(pool, column)
        num_kinds = len(pool.categories.get(column, ()))
        is_odd = num_kinds > FEW_CATEGORIES and 2 * num_kinds > num
        is_text = column in as_text or column in pool.smiles
        if not is_text and (is_odd or spec.is_odd(num)):
            yield _category_note(pool, column)


def _key_notes(pool: Pool) -> Iterator[str]:
    """A note on keys that differ in case or in zeros alone, which may be one."""
    first: dict[Hashable, int] = {}
    for row, key in enumerate(pool.row_of_key):
        twin = first.setdefault(spelling_form(key), row)
        if twin != row:
            yield (
                f"note: {pool.text.name}: the keys of {pool.name(twin)} and of "
                f"{pool.name(row)} are nearly the same, and name two rows. If they are "
                "one, leave one out."
            )
            return


def _category_note(pool: Pool, column: str) -> str:
    """A note on a column of text with a category in nearly each row."""
    cells = pool.text.columns[column]
    place = next((i for i, cell in enumerate(cells) if number(cell) is None), 0)
    return (
        f"note: {pool.text.name}, line {pool.text.lines[place]}, column "
        f"{short_repr(column)}: {short_repr(cells[place])} is no number; the column "
        f"was read as text, and has {len(pool.categories[column])} categories in "
        f"{len(pool)} rows, from which a model learns little. Write numbers (for "
        "dates, days), leave it out with --ignore, or declare it as --text."
    )


def _counts_rows(pool: Pool, column: str) -> bool:
    """Whether a feature has the values of a number of the row.

    It has the name too; or others vary as well, and it counts in the order of the file.
    """
    values, num = pool.features[column], len(pool)
    if isinstance(values, list) or num <= FEW_ROWS:
        return False
    is_named = bool(COUNTS.search(column))
    ordered = np.sort(values) if is_named else values
    if not (np.diff(ordered) == 1).all():
        return False
    if is_named:
        return bool(ordered[0] == ordered[0].round())
    others = (each for name, each in pool.features.items() if name != column)
    is_beside = any(len({*each}) > 1 for each in others)
    return is_beside and column not in pool.text.dates


def _count_note(pool: Pool, column: str) -> str:
    key = f"give it as --key {short_repr(column)}, or " * (pool.key is None)
    return (
        f"note: {pool.text.name}: column {short_repr(column)} counts the rows, and is "
        f"taken as a feature. If it is none, {key}leave it out with --ignore "
        f"{short_repr(column)}; if a spreadsheet has filled it down, correct it."
    )


def _order_notes(pool: Pool, column: str) -> Iterator[str]:
    """A note on a column of text whose cells are times, or have different units."""
    cells = {cell for cell in pool.text.columns[column] if not is_blank(cell)}
    if cells and all(map(A_TIME.fullmatch, cells)):
        yield (
            f"note: {pool.text.name}: the times in column {short_repr(column)}, such "
            f"as {short_repr(min(cells))}, were read as categories, whose order is "
            "lost. Write numbers of minutes or hours, or declare the column as --text."
        )
    elif cells and all(map(MARKED.fullmatch, cells)):
        odd = min(cell for cell in cells if number(cell) is None)
        yield (
            f"note: {pool.text.name}: cells of column {short_repr(column)}, such as "
            f"{short_repr(odd)}, were read as categories, whose order is lost. Where "
            "they are ranges, ratios or powers, write one number in each; if they are "
            "names, declare the column as --text."
        )
    if days := list(filter(DAY.fullmatch, pool.categories[column])):
        yield (
            f"note: {pool.text.name}: column {short_repr(column)} has "
            f"{short_list(days, 3)}, which spreadsheets make of texts such as 1-2 or "
            "MAR1. If they did, format the column as text, and write them anew."
        )
    if units := mixed_units(pool.text.columns[column]):
        yield (
            f"note: {pool.text.name}: numbers in column {short_repr(column)} have "
            f"different units, {short_list(units, 4)}; the column was read as "
            "categories, whose order is lost. Write all in one unit, or declare the "
            "column as --text."
        )


def _spreadsheet_notes(pool: Pool, column: str) -> Iterator[str]:
    """A note on times and dates of a workbook that may have been typed otherwise."""
    text, values = pool.text, pool.features[column]
    if not text.is_workbook or isinstance(values, list):
        return
    what = ""
    is_ratio = RATIO.search(column) is not None
    is_quantity = is_ratio or QUANTITY.search(column) or named_unit(column)
    if column in text.dates and is_quantity:
        first = text.typed[column].iat[0].strip()
        what = f"dates, such as {first}, which spreadsheets make of numbers such as 1.2"
    elif text.units.get(column) == "h" and (is_ratio or _are_ratios(values)):
        minutes = round(60 * values[0])
        first = f"{minutes // 60}:{minutes % 60:02}"
        what = f"times, such as {first}, which spreadsheets make of ratios such as 1:2"
    if what:
        yield (
            f"note: {text.name}: column {short_repr(column)} has {what}. If they did, "
            "format the column as text, and write them anew."
        )


def _are_ratios(hours: Matrix) -> bool:
    """Whether most of several times are an hour or more and a few minutes: 1:02."""
    minutes = np.round(60 * np.unique(hours))
    is_whole = np.isclose(60 * np.unique(hours), minutes, rtol=0, atol=1e-4)
    is_few = is_whole & (minutes >= 60) & np.isin(minutes % 60, range(1, 10))
    return len(minutes) > 1 and bool(2 * is_few.sum() > len(minutes))


def _kelvin_notes(pool: Pool, column: str) -> Iterator[str]:
    """A note on a column of numbers whose temperatures may be in two units."""
    values = pool.features[column]
    if not isinstance(values, list) and (odd := kelvin_among(values.tolist())):
        shown = ", ".join(f"{each:.6g}" for each in odd[:3])
        yield (
            f"note: {pool.text.name}: column {short_repr(column)} has {shown}, which "
            "are other numbers of it and 273. Temperatures in K among those in °C? "
            "They are taken as they are; write all in one unit."
        )


def _may_be_codes(pool: Pool, column: str) -> bool:
    """Whether numbers of a feature may be names.

    It has the name of a substance, and numbers 1, 2, 3, ...; or cells such as 0012, or
    2E3 among others that are written without an exponent.
    """
    values = pool.features[column]
    if isinstance(values, list):
        return False
    cells = pool.text.columns[column]
    if any(map(LEADING_ZERO.fullmatch, cells)):
        return True
    if 0 < sum(map(bool, map(WITH_EXPONENT.fullmatch, cells))) < len(cells):
        return all(map(CODE.fullmatch, cells))
    if not SUBSTANCES.fullmatch(column):
        return False
    kinds = np.unique(values)
    return len(kinds) > 2 and bool((np.diff(kinds) == 1).all() and kinds[0] in (0, 1))


def _code_note(pool: Pool, column: str) -> str:
    return (
        f"note: {pool.text.name}: column {short_repr(column)} is taken as a number. If "
        f"its numbers are codes, declare it as --text {short_repr(column)}."
    )


def _unknown_notes(pool: Pool, column: str) -> Iterator[str]:
    """A note on categories that may stand for no value."""
    kinds = pool.categories[column]
    found = [
        kind
        for kind in kinds
        if (is_blank(kind) and kind != SODIUM)
        or (kind.casefold() in UNKNOWN and "+" not in kinds)
    ]
    if found:
        num = sum(kind in found for kind in pool.text.columns[column])
        yield (
            f"note: {pool.text.name}: column {short_repr(column)} has "
            f"{short_list(found, 3)} in {num} rows, which are categories as the others "
            "are. If they stand for no value, write it, or a word such as none."
        )


def _twin_notes(pool: Pool, column: str) -> Iterator[str]:
    """A note on categories that may be one."""
    counts = Counter(pool.text.columns[column])
    if len(counts) > MOST_COMPARED:
        return
    pairs = [
        pair
        for pair in combinations(pool.categories[column], 2)
        if _alike(*pair, counts)
    ]
    if pairs:
        shown = [f"{short_repr(one)} and {short_repr(two)}" for one, two in pairs]
        yield (
            f"note: {pool.text.name}: column {short_repr(column)} has "
            f"{short_list(shown, 3, show=str)}, which are taken as two. If they are "
            "one, write both alike."
        )


def _alike(one: str, two: str, counts: Mapping[str, int]) -> bool:
    """Whether two may be one: but for a remark, a hyphen, an order or a letter."""
    bare = [spelling_form(REMARK.sub("", kind)) for kind in (one, two)]
    if bare[0] == bare[1] and bare[0] in map(spelling_form, (one, two)):
        return True
    tight = [spelling_form(LOOSE.sub("", kind)) for kind in (one, two)]
    if tight[0] == tight[1]:
        return True
    parts = [sorted(JOINED.split(kind.casefold())) for kind in (one, two)]
    if parts[0] == parts[1] and any(map(str.isalpha, parts[0][0] + parts[0][-1])):
        return True
    return _may_be_mistyped(one, two, counts)


def _may_be_mistyped(one: str, two: str, counts: Mapping[str, int]) -> bool:
    """Whether two differ in a letter, and one of them is rare.

    Where it is in one cell, the other may be in two. Then the letters are in another
    order, also in short names; or one is missing, in long names and in words.
    """
    rare, usual = sorted([counts[one], counts[two]])
    names = [one.casefold(), two.casefold()]
    slip, num = _slip(*names), sorted(map(len, names))
    if num[0] >= LONG_NAME and rare <= RARE * usual:
        return slip is not None
    if rare > 1 or usual < 2 or SUBSTANCES_ALIKE.issuperset(names):
        return False
    is_word = num[1] >= LONG_NAME and one[1:].islower() and two[1:].islower()
    is_missing = slip == "missing" and (is_word or num[0] >= LONG_NAME)
    return slip == "order" or is_missing


def _slip(one: str, two: str) -> Literal["missing", "other", "order"] | None:
    """The letter in which two names differ, or the order of two; None for more.

    The first letter tells methanol from ethanol; it is the same in both.
    """
    one, two = sorted([one, two], key=len)
    if one[:1] != two[:1] or one == two:
        return None
    start = next((i for i, x in enumerate(one) if x != two[i]), len(one))
    if one[start:] == two[start + 1 :]:
        return "missing" if two[start].isalpha() else None
    if one[start + 1 :] == two[start + 1 :]:
        return "other" if (two[start] + one[start]).isalpha() else None
    pair = one[start : start + 2]
    is_order = one[:start] + pair[::-1] + one[start + 2 :] == two
    return "order" if is_order and pair.isalpha() else None


def _unit_notes(pool: Pool, column: str) -> Iterator[str]:
    """A note on a column of units beside numbers."""
    if len(pool.categories) < len(pool.features):
        for note in note_on_unit_column(pool.text, column, pool.categories[column]):
            yield f"note: {note}."
