"""What is said of files that were read without an error, and of the next rows."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import pandas as pd

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line.csv_cells import looks_like_date, number, spelling_form
from botorch_sparse.strategies import History, Objective
from botorch_sparse.suggest.candidate_pool import Matrix, Pool
from botorch_sparse.suggest.column_notes import notes_on_columns
from botorch_sparse.suggest.csv_reader import TextTable
from botorch_sparse.suggest.odd_values import notes_on, notes_on_outcome
from botorch_sparse.suggest.outcome_options import Outcome, kind_of
from botorch_sparse.suggest.proposed_rows import ProposedRows
from botorch_sparse.suggest.result_checks import unused_columns
from botorch_sparse.suggest.result_notes import (
    beside_notes,
    copied_campaign_notes,
    notes_on_results,
    remarks_of,
)
from botorch_sparse.suggest.results import Results
from botorch_sparse.suggest.selection import Selection

# Columns that are printed as they were read, at most.
MAX_COLUMNS = 30
# Categories of a column that are printed, at most.
MAX_KINDS = 12
# Columns of candidates whose odd values are named, at most.
MAX_ODD = 3
# Groups of rows with the same features that are named, at most.
MAX_GROUPS = 3
# Rows of a front that are printed at most.
MAX_FRONT = 20
# A word of a remark.
WORD = re.compile(r"[^\W\d_]{3,}")
# How the line of a row of the front begins.
FRONT_ROW = "front: "


@dataclass(frozen=True)
class Summary:
    """What was read, found and proposed, in lines.

    Attributes:
        columns: How columns were read, and which of them may mean something else.
        notes: On rows; why none is proposed.
        best: The best row so far, or the front.
        count: How many rows are what.
    """

    columns: list[str]
    notes: list[str]
    best: list[str]
    count: str

    @property
    def lines(self) -> list[str]:
        """All lines, as they are printed."""
        return [*self.columns, *self.notes, *self.best, self.count]


def column_lines(
    pool: Pool,
    as_text: Collection[str],
    ignored: Collection[str] = (),
    *,
    one_file: bool,
) -> Iterator[str]:
    """How columns were read, and which of them may mean something else."""
    name = pool.text.name
    yield from _read_lines(pool, ignored)
    for target, outcome in zip(pool.outcome_columns, pool.outcomes, strict=True):
        if target in pool.text.columns.keys() - {*ignored} and not one_file:
            yield (
                f"note: the {kind_of(outcome)} {short_repr(target)} is also a column "
                f"of {name}; it is ignored there."
            )
    if pool.twins:
        yield _twins_note(pool)
    for column, reason in pool.left_out.items():
        yield f"note: {name}: column {short_repr(column)} is left out: it {reason}."
    yield from notes_on_columns(pool, as_text)


def _read_lines(pool: Pool, ignored: Collection[str]) -> Iterator[str]:
    """How the file and each column was read, a line each; many features in one."""
    yield from _file_lines(pool.text, [pool.key or ""])
    if pool.key is not None:
        yield f"read: {short_repr(pool.key)}: names the rows (--key)."
    if pool.cost is not None and pool.cost_column is not None:
        what = _range(pool.cost.tolist(), pool.cost_column, [pool.text], "in all rows")
        yield f"read: {short_repr(pool.cost_column)}: the cost, {what}."
    for column in [*pool.features][:MAX_COLUMNS]:
        yield f"read: {short_repr(column)}: {_what_was_read(pool, column)}."
    if (more := len(pool.features) - MAX_COLUMNS) > 0:
        yield f"read: and {more} more features."
    if ignored:
        shown = [_unused(pool.text, name) for name in ignored]
        yield f"read: {short_list(shown, show=str)}: left out (--ignore)."


def _file_lines(text: TextTable, columns: Iterable[str]) -> Iterator[str]:
    """How a file was read, where that is no matter of course.

    Args:
        text: The file.
        columns: Those in which a colour may say that a row does not count.
    """
    for note in text.notes:
        yield f"read: {text.name}: {note}."
    for note in text.unread:
        yield f"note: {text.name}: {note}."
    coloured = [*chain(*(text.coloured.get(column, ()) for column in columns))]
    if coloured:
        yield (
            f"note: {text.name}: cells with a colour of their own count as the others: "
            f"{short_list(coloured, 5)}; take their rows out if the colour says that "
            "they are not to count."
        )


def _what_was_read(pool: Pool, column: str) -> str:
    """The kind of a feature: its categories, or its numbers' range."""
    values, text = pool.features[column], pool.text
    if isinstance(values, list):
        kinds = pool.categories[column]
        if column in pool.smiles:
            return f"{len(kinds)} molecules, {short_list(kinds, 4)}"
        return f"{len(kinds)} categories, {short_list(kinds, MAX_KINDS)}"
    if column in text.dates:
        first, last = text.typed[column].iloc[[values.argmin(), values.argmax()]]
        return f"dates from {first.strip()} to {last.strip()}, as days"
    return _range(values.tolist(), column, [text], "in all rows")


def _range(
    values: Sequence[float], column: str, texts: Sequence[TextTable], all_rows: str
) -> str:
    """The range of the numbers in a column of some files, with their unit."""
    low, high = np.nanmin(values), np.nanmax(values)
    units = [f" {text.units[column]}" for text in texts if column in text.units]
    unit = next(iter(units), "")
    marks = " (commas are decimal marks)" * any(column in x.commas for x in texts)
    if low < high:
        return f"numbers from {low:.6g} to {high:.6g}{unit}{marks}"
    return f"the number {low:.6g}{unit} {all_rows}{marks}"


def result_lines(pool: Pool, results: Results) -> Iterator[str]:
    """How the outcomes were read, and which values may be mistakes."""
    used = [pool.key or "", *pool.outcome_columns]
    for text in results.texts:
        yield from _file_lines(text, used)
    values = results.outcome_values
    for column, outcome, each in zip(
        pool.outcome_columns, pool.outcomes, values.T, strict=bool(len(values))
    ):
        if num := int(np.isfinite(each).sum()):
            what = _range(each.tolist(), column, results.texts, "in all of them")
            kind = f"the {kind_of(outcome)}, in {num} result{'s' * (num > 1)}"
            yield f"read: {short_repr(column)}: {kind}, {what}; {_wanted(outcome)}."
    for note in (*_value_notes(pool, results), *notes_on_results(pool, results)):
        yield f"note: {note}."
    for text in results.texts:
        if names := unused_columns(text, pool):
            listed = short_list([_unused(text, name) for name in names], 8, show=str)
            yield f"read: {text.name}: not used: {listed}."
    yield from _odd_features(pool)


def _value_notes(pool: Pool, results: Results) -> Iterator[str]:
    """Notes on values of the outcomes that may be mistakes."""
    order, values = results.file_order, results.outcome_values
    lines = [*results.lines, *results.beside]
    told_of = [*results.rows, *(tuple(point.values()) for point in results.points)]
    points = [told_of[place] for place in order]
    unused = (unused_columns(text, pool) for text in results.texts)
    others = {
        name: [results.told[place].get(name) for place in order]
        for name in dict.fromkeys(chain(*unused))
        if len({*points}) < len(points)  # to tell repeats apart
    }

    def at(place: int) -> str:
        return lines[order[place]]

    for outcome, each in zip(pool.outcomes, values.T, strict=bool(len(values))):
        yield from notes_on(str(outcome.name), each.tolist(), at, points)
        yield from notes_on_outcome(outcome, each.tolist(), at, points, others)


def related_lines(
    pool: Pool, results: Results, related: Iterable[Results]
) -> Iterator[str]:
    """What each earlier campaign has, and which of it may be a mistake."""
    for campaign in related:
        name, num = campaign.name, len(campaign)
        for text in campaign.texts:
            yield from _file_lines(text, pool.outcome_columns)
        kind = f"{num} result{'s' * (num > 1)} of an earlier campaign (--related)"
        yield f"read: {name}: {kind}."
        if more := len(campaign.unknown):
            yield (
                f"note: {name}: left out: {more} result{'s' * (more > 1)} with a "
                "category that no candidate has."
            )
        for note in (
            *_value_notes(pool, campaign),
            *notes_on_results(pool, campaign),
            *beside_notes(pool, campaign),
            *copied_campaign_notes(pool, results, campaign),
        ):
            yield f"note: {note}." if name in note else f"note: {name}: {note}."


def _unused(text: TextTable, name: str) -> str:
    """A column that is not used, with its texts where they are of a few kinds.

    They may say that a row is void, or in another unit. Numbers in some lines alone may
    be parts of the cells before them. Of many remarks their number is said.
    """
    cells = text.columns.get(name, [])
    texts = [*dict.fromkeys(filter(None, cells))]
    words = [each for each in texts if number(each) is None]
    is_text = bool(words)
    has_few = len({*cells}) > 1 and len(texts) <= min(4, len(text) // 2)
    is_shown = has_few if is_text else texts and "" in cells
    differs = f" ({short_list(texts, 4)})" if is_shown else ""
    are_most = 2 * len(words) > len(texts) > 1
    if not is_shown and are_most and any(map(_is_remark, words)):
        differs = f" ({len(texts)} different texts, not read: look through them)"
    return f"{short_repr(name)}{differs}"


def _is_remark(cell: str) -> bool:
    """Whether a text is a word or has several, and is no code and no date."""
    is_words = " " in cell and len(WORD.findall(cell)) > 1
    return (is_words or WORD.fullmatch(cell) is not None) and not looks_like_date(cell)


def _wanted(outcome: Outcome) -> str:
    """Which values of an outcome are wanted."""
    if isinstance(outcome, Objective):
        return f"{'small' if outcome.minimize else 'large'} values are wanted"
    limits = {"at least": outcome.lower, "at most": outcome.upper}
    told = [f"{side} {x:.6g}" for side, x in limits.items() if x is not None]
    return f"it has to be {' and '.join(told)}"


def exclusion_lines(pool: Pool, excluded: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """How many rows each condition of --exclude holds for."""
    for condition, rows in excluded.items():
        yield (
            f"read: --exclude {short_repr(condition)}: holds for {len(rows)} of "
            f"{len(pool)} rows."
        )


def drawn_lines(chosen: Selection) -> Iterator[str]:
    """How many of the next rows no model has chosen although there are results."""
    if chosen.strategy is not None and chosen.num_drawn:
        least = chosen.strategy.settings.num_initial
        yield (
            f"note: {chosen.num_drawn} of the next {len(chosen.rows)} rows are not "
            f"chosen by the results: a model chooses once {least} rows are measured "
            "(--first)."
        )


def _odd_features(pool: Pool) -> Iterator[str]:
    """Notes on numbers of the candidates that lie far from all others."""
    notes = (
        note
        for column, values in pool.features.items()
        if not isinstance(values, list)
        for note in notes_on(column, values.tolist(), pool.text.place)
    )
    for note in islice(notes, MAX_ODD):
        yield f"note: {pool.text.name}: {note}."


def _twins_note(pool: Pool) -> str:
    """A note on rows with the same features."""
    shown = [_group(pool, rows) for rows in pool.twins[:MAX_GROUPS]]
    if (num := len(pool.twins) - MAX_GROUPS) > 0:
        shown.append(f"and {num} more group{'s' * (num > 1)}")
    return (
        f"note: {pool.text.name} has rows with the same features: {'; '.join(shown)}. "
        "One of them is proposed at most, and none where one was measured, failed or "
        "waits for its result; the others are excluded."
    )


def _group(pool: Pool, rows: Sequence[int]) -> str:
    """Rows with the same features in a message."""
    first, second, *others = map(pool.text.place, rows)
    if not others:
        return f"{first} and {second}"
    return f"{first}, {second} and {len(others)} other{'s' * (len(others) > 1)}"


def summarize(
    pool: Pool,
    results: Results,
    proposed: ProposedRows,
    rows: Sequence[int],
    history: History | None = None,
    excluded: Sequence[int] = (),
    budget: float | None = None,
    columns: Iterable[str] = (),
) -> Summary:
    """What was read and proposed, and what is best so far; columns have their lines."""
    notes = [f"note: {note}" for note in _notes(pool, results, proposed)]
    measured, failed = {*results.rows}, {*results.only_failed}
    waiting = {*proposed.rows} - measured - failed
    out = {*excluded} - measured - failed - waiting
    if not rows:
        num_left = len(pool) - len(measured | failed | waiting | out)
        why = _why_none(num_left, len(failed), len(out), budget)
        notes.append(f"note: NO ROW IS PROPOSED: {why}.")
    best, num_partial = list[str](), 0
    if history is not None:
        best = [*_best_lines(pool, results, history)]
        num_partial = int(_measured(pool, history).isna().any(axis=1).sum())
    if pool.cost is not None:
        best.append(_cost_line(pool.cost, results, proposed, rows, budget))
    others = {
        "with outcomes that are missing": num_partial,
        "results beside it": len(results.points),
        "failed": len(failed),
        "failed repeats": len(results.failed) - len(failed),
        "excluded": len(out),
        "proposed before wait for results": len(proposed.rows),
    }
    added = "".join(f", {num} {what}" for what, num in others.items() if num)
    count = (
        f"{pool.text.name}: {len(pool)} rows, {len(measured)} of them measured{added}; "
        f"{len(rows)} proposed now."
    )
    return Summary([*columns], notes, best, count)


def _cost_line(
    cost: Matrix,
    results: Results,
    proposed: ProposedRows,
    rows: Sequence[int],
    budget: float | None,
) -> str:
    """What measurements cost so far, what the next rows cost, and what is left."""
    known = cost[results.rows].sum() + sum(results.costs_beside(cost))
    spent = known + results.cost_of_failures(cost)
    waiting, new = cost[proposed.rows].sum(), cost[list(rows)].sum()
    parts = [f"{spent:.6g} spent so far", f"{new:.6g} for these rows"]
    parts[1:1] = [f"{waiting:.6g} for rows that wait"] * bool(proposed.rows)
    if budget is not None:
        parts.append(f"{budget - spent - waiting - new:.6g} of {budget:.6g} left")
    unknown = [*results.point_costs, *results.silent_costs].count(None)
    guess = f" ({unknown} results beside it at the mean cost)" * bool(unknown)
    return f"cost: {', '.join(parts)}{guess}."


def _notes(pool: Pool, results: Results, proposed: ProposedRows) -> Iterator[str]:
    """Notes on rows and categories that are not in the pool."""
    name = pool.text.name
    digits = " to six digits" if pool.key is None else ""
    no_row = f"of the results are of no row of {name}"
    kinds: dict[str, Sequence[str]] = {
        f"of the rows proposed before are not in {name}, and wait on in --state": (
            proposed.gone_names(pool.key)
        ),
        f"{no_row}{digits}, and count as data beside it": results.beside,
        f"of the results have keys that {name} lacks and the features of rows of it, "
        "and count as results of these": [
            f"{m.text.place(m.place)}{f' of {m.text.name}' * (not results.is_one)} has "
            f"those of {pool.name(m.row)}"
            for m in results.renamed
        ],
        f"{no_row}, and failed: they say nothing, and are left out": results.silent,
        "of the results are in an earlier file too, with the same value, and count "
        "once (repeated measurements belong in one file)": [
            f"{m.text.place(m.place)} of {m.text.name}" for m in results.doubles
        ],
        f"of the results' categories are not in {name}, and are ones of their own": (
            _new_categories(pool, results)
        ),
    }
    for what, which in kinds.items():
        if which:
            yield f"{len(which)} {what}: {short_list(which, 3, show=str)}"
    yield from beside_notes(pool, results)


def _measured(pool: Pool, history: History) -> pd.DataFrame:
    """The means of what was measured: `k` columns, by row; NaN for nothing."""
    Y = history.Y.reshape(-1, len(pool.outcomes))
    told = pd.DataFrame(Y.cpu().numpy(), columns=pool.outcome_columns)
    return told.groupby(history.indices.numpy()).mean()


def _best_lines(pool: Pool, results: Results, history: History) -> Iterator[str]:
    """The best measured row; or the front of several targets, and its hypervolume."""
    measured = _measured(pool, history)
    targets = [o for o in pool.outcomes if isinstance(o, Objective)]
    has_limits = len(targets) < len(pool.outcomes)
    if measured.isna().any(axis=1).all():
        yield f"best so far: none; no row has all of {short_list(measured.columns)}."
    elif len(targets) == 1:
        best = history.best()
        row = best.row or 0
        kind = "best feasible" if best.is_feasible else "nearest to feasible"
        mean = "" if best.mean is None else f"; the model's mean there: {best.mean:.6g}"
        yield (
            f"{kind if has_limits else 'best'} so far: {row_name(pool, results, row)}"
            f", {_values(measured.columns, measured.loc[row])}{mean}"
            f"{remarks_of(pool, results, row)}."
        )
    else:
        front = front_so_far(pool, history)
        which = "feasible and not dominated" if has_limits else "not dominated"
        yield f"front so far: {len(front)} of {len(measured)} rows are {which}."
        for row, values in zip(front.index, front.to_numpy()[:MAX_FRONT], strict=False):
            name, remarks = (f(pool, results, row) for f in (row_name, remarks_of))
            yield f"{FRONT_ROW}{name}, {_values(front.columns, values)}{remarks}."
        if len(front) > MAX_FRONT:
            yield f"{FRONT_ROW}and {len(front) - MAX_FRONT} more."
        yield _hypervolume_line(targets, history)


def front_so_far(pool: Pool, history: History) -> pd.DataFrame:
    """The means of what was measured of the front, by row, best first target first."""
    indices, first = history.pareto().indices, pool.outcomes[0]
    front = _measured(pool, history).loc[[] if indices is None else indices.tolist()]
    is_small = isinstance(first, Objective) and first.minimize
    return front.sort_values(front.columns[0], ascending=is_small)


def _hypervolume_line(targets: Sequence[Objective], history: History) -> str:
    """The hypervolume, and the reference point in use."""
    reference = history.reference_point().tolist()
    point = ", ".join(
        f"{short_repr(o.name)}: {value:.6g}"
        + (" (inferred)" if o.threshold is None else " (the threshold)")
        for o, value in zip(targets, reference, strict=True)
    )
    volume = history.hypervolume()
    return f"hypervolume so far: {volume:.6g}, with the reference point {point}."


def _values(columns: Iterable[str], values: Iterable[float]) -> str:
    pairs = zip(columns, values, strict=True)
    return ", ".join(f"{short_repr(name)}: {value:.6g}" for name, value in pairs)


def row_name(pool: Pool, results: Results, row: int) -> str:
    """A measured row of the table or beside it, in messages."""
    if row < len(pool):
        return pool.name(row)
    return results.beside[row - len(pool)] + " of the results" * results.is_one


def _new_categories(pool: Pool, results: Results) -> list[str]:
    """Categories that only results beside the pool have, in messages."""
    new = {
        f"{short_repr(point[name])} of {short_repr(name)}": None
        for point in results.points
        for name, forms in pool.forms.items()
        if spelling_form(point[name]) not in forms
    }
    return list(new)


def _why_none(
    num_left: int, num_failed: int, num_excluded: int, budget: float | None
) -> str:
    """Why there is nothing to measure next."""
    if num_left and budget is not None:
        return "no row that is left can be paid of the --budget"
    if num_left:
        return "the rows that wait for results are enough for now"
    if num_excluded:
        return (
            f"all rows that are left, {num_excluded}, are excluded by --exclude, or "
            "have the features of a row that was measured, failed or waits"
        )
    if num_failed:
        return (
            f"{num_failed} rows failed (the word failed, or no value with "
            "--skip-empty), and none is left; if they have not been measured yet, take "
            "them out of the results"
        )
    return "all rows are measured or wait for results"
