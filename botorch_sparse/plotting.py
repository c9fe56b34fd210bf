"""Figures drawn from the histories of strategies; needs the extra `plot`.

The functions draw into `ax` where one is given, else into a new figure, and return
the figure. They never call `plt.show` and touch no global state of matplotlib.
"""

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from botorch_sparse.datasets import Table

# Okabe and Ito's colours, told apart with any colour vision; one dash pattern each.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
GREY = "#666666"

Histories = Mapping[str, Any]


def plot_regret(histories: Histories, table: Table, ax: Axes | None = None) -> Figure:
    """Cumulative regret over that of uniform choice, after each evaluation.

    Args:
        histories: History of a strategy by its name; the candidates are the rows of
            `table`.
        table: The table whose target was maximized.
        ax: Axes to draw into.

    Returns:
        The figure.
    """
    ax = _axes(ax)
    for history, style in _styled(histories):
        ratio = table.regret_ratio(history.indices)
        ax.plot(_evaluations(len(ratio)), ratio.cpu(), **style)
    ax.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    ax.set(ylabel="regret / regret of uniform choice")
    ax.set_ylim(0, 1.55)  # the first few evaluations may leave it; they are noise
    return _finish(ax)


def plot_batch_sizes(histories: Histories, ax: Axes | None = None) -> Figure:
    """Size of the batch that each evaluation belongs to.

    Args:
        histories: History of a strategy by its name.
        ax: Axes to draw into.

    Returns:
        The figure.
    """
    ax = _axes(ax)
    for history, style in _styled(histories):
        sizes = _per_evaluation(history, "size")
        ax.plot(_evaluations(len(sizes)), sizes, drawstyle="steps-pre", **style)
    ax.set(yscale="log", ylabel="batch size")
    return _finish(ax)


def plot_num_inducing(histories: Histories, ax: Axes | None = None) -> Figure:
    """Number of inducing points that each evaluation was chosen with.

    Args:
        histories: History of a strategy by its name; those without inducing points
            (random search) are left out.
        ax: Axes to draw into.

    Returns:
        The figure.
    """
    ax = _axes(ax)
    for history, style in _styled(histories):
        counts = _per_evaluation(history, "num_inducing")
        if counts.nan_to_num().any():
            ax.plot(_evaluations(len(counts)), counts, drawstyle="steps-pre", **style)
    ax.set(ylabel="inducing points")
    ax.set_ylim(bottom=0)
    return _finish(ax)


def plot_comparison(histories: Histories, table: Table, title: str = "") -> Figure:
    """Regret, batch size and number of inducing points, side by side.

    Args:
        histories: History of a strategy by its name.
        table: The table whose target was maximized.
        title: Line above the panels.

    Returns:
        The figure, with one legend for the three panels.
    """
    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.08)
    figure = Figure(figsize=(13, 4.4), layout=layout)
    axes = figure.subplots(1, 3)
    plot_regret(histories, table, axes[0])
    plot_batch_sizes(histories, axes[1])
    plot_num_inducing(histories, axes[2])
    for ax in axes:
        if (legend := ax.get_legend()) is not None:
            legend.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
    )
    if title:
        figure.suptitle(title)
    return figure


def _axes(ax: Axes | None) -> Axes:
    return (
        Figure(figsize=(5, 3.8), layout="constrained").subplots() if ax is None else ax
    )


def _styled(histories: Histories) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each history that is not empty, with the colour and dashes of its place."""
    looks = zip(cycle(COLORS), cycle(DASHES))
    for (name, history), (color, dashes) in zip(histories.items(), looks, strict=False):
        if len(history.batches):
            yield (
                history,
                {"label": name, "color": color, "linestyle": dashes, "linewidth": 1.6},
            )


def _evaluations(n: int) -> Tensor:
    return torch.arange(1, n + 1)


def _per_evaluation(history: Any, field: str) -> Tensor:
    """A number per batch, for each evaluation; NaN for points told without a batch."""
    values = [float(getattr(batch, field)) for batch in history.batches]
    # batch number -1 picks the NaN at the end
    return torch.tensor([*values, torch.nan])[history.batch_number.cpu()]


def _finish(ax: Axes) -> Figure:
    ax.set(xscale="log", xlabel="evaluations")
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    figure = ax.get_figure(root=True)
    if not isinstance(figure, Figure):
        raise TypeError(f"ax belongs to {figure!r}; it must belong to a Figure.")
    return figure
