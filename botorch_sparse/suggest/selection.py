"""The rows to measure next: chosen, explained, and as CSV."""

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from botorch_sparse.suggest.candidate_pool import Pool

ADDED = ("predicted_mean", "predicted_sd", "reason")
ROW = "row"  # of the pool, from 1, where there is no key
FIRST = "first batch, drawn at random"
ONLY = "the only row"
DRAWN = "drawn at random: few results yet"
EXPLOITS = "exploits: good predicted value"
EXPLORES = "explores: uncertain here"
# Rows that the medians of mean and standard deviation are taken over, at most.
NUM_REFERENCE = 10_000


def propose(strategy: Any, size: int) -> tuple[list[int], int]:
    """The next rows, each of them once, fewer where not so many are left.

    Args:
        strategy: A strategy that takes each row once.
        size: How many.

    Returns:
        The rows, and how many of the first ones are drawn at random.
    """
    known = len(strategy.history) + len(strategy.pending)
    num_drawn = max(0, strategy.settings.num_initial - known)
    rows: list[int] = []
    while len(rows) < size and not strategy.is_finished:
        batch = strategy.ask(size - len(rows))
        if not len(batch):  # those that wait for results are enough for now
            break
        rows += batch.indices.tolist()
    is_first = len(strategy.history) == 0
    return rows, len(rows) if is_first else min(num_drawn, len(rows))


def explain(
    strategy: Any, X: Tensor, rows: Sequence[int], num_drawn: int
) -> list[tuple[str, str, str]]:
    """Predicted mean, standard deviation and reason for rows; no numbers before data.

    A row is proposed for its bound: mean and two standard deviations in the better
    direction. Where the standard deviation brings it farther above the median over the
    table than the mean does, the row explores; else it exploits.

    Args:
        strategy: A strategy.
        X: `A x d` table.
        rows: `q` rows of it.
        num_drawn: How many of the first ones are drawn at random.
    """
    if len(strategy.history) == 0 or not rows:
        return [("", "", FIRST)] * len(rows)
    mean, sd = _predict(strategy, X[rows])
    reference = X[:: -(-len(X) // NUM_REFERENCE)]
    usual_mean, usual_sd = map(np.median, _predict(strategy, reference))
    sign = -1.0 if strategy.minimize else 1.0
    explores = 2.0 * (sd - usual_sd) > sign * (mean - usual_mean)
    reasons = np.where(explores, EXPLORES, EXPLOITS).tolist()
    reasons[:num_drawn] = [DRAWN] * num_drawn
    return [
        (f"{m:.{_digits(m, s)}g}", f"{s:.6g}", reason)
        for m, s, reason in zip(mean.tolist(), sd.tolist(), reasons, strict=True)
    ]


def _digits(mean: float, sd: float) -> int:
    """Significant digits of a mean: six, or three of its standard deviation."""
    if not (mean and sd):
        return 6
    return min(max(6, math.ceil(math.log10(abs(mean)) - math.log10(sd)) + 3), 17)


def _predict(strategy: Any, X: Tensor) -> tuple[np.ndarray, np.ndarray]:
    mean, sd = (value.detach().cpu().numpy() for value in strategy.predict(X))
    return mean, sd


def format_rows(
    pool: Pool, rows: list[int], explained: list[tuple[str, str, str]]
) -> str:
    """CSV of rows of the pool: key or number, the user's own cells, and what is added.

    Args:
        pool: The candidates.
        rows: `q` rows.
        explained: `q` times predicted mean, standard deviation and reason.
    """
    first = ROW if pool.key is None else pool.key
    cells = pool.text.as_typed
    taken = {first, pool.target, *ADDED}
    others = [name for name in cells if name not in taken]
    file = io.StringIO()
    write = csv.writer(file, lineterminator="\n").writerow
    write([first, *others, *ADDED])
    for row, added in zip(rows, explained, strict=True):
        name = str(row + 1) if pool.key is None else cells[first][row]
        write([name, *(cells[c][row] for c in others), *added])
    return file.getvalue()
