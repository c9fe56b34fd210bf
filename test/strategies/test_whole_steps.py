"""A step happens or does not, whatever line it is interrupted at."""

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from linecache import getline
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import strategy_cases
import strategy_table
import torch
from interrupted import Line, Trace, surroundings
from strategy_cases import Case, reduction, sampled
from strategy_table import are_alike, equal, without_times
from torch import Tensor

from botorch_sparse.strategies import (
    RandomSearch,
    Strategy,
    UncertaintyReduction,
)
from botorch_sparse.strategies.core.model_strategy import ModelStrategy

Make: TypeAlias = Callable[[], Strategy]
Step: TypeAlias = Callable[[Strategy], Any]


CASES = {
    **strategy_cases.CASES,
    **strategy_cases.INFERRED,
    "reduction": Case(reduction, strategy_table.objective, 0),
}


def is_lock_left(line: Line, visit: int) -> bool:
    code, _ = line
    return code is Strategy.ask.__code__ and visit > 1


def is_with(line: Line) -> bool:
    code, number = line
    return getline(code.co_filename, number).lstrip().startswith("with ")


def is_free(strategy: Strategy) -> bool:
    """Whether another thread may take a step."""
    taken = list[bool]()

    def take() -> None:
        taken.append(strategy._lock.acquire(blocking=False))
        if taken[0]:
            strategy._lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken == [True]


def check_whole(
    strategy: Strategy, make: Make, step: Step, every: int, offset: int
) -> Strategy:
    """Interrupt a step at many lines, then take it; the strategy that has taken it.

    Args:
        strategy: The strategy.
        make: Builds one like it, without data.
        step: What is done.
        every: Which lines: every how manieth of the different ones.
        offset: The first of them.
    """
    state = strategy.state_dict()
    undisturbed, trace = resumed(make, state), Trace(None)
    with trace.on():
        step(undisturbed)
    after, outside = without_times(undisturbed.state_dict()), surroundings()
    for number, (line, visits) in enumerate(trace.lines.items()):
        if number % every != offset % every:
            continue
        for visit in sorted({1, visits}):
            error = (KeyboardInterrupt, RuntimeError)[(number + visit) % 2]
            if visit > 1 and is_with(line):  # which is left without an error
                error = KeyboardInterrupt
            place = f"{Path(line[0].co_filename).name}:{line[1]}, visit {visit}"
            if is_lock_left(line, visit):
                continue
            try:
                with Trace(line, visit, error).on():
                    step(strategy)
            except (Exception, KeyboardInterrupt):
                now = without_times(strategy.state_dict())
                assert surroundings() == outside, place
                if equal(now, without_times(state)):
                    continue
                assert equal(now, after), place
            strategy = resumed(make, state)  # it is done, or somebody tried again
    assert is_free(strategy)
    step(strategy)
    assert are_alike(strategy, undisturbed)
    return strategy


def resumed(make: Make, state: dict[str, Any]) -> Strategy:
    strategy = make()
    strategy.load_state_dict(state)
    return strategy


@dataclass
class Pair:
    """A strategy whose steps are interrupted, and a twin that is left alone."""

    name: str
    make: Make
    every: int
    strategy: Strategy
    twin: Strategy
    taken: int = 0

    def take(self, *steps: Step) -> None:
        """Take steps, each interrupted at other lines for each strategy."""
        for step in steps:
            offset = sum(map(ord, self.name)) + self.taken
            self.strategy = check_whole(
                self.strategy, self.make, step, self.every, offset
            )
            step(self.twin)
            self.taken += 1


def begin(strategy: Strategy) -> None:
    if isinstance(strategy, UncertaintyReduction):
        strategy.collect_dataset(5)
    else:
        strategy.ask(3)


def told(objective: Any, part: slice) -> Step:
    def step(strategy: Strategy) -> None:
        X = strategy.history.points(strategy.pending[part])
        strategy.tell(strategy.pending_ids[part].tolist(), objective(X).reshape(-1))

    return step


def told_beside(objective: Any) -> Step:
    def step(strategy: Strategy) -> None:
        far = 0.0 if strategy.box is not None else 2.0  # from all rows
        X = strategy_table.make_candidates(2) * 0.5 + 0.1 + far
        strategy.tell(X, objective(X).reshape(-1))

    return step


def other_table(strategy: Strategy) -> Tensor:
    """New rows, and in another order a half of the present ones."""
    X = strategy.candidates
    kept = {*range(0, len(X), 2), *strategy.batch_points()}
    return torch.cat([1 - X[:9], X[sorted(kept, reverse=True)]])


def on_table(make: Make, table: Tensor) -> Strategy:
    """A strategy whose table was replaced."""
    strategy = make()
    strategy.set_candidates(table)
    return strategy


def take_steps(name: str, every: int, path: Path) -> None:
    """All steps of a strategy, each interrupted, and the rest of the run."""
    make, objective, number = CASES[name]
    pair = Pair(name, make, every, make(), make())
    if number:
        for s in (pair.strategy, pair.twin):
            s.run(objective, number, progress=False)
    start = resumed(make, pair.strategy.state_dict())
    pair.take(
        begin,
        told(objective, slice(0, 1)),
        lambda s: s.withdraw(s.pending_ids[:1].tolist()),
        told_beside(objective),
        lambda s: s.fail(s.pending_ids[:1].tolist()),
        lambda s: s.readmit(),
    )
    if start.table is not None and isinstance(start, ModelStrategy | RandomSearch):
        table = other_table(pair.strategy)
        pair.take(lambda s: s.set_candidates(table))
        pair.make = partial(on_table, make, table)
        start.set_candidates(table)
    pair.take(told(objective, slice(None)))
    if number:
        pair.take(lambda s: s.learn(), lambda s: s.ask(2))
    start.save(path)
    pair.take(lambda s: s.resume(path))
    for s in (pair.strategy, pair.twin):
        if number and not s.is_finished:
            s.run(objective, len(s.history) + 6, progress=False)
    assert are_alike(pair.strategy, pair.twin)


@pytest.mark.parametrize("name", sampled(CASES))
def test_a_step_that_is_interrupted_has_changed_nothing(
    name: str, tmp_path: Path
) -> None:
    take_steps(name, 293, tmp_path / "state")


def test_filters_of_warnings_are_those_of_before() -> None:
    """As where Ctrl-C comes while a model is built without some warnings."""
    before = list(warnings.filters)

    def stop(_: int) -> None:
        warnings.simplefilter("ignore", UserWarning)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        strategy_table.TABLE["random"]().ask(3, progress=stop)
    assert list(warnings.filters) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_at_every_line(name: str, tmp_path: Path) -> None:
    take_steps(name, 1, tmp_path / "state")
