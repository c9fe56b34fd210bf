"""Plots of several objectives show the histories' own numbers."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

pytest.importorskip("matplotlib")

from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from strategy_table import make_candidates

from botorch_sparse.demo.datasets import Table
from botorch_sparse.plotting import (
    certified_step,
    plot_batch_sizes,
    plot_certificates,
    plot_cumulative_regret,
    plot_hypervolume,
    plot_num_inducing,
    plot_pareto,
    plot_regret,
    plot_seconds,
    plot_simple_regret,
    plot_slice,
)
from botorch_sparse.plotting.style import COLORS
from botorch_sparse.strategies import (
    Constraint,
    History,
    Objective,
    RandomSearch,
    ThompsonSampling,
)

NAN = float("nan")
YIELD, COST = Objective("yield"), Objective("cost", minimize=True)
SPEED, DUST = Objective("speed"), Constraint("dust", upper=1.0)
# The last one repeats the first; the means are (2, 5), (3, 9), (1, 1), (4, 2).
VALUES = [[1.0, 6.0, 0], [3.0, 9.0, 0], [1.0, 1.0, 0], [4.0, 2.0, 3], [9.0, NAN, 0]]
ROWS = [0, 1, 2, 3, 4, 0]
VALUES.append([3.0, 4.0, 0.0])


def history_of(values: Any, outcomes: Any, rows: list[int]) -> History:
    strategy = RandomSearch(torch.eye(8, dtype=torch.float64), outcomes=outcomes)
    batch = strategy.restore_trials(rows)
    strategy.tell(batch, values)
    return strategy.history


def two() -> History:
    return history_of(VALUES, [YIELD, COST, DUST], ROWS)


def drawn(figure: Figure, label: str) -> Any:
    ax = figure.axes[0]
    return next(x for x in [*ax.lines, *ax.collections] if x.get_label() == label)


def points(figure: Figure, label: str) -> list[list[float]]:
    collection = drawn(figure, label)
    if hasattr(collection, "_offsets3d"):
        return [
            list(map(float, each)) for each in zip(*collection._offsets3d, strict=True)
        ]
    return collection.get_offsets().tolist()


def test_points_of_two_objectives() -> None:
    """Means, crosses, and the colours of the order in which they were found."""
    figure = plot_pareto(two())
    assert points(figure, "feasible") == [[2.0, 5.0], [3.0, 9.0], [1.0, 1.0]]
    assert points(figure, "infeasible") == [[4.0, 2.0]]
    assert drawn(figure, "feasible").get_array().tolist() == [1, 2, 3]
    assert drawn(figure, "infeasible").get_array().tolist() == [4]
    assert drawn(figure, "infeasible").get_clim() == (1, 5)
    shapes = [drawn(figure, name).get_paths()[0] for name in ("feasible", "infeasible")]
    assert len(shapes[0].vertices) != len(shapes[1].vertices)
    line = drawn(figure, "front")
    assert line.get_xydata().tolist() == [[1.0, 1.0], [2.0, 5.0], [3.0, 9.0]]
    assert line.get_drawstyle() == "steps-pre"
    assert points(figure, "reference point") == [two().reference_point().tolist()]
    ax = figure.axes[0]
    assert ax.get_xlabel() == "yield (maximized)"
    assert ax.get_ylabel() == "cost (minimized)"
    assert figure.axes[1].get_ylabel() == "found as number"


def test_the_front_goes_over_the_region_that_it_dominates() -> None:
    """From the worst to the best of the first objective, also where that is least."""
    history = history_of([[3.0, 9.0], [1.0, 1.0], [2.0, 5.0]], [COST, YIELD], [0, 1, 2])
    line = drawn(plot_pareto(history), "front").get_xydata().tolist()
    assert line == [[3.0, 9.0], [2.0, 5.0], [1.0, 1.0]]


def test_points_of_three_objectives(tmp_path: Any) -> None:
    values = [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0], [0.0, 9.0, 1.0], [0.0, 1.0, NAN]]
    history = history_of(values, [YIELD, COST, SPEED], [0, 1, 2, 3])
    figure = plot_pareto(history)
    assert points(figure, "feasible") == values[:3]
    assert points(figure, "front") == values[:2]
    ring = drawn(figure, "front").get_edgecolor()[0]
    assert ring[:3] == pytest.approx(to_rgba(COLORS[1])[:3])
    assert figure.axes[0].get_zlabel() == "speed (maximized)"
    figure.savefig(tmp_path / "plot.png", dpi=20)


def test_axes_that_are_given() -> None:
    three = history_of([[1.0, 2.0, 3.0]], [YIELD, COST, SPEED], [0])
    figure = Figure()
    flat, deep = figure.add_subplot(121), figure.add_subplot(122, projection="3d")
    assert plot_pareto(two(), flat) is figure and plot_pareto(three, deep) is figure
    with pytest.raises(InputDataError, match="projection '3d' for 2 objectives"):
        plot_pareto(two(), deep)
    with pytest.raises(InputDataError, match="need 3d"):
        plot_pareto(three, flat)


def test_what_has_no_front_to_draw() -> None:
    """One objective, or four, are refused; nothing feasible is drawn as it is."""
    one = history_of([[1.0, 2.0]], [YIELD, DUST], [0])
    with pytest.raises(UnsupportedError, match=r"of 1 objectives.*plot_best_so_far"):
        plot_pareto(one)
    with pytest.raises(UnsupportedError, match="of 4 objectives"):
        names = [Objective(name) for name in "abcd"]
        plot_pareto(history_of([[1.0] * 4], names, [0]))
    for values, label in (([[1.0, 2.0, 3.0]], "infeasible"), ([[1.0, NAN, 0.0]], "")):
        figure = plot_pareto(history_of(values, [YIELD, COST, DUST], [0]))
        labels = figure.axes[0].get_legend_handles_labels()[1]
        assert ("infeasible" in labels) == bool(label) and "feasible" not in labels
        assert len(drawn(figure, "front").get_xydata()) == 0


def lines(figure: Figure) -> dict[str, Any]:
    return {
        x.get_label(): [*map(float, x.get_ydata())] for x in figure.axes[0].get_lines()
    }


def test_hypervolumes_above_one_point() -> None:
    """The worst of the final ones in each objective; or the one that is given."""
    small = history_of([[1.0, 4.0], [3.0, 3.0]], [YIELD, COST], [0, 1])
    large = history_of([[5.0, 9.0], [9.0, 2.0]], [YIELD, COST], [0, 1])
    figure = plot_hypervolume({"small": small, "large": large}, [0.0, 10.0])
    assert lines(figure) == {"small": [6.0, 21.0], "large": [5.0, 72.0]}
    assert "reference point (0, 10)" in figure.axes[0].get_ylabel()
    figure = plot_hypervolume({"small": small, "large": large})
    first, second = small.reference_point(), large.reference_point()
    r = [float(first[0].minimum(second[0])), float(first[1].maximum(second[1]))]
    assert r == [float(first[0]), float(second[1])]
    expected = {"small": small.hypervolumes(r), "large": large.hypervolumes(r)}
    assert lines(figure) == {name: y.tolist() for name, y in expected.items()}
    other = history_of([[1.0, 4.0]], [YIELD, SPEED], [0])
    with pytest.raises(InputDataError, match="need those of the same ones"):
        plot_hypervolume({"small": small, "other": other})
    with pytest.raises(InputDataError, match="one for each objective"):
        plot_hypervolume({"small": small}, [1.0])
    assert plot_hypervolume({}).axes[0].get_lines()[:] == []


def test_other_plots_of_several_outcomes() -> None:
    """What a run costs is drawn; what is of one outcome says so."""

    def measure(X: Tensor) -> Tensor:
        Y = torch.stack([X[:, 0], X[:, 1], X.sum(-1)], dim=-1)
        return Y.where(Y < 1.5, torch.nan)

    X, outcomes = make_candidates(60), [YIELD, COST, DUST]
    strategy = ThompsonSampling(X, outcomes=outcomes, batch_size=5)
    history = strategy.run(measure, 15, progress=False)
    for plot in (plot_batch_sizes, plot_num_inducing, plot_seconds):
        assert len(lines(plot({"paths": history}))["paths"]) == 15
    with pytest.raises(UnsupportedError, match="history of 3 outcomes"):
        plot_simple_regret({"paths": history}, optimum=1.0)
    drawn = plot_simple_regret({"paths": history}, lambda X: X[:, 0], optimum=1.0)
    assert len(lines(drawn)["paths"]) == 15
    with pytest.raises(UnsupportedError, match="strategy of 3 outcomes"):
        plot_slice(strategy)
    n, worst = certified_step(strategy)
    every = strategy.surrogate.certificate(strategy.record)
    assert n == 15 and worst.alpha == max(each.alpha for each in every)
    figure = plot_certificates({"paths": [(n, worst)]})
    alpha = worst.alpha  # drawn in float32
    assert lines(figure)["paths"] == pytest.approx([alpha], rel=1e-7)


def test_what_was_told_alone_is_drawn_too() -> None:
    """Results of a campaign that nothing was asked for."""
    X = torch.eye(8, dtype=torch.float64)
    strategy = RandomSearch(X, outcomes=[YIELD, COST])
    strategy.tell(X[:3], [[1.0, 6.0], [3.0, 9.0], [2.0, 1.0]])
    figure = plot_hypervolume({"told": strategy.history})
    values = drawn(figure, "told").get_ydata().tolist()
    assert values == strategy.history.hypervolumes().tolist()


def test_regret_of_minimization() -> None:
    X = torch.arange(4.0, dtype=torch.float64).unsqueeze(-1)
    strategy = RandomSearch(X, minimize=True)
    strategy.tell(X[[3, 1, 2]], [3.0, 1.0, 2.0])
    figure = plot_simple_regret({"told": strategy.history}, optimum=0.5)
    assert drawn(figure, "told").get_ydata().tolist() == [2.5, 0.5, 0.5]
    table = Table("small", X, X[:, 0], ("x",), "y")
    figure = plot_cumulative_regret({"told": strategy.history}, table)
    assert drawn(figure, "told").get_ydata().tolist() == [3.0, 4.0, 6.0]
    with pytest.raises(UnsupportedError, match="minimizes"):
        plot_regret({"told": strategy.history}, table)
