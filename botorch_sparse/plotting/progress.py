"""What a run costs as it goes: batch sizes, inducing points, seconds."""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from botorch_sparse.plotting.style import (
    Histories,
    evaluations,
    finish_over_evaluations,
    new_axes,
    styled,
)

# Pieces that a run's seconds are averaged over.
NUM_PIECES = 50


def plot_batch_sizes(histories: Histories, ax: Axes | None = None) -> Figure:
    """Size of the batch that each evaluation belongs to.

    Args:
        histories: History of a strategy by its name.
        ax: Axes to draw into.
    """
    ax = new_axes(ax)
    for history, style in styled(histories):
        sizes = _per_evaluation(history, [b.size for b in history.batches])
        _steps(ax, sizes, style)
    ax.set(yscale="log", ylabel="batch size")
    return finish_over_evaluations(ax)


def plot_num_inducing(histories: Histories, ax: Axes | None = None) -> Figure:
    """Number of inducing points that each evaluation was chosen with.

    Args:
        histories: History of a strategy by its name; those without inducing points
            (random search) are left out.
        ax: Axes to draw into.
    """
    ax = new_axes(ax)
    for history, style in styled(histories):
        counts = _per_evaluation(history, [b.num_inducing for b in history.batches])
        if counts.nan_to_num().any():
            _steps(ax, counts, style)
    ax.set(ylabel="inducing points")
    ax.set_ylim(bottom=0)
    return finish_over_evaluations(ax)


def plot_seconds(histories: Histories, ax: Axes | None = None) -> Figure:
    """Seconds that the strategy itself took for each evaluation.

    `ask` and `tell`, shared out evenly among the points of a batch; the time of the
    objective is not part of them. Batches are joined until they hold a fiftieth
    of the evaluations: a single `ask` takes a millisecond, give or take as much.

    Args:
        histories: History of a strategy by its name.
        ax: Axes to draw into.
    """
    ax = new_axes(ax)
    for history, style in styled(histories):
        seconds = _seconds_per_evaluation(history.batches)
        _steps(ax, _per_evaluation(history, seconds), style)
    ax.set(yscale="log", ylabel="seconds per evaluation")
    return finish_over_evaluations(ax)


def _seconds_per_evaluation(batches: Sequence[Any]) -> list[float]:
    """Of each batch, with its neighbours where it is small."""
    enough = sum(batch.size for batch in batches) / NUM_PIECES
    values: list[float] = []
    size, seconds = 0, 0.0
    for number, batch in enumerate(batches, start=1):
        size += batch.size
        seconds += batch.ask_seconds + batch.tell_seconds
        if size >= enough or number == len(batches):
            values += [seconds / size] * (number - len(values))
            size, seconds = 0, 0.0
    return values


def _per_evaluation(history: Any, values: list[float]) -> Tensor:
    """A number per batch, for each evaluation; NaN for points told without a batch."""
    # batch number -1 picks the NaN at the end
    of_batch = torch.tensor([*map(float, values), torch.nan], dtype=torch.float64)
    return of_batch[history.batch_number.cpu()]


def _steps(ax: Axes, values: Tensor, style: dict[str, Any]) -> None:
    ax.plot(evaluations(len(values)), values, drawstyle="steps-pre", **style)
