"""Regret: of a table's rows, or of a function on a box."""

from collections.abc import Callable
from typing import Any

from botorch.exceptions import InputDataError, UnsupportedError
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from botorch_sparse.argument_checks import check_callable, check_kind, check_number
from botorch_sparse.demo import Table
from botorch_sparse.plotting.style import (
    GREY,
    Histories,
    evaluations,
    finish_over_evaluations,
    new_axes,
    styled,
)

Truth = Table | Callable[[Tensor], Tensor] | None


def plot_regret(histories: Histories, table: Table, ax: Axes | None = None) -> Figure:
    """Cumulative regret over the regret of uniform choice, after each evaluation.

    Args:
        histories: History of a strategy by its name; the candidates are the rows of
            `table`.
        table: The table whose target was maximized.
        ax: Axes to draw into.

    Raises:
        UnsupportedError: If the target was minimized.
    """
    check_kind("table", table, Table, "the Table that load_table returns")
    ax = new_axes(ax)
    for history, style in styled(histories):
        if history.minimize:
            raise UnsupportedError(
                "Got a history of a strategy that minimizes; this regret is that of "
                "maximization. Take plot_cumulative_regret."
            )
        ratio = table.regret_ratio(history.indices)
        ax.plot(evaluations(len(ratio)), ratio.cpu(), **style)
    ax.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    ax.set(ylabel="regret / regret of uniform choice")
    ax.set_ylim(0, 1.55)  # the first few evaluations may leave it; they are noise
    return finish_over_evaluations(ax)


def plot_simple_regret(
    histories: Histories,
    truth: Truth = None,
    *,
    optimum: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Simple regret :math:`f^* - \max_{s \le t} f(x_s)` after each evaluation.

    Of strategies that minimize, :math:`\min_{s \le t} f(x_s) - f^*`.

    Args:
        histories: History of a strategy by its name.
        truth: The table whose rows were the candidates, or the function without noise,
            from `n x d` points to `n` (or `n x 1`) values. Without it the observations
            stand for the function, whose noise then flatters the regret.
        optimum: The maximum f*, or minimum; for a table its own by default.
        ax: Axes to draw into.

    Raises:
        InputDataError: If the optimum is neither given nor known from a table.
        UnsupportedError: Without a truth, if there are several outcomes.
    """
    ax = new_axes(ax)
    for history, style in styled(histories):
        regret = _regret(history, truth, optimum).cummin(0).values
        ax.plot(evaluations(len(regret)), regret, drawstyle="steps-post", **style)
    ax.set(ylabel="simple regret")
    ax.set_yscale("log", nonpositive="clip")  # zero, once the best row is found
    return finish_over_evaluations(ax)


def plot_cumulative_regret(
    histories: Histories,
    truth: Truth = None,
    *,
    optimum: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Cumulative regret :math:`\sum_{s \le t} (f^* - f(x_s))` after each evaluation.

    Arguments and errors are as in `plot_simple_regret`.
    """
    ax = new_axes(ax)
    for history, style in styled(histories):
        regret = _regret(history, truth, optimum).cumsum(0)
        ax.plot(evaluations(len(regret)), regret, **style)
    ax.set(ylabel="cumulative regret")
    return finish_over_evaluations(ax)


def _regret(history: Any, truth: Truth, optimum: float | None) -> Tensor:
    """Regret of each evaluation, `n` on the host."""
    if truth is not None and not isinstance(truth, Table):
        check_callable("truth", truth, "a Table, a function or None")
    if optimum is not None:
        check_number("optimum", optimum, "(-inf, inf)")
    else:
        if not isinstance(truth, Table):
            raise InputDataError(
                "Got no optimum; the regret needs the function's maximum (or minimum), "
                "such as optimum=problem.optimal_value. It is known from a table alone."
            )
        optimum = float(truth.Y.min() if history.minimize else truth.Y.max())
    if truth is None:
        values = history.Y
        if values.dim() > 1:
            raise UnsupportedError(
                f"Got a history of {values.shape[-1]} outcomes, whose values are no "
                "regret of one function: give the truth, or take plot_hypervolume."
            )
    elif isinstance(truth, Table):
        truth.regret_ratio(history.indices)  # refuses points that are not in the table
        values = truth.Y[history.indices.to(truth.Y.device)]
    else:
        values = truth(history.X).reshape(-1)
    values = values.detach().cpu()
    return values - optimum if history.minimize else optimum - values
