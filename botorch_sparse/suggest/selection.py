"""The rows to measure next: chosen, explained, and as CSV.

`options` are those of the command line: `strategy`, `batch`, `seed`, `first`, `design`
and `budget`.
"""

import csv
import io
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from torch import Tensor

from botorch_sparse.strategies import (
    BBKB,
    Batch,
    CandidateTable,
    ExpectedImprovement,
    ThompsonSampling,
)
from botorch_sparse.suggest.candidate_pool import Pool
from botorch_sparse.suggest.learned_columns import Learner
from botorch_sparse.suggest.outcome_options import Outcome, column_names
from botorch_sparse.suggest.reasons import (
    FIRST,
    ONLY,
    PROMISING,
    SPREAD,
    Explanation,
    explain,
)
from botorch_sparse.suggest.results import Results
from botorch_sparse.suggest.table_files import SEPARATORS

STRATEGIES: dict[str, type[Learner]] = {
    "bbkb": BBKB,
    "improvement": ExpectedImprovement,
    "thompson": ThompsonSampling,
}
# Columns that are added to the user's own, where there is one outcome.
ADDED = ("predicted_mean", "predicted_sd", "reason")
# Where there is no key: the number of the row in the pool, from 1, without the header.
ROW = "row"


@dataclass(frozen=True)
class Selection:
    """The next rows.

    Attributes:
        rows: The chosen rows of the pool.
        explained: Predictions and a reason for each.
        strategy: The strategy that has learned the results; None without results.
        num_drawn: How many of the first rows the results did not choose.
    """

    rows: list[int]
    explained: list[Explanation]
    strategy: Learner | None = None
    num_drawn: int = 0


def choose(
    options: Namespace,
    pool: Pool,
    results: Results,
    pending: Sequence[int],
    excluded: Sequence[int] = (),
    related: Sequence[Results] = (),
) -> Selection:
    """The next rows, and what they were chosen by."""
    blank = ("",) * 2 * len(pool.outcomes)
    if len(pool) == 1 and not results.points:  # nothing to compare it with
        done = {*results.rows, *results.failed, *pending, *excluded}
        rows = [] if done else [0]
        return Selection(rows, [(*blank, ONLY)] * len(rows))
    strategy = rebuild(options, pool, results, pending, excluded, related)
    first = first_rows(options, results)
    rows, num_drawn = propose(strategy, options.batch, first)
    if not len(results):
        drawn = FIRST if options.design == "random" else SPREAD
        good = strategy.promising
        reasons = [PROMISING if row in good else drawn for row in rows]
        return Selection(rows, [(*blank, reason) for reason in reasons])
    explained = explain(strategy, pool, results, rows, num_drawn)
    return Selection(rows, explained, strategy, num_drawn)


def rebuild(
    options: Namespace,
    pool: Pool,
    results: Results,
    pending: Sequence[int],
    excluded: Sequence[int] = (),
    related: Sequence[Results] = (),
) -> Learner:
    """A strategy that knows the results, and the rows that are not to be proposed.

    Its seed depends on how many rows are known: the same files give the same next
    rows, and each call draws sample paths of its own.

    Results beside the pool are rows of its table, behind the pool's. All of them are
    measured, so none is proposed, and features that vary among them alone count too.
    """
    known = len(results) + len(results.failed) + len(pending)
    drawn = np.random.SeedSequence((options.seed, known)).generate_state(1, np.uint64)
    table = pool.with_points(results.points)
    if (table.X[:] == table.X[0]).all():
        raise InputDataError(
            f"{pool.text.name}: no feature differs between the rows, so that there is "
            "nothing to choose by; is one left out, or missing?"
        )
    with _naming(pool.text.name, [each.name for each in related]):
        strategy = STRATEGIES[options.strategy](
            table,
            batch_size=options.batch,
            outcomes=pool.outcomes,
            unique=True,
            seed=int(drawn[0]) >> 1,
            num_initial=first_rows(options, results),
            initial_design=options.design,
            related=[campaign(table, each) for each in related] or None,
            **costs_of(options, pool, results),
        )
    known_rows = {*results.rows, *results.failed, *pending}
    others = [row for row in excluded if row not in known_rows]
    strategy.restore_trials(pending, [*results.failed, *others])
    if len(results):
        index = torch.tensor([*results.rows, *range(len(pool), len(table))])
        Y = torch.tensor([*results.values, *results.point_values], dtype=torch.float64)
        index, Y = index[results.file_order], Y[results.file_order]
        with _naming(results.name), warnings.catch_warnings():
            # Notes name the lines of odd values.
            warnings.filterwarnings("ignore", ".*lie far from all", InputDataWarning)
            strategy.tell(Batch(table.X[index], index), Y)
            strategy.learn()  # although rows are pending
    return strategy


def campaign(table: CandidateTable, results: Results) -> tuple[Tensor, Tensor]:
    """Points and values of an earlier campaign, in the encoding of a table."""
    X = table.X[torch.tensor(results.rows, dtype=torch.long)]
    if results.points:
        cells = {name: [x[name] for x in results.points] for name in results.points[0]}
        columns = {
            spec.label: cells[str(spec.label)]
            if spec.categories is not None
            else np.array(cells[str(spec.label)], dtype=float)
            for spec in table.columns
        }
        X = torch.cat([X, table.encode(columns)])
    values = [*results.values, *results.point_values]
    return X, torch.tensor(values, dtype=torch.float64).view(len(values), -1)


@contextmanager
def _naming(name: str, related: Sequence[str] = ()) -> Iterator[None]:
    """Errors of the library name the file that its input is from."""
    try:
        yield
    except InputDataError as error:
        reason = str(error)
        for place, other in enumerate(related):
            if reason.startswith(start := f"In related[{place}]: "):
                name, reason = other, reason.removeprefix(start)
        raise InputDataError(f"{name}: {reason}") from error


def first_rows(options: Namespace, results: Results) -> int | None:
    """Rows to know before a model chooses: those that failed are not asked for anew."""
    if options.first is None:
        return None
    return max(1, options.first - len(results.only_failed))


def costs_of(options: Namespace, pool: Pool, results: Results) -> dict[str, Any]:
    """What rows cost, as arguments of a strategy; none without costs.

    Results beside the pool cost what their file says, else the mean of the pool.
    Measurements that failed cost like others: the budget is less by them.
    """
    if pool.cost is None:
        return {}
    beside = results.costs_beside(pool.cost)
    costs: dict[str, Any] = {"cost": [*pool.cost.tolist(), *beside]}
    if options.budget is not None:
        lost = results.cost_of_failures(pool.cost)
        costs["budget"] = max(options.budget - lost, sys.float_info.min)
    return costs


def propose(
    strategy: Learner, size: int, first: int | None = None
) -> tuple[list[int], int]:
    """The next rows, or all that are left, and how many of the first are random.

    No more than are missing of the `first` ones, while some are.
    """
    known = len(strategy.history) + len(strategy.pending)
    num_drawn = max(0, strategy.settings.num_initial - known)
    size = min(size, num_drawn) if first is not None and num_drawn else size
    rows: list[int] = []
    while len(rows) < size and not strategy.is_finished:
        batch = strategy.ask(size - len(rows))
        if not len(batch):  # rows that wait for results are enough for now
            break
        rows += [] if batch.indices is None else batch.indices.tolist()
    is_first = len(strategy.history) == 0
    return rows, len(rows) if is_first else min(num_drawn, len(rows))


def added_columns(outcomes: tuple[Outcome, ...]) -> tuple[str, ...]:
    """The columns that are added to the user's own."""
    if len(outcomes) == 1:
        return ADDED
    mean, sd, reason = ADDED
    names = column_names(outcomes)
    return (*(f"{part}_{name}" for name in names for part in (mean, sd)), reason)


def format_rows(
    pool: Pool, rows: Sequence[int], explained: Sequence[Explanation]
) -> str:
    """Rows of the pool as CSV: key or number, their own cells, and explanations.

    Cells are separated as in the file of the pool, and have its decimal mark.
    """
    added = added_columns(pool.outcomes)
    gone = [*pool.outcome_columns, *added]
    frame = pool.text.typed.drop(columns=gone, errors="ignore")
    frame = frame.iloc[list(rows)].copy()
    names = [row + 1 for row in rows] if pool.key is None else frame.pop(pool.key)
    frame = frame.drop(columns=ROW, errors="ignore") if pool.key is None else frame
    frame.insert(0, pool.key or ROW, names)
    for place, name in enumerate(added):
        texts = [cells[place] for cells in explained]
        if pool.text.has_commas and name != added[-1]:  # predictions, but no reason
            texts = [text.replace(".", ",") for text in texts]
        frame[name] = texts
    file, mark = io.StringIO(newline=""), pool.text.separator
    # With quotes no other mark in a name is taken for the one between cells.
    is_clear = not any(other in "".join(frame) for other in {*SEPARATORS} - {mark})
    header = csv.writer(
        file,
        delimiter=mark,
        lineterminator="\n",
        quoting=csv.QUOTE_MINIMAL if is_clear else csv.QUOTE_ALL,
    )
    header.writerow(frame)
    frame.to_csv(file, sep=mark, header=False, index=False, lineterminator="\n")
    return file.getvalue()
