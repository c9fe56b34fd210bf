"""A run for its user: the best so far, how good predictions are, what columns do."""

from collections.abc import Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Any, TypeAlias

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from botorch_sparse.argument_checks import as_numbers, check_kind
from botorch_sparse.plotting.style import (
    COLORS,
    GREY,
    evaluations,
    finish,
    literal,
    new_axes,
)
from botorch_sparse.strategies import History

# `l` numbers or categories, and the average predictions there.
Effects: TypeAlias = Mapping[str, tuple[Sequence[Any], Sequence[float]]]
# Above so many points, those of a vector picture are one image.
MANY_POINTS = 1000
PANELS_IN_ROW, BARS_IN_ROW = 4, 2
# Panels of categories with longer names have a row of their own.
FEW_LETTERS = 20


def plot_best_so_far(history: History, ax: Axes | None = None) -> Figure:
    """The values of one objective in the order of feedback, and the best so far.

    The best is by the means of each point's observations, among those that are
    feasible. Crosses are infeasible, rings lack a constraint's value.

    Args:
        history: Of a strategy with one objective.
        ax: Axes to draw into.

    Raises:
        UnsupportedError: If there are several objectives.
    """
    check_kind("history", history, History, "a strategy's history")
    outcomes = history.outcomes
    if len(outcomes.objectives) > 1:
        raise UnsupportedError(
            f"Got a history of {len(outcomes.objectives)} objectives; need one. Take "
            "plot_hypervolume, or plot_pareto."
        )
    (column,) = outcomes.objectives
    ax, shape = new_axes(ax), (len(history), len(outcomes))
    Y = outcomes.signed_rows(history.values.reshape(shape))
    is_feasible, is_known = outcomes.violations(Y) <= 0, ~Y.isnan().any(-1)
    many = len(Y) > MANY_POINTS
    for is_kind, marker, label in (
        (is_feasible & is_known, "o", "measured"),
        (~is_feasible, "x", "outside of the limits"),
        (is_feasible & ~is_known, "o", "limits not known yet"),
    ):
        chosen = is_kind & ~Y[:, column].isnan()
        if bool(chosen.any()):
            style: dict[str, Any] = {"marker": marker, "color": GREY, "s": 18}
            if label.endswith("yet"):
                style |= {"facecolors": "none", "edgecolors": GREY}
            number = evaluations(len(Y))[chosen]
            ax.scatter(number, Y[chosen, column], label=label, rasterized=many, **style)
    best = _best_so_far(history, Y, column)
    ax.plot(
        evaluations(len(Y)),
        best,
        drawstyle="steps-post",
        color=COLORS[1],
        label="best so far",
    )
    name = outcomes.parts[column].name
    ax.set(xlabel="result", ylabel="value" if name is None else literal(name))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _finish_with_legend_above(ax)


def _best_so_far(history: History, Y: Tensor, column: int) -> Tensor:
    """The best feasible mean after each of `n` evaluations; NaN before any. O(n n_u).

    Args:
        history: The history.
        Y: Its `n x k` observations.
        column: The objective.
    """
    outcomes, point = history.outcomes, history.point
    known, place = point.unique(return_inverse=True)
    total, count = (torch.zeros(len(known), Y.shape[-1]).double() for _ in range(2))
    pick, best = torch.amin if outcomes.minimize[column] else torch.amax, list[float]()
    for i, y in zip(place.tolist(), Y, strict=True):
        total[i] += y.nan_to_num()
        count[i] += ~y.isnan()
        means = total / count  # 0 / 0 is NaN
        is_able = ~means.isnan().any(-1) & (outcomes.violations(means) <= 0)
        values = means[is_able, column]
        best.append(float(pick(values, 0)) if len(values) else float("nan"))
    return torch.tensor(best)


def plot_predicted(
    measured: Any, mean: Any, ends: Any, name: str = "value", ax: Axes | None = None
) -> Figure:
    """Predictions against measurements, with 95 percent ranges.

    Args:
        measured: `n` measured values.
        mean: `n` predictions that have not seen them, such as of `leave_one_out`.
        ends: `2 x n` ends of the ranges of the measured values, with noise.
        name: What was measured.
        ax: Axes to draw into.

    Raises:
        InputDataError: If there are not as many of each.
    """
    need = "need a number for each measured value."
    y, m, ranges = (
        as_numbers(key, value, need).double()
        for key, value in {"measured": measured, "mean": mean, "ends": ends}.items()
    )
    y, m = y.reshape(-1), m.reshape(-1)
    if not len(y) == len(m) or ranges.shape != (2, len(y)):
        raise InputDataError(
            f"Got {len(y)} measured values, {len(m)} means and ends of ranges of shape "
            f"{tuple(ranges.shape)}; {need}"
        )
    ax, many = new_axes(ax), len(y) > MANY_POINTS
    both = torch.cat([y, m])
    ends = [float(both.min()), float(both.max())] if len(both) else [0.0, 1.0]
    ax.plot(ends, ends, color=GREY, linewidth=0.8, label="predicted = measured")
    style: dict[str, Any] = {"fmt": "o", "markersize": 3.5, "color": COLORS[0]}
    ax.errorbar(
        y,
        m,
        (ranges - m).abs(),
        ecolor="#9cc4de",
        elinewidth=0.8,
        label="prediction, 95% range",
        rasterized=many,
        **style,
    )
    shown = literal(name)
    ax.set(xlabel=f"{shown}, measured", ylabel=f"{shown}, predicted")
    return _finish_with_legend_above(ax)


def _finish_with_legend_above(ax: Axes) -> Figure:
    """Grid and spines, and a legend that hides no point."""
    figure = finish(ax)
    above: dict[str, Any] = {
        "loc": "lower left",
        "bbox_to_anchor": (0.0, 1.0),
        "ncols": 3,
    }
    ax.legend(frameon=False, borderaxespad=0.2, **above)
    return figure


def plot_effects(effects: Effects, name: str = "value") -> Figure:
    """The average prediction along columns of numbers, a panel for each.

    All panels have one vertical axis, so that steep columns stand out.

    Args:
        effects: By column `l` numbers, and `l` average predictions.
        name: What is predicted.
    """
    _check_effects(effects)
    num_rows = ceil(len(effects) / PANELS_IN_ROW)
    figure = Figure(figsize=(8.4, 0.3 + 2.1 * num_rows), layout="constrained")
    axes = figure.subplots(num_rows, PANELS_IN_ROW, squeeze=False, sharey=True)
    for ax, (column, (levels, means)) in zip(axes.flat, effects.items(), strict=False):
        marker = "." if len(levels) < 2 else None
        ax.plot(levels, means, color=COLORS[0], linewidth=1.6, marker=marker)
        ax.set_xlabel(literal(column, 24))
        ax.locator_params(axis="x", nbins=4)
        finish(ax)
    for ax in islice(axes.flat, len(effects), None):
        ax.set_visible(False)
    figure.supylabel(literal(name), fontsize="medium")
    return figure


def _check_effects(effects: Effects) -> None:
    """Check that each column has as many predictions as levels, one at least."""
    need = "a pair of levels and predictions for each column"
    check_kind("effects", effects, Mapping, need)
    for column, pair in effects.items():
        check_kind(f"effects[{column!r}]", pair, tuple, need)
    sizes = {column: [*map(len, pair)] for column, pair in effects.items()}
    if not sizes or any(len({*each}) != 1 or 0 in each for each in sizes.values()):
        raise InputDataError(
            f"Got effects with these numbers of levels and predictions: {sizes}; need "
            "a column, and as many of both in each, one at least."
        )


def plot_category_effects(effects: Effects, name: str = "value") -> Figure:
    """The average predictions of categories, as bars from their mean.

    Args:
        effects: By column `l` categories, and `l` average predictions.
        name: What is predicted.
    """
    _check_effects(effects)
    names = [str(level) for levels, _ in effects.values() for level in levels]
    is_long = any(len(name) > FEW_LETTERS for name in names)
    in_row = 1 if is_long else BARS_IN_ROW
    num_rows = ceil(len(effects) / in_row)
    most = max((len(levels) for levels, _ in effects.values()), default=1)
    size = (8.4, 0.3 + num_rows * (0.8 + 0.21 * most))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(num_rows, in_row, squeeze=False, sharex=True)
    for ax, (column, (levels, means)) in zip(axes.flat, effects.items(), strict=False):
        middle, places = sum(means) / len(means), range(len(means))
        widths = [value - middle for value in means]
        ax.barh(places, widths, left=middle, height=0.7, color=COLORS[0])
        ax.axvline(middle, color=GREY, linewidth=0.8)
        ax.set_yticks(places, [*map(literal, levels)])
        ax.set_ylim(most - 0.5, -0.5)  # bars of all panels are as thick
        ax.tick_params(labelbottom=True)
        ax.set_axisbelow(True)
        ax.set_title(literal(column, 40), fontsize="medium")
        ax.locator_params(axis="x", nbins=5)
        finish(ax)
        ax.grid(visible=False, axis="y")
    for ax in islice(axes.flat, len(effects), None):
        ax.set_visible(False)
    figure.supxlabel(literal(name), fontsize="medium")
    return figure
