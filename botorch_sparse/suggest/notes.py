"""What is said of a laboratory's files on the command line, where nothing is wrong."""

import re
from collections.abc import Collection, Iterator, Sequence

import torch

from botorch_sparse.strategies.data.columns import Column
from botorch_sparse.strategies.data.history import Best
from botorch_sparse.suggest.candidate_pool import Pool
from botorch_sparse.suggest.command_line import say
from botorch_sparse.suggest.csv_cells import number, spreadsheet_form
from botorch_sparse.suggest.csv_text import quoted
from botorch_sparse.suggest.proposed_rows import ProposedRows
from botorch_sparse.suggest.results import Results

# So few categories are no surprise, however few rows there are.
FEW_CATEGORIES = 5
# In so few rows a feature may count by chance.
FEW_ROWS = 5
# A part of a column's name that is usual where it numbers the rows.
COUNTS = re.compile(
    r"(^|[\W_])(id|index|idx|no|nr|num|number|sample|row)([\W_]|$)|#", re.IGNORECASE
)


def note_columns(
    pool: Pool,
    as_text: Collection[str],
    ignored: Collection[str] = (),
    *,
    one_file: bool,
) -> None:
    """Say which columns of the candidates may not be taken as their owner thinks.

    Args:
        pool: The candidates.
        as_text: Columns that were declared to be of categories.
        ignored: Columns that were left out on purpose.
        one_file: Whether the results are in the same file.
    """
    if pool.target in {*pool.text.columns} - {*ignored} and not one_file:
        say(
            f"note: the target {quoted(pool.target)} is also a column of "
            f"{pool.text.name}; it is ignored there."
        )
    for name, reason in pool.left_out.items():
        say(f"note: {pool.text.name}: column {quoted(name)} is left out: it {reason}.")
    for spec in pool.table.columns:
        if _counts_rows(pool, spec):
            say(_count_note(pool, str(spec.label)))
        name, num = str(spec.label), len(spec.categories or ())
        is_odd = num > FEW_CATEGORIES and 2 * num > len(pool.table)
        if name in as_text or not (is_odd or spec.is_odd(len(pool.table))):
            continue
        cells = [cell.strip() for cell in pool.text.columns[name]]
        place = next((i for i, cell in enumerate(cells) if number(cell) is None), 0)
        say(
            f"note: {pool.text.name}, line {pool.text.lines[place]}, column "
            f"{quoted(name)}: {quoted(cells[place])} is no number; the column was "
            f"read as text, and has {num} categories in {len(pool.table)} rows, of "
            "which little can be learned. Write numbers (for dates, days), leave it "
            "out with --ignore, or declare it as --text."
        )


def _counts_rows(pool: Pool, spec: Column) -> bool:
    """Whether a feature has the name and the values of a number of the row."""
    num, name = len(pool.table), str(spec.label)
    if spec.categories is not None or num <= FEW_ROWS or not COUNTS.search(name):
        return False
    values = pool.table.X[:, spec.start].sort().values
    steps = torch.arange(num, dtype=values.dtype, device=values.device)
    return bool((values == values[0].round() + steps).all())


def _count_note(pool: Pool, name: str) -> str:
    key = f"give it as --key {quoted(name)}, or " * (pool.key is None)
    return (
        f"note: {pool.text.name}: column {quoted(name)} counts the rows, and is taken "
        f"as a feature. If it is none, {key}leave it out with --ignore {quoted(name)}."
    )


def report(
    pool: Pool,
    results: Results,
    proposed: ProposedRows,
    num_chosen: int,
    best: Best | None = None,
) -> None:
    """Say what was read and proposed, and what is best so far."""
    name = pool.text.name
    for note in _notes(pool, results, proposed):
        say(f"note: {note}")
    waiting = {*proposed.rows} - {*results.rows, *results.failed}
    measured, failed = {*results.rows}, {*results.failed} - {*results.rows}
    if not num_chosen:
        num_left = len(pool.table) - len(measured | failed | waiting)
        say(f"note: NO ROW IS PROPOSED: {_why_none(num_left, len(failed))}.")
    if best is not None:
        say(_best_line(pool, results, best))
    others = {
        "results beside it": len(results.points),
        "failed": len(failed),
        "proposed before wait for results": len(proposed.rows),
    }
    added = "".join(f", {num} {what}" for what, num in others.items() if num)
    say(
        f"{name}: {len(pool.table)} rows, {len(measured)} of them measured{added}; "
        f"{num_chosen} proposed now."
    )


def _notes(pool: Pool, results: Results, proposed: ProposedRows) -> Iterator[str]:
    """What became of rows and categories that are not in the pool."""
    name = pool.text.name
    digits = " to six digits" if pool.key is None else ""
    no_row = f"of the results are of no row of {name}"
    kinds: dict[str, Sequence[str]] = {
        f"of the rows proposed before are not in {name}, and wait on in --state": (
            proposed.gone_names
        ),
        f"{no_row}{digits}, and count as data beside it": results.beside,
        f"{no_row}, which writes their category otherwise, and are left out": (
            results.left_out
        ),
        f"{no_row}, and failed: they say nothing, and are left out": results.silent,
        "of the results are in an earlier file too, with the same value, and count "
        "once (what was measured again belongs in one file)": results.doubles,
        f"of the results' categories are not in {name}, and are ones of their own": (
            _new_categories(pool, results)
        ),
    }
    yield from results.unused
    for what, which in kinds.items():
        if which:
            more = ", ..." if len(which) > 3 else ""
            yield f"{len(which)} {what}: {', '.join(which[:3])}{more}"


def _best_line(pool: Pool, results: Results, best: Best) -> str:
    """Which measured row is best, its value, and what the model says of it."""
    row, num = best.row or 0, len(pool.table)
    if row < num:
        which = pool.name(row)
    else:
        which = results.beside[row - num]
        which += " of the results" * results.is_one
    mean = "" if best.mean is None else f"; the model's mean there: {best.mean:.6g}"
    return f"best so far: {which}, {quoted(pool.target)}: {best.value:.6g}{mean}."


def _new_categories(pool: Pool, results: Results) -> list[str]:
    """What messages call categories that results beside the pool have alone."""
    new = {
        f"{quoted(point[name])} of {quoted(name)}": None
        for point in results.points
        for name, forms in pool.forms.items()
        if spreadsheet_form(point[name]) not in forms
    }
    return list(new)


def _why_none(num_left: int, num_failed: int) -> str:
    """Why there is nothing to measure next."""
    if num_left:
        return "those that wait for results are enough for now"
    if num_failed:
        return (
            f"{num_failed} rows failed (the word failed, or no value with "
            "--skip-empty), and none is left; if they have not been measured yet, take "
            "them out of the results"
        )
    return "all rows are measured or wait for results"
