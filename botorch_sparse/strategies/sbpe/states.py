"""Whether the parts of a saved S-BPE are of one run."""

import math
from collections.abc import Sequence

from botorch.exceptions import InputDataError

from botorch_sparse.strategies.sbpe.history import RoundHistory
from botorch_sparse.strategies.sbpe.progress import Progress
from botorch_sparse.strategies.sbpe.table import TableSurvivors
from botorch_sparse.strategies.trials import PendingTrials


def check_rounds(
    at: Progress, history: RoundHistory, trials: PendingTrials, lengths: Sequence[int]
) -> None:
    """Refuse progress that does not follow from what was proposed.

    Args:
        at: Where the run stands.
        history: Its history.
        trials: What is pending.
        lengths: Lengths of the batches.

    Raises:
        InputDataError: If rounds, bounds, points or their log are of another run.
    """
    num = len(history.rounds)
    start = sum(lengths[:num])  # trials of rounds that have ended
    sizes = history.batches.column("size").tolist()
    is_ended = at.first_ask <= len(sizes) and sum(sizes[: at.first_ask]) == start
    if not is_ended or [r.length for r in history.rounds] != list(lengths[:num]):
        raise InputDataError("Rounds are not those of the schedule.")
    length = lengths[num] if num < len(lengths) else 0
    is_whole = len(at.points) == sum(sizes) - start <= length
    if not is_whole or at.is_begun != bool(at.points):
        raise InputDataError("The batch in progress has other points than proposed.")
    for trial in [*history.told_since(0), *trials]:
        if trial.id >= start and at.points[trial.id - start] != trial.point:
            raise InputDataError("Trials have other points than the batch in progress.")
    _check_bounds(at, history)
    _check_drawn(at, length)
    _check_log(at)


def _check_bounds(at: Progress, history: RoundHistory) -> None:
    """Refuse bounds that are missing, or more of them than rounds that have some."""
    num = sum(not math.isnan(r.beta) for r in history.rounds)
    sizes = {num}
    if not isinstance(at.left, TableSurvivors):
        sizes |= {len(at.left.cuts), len(at.left.best)}
    if (at.last_bounds is None) != (num == 0) or len(sizes) > 1:
        raise InputDataError("There are other bounds than those of the rounds.")


def _check_drawn(at: Progress, length: int) -> None:
    """Refuse points drawn for the batch that are missing, or not those proposed."""
    num = length if at.design.is_random else at.design.raw_samples
    is_table = isinstance(at.left, TableSurvivors)
    if is_table or at.drawn or not at.is_begun:
        num = 0
    is_other = at.drawn and at.drawn[: len(at.points)] != at.points
    if is_other or len(at.pool) != num or len(at.drawn) not in (0, length):
        raise InputDataError("The points drawn for a batch are missing, or others.")


def _check_log(at: Progress) -> None:
    """Refuse a log that is not of the points of the batch; builds the variances."""
    needs_log = at.is_begun and not at.drawn and not at.design.is_random
    if (at.log is not None) != needs_log:
        raise InputDataError("The log of the batch is missing, or there is no batch.")
    if not needs_log:
        return
    rows = at.exploration.points
    if isinstance(at.left, TableSurvivors):
        numbers = [at.left.number(row) for row in rows]
    else:
        first, known = at.exploration.num_rows, list(dict.fromkeys(at.points))
        numbers = [known[row - first] for row in rows if row >= first]
    if numbers != at.points:
        raise InputDataError("The log is of other points than those of the batch.")
