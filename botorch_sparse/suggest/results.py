"""Measurements so far, from files: of rows of the pool, and beside them."""

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line.csv_cells import (
    FAILED,
    has_no_value,
    is_missing,
    marks_hint,
    number,
)
from botorch_sparse.suggest.candidate_pool import (
    Matrix,
    Pool,
    check_molecules,
    check_summaries,
)
from botorch_sparse.suggest.csv_reader import TextTable, read_table
from botorch_sparse.suggest.outcome_options import kind_of
from botorch_sparse.suggest.result_checks import (
    check_categories,
    check_features,
    check_keys,
    check_names,
    check_renamed,
    check_rounded,
    ignore_hint,
    row_within_six_digits,
)
from botorch_sparse.suggest.written_numbers import (
    check_marks,
    check_one_unit,
    check_points_beside_commas,
    check_units,
    check_units_in_all,
)

# A number that an instrument gives as a limit, and one with its deviation.
LIMIT = re.compile(r"(?:[<>~\u2264\u2265\u2248]=?|ca\.?)\s*(-?\d+([.,]\d+)?)\D*")
DEVIATING = re.compile(r"(-?\d+([.,]\d+)?)\s*(\u00b1|\+/?-)\s*\d+([.,]\d+)?\D*")
# Two numbers in one cell.
TWO_NUMBERS = re.compile(r"-?\d+([.,]\d+)?[\s;/]+-?\d+([.,]\d+)?\D*")


@dataclass(frozen=True, eq=False)
class Measurement:
    """One result of a file.

    Attributes:
        text: The file.
        place: Its row there.
        row: Its row of the pool, -1 for none.
        cells: The `k` cells of the outcomes.
        takes_empty: Whether the file may have rows without a value.
    """

    text: TextTable
    place: int
    row: int
    cells: tuple[str, ...]
    takes_empty: bool

    @property
    def is_empty(self) -> bool:
        """Whether no outcome has a value, nor the word for a failure."""
        return all(map(is_missing, self.cells))

    @property
    def has_no_value(self) -> bool:
        """Whether no outcome has a value."""
        return all(map(has_no_value, self.cells))

    def get(self, column: str) -> str:
        """A cell; empty where there is no such column."""
        return (
            self.text.columns[column][self.place] if column in self.text.columns else ""
        )

    def error(self, column: str, reason: str) -> InputDataError:
        """An error that names file, line, key and column, to be raised."""
        return self.text.error(self.place, column, reason)


@dataclass(frozen=True)
class Results:
    """Measurements in the order of their files: of rows of the pool, and others.

    A laboratory may take used-up rows out of the pool. Their measurements count as
    before, if the file has their features.

    Attributes:
        name: The files in messages.
        rows: `n` rows of the pool, repeats allowed.
        values: `n x k` values of the outcomes, NaN for what was not measured.
        failed: Rows whose measurement failed.
        points: The features of `p` measurements beside the pool, as cells by name.
        point_values: `p x k` values of the outcomes there.
        beside: The same `p` measurements in messages.
        silent: Failed results of no row of the pool, in messages.
        doubles: Results that an earlier file has too, without their values.
        others: All results that are of no row of the pool.
        renamed: All results of rows by their features, under keys that no row has.
        lines: The `n` measurements of rows, in messages.
        point_costs: Costs of the `p` measurements beside the pool; None if unknown.
        silent_costs: Costs of the failed results of no row of the pool, likewise.
        order: The `n + p` places of `rows` and then `points`, as they stand in the
            files; None for that order.
        is_one: Whether there is one file at most, which messages need not name.
        unknown: Results of an earlier campaign with a category that no candidate has.
        texts: The files.
        told: The `n` measurements of rows, and then the `p` others.
    """

    name: str
    rows: list[int] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    points: list[dict[str, str]] = field(default_factory=list)
    point_values: list[list[float]] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    doubles: list[Measurement] = field(default_factory=list)
    others: list[Measurement] = field(default_factory=list)
    renamed: list[Measurement] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    point_costs: list[float | None] = field(default_factory=list)
    silent_costs: list[float | None] = field(default_factory=list)
    is_one: bool = True
    unknown: list[Measurement] = field(default_factory=list)
    texts: Sequence[TextTable] = ()
    told: Sequence[Measurement] = ()
    order: list[int] | None = None

    def __len__(self) -> int:
        return len(self.values) + len(self.point_values)

    @property
    def file_order(self) -> list[int]:
        """The places of `rows` and then `points`, as they stand in the files."""
        return [*range(len(self))] if self.order is None else self.order

    @property
    def outcome_values(self) -> Matrix:
        """All `n + p x k` values, as they stand in the files."""
        every = [*self.values, *self.point_values]
        return np.array(every, dtype=np.float64)[self.file_order]

    @property
    def only_failed(self) -> list[int]:
        """The rows that failed and have no value elsewhere, ascending."""
        return sorted({*self.failed} - {*self.rows})

    def costs_beside(self, cost: Matrix) -> list[float]:
        """Costs of the `p` measurements beside the pool; unknown ones have its mean."""
        return _known_or_mean(self.point_costs, cost)

    def cost_of_failures(self, cost: Matrix) -> float:
        """What failed measurements cost together, repeats of measured rows included."""
        of_rows = float(cost[self.failed].sum())
        return of_rows + sum(_known_or_mean(self.silent_costs, cost))


def _known_or_mean(costs: Sequence[float | None], cost: Matrix) -> list[float]:
    """Costs of which unknown ones are the mean of the pool's."""
    mean = float(cost.mean())
    return [mean if each is None else each for each in costs]


def read_results(
    paths: Sequence[Path],
    pool: Pool,
    *,
    skip_empty: bool = False,
    candidates: Path | None = None,
    waiting: Collection[int] = (),
    ignored: Collection[str] = (),
    is_related: bool = False,
) -> Results:
    """The measurements so far; none if no file is named, or only empty ones.

    A measurement failed if its target is the word `failed`, and with `skip_empty` also
    if it has no value. Else rows without a value have not been measured yet, where they
    are in the file of the `candidates`, were proposed before (`waiting`), have a value
    elsewhere, or are not in the pool. A row with some of several outcomes was measured;
    the others may come later. A file that `is_related` is of another campaign: where it
    has all features none of its results is of a row, and of several outcomes it may
    lack some.

    Raises:
        InputDataError: If a file is not there, or none of it can be used.
    """
    texts: list[TextTable] = []
    given: list[Measurement] = []
    of_pool = [name for name in pool.features if name not in pool.categories]
    of_pool += [pool.cost_column or ""]
    numbers = [*of_pool, *pool.outcome_columns]
    option = "--related" if is_related else "--results"
    for path in paths:
        if not path.exists():
            raise InputDataError(
                f"There is no file {str(path)!r} for {option}; check its name, or "
                f"leave {option} out{' for a first batch' * (not is_related)}."
            )
        unitless = pool.text.columns.keys() - pool.text.units.keys()
        unitless -= {*pool.outcome_columns, *pool.text.dates}
        text = read_table(
            path,
            key=pool.key,
            decimal=pool.text.decimal,
            unitless=unitless,
            numeric=pool.outcome_columns,
            may_be_dates=pool.text.dates.__contains__,
            may_have_commas=numbers.__contains__,
        )
        if is_related:
            text = _with_empty_outcomes(text, pool)
        check_units(text, [pool.text, *texts], [*pool.features, *pool.outcome_columns])
        if pool.key is not None:
            check_renamed(text, pool, ignored)
        used = [pool.key, pool.cost_column, *pool.features, *pool.outcome_columns]
        text.check_cells(used)
        texts.append(text)
        if texts[-1].columns:
            is_one_file = candidates is not None and path.samefile(candidates)
            is_apart = is_related and pool.features.keys() <= text.columns.keys()
            given += _measurements(
                texts[-1], pool, is_one_file, skip_empty, is_apart=is_apart
            )
    check_units_in_all(texts, pool.outcome_columns)
    check_points_beside_commas([(pool.text, of_pool), *((x, numbers) for x in texts)])
    told = _with_values(given, pool, waiting)
    kept, doubles = _counted_once(told, pool)
    return _sorted_out(texts, kept, doubles, pool)


def read_related(paths: Sequence[Path], pool: Pool) -> list[Results]:
    """The results of earlier campaigns, a file each.

    Keys may have been others there: they name rows in a file without all features
    alone. Measurements without a value say nothing, nor do categories that no candidate
    has: these are left out, and only `unknown` has them.

    Raises:
        InputDataError: If a file is not there, or cannot be used.
    """
    if paths and pool.smiles:
        raise InputDataError("--related takes no --smiles; leave one of them out.")
    campaigns = list[Results]()
    for path in paths:
        every = read_results([path], pool, skip_empty=True, is_related=True)
        columns = {name: [x[name] for x in every.points] for name in pool.features}
        known, _ = pool.encode(columns, range(len(every.points)))
        num, total = len(every.rows), len(every)
        kept = [*range(num), *(num + place for place in known)]
        place_of = {place: i for i, place in enumerate(kept)}
        campaign = replace(
            every,
            points=[every.points[place] for place in known],
            point_values=[every.point_values[place] for place in known],
            beside=[every.beside[place] for place in known],
            others=[],  # their keys name no rows
            unknown=[every.told[i] for i in range(total) if i not in place_of],
            told=[every.told[i] for i in kept],
            order=[place_of[i] for i in every.file_order if i in place_of],
        )
        if not len(campaign):
            why = " whose categories a candidate has" if len(every) else ""
            raise InputDataError(
                f"{every.name} has no results{why}, for --related; leave it out."
            )
        campaigns.append(campaign)
    return campaigns


def _with_empty_outcomes(text: TextTable, pool: Pool) -> TextTable:
    """A file with empty columns for outcomes that it lacks, if it has some of them."""
    missing = [name for name in pool.outcome_columns if name not in text.columns]
    if len(missing) == len(pool.outcomes):
        return text
    empty = {name: [""] * len(text) for name in missing}
    columns = {**text.columns, **empty}
    return replace(text, columns=columns, typed=text.typed.assign(**empty))


def _measurements(
    text: TextTable,
    pool: Pool,
    is_one_file: bool,
    skip_empty: bool,
    *,
    is_apart: bool = False,
) -> list[Measurement]:
    """The results in a file, which may be the file of the candidates.

    Those of one that `is_apart` are of no row.
    """
    for outcome in pool.outcomes:
        text.need([str(outcome.name)], f"the --{kind_of(outcome)}")
        check_marks(text, str(outcome.name))
        check_one_unit(text, str(outcome.name))
    if is_one_file:
        rows = list(range(len(text)))
    elif is_apart or pool.key is None:
        _check_cells(text, pool)
        rows = [-1] * len(text) if is_apart else _rows_by_features(text, pool)
        used = {*pool.features, *pool.outcome_columns}
        _check_others(text, [name for name in text.columns if name not in used], rows)
    else:
        text.need([pool.key], "the --key")
        rows = [pool.row_of_key.get(cell, -1) for cell in text.texts(pool.key)]
        _check_others(text, [pool.key], rows)
        check_keys(text, rows, pool)
        check_features(text, rows, pool)
        rows = _with_equal_features(text, rows, pool)
    check_categories(text, rows, pool)
    cells = zip(*(text.columns[name] for name in pool.outcome_columns), strict=True)
    given = [
        Measurement(text, place, row, each, skip_empty or is_one_file)
        for place, (row, each) in enumerate(zip(rows, cells, strict=True))
    ]
    return [each for each in given if not (is_one_file and each.is_empty)]


def _check_others(text: TextTable, columns: list[str], rows: Sequence[int]) -> None:
    """Check that results of no row of the pool sum up no others."""
    check_summaries(text, columns, [i for i, row in enumerate(rows) if row < 0])


def _check_cells(text: TextTable, pool: Pool) -> None:
    """Check that all features have a value of their kind in each result."""
    for name in pool.features:
        text.need([name], f"which {pool.text.name} has{ignore_hint(name, pool)}")
    for name in pool.features:
        text.texts(name) if name in pool.categories else text.numbers(name)
    check_molecules(text, pool.smiles)


def _rows_by_features(text: TextTable, pool: Pool) -> list[int]:
    """The rows of the pool with the features of the results, to six digits; or -1."""
    rows, unknown = [-1] * len(text), []
    fit, points = pool.encode(text.columns, range(len(text)))
    for i, z, row in zip(fit, points, pool.rows_with(points), strict=True):
        rows[i] = row if row >= 0 else row_within_six_digits(text, i, z, pool)
        unknown += [(i, z)] if rows[i] < 0 else []
    check_rounded(text, unknown, pool)
    check_names(text, rows, pool)
    return rows


def _with_equal_features(text: TextTable, rows: Sequence[int], pool: Pool) -> list[int]:
    """The rows of results; under a key that no row has, one with the same features.

    They may be equal to six digits alone, where they are those of a single row.
    """
    found = [*rows]
    unknown = [i for i, row in enumerate(rows) if row < 0]
    fit, points = pool.encode(text.columns, unknown)
    if not fit:
        return found  # in a long pool an index takes time
    index = pool.row_index
    for i, z, row in zip(fit, points, pool.rows_with(points), strict=True):
        point = torch.from_numpy(z)
        near = [row] if row >= 0 else index.within(point, index.six_digits(point))
        found[i] = near[0] if len(near) == 1 else -1
    return found


def _with_values(
    given: Sequence[Measurement], pool: Pool, waiting: Collection[int]
) -> list[Measurement]:
    """The results that are not still to come."""
    may_be_empty = {-1, *waiting, *(m.row for m in given if not m.is_empty)}
    told = []
    for each in given:
        if not each.is_empty or each.takes_empty:
            told.append(each)
        elif each.row not in may_be_empty:
            cell, others = each.cells[0], pool.outcome_columns[1:]
            start = f"{short_repr(cell)} is no number" if cell else "the cell is empty"
            start += f", as in {short_list(others)}" if others else ""
            raise each.error(
                pool.outcome_columns[0],
                f"{start}; fill it in, or leave the row out, if it is measured later. "
                "Rows that were proposed with --state FILE may be empty with that "
                "--state: they wait on. If the measurement failed, write "
                f"{FAILED}, or call with --skip-empty for all empty cells: then the "
                "row is not proposed again.",
            )
    return told


def what_is_told(each: Measurement, pool: Pool) -> Hashable:
    """The row of the pool that a result names; for another one its key and features."""
    names = [*pool.features, *([] if pool.key is None else [pool.key])]
    is_named = each.row >= 0 and not _has_other_key(each, pool)
    return each.row if is_named else tuple(map(each.get, names))


def _has_other_key(each: Measurement, pool: Pool) -> bool:
    """Whether a result has a key that no row has."""
    return pool.key is not None and each.get(pool.key) not in pool.row_of_key


def _counted_once(
    told: Sequence[Measurement], pool: Pool
) -> tuple[list[Measurement], list[Measurement]]:
    """The results, and those left out as an earlier file has the row and value.

    An export may hold all results of earlier exports, and further outcomes. Repeats in
    one file are new measurements: of each row and value there are as many as in the
    file with most.
    """
    counts: dict[Hashable, Counter[int]] = {}

    def is_new(what: Hashable, file: TextTable) -> bool:
        """Whether there are not as many in an earlier file."""
        of_files = counts.setdefault(what, Counter())
        of_files[id(file)] += 1
        before = (num for other, num in of_files.items() if other != id(file))
        return of_files[id(file)] > max(before, default=0)

    kept, doubles = [], []
    for each in told:
        which = what_is_told(each, pool)
        cells = tuple(
            cell if has_no_value(cell) or is_new((which, i, cell), each.text) else ""
            for i, cell in enumerate(each.cells)
        )
        is_failure = each.has_no_value and is_new((which, FAILED), each.text)
        new = replace(each, cells=cells)
        if is_failure or not new.has_no_value:
            kept.append(new)
        else:
            doubles.append(new)
    return kept, doubles


def _sorted_out(
    texts: Sequence[TextTable],
    kept: Sequence[Measurement],
    doubles: list[Measurement],
    pool: Pool,
) -> Results:
    """The results by what they are of."""
    is_one = len(texts) < 2
    of_rows = [m for m in kept if m.row >= 0]
    others = [m for m in kept if m.row < 0]
    beside = [m for m in others if not m.has_no_value]
    silent = [m for m in others if m.has_no_value]
    inside = [m for m in of_rows if not m.has_no_value]
    for each in beside:
        for name in pool.features.keys() - pool.categories.keys():
            each.text.check_point(each.place, name)

    def places(which: Sequence[Measurement]) -> list[str]:
        file = [f" of {m.text.name}" * (not is_one) for m in which]
        return [m.text.place(m.place) + of for m, of in zip(which, file, strict=True)]

    return Results(
        ", ".join(text.name for text in texts) or "the results",
        rows=[m.row for m in inside],
        values=[_values(m, pool) for m in inside],
        lines=places(inside),
        point_costs=[_cost(m, pool) for m in beside],
        failed=[m.row for m in of_rows if m.has_no_value],
        points=[{name: m.get(name) for name in pool.features} for m in beside],
        point_values=[_values(m, pool) for m in beside],
        beside=places(beside),
        silent=places(silent),
        silent_costs=[_cost(m, pool) for m in silent],
        doubles=doubles,
        others=others,
        renamed=[m for m in of_rows if _has_other_key(m, pool)],
        is_one=is_one,
        texts=texts,
        told=[*inside, *beside],
        order=_file_order(kept, [*inside, *beside]),
    )


def _cost(measurement: Measurement, pool: Pool) -> float | None:
    """What a measurement cost, where its file says so."""
    cost = number(measurement.get(pool.cost_column or ""))
    return cost if cost is not None and cost > 0 else None


def _file_order(kept: Sequence[Measurement], told: Sequence[Measurement]) -> list[int]:
    """The places in `told` of its measurements, in the order of `kept`."""
    place = {id(each): i for i, each in enumerate(told)}
    return [place[id(each)] for each in kept if id(each) in place]


def _values(measurement: Measurement, pool: Pool) -> list[float]:
    """The outcomes as numbers, NaN where there is none."""
    cells = zip(pool.outcome_columns, measurement.cells, strict=True)
    return [
        math.nan if has_no_value(cell) else _value(measurement, column, cell)
        for column, cell in cells
    ]


def _value(measurement: Measurement, column: str, cell: str) -> float:
    """An outcome as a number."""
    if (value := number(cell)) is not None:
        measurement.text.check_point(measurement.place, column)
        return value
    others = measurement.text.columns[column]
    advice = (
        "; write a number, where nothing was found 0 or the limit of detection; or "
        f"{FAILED} if the measurement failed, so that the row is not proposed again; "
        "or leave the row out (where candidates and results are one file, leave the "
        "cell empty) until there is one"
    )
    if found := LIMIT.fullmatch(cell):
        advice = f"; write the number alone, for a limit the limit itself: {found[1]}"
    elif found := DEVIATING.fullmatch(cell):
        advice = f"; write the number alone: {found[1]}"
    elif TWO_NUMBERS.fullmatch(cell):
        advice = "; write one number, and give each measurement a line of its own"
    reason = f"{short_repr(cell)} is no number{marks_hint(cell, others) or advice}."
    raise measurement.error(column, reason)
