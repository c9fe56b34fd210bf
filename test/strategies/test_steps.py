"""Any steps in any order: as a simple model has it, whatever comes in between.

A machine draws steps of a strategy, and what disturbs each: Ctrl-C or an error at a
line of the package, a copy or a file from which another one goes on, inference mode. A
twin takes the same steps undisturbed, and a list of trials says what is pending.
"""

import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchError, InputDataError
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from interrupted import Trace, surroundings
from strategy_cases import CASES, INFERRED, sampled
from strategy_table import are_alike, equal, without_times

from botorch_sparse.strategies import Strategy

# Without those that can refuse to go on: nothing is fitted to equal values.
NAMES = [name for name in (*CASES, *INFERRED) if name not in ("sbpe-inferred",)]
SHARES = st.floats(0.0, 1.0)
ERRORS = st.sampled_from([KeyboardInterrupt, RuntimeError, MemoryError])
DISTURBANCES = st.one_of(
    st.tuples(st.just("line"), SHARES, ERRORS),
    st.tuples(st.sampled_from(["none", "file", "state", "inference", "no_grad"])),
    st.tuples(st.sampled_from(["copy", "deepcopy", "pickle"])),
)
COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy,
    "deepcopy": deepcopy,
    "pickle": lambda strategy: pickle.loads(pickle.dumps(strategy)),
}
SEEDS = st.randoms(use_true_random=False)


def state_of(strategy: Strategy) -> dict[str, Any]:
    return without_times(strategy.state_dict())


class Steps(RuleBasedStateMachine):
    """See the module; `name` is a case, set by the test."""

    name: str

    @initialize()
    def begin(self) -> None:
        self.make, self.objective, _ = {**CASES, **INFERRED}[self.name]
        self.strategy, self.twin = self.make(), self.make()
        self.num_proposed = 0
        self.pending: dict[int, int] = {}  # points of trials
        self.waiting: list[int] = []  # trials that failed
        self.failures: dict[int, int] = {}
        self.told: list[int] = []
        self.left_out: set[int] = set()

    def take(self, step: Callable[[Strategy], Any], how: tuple[Any, ...]) -> Any:
        """Take a step, disturbed and not; what it returns."""
        kind, *more = how
        if kind in ("file", "state"):
            self.strategy = self.gone_on(kind)
        if kind == "line":
            found = self.interrupted(step, *more)
        elif kind in COPIES:
            found = self.taken_by_a_copy(step, COPIES[kind])
        else:
            with torch.inference_mode(kind == "inference"):
                with torch.set_grad_enabled(kind != "no_grad"):
                    found = step(self.strategy)
        expected = step(self.twin)
        if found is not None:
            assert torch.equal(found.X, expected.X)
            assert found.ids.tolist() == expected.ids.tolist()
        return found

    def interrupted(
        self, step: Callable[[Strategy], Any], share: float, error: type
    ) -> Any:
        """It happens or does not; then it is taken again where it did not."""
        other, trace, outside = deepcopy(self.strategy), Trace(None), surroundings()
        before = state_of(self.strategy)
        with trace.on():
            found = step(other)
        line = [*trace.lines][int(share * (len(trace.lines) - 1))]
        with pytest.raises((error, BotorchError)):  # the latter where it was caught
            with Trace(line, 1, error).on():
                step(self.strategy)
            raise error  # it was caught, and the step has happened
        assert surroundings() == outside
        now = state_of(self.strategy)
        if equal(now, before) and not equal(before, state_of(other)):
            step(self.strategy)
        assert equal(state_of(self.strategy), state_of(other)), line
        return found

    def taken_by_a_copy(self, step: Callable[[Strategy], Any], made: Any) -> Any:
        """First by a copy, which leaves the strategy alone, then by the strategy."""
        before, other = state_of(self.strategy), made(self.strategy)
        found = step(other)
        assert equal(state_of(self.strategy), before)
        step(self.strategy)
        assert are_alike(self.strategy, other)
        self.strategy = other
        return found

    def gone_on(self, how: str) -> Strategy:
        """One built with another seed, used or not, that goes on."""
        other = self.make(seed=9)
        if how == "state":
            other.ask(2)
            other.load_state_dict(self.strategy.state_dict())
            return other
        with TemporaryDirectory() as folder:
            self.strategy.save(Path(folder) / "state.pt")
            return other.resume(Path(folder) / "state.pt")

    @invariant()
    def is_as_the_model_has_it(self) -> None:
        for s in (self.strategy, self.twin):
            assert s.pending_ids.tolist() == sorted(self.pending)
            assert s.pending.tolist() == [p for _, p in sorted(self.pending.items())]
            out = [id for id in sorted(self.pending) if id not in self.waiting]
            batch = s.pending_batch()
            assert [] if batch.ids is None else batch.ids.tolist() == out
            assert torch.equal(s.X_pending, s.history.points(s.pending))
            assert s.history.trial.tolist() == self.told
            assert torch.equal(s.history.Y, self.objective(s.history.X).reshape(-1))
            for id in self.pending:
                assert s.trial(id).failures == self.failures.get(id, 0)
            assert self.left_out <= set(s.excluded_points) or s.box is not None

    @precondition(lambda self: not self.strategy.is_finished)
    @rule(size=st.integers(1, 4), how=DISTURBANCES)
    def ask(self, size: int, how: tuple[Any, ...]) -> None:
        batch = self.take(lambda s: s.ask(size), how)
        again = sorted(self.waiting)[:size]
        ids, last = batch.ids.tolist(), self.num_proposed + len(batch) - len(again)
        assert ids == [*again, *range(self.num_proposed, last)]
        assert len(ids) <= size and (ids or batch.note)
        self.pending |= {id: self.twin.trial(id).point for id in ids}
        self.num_proposed = last
        self.waiting = [id for id in self.waiting if id not in ids]

    def some(self, random: Any) -> list[int]:
        """Some pending trials in any order, one at least."""
        return random.sample(sorted(self.pending), random.randint(1, len(self.pending)))

    def forget(self, ids: list[int]) -> None:
        for id in ids:
            del self.pending[id]
        self.waiting = [id for id in self.waiting if id not in ids]

    @precondition(lambda self: self.pending)
    @rule(random=SEEDS, by=st.sampled_from(["ids", "points"]), how=DISTURBANCES)
    def tell(self, random: Any, by: str, how: tuple[Any, ...]) -> None:
        ids = self.some(random)
        X = self.twin.history.points(torch.tensor([self.pending[id] for id in ids]))
        Y = self.objective(X).reshape(-1)
        if by == "points":  # of copies the oldest trial is meant
            left = sorted(self.pending)
            points = [self.pending[id] for id in ids]
            ids = []
            for point in points:
                ids.append(next(id for id in left if self.pending[id] == point))
                left.remove(ids[-1])
        self.forget(ids)
        self.told += ids
        self.take(lambda s: s.tell(ids if by == "ids" else X, Y), how)

    @rule(how=DISTURBANCES)
    def tell_of_a_point_that_nobody_waits_for(self, how: tuple[Any, ...]) -> None:
        X = self.twin.candidates[:1] + 2.0 + 0.1 * len(self.told)
        if (box := self.twin.box) is not None:
            X = box.sample(1, len(self.told) + 100)
        self.told.append(-1)
        self.take(lambda s: s.tell(X, self.objective(X).reshape(-1)), how)

    @precondition(lambda self: self.pending)
    @rule(random=SEEDS, retry=st.booleans(), how=DISTURBANCES)
    def fail(self, random: Any, retry: bool, how: tuple[Any, ...]) -> None:
        ids = self.some(random)
        if retry:
            self.waiting = [*{*self.waiting, *ids}]
            for id in ids:
                self.failures[id] = self.failures.get(id, 0) + 1
        else:
            self.left_out |= {self.pending[id] for id in ids}
            self.forget(ids)
        self.take(lambda s: s.fail(ids, retry=retry), how)

    @precondition(lambda self: self.pending)
    @rule(random=SEEDS, how=DISTURBANCES)
    def withdraw(self, random: Any, how: tuple[Any, ...]) -> None:
        ids = self.some(random)
        self.forget(ids)
        self.take(lambda s: s.withdraw(ids), how)

    @rule(how=DISTURBANCES)
    def readmit(self, how: tuple[Any, ...]) -> None:
        self.left_out = set()
        self.take(lambda s: s.readmit(), how)

    @rule(how=DISTURBANCES)
    def learn(self, how: tuple[Any, ...]) -> None:
        self.take(lambda s: s.learn(), how)

    @precondition(lambda self: self.pending)
    @rule(value=st.sampled_from([float("nan"), float("inf")]))
    def bad_feedback(self, value: float) -> None:
        before = self.strategy.state_dict()
        with pytest.raises(InputDataError):
            self.strategy.tell(self.strategy.X_pending[:1], [value])
        assert equal(self.strategy.state_dict(), before)

    def teardown(self) -> None:
        """They go on to the same bits."""
        if hasattr(self, "strategy"):
            assert are_alike(self.strategy, self.twin)
            for s in (self.strategy, self.twin):
                if not s.is_finished:
                    s.run(self.objective, len(s.history) + 4, progress=False)
            assert are_alike(self.strategy, self.twin)


def check(name: str, examples: int) -> None:
    run_state_machine_as_test(
        type(name, (Steps,), {"name": name}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=16,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sampled(NAMES))
def test_any_steps(name: str) -> None:
    check(name, 4 if name.startswith("box") else 12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_many_steps(name: str) -> None:
    check(name, 50)
