"""Several panels with one legend."""

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from botorch_sparse.datasets import Table
from botorch_sparse.plotting.best import plot_best_rank
from botorch_sparse.plotting.progress import plot_batch_sizes, plot_num_inducing
from botorch_sparse.plotting.regret import plot_regret
from botorch_sparse.plotting.style import Histories


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
