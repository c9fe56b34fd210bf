"""Checks that results are of the rows that their keys or features name.

Spreadsheets change cells: they drop zeros, round numbers and write dates anew. A result
that may be of another row than it seems is refused, with file, line and column.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
import torch
from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import near_hint, short_repr
from botorch_sparse.command_line.csv_cells import (
    DATE,
    cells_agree,
    decimals_and_digits,
    floats_of,
    half_unit,
    has_no_value,
    is_blank,
    is_missing,
    key_form,
    looks_like_date,
    number,
    says_failed,
    spelling_difference,
    spelling_form,
    spreadsheet_form,
    unit_of,
    with_point,
    without_unit,
)
from botorch_sparse.suggest.candidate_pool import Matrix, Pool
from botorch_sparse.suggest.csv_reader import TextTable
from botorch_sparse.suggest.outcome_options import kind_of
from botorch_sparse.suggest.written_numbers import UNIT_BEHIND

# A tenth of a column's different values has one digit less than the others by chance.
# Where more than this share is as short as a cell, the cell is not taken for rounded.
SHORT = 0.15
# Columns that the output adds, perhaps with other outcomes than now.
WRITTEN = re.compile("row|reason|predicted_(mean|sd)(_.*)?", re.DOTALL)
# Numbers that no spreadsheet writes so: it drops zeros at either end.
CHANGED = re.compile(r"0\d.*|\d*\.\d*0|\d+[eE]\d+")
# A day of a month as spreadsheets write it: in full, or with the month's name.
ISO_DAY = re.compile(r"\d{4}-(\d\d)-(\d\d)\b")
NAMED_DAY = re.compile(r"(\d{1,2})[. -]+([^\W\d_]{3})|([^\W\d_]{3})[ -](\d{1,2})")
MONTHS = {
    **{name: 1 + i for i, name in enumerate("jan feb mar apr may jun".split())},
    **{name: 7 + i for i, name in enumerate("jul aug sep oct nov dec".split())},
    **{"mrz": 3, "m\u00e4r": 3, "mai": 5, "okt": 10, "dez": 12},
}
# Among so many keys no similar one is looked for, which takes seconds.
MANY_KEYS = 100_000


def check_no_results(pool: Pool, ignored: Sequence[str]) -> None:
    """Check that candidates have no outcomes where no file has a result."""
    for column, outcome in zip(pool.outcome_columns, pool.outcomes, strict=True):
        cells = pool.text.columns.get(column, []) if column not in ignored else []
        told = (number(cell) is not None or says_failed(cell) for cell in cells)
        row = next((i for i, is_told in enumerate(told) if is_told), None)
        if row is None:
            continue
        reason = (
            f"{short_repr(cells[row])} is a result in the column of the "
            f"{kind_of(outcome)}, but no results are named, or they are empty; give "
            f"the file as results too (--results {pool.text.name}), or leave the "
            f"column out with --ignore {short_repr(column)}."
        )
        raise pool.text.error(row, column, reason)


def check_known_before(pool: Pool, ignored: Sequence[str], *, one_file: bool) -> None:
    """Check that no outcome of several is known of all candidates beforehand.

    A price, or a feature with a limit, would pass for a result of each row.
    """
    columns = pool.text.columns
    known = [
        name
        for name in pool.outcome_columns
        if name in columns and floats_of(columns[name]) is not None
    ]
    if len(known) == len(pool.outcomes):
        return
    for name in known:
        if one_file or name not in ignored:
            raise InputDataError(
                f"{pool.text.name} has a number in each row of {short_repr(name)}, but "
                "not of all outcomes: what is known before a measurement is none. "
                "Leave out the candidates beyond a limit yourself. If these are "
                "results, give them in a file of their own, with --ignore "
                f"{short_repr(name)}."
            )


def remark_columns(text: TextTable, pool: Pool) -> list[str]:
    """Columns of results from which nothing is learned, and which may have remarks.

    The candidates may have them too.
    """
    used = {pool.key, pool.cost_column, *pool.features, *pool.outcome_columns}
    return [x for x in text.columns if x not in used and not WRITTEN.fullmatch(x)]


def unused_columns(text: TextTable, pool: Pool) -> list[str]:
    """Columns of results that neither are the candidates' nor come from the output."""
    return [x for x in remark_columns(text, pool) if x not in pool.text.columns]


def check_renamed(text: TextTable, pool: Pool, ignored: Collection[str]) -> None:
    """Check that no column of results is a feature by another name.

    Results that go by a key would not be compared with it. Names differ in case, in
    blanks or in a unit at the end.
    """
    forms = {_plain(name): name for name in pool.features if name not in text.columns}
    for column in unused_columns(text, pool):
        name = forms.get(_plain(column))
        if name is not None and column not in ignored:
            raise InputDataError(
                f"{text.name}: column {short_repr(column)} is not used, and may be the "
                f"feature {short_repr(name)} of {pool.text.name}. If it is, give it "
                "this name, and its cells are compared with the row's; if not, give it "
                f"another one, or leave it out with --ignore {short_repr(column)}."
            )


def _plain(name: str) -> str:
    """The name of a column without its unit, case and blanks."""
    return "".join(UNIT_BEHIND.sub("", name).casefold().split()) or name


def check_keys(text: TextTable, rows: Sequence[int], pool: Pool) -> None:
    """Check results whose key is none of the pool's: they need features, or no value.

    Nor may a spreadsheet have changed the key.
    """
    _check_equal_keys(text, pool)
    unknown = [i for i, row in enumerate(rows) if row < 0]
    keys = text.columns[str(pool.key)]
    forms = {key_form(key): key for key in pool.row_of_key} if unknown else {}
    nowhere = f"{pool.text.name} has no row with this key"
    for i in unknown:
        if keys[i] in text.columns or keys[i] in pool.text.columns:
            reason = (
                "it is the name of a column, as in a second header; take the line out, "
                "and if another table begins there, give it as a file of its own."
            )
            raise text.error(i, str(pool.key), reason)
        meant = forms.get(key_form(keys[i])) or _written_as_date(keys[i], pool)
        if meant is not None and not _has_others(text, i, pool.row_of_key[meant], pool):
            reason = (
                f"{nowhere}, but one with {short_repr(meant)}. If a spreadsheet has "
                "changed the key, keep that column as text there; write the key as in "
                f"{pool.text.name}."
            )
            raise text.error(i, str(pool.key), reason)
    for i in unknown:
        cells = [text.columns[name][i] for name in pool.outcome_columns]
        is_silent = all(map(has_no_value, cells))
        if not is_silent and not pool.has_features(text.columns, i):
            near = near_hint(keys[i], pool.row_of_key) if len(pool) < MANY_KEYS else ""
            advice = (
                "correct the key; or if the row is gone from the candidates, keep its "
                "features in the results, and it counts as before"
            )
            raise unusable(text, i, pool, f"{advice}.{near}")


def _written_as_date(key: str, pool: Pool) -> str | None:
    """The key of the pool that spreadsheets write as this date: 1-7, or 7/1."""
    month, day = 0, 0
    if found := ISO_DAY.match(key):
        month, day = map(int, found.groups())
    elif found := NAMED_DAY.fullmatch(key):
        month = MONTHS.get((found[2] or found[3]).lower(), 0)
        day = int(found[1] or found[4])
    ways = [f"{a}{mark}{b}" for a, b in ((day, month), (month, day)) for mark in "-/."]
    return next((way for way in ways if way in pool.row_of_key), None)


def _check_equal_keys(text: TextTable, pool: Pool) -> None:
    """Check that no key may be another one that is the same number: 1.1 and 1.10.

    Where a key is written as no spreadsheet writes a number, none has changed the keys.
    """
    numbers = {key: key_form(key) for key in pool.row_of_key if number(key) is not None}
    if len({*numbers.values()}) == len(numbers):
        return
    typed = text.columns[str(pool.key)]
    keys = list(map(with_point, typed))
    if any(number(key) is not None and CHANGED.fullmatch(key) for key in keys):
        return
    counts = Counter(numbers.values())
    for i, key in enumerate(keys):
        if counts[numbers.get(key, "")] < 2:
            continue
        other = next(x for x in numbers if numbers[x] == numbers[key] and x != key)
        reason = (
            f"a spreadsheet writes {short_repr(other)}, another key of "
            f"{pool.text.name}, as {short_repr(typed[i])} too; give these rows keys "
            "that differ as numbers there and in the results, such as "
            f"{short_repr(f'R{other}')}."
        )
        raise text.error(i, str(pool.key), reason)


def _has_others(text: TextTable, i: int, row: int, pool: Pool) -> bool:
    """Whether a result has all features, and some differ from the row's."""
    return pool.has_features(text.columns, i) and not all(
        pool.agrees(text.columns[name][i], name, row) for name in pool.features
    )


def check_categories(text: TextTable, rows: Sequence[int], pool: Pool) -> None:
    """Check that results of no row write the pool's categories as it does.

    Others are categories of their own.
    """
    for i in (i for i, row in enumerate(rows) if row < 0):
        is_silent = all(has_no_value(text.columns[x][i]) for x in pool.outcome_columns)
        for name in () if is_silent else pool.forms:
            cell = text.columns[name][i]
            own = pool.forms[name].get(spelling_form(cell), cell)
            if own == cell or cell in pool.categories[name]:
                continue
            reason = (
                f"{short_repr(cell)} is {short_repr(own)} in {pool.text.name}"
                f"{spelling_difference(cell, own)}; write it as there, so that the "
                "result is one of its row."
            )
            raise text.error(i, name, reason)


def ignore_hint(name: str, pool: Pool) -> str:
    """Advice where results lack a feature, which may name the rows."""
    kinds = pool.categories.get(name, ())
    ways = []
    if len(kinds) == len(pool) > 1 and len(pool.features) > 1:
        ways.append(f"if it names rows, leave it out with --ignore {short_repr(name)}")
    if pool.key is None:
        ways.append(f"{'or' if ways else 'add it, or'} name rows by a --key")
    return f"; {', '.join(ways)}" if ways else ""


def unusable(text: TextTable, i: int, pool: Pool, advice: str) -> InputDataError:
    """The error for a result of no row of the pool that lacks features too."""
    column, reason = pool.unfit(text.columns, i) or (pool.outcome_columns[0], "")
    if column in pool.categories and column not in text.columns:
        reason += ignore_hint(column, pool)
    if pool.key is not None:
        reason = (
            f"{pool.text.name} has no row with this key, and the features of "
            f"{text.name} do not fit it either (column {short_repr(column)}: {reason})"
        )
        column = pool.key
    return text.error(i, column, f"{reason}; {advice}{'.' * advice[-1].isalpha()}")


def check_features(text: TextTable, rows: Sequence[int], pool: Pool) -> None:
    """Check that results have the features of the rows that their keys name.

    Cells may be rounded or missing, or have no letter and no digit.
    """
    for name in pool.features:
        for i, cell in enumerate(text.columns.get(name, ())):
            if rows[i] < 0 or is_blank(cell) or not any(map(str.isalnum, cell)):
                continue
            own = pool.text.columns[name][rows[i]]
            is_same = pool.agrees(cell, name, rows[i])
            if not is_same and not _may_agree(cell, own, name, pool):
                reason = (
                    f"{short_repr(cell)} is not {short_repr(own)}, which line "
                    f"{pool.text.lines[rows[i]]} of {pool.text.name} has for this key; "
                    "correct the key or the cell (an empty one is not compared), or "
                    "give the column of the results another name if it is not that "
                    "feature."
                )
                raise text.error(i, name, reason)


def _may_agree(cell: str, own: str, name: str, pool: Pool) -> bool:
    """Whether a cell may be the row's own one, with a unit or as another date.

    Spreadsheets write dates anew, also those that are texts here.
    """
    if name in pool.smiles:
        return False
    if name not in pool.forms:
        units = {unit_of(cell), pool.text.units.get(name)} - {None}
        is_date = name in pool.text.dates and looks_like_date(cell)
        is_same = len(units) < 2 and cells_agree(without_unit(cell), own)
        return is_date or is_same or is_missing(cell)
    is_known = spelling_form(cell) in pool.forms[name]
    return not is_known and all(map(DATE.fullmatch, (cell, own)))


def check_names(text: TextTable, rows: Sequence[int], pool: Pool) -> None:
    """Check that results have the names of the rows with their features.

    Names are columns that are no features, with another text in each row. A date that
    no row has is passed over: a spreadsheet writes it anew.
    """
    for name in pool.names:
        cells = pool.text.columns[name]
        known = set(map(spreadsheet_form, cells))
        for i, cell in enumerate(text.columns.get(name, ())):
            if rows[i] < 0 or is_missing(cell):
                continue
            form, own = spreadsheet_form(cell), cells[rows[i]]
            is_comparable = form in known or not DATE.fullmatch(cell)
            if is_comparable and form != spreadsheet_form(own):
                reason = (
                    f"it has {short_repr(cell)}, and the row with these features, "
                    f"{pool.name(rows[i])}, has {short_repr(own)}; name rows by --key "
                    f"{short_repr(name)}, or leave the column out with --ignore "
                    f"{short_repr(name)} if it names no rows."
                )
                raise text.error(i, name, reason)


def row_within_six_digits(text: TextTable, i: int, z: Matrix, pool: Pool) -> int:
    """The row of the pool that features `z` are of, to six digits; -1 for none.

    Raises:
        InputDataError: If several rows are as near.
    """
    index, point = pool.row_index, torch.from_numpy(z)
    rows = index.within(point, index.six_digits(point))
    if len(rows) > 1:
        which = " and ".join(map(pool.name, rows[:2]))
        raise InputDataError(
            f"{text.name}, line {text.lines[i]}: to six digits this is {which}; "
            "name the rows by a --key."
        )
    return rows[0] if rows else -1


def check_rounded(
    text: TextTable, unknown: Sequence[tuple[int, Matrix]], pool: Pool
) -> None:
    """Check that no result of no row of the pool looks like one of a row, rounded."""
    index, names = pool.row_index, list(pool.features)
    written = {
        names[j]: Counter(
            filter(None, map(decimals_and_digits, text.columns[names[j]]))
        )
        for j in (pool.values if unknown else ())
    }
    for i, z in unknown:
        point, scale = torch.from_numpy(z), np.full(len(z), np.inf)
        tolerance = index.six_digits(point)
        for j in pool.values:
            cell, fine = text.columns[names[j]][i], float(tolerance[j])
            if _may_be_rounded(cell, z[j], fine, j, written[names[j]], pool):
                # Ties come from both sides.
                tolerance[j] = scale[j] = half_unit(cell) * (1 - 1e-9)
        if np.isinf(scale).all() or not (rows := index.within(point, tolerance)):
            continue
        apart = np.abs(pool.matrix[rows] - z) / scale
        nearest = apart.max(axis=1).argmin()
        row, name = rows[nearest], names[int(apart[nearest].argmax())]
        reason = (
            f"no row of {pool.text.name} has {short_repr(text.columns[name][i])} and "
            f"the other features. The nearest one is line {pool.text.lines[row]}, with "
            f"{short_repr(pool.text.columns[name][row])}: if that was rounded, write "
            "all digits; if it was not, zeros behind it; or name rows by a --key."
        )
        raise text.error(i, name, reason)


def _may_be_rounded(
    cell: str,
    value: float,
    fine: float,
    j: int,
    written: Counter[tuple[int, int]],
    pool: Pool,
) -> bool:
    """Whether a cell of column `j` may be a number rounded to fewer than six digits.

    It is not if many cells of the pool's column are as short, if its value comes again
    and again there, or if its column of the results shows that zeros were dropped.
    """
    half = half_unit(cell)
    return not (
        half <= fine or _lost_zeros(cell, written) or _is_usual(value, half, j, pool)
    )


def _lost_zeros(cell: str, written: Counter[tuple[int, int]]) -> bool:
    """Whether zeros may have been dropped: of `k` digits, in one of 10^k cells."""
    decimals, digits = decimals_and_digits(cell) or (0, 0)
    longer = [a - decimals for a, b in written if a > decimals and b > digits]
    if not longer:
        return False
    num_short = sum(num for (a, _), num in written.items() if a <= decimals)
    expected = written.total() / 10 ** max(longer)
    return num_short <= 3 * expected + (max(longer) == 1)


def _is_usual(value: float, half: float, j: int, pool: Pool) -> bool:
    """Whether values as short as this one are usual in column `j` of the pool."""
    values, counts = pool.values[j]
    place = min(int(np.searchsorted(values, value)), len(values) - 1)
    if 2 * len(values) <= len(pool) and counts[place] > 1 and values[place] == value:
        return True
    decimals = -round(np.log10(2 * half))
    return pool.share_of_short(j, decimals) >= SHORT
