"""Several objectives: what was found of them, and the volume that it dominates."""

from typing import Any

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from botorch_sparse.argument_checks import check_kind
from botorch_sparse.plotting.style import (
    COLORS,
    GREY,
    Histories,
    evaluations,
    finish,
    finish_over_evaluations,
    literal,
    new_axes,
    styled,
)
from botorch_sparse.strategies import History


def plot_pareto(history: History, ax: Axes | None = None) -> Figure:
    """The values of two or three objectives of all points, and the feasible front.

    Each point is drawn once, by the mean of its observations, in the colour of its
    place in the order in which points were found; crosses are infeasible. The front is
    a line of steps, of three objectives rings; the star is `History.reference_point`.
    Points of which an outcome is missing are left out.

    Args:
        history: Of a strategy with two or three objectives.
        ax: Axes to draw into; of three objectives with `projection="3d"`.

    Raises:
        UnsupportedError: If there is one objective, or more than three.
        InputDataError: If `ax` has not as many axes as there are objectives.
    """
    check_kind("history", history, History, "a strategy's history")
    outcomes = history.outcomes
    columns = list(outcomes.objectives)
    if len(columns) not in (2, 3):
        raise UnsupportedError(
            f"Got a history of {len(columns)} objectives; need two or three. Take "
            "plot_best_so_far for one, and plot_hypervolume for more."
        )
    axes = _axes_of(len(columns), ax)
    _draw_points(axes, history, columns)
    front = history.pareto().values[:, columns]
    if len(columns) == 2:
        line = front[front[:, 0].argsort(descending=outcomes.minimize[columns[0]])]
        axes.plot(*line.mT, drawstyle="steps-pre", color=COLORS[1], label="front")
    else:
        rings = {"facecolors": "none", "edgecolors": COLORS[1], "s": 60}
        axes.scatter(*front.mT, label="front", **rings)
    star = {"marker": "*", "color": GREY, "label": "reference point"}
    axes.scatter(*history.reference_point().unsqueeze(-1), **star)
    for axis, column in zip("xyz", columns, strict=False):
        goal = "minimized" if outcomes.minimize[column] else "maximized"
        name = literal(outcomes.parts[column].name)
        axes.set(**{f"{axis}label": f"{name} ({goal})"})
    figure = finish(axes)
    axes.get_legend().set_loc("upper left" if len(columns) == 3 else "best")
    return figure


def _draw_points(axes: Any, history: History, columns: list[int]) -> None:
    """All points, feasible or not, in the colours of their order."""
    Y = history.means()[1]
    order, is_complete, drawn = evaluations(len(Y)), ~Y.isnan().any(-1), None
    is_feasible = history.outcomes.violations(Y) <= 0
    for is_kind, marker, label in (
        (is_feasible, "o", "feasible"),
        (~is_feasible, "x", "infeasible"),
    ):
        chosen = is_kind & is_complete
        if bool(chosen.any()):
            style: dict[str, Any] = {"marker": marker, "label": label, "s": 22}
            style |= {"cmap": "viridis", "vmin": 1, "vmax": len(Y)}
            F = Y[chosen][:, columns]
            drawn = axes.scatter(*F.mT, c=order[chosen], **style)
    if drawn is not None:
        pad = 0.15 if len(columns) == 3 else 0.02
        figure = axes.get_figure(root=True)
        figure.colorbar(drawn, ax=axes, label="found as number", pad=pad)


def plot_hypervolume(
    histories: Histories, reference: Any = None, ax: Axes | None = None
) -> Figure:
    """The hypervolume of the feasible front after each evaluation.

    All are above one reference point, which the axis shows. Where none is given, each
    objective has the worst of the histories' final ones (`History.reference_point`).

    Args:
        histories: History of a strategy by its name, all of the same objectives.
        reference: What counts for nothing, a number for each objective in the user's
            signs and units.
        ax: Axes to draw into.

    Raises:
        InputDataError: If objectives differ, or `reference` has not a number for each.
    """
    drawn = list(styled(histories))
    objectives = [_objectives(history) for history, _ in drawn]
    if len(set(objectives)) > 1:
        raise InputDataError(
            f"Got histories of the objectives {sorted(set(objectives), key=str)}; need "
            "those of the same ones, for one reference point."
        )
    if reference is None and drawn:
        points = torch.stack([history.reference_point() for history, _ in drawn])
        sign = torch.tensor(
            [-1.0 if minimize else 1.0 for _, minimize in objectives[0]]
        )
        reference = (points * sign).amin(0) * sign
    ax = new_axes(ax)
    for history, style in drawn:
        volumes = history.hypervolumes(reference)
        ax.plot(evaluations(len(volumes)), volumes, drawstyle="steps-post", **style)
    at = ", ".join(f"{float(r):.4g}" for r in reference) if drawn else ""
    ax.set(ylabel=f"hypervolume\nreference point ({at})")
    return finish_over_evaluations(ax)


def _objectives(history: Any) -> tuple[tuple[Any, bool], ...]:
    """The names of the objectives, and whether they are minimized."""
    outcomes = history.outcomes
    return tuple(
        (outcomes.parts[column].name, outcomes.minimize[column])
        for column in outcomes.objectives
    )


def _axes_of(num: int, ax: Axes | None) -> Any:
    """Axes of two or three dimensions, new ones where none are given."""
    if ax is None and num == 3:
        figure = Figure(figsize=(5, 3.8), layout="constrained")
        return figure.add_subplot(projection="3d")
    ax = new_axes(ax)
    if (ax.name == "3d") != (num == 3):
        raise InputDataError(
            f"Got axes of the projection {ax.name!r} for {num} objectives; need "
            f"{'3d' if num == 3 else 'rectilinear'}, or None for a new figure."
        )
    return ax
