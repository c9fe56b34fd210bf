"""The best row found, by its rank among all rows of a table."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from botorch_sparse.datasets import Table
from botorch_sparse.doors import check_kind
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

    Returns:
        The figure.
    """
    check_kind("table", table, Table, "the Table that load_table returns")
    ax = new_axes(ax)
    for history, style in styled(histories):
        rank = table.best_rank(history.indices).cpu()
        ax.plot(evaluations(len(rank)), rank, drawstyle="steps-post", **style)
    ax.set(yscale="log", ylabel="rank of the best row found")
    ax.set_ylim(bottom=0.9)  # rank 1 stands clear of the axis
    return finish_over_evaluations(ax)
