"""The rows to measure next: chosen, explained, and as CSV.

`options` are `strategy`, `batch` and `seed` of the command line.
"""

import math
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.strategies import (
    BBKB,
    Batch,
    Constraint,
    ThompsonSampling,
)
from botorch_sparse.suggest.candidate_pool import Matrix, Pool
from botorch_sparse.suggest.outcome_options import Outcome, column_names
from botorch_sparse.suggest.results import Results

STRATEGIES = {"bbkb": BBKB, "thompson": ThompsonSampling}
# Columns that are added to the user's own, where there is one outcome.
ADDED = ("predicted_mean", "predicted_sd", "reason")
ROW = "row"  # of the pool, from 1, where there is no key
FIRST = "first batch, drawn at random"
ONLY = "the only row"
DRAWN = "drawn at random: few results yet"
EXPLOITS = "exploits: good predicted value"
COMPROMISE = "exploits: good predicted values"  # of several outcomes
EXPLORES = "explores: uncertain here"
# Rows that the medians of mean and standard deviation are taken over, at most.
NUM_REFERENCE = 10_000
# Predicted mean and standard deviation of each outcome, and the reason.
Explanation: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Selection:
    """The next rows.

    Attributes:
        rows: They, as rows of the pool.
        explained: Predictions and a reason for each.
        strategy: Which has learned the results; None without results.
    """

    rows: list[int]
    explained: list[Explanation]
    strategy: BBKB | ThompsonSampling | None = None


def choose(
    options: Namespace,
    pool: Pool,
    results: Results,
    pending: Sequence[int],
    excluded: Sequence[int] = (),
) -> Selection:
    """The next rows, and what they were chosen by."""
    blank = ("",) * 2 * len(pool.outcomes)
    if len(pool) == 1 and not results.points:  # nothing to compare it with
        done = {*results.rows, *results.failed, *pending, *excluded}
        rows = [] if done else [0]
        return Selection(rows, [(*blank, ONLY)] * len(rows))
    strategy = rebuild(options, pool, results, pending, excluded)
    rows, num_drawn = propose(strategy, options.batch)
    if not len(results):
        return Selection(rows, [(*blank, FIRST)] * len(rows))
    X = strategy.candidates[: len(pool)]
    explained = explain(strategy, pool.outcomes, X, rows, num_drawn)
    is_known = ~strategy.history.Y.reshape(-1, len(pool.outcomes)).isnan().all(0)
    shown = [*is_known.repeat_interleave(2).tolist(), True]
    explained = [
        tuple(cell * is_shown for cell, is_shown in zip(each, shown, strict=True))
        for each in explained
    ]
    return Selection(rows, explained, strategy)


def rebuild(
    options: Namespace,
    pool: Pool,
    results: Results,
    pending: Sequence[int],
    excluded: Sequence[int] = (),
) -> BBKB | ThompsonSampling:
    """A strategy that knows the results, and the rows that are not to be proposed.

    Its seed depends on how many rows are known: the same files give the same next
    rows, and each call draws sample paths of its own.

    Results beside the pool are rows of its table, behind the pool's. All of them are
    measured, so none is proposed, and features that vary among them alone count too.
    """
    known = len(results) + len(results.failed) + len(pending)
    drawn = np.random.SeedSequence((options.seed, known)).generate_state(1, np.uint64)
    table = pool.with_points(results.points)
    with _naming(pool.text.name):
        strategy = STRATEGIES[options.strategy](
            table,
            batch_size=options.batch,
            outcomes=pool.outcomes,
            unique=True,
            seed=int(drawn[0]) >> 1,
        )
    known_rows = {*results.rows, *results.failed, *pending}
    others = [row for row in excluded if row not in known_rows]
    strategy.restore_trials(pending, [*results.failed, *others])
    if len(results):
        index = torch.tensor([*results.rows, *range(len(pool), len(table))])
        Y = torch.tensor([*results.values, *results.point_values], dtype=torch.float64)
        if results.order is not None:
            index, Y = index[results.order], Y[results.order]
        with _naming(results.name):
            strategy.tell(Batch(table.X[index], index), Y)
            strategy.learn()  # although rows are pending
    return strategy


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Errors of the library name the file that its input is from."""
    try:
        yield
    except InputDataError as error:
        raise InputDataError(f"{name}: {error}") from error


def propose(strategy: BBKB | ThompsonSampling, size: int) -> tuple[list[int], int]:
    """The next rows, or all that are left, and how many of the first are random."""
    known = len(strategy.history) + len(strategy.pending)
    num_drawn = max(0, strategy.settings.num_initial - known)
    rows: list[int] = []
    while len(rows) < size and not strategy.is_finished:
        batch = strategy.ask(size - len(rows))
        if not len(batch):  # rows that wait for results are enough for now
            break
        rows += [] if batch.indices is None else batch.indices.tolist()
    is_first = len(strategy.history) == 0
    return rows, len(rows) if is_first else min(num_drawn, len(rows))


def explain(
    strategy: BBKB | ThompsonSampling,
    outcomes: tuple[Outcome, ...],
    X: Tensor,
    rows: Sequence[int],
    num_drawn: int,
) -> list[Explanation]:
    """Predicted mean and standard deviation of each outcome, and the reason, for rows.

    A row is proposed for its bound: mean and two standard deviations in the better
    direction. It explores if the standard deviation lifts the bound farther above its
    median over the table than the mean does; else it exploits. Several outcomes are
    added up, in units of their median standard deviations.
    """
    if not rows:
        return []
    mean, sd = _predict(strategy, X[rows])
    reference = X[:: -(-len(X) // NUM_REFERENCE)]
    usual_mean, usual_sd = (np.median(v, axis=0) for v in _predict(strategy, reference))
    unit = np.where(usual_sd > 0, usual_sd, 1.0) if len(outcomes) > 1 else 1.0
    lift = (_worth(outcomes, mean) - _worth(outcomes, usual_mean)) / unit
    explores = (2.0 * (sd - usual_sd) / unit).sum(axis=1) > lift.sum(axis=1)
    exploits = EXPLOITS if len(outcomes) == 1 else COMPROMISE
    reasons = np.where(explores, EXPLORES, exploits).tolist()
    reasons[:num_drawn] = [DRAWN] * num_drawn
    return [
        (*(text for pair in zip(m, s, strict=True) for text in _shown(*pair)), reason)
        for m, s, reason in zip(mean.tolist(), sd.tolist(), reasons, strict=True)
    ]


def _worth(outcomes: tuple[Outcome, ...], values: Matrix) -> Matrix:
    """Values of `... x k` outcomes, each larger where it is better.

    A constraint has minus how far it is outside of its limits.
    """
    worth = values.copy()
    for place, outcome in enumerate(outcomes):
        if isinstance(outcome, Constraint):
            worth[..., place] -= values[..., place].clip(*outcome.range)
            worth[..., place] = -abs(worth[..., place])
        elif outcome.minimize:
            worth[..., place] *= -1.0
    return worth


def _shown(mean: float, sd: float) -> tuple[str, str]:
    if math.isnan(sd):  # nothing says its unit yet
        return f"{mean:.6g}", ""
    return f"{mean:.{_digits(mean, sd)}g}", f"{sd:.6g}"


def _digits(mean: float, sd: float) -> int:
    """Significant digits of a mean: six, or three of its standard deviation."""
    if not (mean and sd):
        return 6
    return min(max(6, math.ceil(math.log10(abs(mean)) - math.log10(sd)) + 3), 17)


def _predict(strategy: BBKB | ThompsonSampling, X: Tensor) -> tuple[Matrix, Matrix]:
    """Means and standard deviations of `q x d` rows, `q x k`."""
    mean, sd = (
        value.detach().cpu().numpy().reshape(len(X), -1)
        for value in strategy.predict(X) or ()
    )
    return mean, sd


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
    """Rows of the pool as CSV: key or number, their own cells, and explanations."""
    added = added_columns(pool.outcomes)
    gone = [*pool.outcome_columns, *added]
    frame = pool.text.typed.drop(columns=gone, errors="ignore")
    frame = frame.iloc[list(rows)].copy()
    names = [row + 1 for row in rows] if pool.key is None else frame.pop(pool.key)
    frame = frame.drop(columns=ROW, errors="ignore") if pool.key is None else frame
    frame.insert(0, pool.key or ROW, names)
    for place, name in enumerate(added):
        frame[name] = [cells[place] for cells in explained]
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text
