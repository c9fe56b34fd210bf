"""Colours, axes and what all figures share."""

from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from itertools import cycle
from typing import Any, cast

import matplotlib
import torch
from botorch.exceptions import InputDataError
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from botorch_sparse.argument_checks import check_kind, short_repr
from botorch_sparse.command_line import shortened

# Okabe and Ito's colours, told apart with any colour vision; one dash pattern each.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
GREY = "#666666"

Histories = Mapping[str, Any]


def new_axes(ax: Axes | None) -> Axes:
    """The axes given, or of a new figure that pyplot does not know."""
    if ax is not None:
        check_kind("ax", ax, Axes, "matplotlib Axes, or None for a new figure")
        return ax
    return Figure(figsize=(5, 3.8), layout="constrained").subplots()


def styles(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Keyword arguments of `Axes.plot`: colour and dashes by place."""
    for name, color, dashes in zip(names, cycle(COLORS), cycle(DASHES), strict=False):
        yield {"label": name, "color": color, "linestyle": dashes, "linewidth": 1.6}


def styled(histories: Histories) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each history that is not empty, with the look of its place."""
    need = "histories by name, such as {'BBKB': strategy.history}"
    check_kind("histories", histories, Mapping, need)
    for name, history in histories.items():
        if not hasattr(history, "batches"):
            raise InputDataError(
                f"Got histories[{name!r}]={short_repr(history)}; need a strategy's "
                "history."
            )
    for history, style in zip(histories.values(), styles(histories), strict=True):
        if len(history):
            yield history, style


def evaluations(n: int) -> Tensor:
    """The numbers of `n` evaluations, from 1."""
    return torch.arange(1, n + 1)


def finish(ax: Axes) -> Figure:
    """Grid, spines and legend."""
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    return cast("Figure", ax.get_figure(root=True))


def finish_over_evaluations(ax: Axes) -> Figure:
    """The same over a logarithmic axis of evaluations."""
    ax.set(xscale="log", xlabel="evaluations")
    return finish(ax)


def literal(name: object, most: int = 64) -> str:
    """A name as it stands, for matplotlib, which sets text between $ as formulas."""
    return shortened(str(name), most).replace("$", r"\$")


def svg_of(figure: Figure) -> str:
    """A figure as SVG: its texts stay texts, and equal figures are equal to the byte.

    Args:
        figure: The figure.
    """
    check_kind("figure", figure, Figure, "a matplotlib Figure")
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "botorch_sparse"}
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context(settings), StringIO() as file:
        figure.savefig(file, format="svg", metadata=nothing)
        return file.getvalue()
