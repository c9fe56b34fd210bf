"""The best values of several strategies, and their comparison in one figure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from botorch_sparse.argument_checks import check_kind
from botorch_sparse.demo import Table
from botorch_sparse.plotting.progress import plot_batch_sizes, plot_num_inducing
from botorch_sparse.plotting.regret import plot_regret
from botorch_sparse.plotting.style import (
    Histories,
    evaluations,
    finish_over_evaluations,
    new_axes,
    styled,
)


def plot_best_rank(
    histories: Histories, table: Table, ax: Axes | None = None
) -> Figure:
    """Rank of the best row found, after each evaluation; 1 is the best of the table.

    Args:
        histories: History of a strategy by its name; the candidates are the rows of
            `table`.
        table: The table whose target was maximized.
        ax: Axes to draw into.
    """
    check_kind("table", table, Table, "the Table that load_table returns")
    ax = new_axes(ax)
    for history, style in styled(histories):
        rank = table.best_rank(history.indices).cpu()
        ax.plot(evaluations(len(rank)), rank, drawstyle="steps-post", **style)
    ax.set(yscale="log", ylabel="rank of the best row found")
    ax.set_ylim(bottom=0.9)  # rank 1 stands clear of the axis
    return finish_over_evaluations(ax)


def plot_comparison(histories: Histories, table: Table, title: str = "") -> Figure:
    """Best row's rank, regret, batch size and number of inducing points.

    Args:
        histories: History of a strategy by its name.
        table: The table whose target was maximized.
        title: Line above the panels.

    Returns:
        The figure, with one legend for the four panels.
    """
    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.1)
    figure = Figure(figsize=(10, 7.4), layout=layout)
    axes = figure.subplots(2, 2).flatten()
    plot_best_rank(histories, table, axes[0])
    plot_regret(histories, table, axes[1])
    plot_batch_sizes(histories, axes[2])
    plot_num_inducing(histories, axes[3])
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
