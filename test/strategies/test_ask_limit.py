"""An `ask` shows how far it is, and ends when its time is over."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import box_table
import pytest
import sbpe_problems
import strategy_table
import torch
from botorch.exceptions import InputDataError
from strategy_cases import STARTS

from botorch_sparse.batching import rules as pace
from botorch_sparse.strategies import Strategy


def wide(make: Callable[..., Strategy]) -> Callable[..., Strategy]:
    """With batches of several points."""
    return partial(make, ratio_threshold=1000.0)


CASES: dict[str, tuple[Callable[..., Strategy], Any]] = {
    "box-bbkb": (wide(box_table.TABLE["bbkb-global"]), box_table.objective),
    "table-gpucb": (wide(strategy_table.TABLE["gpbucb-sum"]), strategy_table.objective),
    "table-bbkb": (wide(strategy_table.TABLE["bbkb-global"]), strategy_table.objective),
    "initializing": STARTS["initializing"][:2],
    "sbpe": (sbpe_problems.TABLE["table"], sbpe_problems.objective),
}


def started(name: str) -> Strategy:
    make, objective = CASES[name]
    strategy = make()
    strategy.run(objective, 8, progress=False)
    return strategy


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_batch_that_is_cut_by_the_clock(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the points so far, which are those of a batch cut there by size."""
    seen, now = list[int](), 0.0

    def note(num: int) -> None:
        nonlocal now
        seen.append(num)
        now += 1.0

    strategy, cut, whole = started(name), started(name), started(name)
    size = 2
    assert len(whole.ask(size + 1)) > size
    with monkeypatch.context() as patch:
        patch.setattr(pace.time, "perf_counter", lambda: now)
        batch = strategy.ask(max_seconds=size - 0.5, progress=note)
    assert seen == [*range(1, size + 1)] and len(batch) == size
    assert "ask again for the rest" in batch.note
    assert torch.equal(batch.X, cut.ask(size).X)
    for s in (strategy, cut):
        s.ask(1)
    assert torch.equal(strategy.X_pending, cut.X_pending)


@pytest.mark.parametrize("name", ["table-bbkb", "sbpe"])
def test_a_batch_that_ended_when_the_clock_did(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to ask for again: neither of the batch, nor of the size."""
    now = 0.0

    def note(num: int) -> None:
        nonlocal now
        now = float(num)

    strategy, part, other = started(name), started(name), started(name)
    whole = other.ask()
    with monkeypatch.context() as patch:
        patch.setattr(pace.time, "perf_counter", lambda: now)
        batch = strategy.ask(max_seconds=len(whole) - 0.5, progress=note)
        now = 0.0
        first = part.ask(2, max_seconds=1.5, progress=note)
    assert torch.equal(batch.X, whole.X) and len(first) == 2
    assert batch.note == "" and first.note == ""


@pytest.mark.parametrize("name", CASES)
def test_progress_hears_of_each_point(name: str) -> None:
    seen = list[int]()
    batch = started(name).ask(5, progress=seen.append)
    assert seen == [*range(1, len(batch) + 1)]


@pytest.mark.parametrize("name", ["random", "box-thompson", "table-thompson"])
def test_points_that_are_found_at_once_come_whole(name: str) -> None:
    """Whatever time they took; progress hears of them once."""
    seen, table = list[int](), box_table if "box" in name else strategy_table
    strategy = table.TABLE[name.partition("-")[2] or name]()
    strategy.run(table.objective, 8, progress=False)
    batch = strategy.ask(3, max_seconds=1e-9, progress=seen.append)
    assert len(batch) == 3 and batch.note == "" and seen == [3]


def test_there_is_time_enough() -> None:
    strategy, other = started("table-bbkb"), started("table-bbkb")
    batch = strategy.ask(max_seconds=1e6)
    assert batch.note == "" and torch.equal(batch.X, other.ask().X)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["table-bbkb", "box-bbkb"])
@pytest.mark.parametrize("is_caught", [False, True])
def test_a_step_inside_of_a_step_is_refused(name: str, is_caught: bool) -> None:
    """Nothing of the inner one happens: both would append to the same columns."""
    strategy, twin = started(name), started(name)
    points = (
        strategy.history.X[:3] * 0.5 + 0.25 if "box" in name else twin.candidates[:3]
    )

    def tell(*_: Any) -> None:
        with suppress(InputDataError) if is_caught else nullcontext():
            strategy.tell(points, [1.0, 2.0, 3.0])

    if is_caught:
        assert torch.equal(strategy.ask(2, progress=tell).X, twin.ask(2).X)
    else:
        with pytest.raises(InputDataError, match="inside of another call"):
            strategy.ask(2, progress=tell)
    assert torch.equal(strategy.history.X, twin.history.X)
    assert torch.equal(strategy.pending, twin.pending)
    for one in (strategy, twin):
        one.tell(points, [1.0, 2.0, 3.0])
    assert torch.equal(strategy.history.X, twin.history.X)
    assert torch.equal(strategy.ask(2).X, twin.ask(2).X)
