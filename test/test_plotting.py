"""The plots show the histories' own numbers."""

import builtins
import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError

from botorch_sparse.demo.datasets import Table

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from botorch_sparse.plotting import (
    plot_batch_sizes,
    plot_best_rank,
    plot_comparison,
    plot_cumulative_regret,
    plot_num_inducing,
    plot_regret,
    plot_seconds,
    plot_simple_regret,
)


class FakeHistory(SimpleNamespace):
    """What plots read of a strategy that maximizes."""

    minimize = False

    def __len__(self) -> int:
        return len(self.X)


def history(sizes: list[int], num_inducing: list[int], device: Any) -> Any:
    batches = [
        SimpleNamespace(
            size=size, num_inducing=m, ask_seconds=0.5 * size, tell_seconds=1.0
        )
        for size, m in zip(sizes, num_inducing, strict=True)
    ]
    indices = torch.arange(sum(sizes), device=device) % 3
    number = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes).long())
    X = torch.eye(3, dtype=torch.float64, device=device)[indices]
    return FakeHistory(
        batches=batches, indices=indices, batch_number=number, X=X, Y=2.0 * X[:, 2]
    )


@pytest.fixture
def table(double):
    X = torch.eye(3, **double)
    return Table("small", X, torch.tensor([0.0, 0.5, 1.0], **double), ("a",) * 3, "b")


@pytest.fixture
def histories(device):
    return {
        "sparse": history([1, 2, 3], [1, 4, 5], device),
        "random": history([1] * 4, [0] * 4, device),
    }


def lines(figure: Figure) -> dict[str, Any]:
    found = figure.axes[0].get_lines()
    return {line.get_label(): list(line.get_ydata()) for line in found}


# Regrets are 1, 0.5 and 0 in turn; uniform choice expects 0.5 per evaluation. Values
# rise with the row: 0, 1/2, 1, then the first one again, so that the best comes third.
DRAWN = [
    (plot_regret, "sparse", [2, 1.5, 1, 1.25, 1.2, 1]),
    (plot_regret, "random", [2, 1.5, 1, 1.25]),
    (plot_best_rank, "sparse", [3, 2, 1, 1, 1, 1]),
    (plot_best_rank, "random", [3, 2, 1, 1]),
    (plot_simple_regret, "sparse", [1, 0.5, 0, 0, 0, 0]),
    (plot_cumulative_regret, "random", [1, 1.5, 1.5, 2.5]),
]


@pytest.mark.parametrize(("plot", "name", "expected"), DRAWN)
def test_what_is_drawn_of_runs_on_a_table(plot, name, expected, histories, table):
    assert lines(plot(histories, table))[name] == pytest.approx(expected)


def test_sizes_of_batches_and_inducing_sets(histories):
    """What has no inducing points is left out."""
    drawn = lines(plot_batch_sizes(histories))
    assert drawn == {"sparse": [1, 2, 2, 3, 3, 3], "random": [1] * 4}
    assert lines(plot_num_inducing(histories)) == {"sparse": [1, 4, 4, 5, 5, 5]}


def test_a_given_axes_is_drawn_into(histories):
    figure = Figure()
    ax = figure.subplots()
    assert plot_batch_sizes(histories, ax=ax) is figure
    assert len(ax.get_lines()) == 2


def test_comparison_has_four_panels_and_one_legend(histories, table, tmp_path):
    figure = plot_comparison(histories, table, title="small")
    assert len(figure.axes) == 4 and len(figure.legends) == 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "sparse",
        "random",
    ]
    assert all(ax.get_legend() is None for ax in figure.axes)
    figure.savefig(tmp_path / "plot.png", dpi=20)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_an_empty_history_is_left_out(table, device):
    histories = {"none": history([], [], device), "one": history([1], [1], device)}
    assert set(lines(plot_batch_sizes(histories))) == {"one"}
    plot_comparison(histories, table)


def test_points_told_without_a_batch_leave_a_gap(device):
    told = history([2], [5], device)
    told.batch_number = torch.tensor([0, -1, 0])
    drawn = lines(plot_batch_sizes({"told": told}))["told"]
    assert drawn[::2] == [2, 2] and drawn[1] != drawn[1]


def test_seconds_are_those_of_ask_and_tell_shared_by_a_batch(histories):
    drawn = lines(plot_seconds(histories))
    assert drawn["sparse"] == pytest.approx([1.5, 1, 1] + [0.5 + 1 / 3] * 3)
    assert drawn["random"] == pytest.approx([1.5] * 4)


def test_seconds_of_small_batches_are_averaged(device):
    single = history([1] * 120, [1] * 120, device)
    for number, batch in enumerate(single.batches):
        batch.ask_seconds, batch.tell_seconds = 0.0, float(number % 3)
    drawn = lines(plot_seconds({"single": single}))["single"]
    assert drawn == pytest.approx([1.0] * 120)  # pieces of three, the next from 2.4


@pytest.mark.parametrize("column", [True, False])
def test_regret_of_a_function_without_noise(histories, column):
    def truth(X: torch.Tensor) -> torch.Tensor:
        value = X[:, 1] + 3 * X[:, 2]  # 0, 1, 3 in turn
        return value.unsqueeze(-1) if column else value

    drawn = lines(plot_cumulative_regret(histories, truth, optimum=3.0))
    assert drawn["random"] == [3, 5, 5, 8]
    drawn = lines(plot_simple_regret(histories, truth, optimum=3.0))
    assert drawn["random"] == [3, 2, 0, 0]


def test_without_a_truth_the_observations_stand_for_it(histories):
    drawn = lines(plot_cumulative_regret(histories, optimum=2.0))
    assert drawn["random"] == [2, 4, 4, 6]


def test_regret_needs_an_optimum_and_rows_of_the_table(histories, table):
    with pytest.raises(InputDataError, match="Got no optimum"):
        plot_simple_regret(histories)
    histories["sparse"].indices[2] = -1
    with pytest.raises(InputDataError, match="1 indices out of 0"):
        plot_simple_regret(histories, table)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    real_import = builtins.__import__

    def without_matplotlib(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "botorch_sparse.plotting")
    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=r"pip install 'botorch_sparse\[plot\]'"):
        importlib.import_module("botorch_sparse.plotting")
