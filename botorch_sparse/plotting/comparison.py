"""Several panels with one legend."""

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from botorch_sparse.datasets import Table
from botorch_sparse.plotting.progress import plot_batch_sizes, plot_num_inducing
from botorch_sparse.plotting.regret import plot_regret
from botorch_sparse.plotting.style import Histories


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
