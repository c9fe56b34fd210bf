"""Posteriors: confidence bands on a line, slices of a box, inducing points marked."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from botorch.exceptions import InputDataError
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_choice,
    check_kind,
    check_number,
    check_tensors,
    check_whole,
)
from botorch_sparse.plotting.style import COLORS, GREY, finish, new_axes
from botorch_sparse.plotting.views import View, view_of

Quantity = Literal["mean", "sd", "ucb"]

NUM_POINTS = 400


def plot_confidence_band(
    source: Any,
    X: Tensor | None = None,
    *,
    beta: float | None = None,
    truth: Callable[[Tensor], Tensor] | None = None,
    observations: tuple[Tensor, Tensor] | None = None,
    inducing_points: Tensor | None = None,
    ax: Axes | None = None,
) -> Figure:
    r"""Mean and band :math:`\mu(x) \pm \beta^{1/2} \sigma(x)` in one dimension.

    The picture of Figure 1 of [Calandriello2019]_: where the band is far too narrow
    beside the data, variance starves. Observations are dots, and inducing points ticks
    at the bottom.

    Args:
        source: A strategy with feedback; a BoTorch model, of which the first output is
            drawn; or a function from `k x 1` points to `k` means and `k` variances,
            such as `posterior.moments`.
        X: `k x 1` points to draw at; by default the candidates of a strategy on a
            table (and always those), the box of one on a box, the range of a model's
            data.
        beta: BoTorch's beta; by default the strategy's present one, 4 for all else.
        truth: The function without noise, drawn dotted.
        observations: `n x 1` points and `n` values; known from strategies and models.
        inducing_points: `m x 1` points; known from strategies and sparse models.
        ax: Axes to draw into.

    Raises:
        InputDataError: If the points are not of one dimension, or `X` is missing.
        UnsupportedError: If the strategy has no posterior.
    """
    given: dict[str, Any] = {
        "observations": observations,
        "inducing_points": inducing_points,
    }
    known = {name: data for name, data in given.items() if data is not None}
    view = replace(view_of(source), **known)
    X = _line(view, X)
    mean, sd = view.at(X)
    order = X[:, 0].argsort().cpu()
    x, mean, sd = X[:, 0].cpu()[order], mean[order], sd[order]
    if beta is not None:
        check_number("beta", beta, "[0, inf)")
    width = sd * (view.beta if beta is None else beta) ** 0.5
    ax = new_axes(ax)
    ax.fill_between(x, mean - width, mean + width, color=COLORS[0], alpha=0.2, lw=0)
    ax.plot(x, mean, color=COLORS[0], linewidth=1.6, label="mean")
    if truth is not None:
        ax.plot(x, truth(X).reshape(-1).cpu()[order], ":", color=GREY, label="truth")
    _mark_line(ax, view)
    ax.set(xlabel="x")
    return finish(ax)


def plot_slice(
    source: Any,
    quantity: Quantity = "mean",
    *,
    bounds: Tensor | None = None,
    dims: tuple[int, int] = (0, 1),
    at: Tensor | None = None,
    resolution: int = 60,
    ax: Axes | None = None,
) -> Figure:
    r"""A posterior over two of its dimensions, the others held still.

    Observations are dots and inducing points crosses, projected on the slice. Of a
    strategy on a table the candidates themselves are coloured.

    Args:
        source: As in `plot_confidence_band`.
        quantity: `"mean"`, `"sd"` or `"ucb"`, which is
            :math:`\mu(x) + \beta^{1/2} \sigma(x)`.
        bounds: `2 x d`; known from strategies and, as the range of the data, from
            models.
        dims: The two dimensions.
        at: `d` values of the other dimensions; by default from the best
            observation.
        resolution: Points along each side.
        ax: Axes to draw into.

    Raises:
        InputDataError: If bounds are missing, or an argument does not fit.
        UnsupportedError: If the strategy has no posterior.
    """
    check_choice("quantity", quantity, get_args(Quantity))
    check_whole("resolution", resolution, 2)
    check_kind("dims", dims, Sequence, "two different dimensions, such as (0, 1)")
    if at is not None:
        check_tensors(at=at)
    view = view_of(source)
    X = _grid(view, bounds, dims, at, resolution)
    mean, sd = view.at(X)
    values = {"mean": mean, "sd": sd, "ucb": mean + view.beta**0.5 * sd}[quantity]
    ax = new_axes(ax)
    x, y = (X[:, i].cpu() for i in dims)
    if view.candidates is None:
        shape = (resolution, resolution)
        parts = [part.reshape(shape).numpy() for part in (x, y, values)]
        artist: Any = ax.contourf(*parts, levels=20, cmap="viridis")
    else:
        artist = ax.scatter(x, y, c=values, s=8, cmap="viridis")
    ax.figure.colorbar(artist, ax=ax, label=quantity)
    _mark_plane(ax, view, dims)
    ax.set(xlabel=f"x{dims[0] + 1}", ylabel=f"x{dims[1] + 1}")
    return finish(ax)


def _line(view: View, X: Tensor | None) -> Tensor:
    """The points of a band, `k x 1`."""
    if view.candidates is not None:
        X = view.candidates
    elif X is None and view.bounds is not None and view.bounds.shape[-1] == 1:
        low, high = view.bounds[:, 0].tolist()
        X = torch.linspace(low, high, NUM_POINTS).to(view.bounds).unsqueeze(-1)
    if X is None:
        raise InputDataError("Got no X; need `k x 1` points to draw the band at.")
    if X.dim() != 2 or X.shape[-1] != 1:
        raise InputDataError(
            f"Got points of shape {tuple(X.shape)}; a band needs `k x 1`. Use "
            "plot_slice for more dimensions."
        )
    return X


def _grid(
    view: View,
    bounds: Tensor | None,
    dims: tuple[int, int],
    at: Tensor | None,
    resolution: int,
) -> Tensor:
    """The points of a slice, `resolution^2 x d`; a table's own."""
    bounds = view.bounds if bounds is None else bounds
    known = bounds if view.candidates is None else view.candidates
    if known is None:
        raise InputDataError("Got no bounds; need a `2 x d` tensor.")
    d = known.shape[-1]
    if len(set(dims)) != 2 or not all(0 <= i < d for i in dims):
        raise InputDataError(f"Got dims={dims}; need two different ones below {d}.")
    if view.candidates is not None or bounds is None:
        return known
    if at is None:
        at = bounds.mean(0)
        if view.observations is not None:
            at = view.observations[0][int(view.observations[1].argmax())]
    ticks = torch.linspace(0, 1, resolution).to(bounds)
    low, high = bounds
    sides = [low[i] + (high[i] - low[i]) * ticks for i in dims]
    plane = torch.cartesian_prod(*sides)
    X = at.to(bounds).repeat(len(plane), 1)
    X[:, list(dims)] = plane
    return X


def _mark_line(ax: Axes, view: View) -> None:
    """Observations as dots, inducing points as ticks at the bottom."""
    if view.observations is not None:
        X, Y = (part.detach().cpu() for part in view.observations)
        ax.plot(X[:, 0], Y.reshape(-1), ".", color=GREY, ms=3, label="observations")
    if view.inducing_points is not None:
        S = view.inducing_points[:, 0].detach().cpu()
        bottom = ax.get_xaxis_transform()  # y in units of the axes
        look: dict[str, Any] = {
            "color": COLORS[1],
            "ms": 12,
            "mew": 1.5,
            "label": "inducing points",
        }
        ax.plot(S, torch.full_like(S, 0.02), "|", transform=bottom, **look)


def _mark_plane(ax: Axes, view: View, dims: tuple[int, int]) -> None:
    """Observations as dots, inducing points as crosses."""
    if view.observations is not None:
        X = view.observations[0].detach().cpu()
        ax.plot(*X[:, list(dims)].T, ".", color="white", ms=3, label="observations")
    if view.inducing_points is not None:
        S = view.inducing_points.detach().cpu()
        ax.plot(*S[:, list(dims)].T, "x", color=COLORS[1], label="inducing points")
