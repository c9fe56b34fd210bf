"""Figures of a run for its user show the history's own numbers, and names as given."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError

pytest.importorskip("matplotlib")

from matplotlib.container import ErrorbarContainer
from test_plotting_front import COST, DUST, NAN, YIELD, drawn, history_of

from botorch_sparse.plotting import (
    plot_best_so_far,
    plot_category_effects,
    plot_effects,
    plot_pareto,
    plot_predicted,
    svg_of,
)
from botorch_sparse.strategies import Constraint, History, Objective, RandomSearch

# The last one repeats row 1: its cost is 4 in the mean, and no longer the least.
ROWS = [0, 1, 2, 3, 4, 1]
VALUES = [[6.0, 2.0], [3.0, 0.0], [1.0, 9.0], [4.0, 0.0], [0.5, NAN], [5.0, 0.0]]


def limited() -> History:
    return history_of(VALUES, [COST, DUST], ROWS)


def test_the_best_so_far_is_feasible_and_by_the_means_of_rows():
    figure = plot_best_so_far(limited())
    best = drawn(figure, "best so far").get_ydata()
    assert torch.equal(
        torch.tensor(best).nan_to_num(-1.0),
        torch.tensor([-1.0, 3.0, 3.0, 3.0, 3.0, 4.0]),
    )
    assert best[-1] == limited().best().value
    for label, places in (
        ("measured", [1, 3, 5]),
        ("outside of the limits", [0, 2]),
        ("limits not known yet", [4]),
    ):
        points = drawn(figure, label).get_offsets().tolist()
        assert points == [[i + 1, VALUES[i][0]] for i in places]


def test_a_value_without_constraints_is_maximized_by_default():
    history = history_of([1.0, 3.0, 2.0], None, [0, 1, 2])
    figure = plot_best_so_far(history)
    assert drawn(figure, "best so far").get_ydata().tolist() == [1.0, 3.0, 3.0]
    two = history_of([[1.0, 2.0]], [YIELD, COST], [0])
    with pytest.raises(UnsupportedError, match="2 objectives"):
        plot_best_so_far(two)


def test_limits_are_met_in_the_precision_of_feedback():
    """Candidates in float32 would round 0.1 up."""
    dust = Constraint("dust", upper=0.1)
    strategy = RandomSearch(torch.eye(3), outcomes=[YIELD, dust])
    empty = plot_best_so_far(strategy.history)
    assert len(drawn(empty, "best so far").get_ydata()) == 0
    strategy.tell(torch.eye(3), [[1.0, 0.1], [2.0, 0.1], [3.0, 0.2]])
    figure = plot_best_so_far(strategy.history)
    assert drawn(figure, "best so far").get_ydata().tolist() == [1.0, 2.0, 2.0]
    assert len(drawn(figure, "measured").get_offsets()) == 2


def test_predictions_have_ranges_of_95_percent():
    figure = plot_predicted([1.0, 2.0], [1.5, 1.0], [[0.5, 0.25], [1.75, 4.0]], "loss")
    (ax,) = figure.axes
    (bars,) = (c for c in ax.containers if isinstance(c, ErrorbarContainer))
    points, _, (ranges,) = bars
    assert points.get_xydata().tolist() == [[1.0, 1.5], [2.0, 1.0]]
    ends = [segment[:, 1].tolist() for segment in ranges.get_segments()]
    assert ends == [[0.5, 1.75], [0.25, 4.0]]
    assert ax.get_ylabel() == "loss, predicted"
    with pytest.raises(InputDataError, match="2 measured values, 1 means"):
        plot_predicted([1.0, 2.0], [1.0], [[1.0, 1.0], [2.0, 2.0]])
    with pytest.raises(InputDataError, match="ends of ranges of shape"):
        plot_predicted([1.0, 2.0], [1.0, 1.0], [1.0, 1.0])


def test_effects_are_lines_and_bars_from_their_mean():
    figure = plot_effects({"heat": ([0.0, 1.0], [3.0, 5.0]), "$a$ $b": ([2.0], [4.0])})
    first, second = (ax for ax in figure.axes if ax.get_visible())
    assert first.lines[0].get_xydata().tolist() == [[0.0, 3.0], [1.0, 5.0]]
    assert second.lines[0].get_marker() == "."
    bars = plot_category_effects({"kind": (["oil", "water"], [3.0, 5.0])}).axes[0]
    assert [(b.get_x(), b.get_width()) for b in bars.patches] == [(4.0, -1), (4.0, 1)]
    assert [label.get_text() for label in bars.get_yticklabels()] == ["oil", "water"]


NAMES = ["$x_1$ and y^", r"$\frac{$", "<script> & </script>", "a\nb\x00"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NAMES)
def test_names_stand_in_the_picture_as_they_are(name: Any):
    from xml.etree import ElementTree

    shown = " ".join(name.split()).replace("\x00", r"\x00")
    outcomes = [Objective(name), Objective("cost"), Constraint("dust", upper=1.0)]
    front = history_of([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0]], outcomes, [0, 1])
    for figure in (
        plot_pareto(front),
        plot_effects({name: ([0.0, 1.0], [3.0, 5.0])}),
        plot_category_effects({"kind": ([name], [3.0])}),
    ):
        svg = svg_of(figure)
        texts = [element.text or "" for element in ElementTree.fromstring(svg).iter()]
        assert any(text.strip().startswith(shown) for text in texts)


def test_equal_figures_are_equal_to_the_byte():
    assert svg_of(plot_best_so_far(limited())) == svg_of(plot_best_so_far(limited()))
