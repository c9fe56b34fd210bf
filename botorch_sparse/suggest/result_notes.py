"""Results that may mean something else: named, and taken as they are."""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product

import numpy as np
import torch

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line.csv_cells import (
    cells_agree,
    has_no_value,
    is_blank,
    number,
    spelling_form,
    without_unit,
)
from botorch_sparse.strategies import Objective
from botorch_sparse.suggest.candidate_pool import Pool
from botorch_sparse.suggest.csv_reader import TextTable
from botorch_sparse.suggest.other_units import are_fractions, beyond_per_cent
from botorch_sparse.suggest.result_checks import remark_columns, unused_columns
from botorch_sparse.suggest.results import Measurement, Results, what_is_told
from botorch_sparse.suggest.warning_words import is_flag, result_warnings
from botorch_sparse.suggest.written_numbers import (
    UNIT_BEHIND,
    named_unit,
    note_on_unit_column,
    notes_on_units,
)

# Names of columns of units, which may be single letters there; and of dilutions.
UNIT_NAME = re.compile(r"unit|einheit|unit\u00e9", re.IGNORECASE)
DILUTION = re.compile(r"\bdilut(ion|ed)|verd\u00fcnn", re.IGNORECASE)
A_DILUTION = re.compile(r"(\d+ ?[:/] ?)?\d+([.,]\d+)? ?(x|-?fold|-?fach)?")
# Results that two files have with other digits, and not by chance.
FEW_ALIKE = 3
# A feature is planned and measured to this share of its range, by one instrument.
NEAR = 0.05
# So many values, of so many kinds, come again in their order only if they are copied.
FEW_COPIED, FEW_KINDS = 4, 3
# By how many powers of ten a number is larger in another unit; and how many results of
# a file are compared.
POWERS, MOST_COMPARED = (-3, -2, -1, 1, 2, 3), 20


def notes_on_results(pool: Pool, results: Results) -> Iterator[str]:
    """Notes on files and their results, without a point at the end."""
    for text in results.texts:
        yield from notes_on_units(text, [*pool.features, *pool.outcome_columns])
        yield from _unit_column_notes(text, pool)
    yield from result_warnings(results, pool)
    yield from chain.from_iterable(
        _actual_notes(text, results, pool) for text in results.texts
    )
    yield from _key_notes(results.others, pool)
    yield from rounded_notes(results.told)
    yield from _corrected_notes(results, pool)
    yield from _copied_notes(results, pool)
    yield from _equal_outcome_notes(results, pool)
    yield from _per_cent_notes(results, pool)
    yield from chain.from_iterable(_twice_notes(text, pool) for text in results.texts)
    yield from chain.from_iterable(_lone_notes(text, pool) for text in results.texts)
    yield from _cost_notes(results.told, pool)


def _unit_column_notes(text: TextTable, pool: Pool) -> Iterator[str]:
    """Notes on columns that say for each result by what its number is to be scaled."""
    for column in remark_columns(text, pool):
        kinds = [*filter(None, dict.fromkeys(text.columns[column]))]
        if UNIT_NAME.search(column) or any(len(kind) > 1 for kind in kinds):
            yield from note_on_unit_column(text, column, kinds)
        is_dilution = DILUTION.search(column) and all(map(A_DILUTION.fullmatch, kinds))
        if is_dilution and len(kinds) > 1:
            yield (
                f"{text.name}: column {short_repr(column)} has different dilutions, "
                f"{short_list(kinds, 4)}, which are not used. Results are taken as "
                "they are; write them for one"
            )


def _actual_notes(text: TextTable, results: Results, pool: Pool) -> Iterator[str]:
    """Notes on columns with a feature's values in most results, and others in some.

    They may have what was planned as it was done.
    """
    told = [each for each in results.told if each.text is text and each.row >= 0]
    features = [name for name in pool.features if name not in pool.smiles]
    for column in unused_columns(text, pool):
        cells = [(m, m.get(column)) for m in told]
        texts = [(m, cell) for m, cell in cells if not is_blank(cell)]
        plain = [(m, without_unit(cell)) for m, cell in cells]
        numbers = [(m, cell) for m, cell in plain if number(cell) is not None]
        for name in features:
            known = texts if name in pool.categories else numbers
            how, odd = _not_as_planned(text, column, name, known, pool)
            own = pool.text.columns[name]
            shown = [f"{text.place(m.place)}: {x} for {own[m.row]}" for m, x in odd]
            if shown:
                yield (
                    f"{text.name}: column {short_repr(column)} has {how} of "
                    f"{short_repr(name)} except in {short_list(shown, 3, show=str)}. "
                    f"The values in {pool.text.name} count; if a row was measured "
                    "otherwise, give its result a row of its own"
                )


def _not_as_planned(
    text: TextTable,
    column: str,
    name: str,
    known: Sequence[tuple[Measurement, str]],
    pool: Pool,
) -> tuple[str, list[tuple[Measurement, str]]]:
    """How two thirds of a column's cells have a feature's values, and which have not.

    Equal ones are of several kinds, or the column is named after the feature. Numbers
    of a column with its name or its unit may be nearly the planned ones, as those of a
    thermometer are. None are returned where the column has other values.
    """
    plain = re.escape(UNIT_BEHIND.sub("", name))
    is_named = re.search(rf"(?<!\w){plain}(?!\w)", column) is not None
    own, rows = pool.features[name], [m.row for m, _ in known]
    cells = np.array([cell for _, cell in known])
    is_near = np.zeros(len(known), dtype=bool)
    if isinstance(own, list):
        same = [x.casefold() == own[m.row].casefold() for m, x in known]
        is_equal = np.array(same, dtype=bool)
    else:
        values, planned = cells.astype(np.float64), own[rows]
        is_equal = np.isclose(values, planned, atol=0)
        is_near = np.abs(values - planned) <= NEAR * np.ptp(own)
        unit = _unit(text, column)
        has_unit = unit is not None and unit == _unit(pool.text, name)
        is_near &= is_named or (has_unit and len({*planned[is_near]}) > 1)
    least = max(FEW_ALIKE, len(known)) * 2 / 3
    has_kinds = is_named or len({*cells[is_equal]}) >= FEW_KINDS
    if has_kinds and is_equal.sum() >= least:
        odd = [(m, x) for m, x in known if not pool.agrees(x, name, m.row)]
        return "the values", odd
    if is_near.sum() >= least:
        odd = [pair for pair, near in zip(known, is_near, strict=True) if not near]
        return "nearly the values", odd
    return "", []


def _unit(text: TextTable, column: str) -> str | None:
    """The unit of a column, in its cells or its name."""
    return text.units.get(column) or named_unit(column)


def remarks_of(pool: Pool, results: Results, row: int) -> str:
    """What columns that are not used say of a row's results, to go behind it.

    Numbers that are no flags, and what the candidates or all results have, are left
    out.

    Args:
        pool: The candidates.
        results: All results.
        row: A row of the pool; from its length on, one of the results beside it.
    """
    beside = len(results.rows) + row - len(pool)
    told = [m for m in results.told if m.row == row] or [results.told[beside]]
    said = dict[str, dict[str, None]]()
    for each in told:
        for column in remark_columns(each.text, pool):
            cell, cells = each.get(column), each.text.columns[column]
            listed = pool.text.columns.get(column, cells)
            is_copy = listed != cells and each.row >= 0 and listed[each.row] == cell
            is_same = len(cells) > 1 and len({*cells}) == 1
            is_text = number(cell) is None or is_flag(column, cells)
            if cell and is_text and not is_copy and not is_same:
                said.setdefault(column, {})[cell] = None
    shown = [f"{short_repr(x)} there: {short_list(y, 3)}" for x, y in said.items()]
    return "".join(f"; {each}" for each in shown)


def rounded_notes(told: Sequence[Measurement]) -> Iterator[str]:
    """Notes on files of which one has the other's results with fewer digits.

    An export may round, and what it holds again then counts as another measurement.
    """
    by_row: dict[tuple[int, int], dict[str, str]] = {}
    pairs, num_alike = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for each in told:
        for outcome, cell in enumerate(each.cells if each.row >= 0 else ()):
            if has_no_value(cell):
                continue
            before = by_row.setdefault((each.row, outcome), {})
            for name, other in before.items():
                if name != each.text.name:
                    pairs[name, each.text.name] += 1
                    num_alike[name, each.text.name] += cells_agree(cell, other)
            before.setdefault(each.text.name, cell)
    for (name, later), num in num_alike.items():
        if num >= FEW_ALIKE and 2 * num > pairs[name, later]:
            yield (
                f"{num} results of {later} are those of {name} with other digits. Each "
                "counts as another measurement; if they are the same ones, leave out "
                "one of the two"
            )


def _corrected_notes(results: Results, pool: Pool) -> Iterator[str]:
    """Notes on files that have most results of an earlier one again, and some anew.

    A table that is exported again as a whole may have values that were corrected.
    """
    for place, column in enumerate(pool.outcome_columns):
        files: dict[str, dict[Hashable, dict[str, Measurement]]] = {
            text.name: {} for text in results.texts
        }
        for each in (*results.told, *results.doubles):
            if not has_no_value(cell := each.get(column)):
                rows = files[each.text.name]
                rows.setdefault(what_is_told(each, pool), {})[cell] = each
        for (first, before), (later, after) in combinations(files.items(), 2):
            pairs = [
                (before[which], after[which]) for which in after if which in before
            ]
            again = [old for old, new in pairs if not _missing(old, new)]
            num_kinds = len({*chain.from_iterable(again)})
            if num_kinds < FEW_KINDS or 2 * len(again) <= len(pairs):
                continue
            told = [(_missing(old, new), _missing(new, old)) for old, new in pairs]
            shown = [
                f"{new[0].get(column)} ({new[0].text.place(new[0].place)}) for "
                f"{old[0].get(column)} (line {old[0].text.lines[old[0].place]} there)"
                for old, new in told
                if old and new and new[0].cells[place]  # and none of a third file
            ]
            if shown:
                yield (
                    f"{later} has {len(again)} results of {first} again, and another "
                    f"{short_repr(column)} in others: {short_list(shown, 3, show=str)}."
                    " Corrected? Both count; to keep one, take out the other line"
                )


def _missing(
    cells: Mapping[str, Measurement], others: Mapping[str, Measurement]
) -> list[Measurement]:
    """The measurements of a row whose value is none of some others."""
    return [
        each
        for cell, each in cells.items()
        if cell not in others and not any(cells_agree(cell, other) for other in others)
    ]


def _copied_notes(results: Results, pool: Pool) -> Iterator[str]:
    """Notes on files whose results are those of another file, of other rows."""
    for place, outcome in enumerate(pool.outcome_columns):
        columns = []
        for text in results.texts:
            told = [m for m in results.told if m.text is text]
            told = [m for m in told if not has_no_value(m.cells[place])]
            values = [float(m.cells[place]) for m in told]
            columns.append((text, values, [what_is_told(m, pool) for m in told]))
        for (text, values, rows), (later, same, others) in combinations(columns, 2):
            is_copied = (
                values == same
                and len(values) >= FEW_COPIED
                and len({*values}) >= FEW_KINDS
                and not any(x == y for x, y in zip(rows, others, strict=True))
            )
            if is_copied:
                yield (
                    f"the {len(values)} values of {short_repr(outcome)} in "
                    f"{later.name} are those of {text.name} in the same order, for "
                    "other rows. They are taken as they are; correct them if the "
                    "column was copied"
                )


def copied_campaign_notes(
    pool: Pool, results: Results, campaign: Results
) -> Iterator[str]:
    """A note on an earlier campaign whose results are all among those of this one."""
    mine, earlier = (
        Counter((_point(m, pool), *map(_as_number, m.cells)) for m in each.told)
        for each in (results, campaign)
    )
    if earlier <= mine:
        yield (
            f"the {len(campaign)} results of {campaign.name} are all in {results.name} "
            "too, and count twice. Leave it out of --related if it is a copy"
        )


def _point(measurement: Measurement, pool: Pool) -> tuple[Hashable, ...]:
    """The features of a result, numbers to six digits."""
    row, own = measurement.row, pool.text.columns
    cells = [own[x][row] if row >= 0 else measurement.get(x) for x in pool.features]
    values = map(_as_number, cells)
    return tuple(f"{x:.6g}" if isinstance(x, float) else x for x in values)


def _as_number(cell: str) -> float | str:
    """A cell as a number, if it is one."""
    value = number(cell)
    return cell if value is None else value


def _equal_outcome_notes(results: Results, pool: Pool) -> Iterator[str]:
    """Notes on two outcomes with the same values in all results of a file."""
    names = enumerate(pool.outcome_columns)
    for ((i, name), (j, other)), text in product(combinations(names, 2), results.texts):
        cells = [(m.cells[i], m.cells[j]) for m in results.told if m.text is text]
        both = [tuple(map(float, x)) for x in cells if not any(map(has_no_value, x))]
        is_same = len(both) >= FEW_COPIED and all(x == y for x, y in both)
        if is_same and len({*both}) > 1:
            yield (
                f"{short_repr(name)} and {short_repr(other)} have the same value in "
                f"all {len(both)} results of {text.name} with both. They are taken as "
                "they are; correct them if a column was copied"
            )


def _per_cent_notes(results: Results, pool: Pool) -> Iterator[str]:
    """Notes on outcomes whose name has %, and whose values may be none.

    Small values that are wanted small, such as impurities, are odd only beside another
    outcome of fractions.
    """
    fractions = dict[str, bool]()
    for place, outcome in enumerate(pool.outcomes):
        name = str(outcome.name)
        cells = [each.cells[place] for each in results.told]
        values = [float("nan" if has_no_value(cell) else cell) for cell in cells]
        is_shown = any(name in text.units for text in results.texts)
        if not is_shown and are_fractions(name, values):
            is_large = isinstance(outcome, Objective) and not outcome.minimize
            fractions[name] = is_large or getattr(outcome, "lower", None) is not None
        if odd := beyond_per_cent(name, values):
            told = [(f"{values[i]:.6g}", results.told[i]) for i in odd]
            shown = [f"{y} ({m.text.place(m.place)})" for y, m in told]
            yield (
                f"{short_repr(name)} is named as a per cent, and has "
                f"{short_list(shown, 3, show=str)}. They are taken as they are; "
                "correct them if they are mistakes"
            )
    if any(fractions.values()):
        yield (
            f"{short_list(fractions)} {'is' if len(fractions) < 2 else 'are'} named as "
            "a per cent, and nothing is above 1. Fractions? They are taken as they "
            "are; limits and predictions are in their unit"
        )


def _twice_notes(text: TextTable, pool: Pool) -> Iterator[str]:
    """A note on two or more lines, one below the other, that a file has twice.

    They are whole lines with values, which have a decimal or differ.
    """
    lines = [*zip(*text.columns.values(), strict=True)]
    outcomes = (text.columns[name] for name in pool.outcome_columns if lines)
    told = [*zip(*outcomes, strict=True)]
    first: dict[Hashable, int] = {}
    for i in range(len(text) - 1):
        one, two = told[i : i + 2]
        if all(map(has_no_value, one)) or all(map(has_no_value, two)):
            continue
        before = first.setdefault((lines[i], lines[i + 1]), i)
        if before + 1 < i and (one != two or "." in "".join(one)):
            num = 2
            most = min(len(text) - i, i - before)
            while num < most and lines[i + num] == lines[before + num]:
                num += 1
            yield (
                f"lines {text.lines[i]} to {text.lines[i + num - 1]} of {text.name} "
                f"are lines {text.lines[before]} to {text.lines[before + num - 1]} "
                "again. They count as repeated measurements; if they were copied, "
                "take them out"
            )
            return


def _key_notes(others: Sequence[Measurement], pool: Pool) -> Iterator[str]:
    """A note on results beside the list whose keys are nearly keys of it."""
    if pool.key is None or not others:
        return
    forms = {spelling_form(key): row for key, row in pool.row_of_key.items()}
    near = [each for each in others if spelling_form(each.get(pool.key)) in forms]
    if near:
        row = forms[spelling_form(near[0].get(pool.key))]
        yield (
            f"{len(near)} results of no row of {pool.text.name} have nearly the key of "
            f"one, such as {near[0].text.place(near[0].place)} of {near[0].text.name} "
            f"and {pool.name(row)}. They count as other rows; if they are the same "
            f"ones, write the keys as in {pool.text.name}"
        )


def _lone_notes(text: TextTable, pool: Pool) -> Iterator[str]:
    """A note on lines with a key alone that no row has, with rows below them."""
    if pool.key is None or pool.key not in text.columns:
        return
    others = text.typed.drop(columns=pool.key)
    is_alone = (others.apply(lambda cells: cells.str.strip()) == "").all(axis=1)
    keys = text.columns[pool.key]
    odd = [i for i, x in enumerate(is_alone) if x and keys[i] not in pool.row_of_key]
    if odd and (num := len(text) - 1 - odd[0]):
        yield (
            f"{text.name}, line {text.lines[odd[0]]}, has {short_repr(keys[odd[0]])} "
            f"alone, which names no row of {pool.text.name}; {num} of the rows that "
            "count stand below it. Take them out if they are no results"
        )


def _cost_notes(told: Sequence[Measurement], pool: Pool) -> Iterator[str]:
    """A note on results of rows that have another cost than the list."""
    if pool.cost is None or pool.cost_column is None:
        return
    own, odd = pool.text.columns[pool.cost_column], list[Measurement]()
    for each in told:
        cell = without_unit(each.get(pool.cost_column))
        if each.row >= 0 and number(cell) is not None:
            odd += [each] * (not cells_agree(cell, own[each.row]))
    if odd:
        cell = short_repr(odd[0].get(pool.cost_column))
        yield (
            f"{len(odd)} results have another {short_repr(pool.cost_column)} than "
            f"{pool.text.name}, such as {cell} and not {own[odd[0].row]} in "
            f"{odd[0].text.place(odd[0].place)} of {odd[0].text.name}; the cost in "
            f"{pool.text.name} counts"
        )


def beside_notes(pool: Pool, results: Results) -> Iterator[str]:
    """Numbers of results beside the list that may be in another unit.

    In a file they are all below or above those of the list, or most results are rows of
    it but for a power of ten in one column.
    """
    for text in results.texts:
        of_file = [each for each in results.told if each.text is text]
        told = [each for each in of_file if each.row < 0]
        if len(told) < 2:
            continue
        file = f" of {text.name}" * (not results.is_one)
        yield from _power_notes(told[:MOST_COMPARED], file, pool)
        if len(told) < len(of_file):
            continue
        for name, own in pool.features.items():
            if isinstance(own, list):
                continue
            values = np.array([each.get(name) for each in told], dtype=np.float64)
            if values.max() < own.min() or values.min() > own.max():
                yield (
                    f"none of the {len(told)} results{file} is in {pool.text.name}: "
                    f"{short_repr(name)} is from {values.min():.6g} to "
                    f"{values.max():.6g} in the results, and from {own.min():.6g} to "
                    f"{own.max():.6g} there. Is it in another unit?"
                )


def _power_notes(told: Sequence[Measurement], file: str, pool: Pool) -> Iterator[str]:
    """A note on a column that makes most results of no row ones, by a power of ten."""
    cells = {name: [each.get(name) for each in told] for name in pool.features}
    fit, points = pool.encode(cells, range(len(told)))
    index = pool.row_index
    for place in pool.values:
        for power in POWERS:
            scaled = torch.from_numpy(points.copy())
            scaled[:, place] *= 10.0**power
            found = [bool(index.within(x, index.six_digits(x))) for x in scaled]
            if sum(found) < 2 or 2 * sum(found) <= len(told):
                continue
            name = [*pool.features][place]
            first = fit[found.index(True)]
            yield (
                f"results{file} would be rows of {pool.text.name} if "
                f"{short_repr(name)} were {10 ** abs(power)} times as "
                f"{'large' if power > 0 else 'small'}, such as that in "
                f"{told[first].text.place(told[first].place)}. Is it in another unit?"
            )
