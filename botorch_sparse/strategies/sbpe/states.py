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
    rounds, num = history.rounds, len(history.rounds)
    start = sum(lengths[:num])  # trials of rounds that have ended
    sizes = [batch.size for batch in history.batches]
    is_ended = at.first_ask <= len(sizes) and sum(sizes[: at.first_ask]) == start
    if not is_ended or [r.length for r in rounds] != list(lengths[:num]):
        raise InputDataError("Rounds are not those of the schedule.")
    if len(at.points) != sum(sizes) - start or at.is_begun != bool(at.points):
        raise InputDataError("The batch in progress has other points than proposed.")
    if at.is_begun and not (num < len(lengths) and len(at.points) <= lengths[num]):
        raise InputDataError("The batch in progress is longer than it was to be.")
    for trial in [*history.told_since(0), *trials]:
        if trial.id >= start and at.points[trial.id - start] != trial.point:
            raise InputDataError("Trials have other points than the batch in progress.")
    bounded = sum(not math.isnan(r.beta) for r in rounds)
    is_table = isinstance(at.left, TableSurvivors)
    if (at.last_bounds is None) != (bounded == 0):
        raise InputDataError("The bounds are missing, or not of these rounds.")
    if not isinstance(at.left, TableSurvivors) and not (
        len(at.left.cuts) == len(at.left.best) == bounded
    ):
        raise InputDataError("There are more or fewer cuts than rounds with bounds.")
    if at.drawn[: len(at.points)] != at.points and at.drawn:
        raise InputDataError("Points that were drawn are not those proposed.")
    is_drawn = is_table or bool(at.drawn) or not at.is_begun
    num_drawn = at.design.raw_samples
    if at.design.is_random and at.is_begun:
        num_drawn = lengths[num]
    if len(at.pool) != (0 if is_drawn else num_drawn):
        raise InputDataError("The points drawn for a batch are missing.")
    _check_log(at)


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
