"""The plots show the histories' own numbers."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from botorch_sparse.datasets import Table

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from botorch_sparse.plotting import (
    plot_batch_sizes,
    plot_comparison,
    plot_num_inducing,
    plot_regret,
)


def history(sizes: list[int], num_inducing: list[int], device: Any) -> Any:
    batches = [
        SimpleNamespace(size=size, num_inducing=m)
        for size, m in zip(sizes, num_inducing, strict=True)
    ]
    indices = torch.arange(sum(sizes), device=device) % 3
    number = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes).long())
    return SimpleNamespace(batches=batches, indices=indices, batch_number=number)


@pytest.fixture
def table(double: dict[str, Any]) -> Table:
    X = torch.eye(3, **double)
    return Table("small", X, torch.tensor([0.0, 0.5, 1.0], **double), ("a",) * 3, "b")


@pytest.fixture
def histories(device: Any) -> dict[str, Any]:
    return {
        "sparse": history([1, 2, 3], [1, 4, 5], device),
        "random": history([1] * 4, [0] * 4, device),
    }


def lines(figure: Figure) -> dict[str, Any]:
    found = figure.axes[0].get_lines()
    return {line.get_label(): list(line.get_ydata()) for line in found}


def test_regret_panel(histories: dict[str, Any], table: Table) -> None:
    drawn = lines(plot_regret(histories, table))
    # regrets 1, 0.5, 0 in turn; uniform choice expects 0.5 per evaluation
    assert drawn["sparse"] == pytest.approx([2, 1.5, 1, 1.25, 1.2, 1])
    assert drawn["random"] == pytest.approx([2, 1.5, 1, 1.25])


def test_batch_size_panel(histories: dict[str, Any]) -> None:
    drawn = lines(plot_batch_sizes(histories))
    assert drawn == {"sparse": [1, 2, 2, 3, 3, 3], "random": [1] * 4}


def test_inducing_panel_leaves_out_what_has_none(histories: dict[str, Any]) -> None:
    drawn = lines(plot_num_inducing(histories))
    assert drawn == {"sparse": [1, 4, 4, 5, 5, 5]}


def test_a_given_axes_is_drawn_into(histories: dict[str, Any]) -> None:
    figure = Figure()
    ax = figure.subplots()
    assert plot_batch_sizes(histories, ax=ax) is figure
    assert len(ax.get_lines()) == 2


def test_comparison_has_three_panels_and_one_legend(
    histories: dict[str, Any], table: Table, tmp_path: Any
) -> None:
    figure = plot_comparison(histories, table, title="small")
    assert len(figure.axes) == 3 and len(figure.legends) == 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "sparse",
        "random",
    ]
    assert all(ax.get_legend() is None for ax in figure.axes)
    figure.savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_an_empty_history_is_left_out(table: Table, device: Any) -> None:
    histories = {"none": history([], [], device), "one": history([1], [1], device)}
    assert set(lines(plot_batch_sizes(histories))) == {"one"}
    plot_comparison(histories, table)


def test_points_told_without_a_batch_leave_a_gap(device: Any) -> None:
    told = history([2], [5], device)
    told.batch_number = torch.tensor([0, -1, 0])
    drawn = lines(plot_batch_sizes({"told": told}))["told"]
    assert drawn[::2] == [2, 2] and drawn[1] != drawn[1]
