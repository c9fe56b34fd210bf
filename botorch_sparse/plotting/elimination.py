"""S-BPE: what its batches rule out."""

from typing import Any

from botorch.exceptions import InputDataError
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from botorch_sparse.argument_checks import check_kind, check_whole
from botorch_sparse.plotting.style import COLORS, GREY, finish, new_axes
from botorch_sparse.strategies.sbpe import SBPE


def plot_elimination(strategy: SBPE, *, dim: int = 0, ax: Axes | None = None) -> Figure:
    """The confidence intervals of all candidates, and which of them are ruled out.

    Each candidate has the tightest bounds of all batches that explored it.
    Survivors are blue, the others grey. The line is the largest lower bound: whoever is
    below it cannot be the maximizer.

    Args:
        strategy: `SBPE` on a table, after its first batch.
        dim: The column of the candidates on the horizontal axis.
        ax: Axes to draw into.

    Raises:
        InputDataError: Before the feedback of the first batch.
        UnsupportedError: On a box.
    """
    check_kind("strategy", strategy, SBPE, "an SBPE, after its first batch")
    survivors = strategy.survivors.cpu()
    check_whole("dim", dim, 0)
    if dim >= strategy.candidates.shape[-1]:
        d = strategy.candidates.shape[-1]
        raise InputDataError(f"Got dim={dim}; need one below {d}.")
    if strategy.last_bounds is None:
        raise InputDataError(
            "Got a strategy without confidence bounds: tell the feedback of the first "
            "batch before."
        )
    left: Any = strategy.progress.left
    x, lower, upper = (part.cpu() for part in (left.X[:, dim], left.lower, left.upper))
    if strategy.minimize:
        lower, upper = -upper, -lower
    ax = new_axes(ax)
    looks = ((~survivors, GREY, "ruled out"), (survivors, COLORS[0], "survives"))
    for chosen, color, label in looks:
        if chosen.any():
            ax.vlines(
                x[chosen], lower[chosen], upper[chosen], color, alpha=0.5, label=label
            )
    threshold = upper[survivors].min() if strategy.minimize else lower[survivors].max()
    ax.axhline(float(threshold), color=COLORS[1], lw=1.0)
    ax.set(xlabel=f"x{dim + 1}", ylabel="confidence interval")
    return finish(ax)
