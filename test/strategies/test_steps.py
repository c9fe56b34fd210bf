"""Any steps in any order: as a simple model has it, whatever comes in between.

A machine draws steps of a strategy, and what disturbs each: Ctrl-C or an error at
lines of the package, a copy or a file from which another one goes on, inference mode. A
twin takes the same steps undisturbed, and a list of trials says what is pending.
"""

import pickle
import threading
import warnings
from collections.abc import Callable
from copy import copy, deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

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
from strategy_cases import ALL, sampled
from strategy_table import TABLE, are_alike, equal, without_times
from torch import Tensor

from botorch_sparse.strategies import RandomSearch, Strategy, UncertaintyReduction
from botorch_sparse.strategies.model_strategy import ModelStrategy

# Without those that refuse to fit to equal values, or end their batches themselves.
NAMES = [n for n in ALL if n != "sbpe-inferred" and not n.startswith("repeated")]
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


def asked(strategy: Strategy, size: int) -> Any:
    """A batch; of a strategy for a dataset all of it."""
    if isinstance(strategy, UncertaintyReduction):
        return strategy.collect_dataset(size)
    return strategy.ask(size)


class Steps(RuleBasedStateMachine):
    """See the module.

    Attributes:
        name: The case.
        every: Steps are interrupted at every how manieth line, at one at least.
    """

    name: ClassVar[str]
    every: ClassVar[int]

    @initialize()
    def begin(self) -> None:
        self.make, objective, _ = ALL[self.name]
        # Point by point: the bits of a product may depend on how many there are.
        self.objective = lambda X: torch.cat([objective(x) for x in X.split(1)])
        self.strategy, self.twin = self.make(), self.make()
        self.num_proposed = 0
        self.pending: dict[int, int] = {}  # points of trials
        self.waiting: list[int] = []  # trials that failed
        self.batches: dict[int, int] = {}  # of trials
        self.failures: dict[int, int] = {}
        self.told: list[int] = []
        self.measured: list[set[int]] = []  # the outcomes of what was told
        self.names = self.strategy.record.outcomes.names or ("value",)
        self.numbers: list[int] = []  # of the batches of what was told
        self.left_out: set[int] = set()
        self.table: Tensor | None = None  # which took the place of the first one

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
        start, done, trace = self.strategy, deepcopy(self.strategy), Trace(None)
        before, outside = state_of(start), surroundings()
        with trace.on():
            found = step(done)
        after, lines = state_of(done), [*trace.lines.items()]
        first = int(share * (min(self.every, len(lines)) - 1))
        for line, visits in lines[first :: self.every]:
            # Python looks at the line of a `with` again when it is left.
            is_last = (
                error is KeyboardInterrupt and line[0] is not Strategy.ask.__code__
            )
            visit = visits if is_last else 1
            self.strategy = deepcopy(start)
            with pytest.raises((error, BotorchError)):  # the latter where it was caught
                with Trace(line, visit, error).on():
                    step(self.strategy)
                raise error  # it was caught, and the step has happened
            assert surroundings() == outside and is_free(self.strategy), line
            now = state_of(self.strategy)
            assert equal(now, before) or equal(now, after), line
        if not equal(now, after):
            step(self.strategy)
        assert equal(state_of(self.strategy), after), line
        return found

    def taken_by_a_copy(self, step: Callable[[Strategy], Any], made: Any) -> Any:
        """First by a copy, which leaves the strategy alone, then by the strategy."""
        before = state_of(self.strategy)
        with torch.inference_mode(len(self.told) % 2 > 0):
            other = made(self.strategy)
        found = step(other)
        assert equal(state_of(self.strategy), before)
        step(self.strategy)
        assert are_alike(self.strategy, other)
        self.strategy = other
        return found

    def gone_on(self, how: str) -> Strategy:
        """One built with another seed, used or not, that goes on."""
        other = self.make(seed=9)
        if self.table is not None:
            other.set_candidates(self.table)
        elif how == "state" and self.name != "reduction":
            other.ask(2)
        if how == "state":
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
            assert s.history.batch_number.tolist() == self.numbers
            Y = self.values_of(s.history.X, self.measured)
            assert equal(s.history.Y.reshape(Y.shape), Y)
            for column, name in enumerate(self.names):
                assert s.history.missing(name).tolist() == self.missing(column)
            for id in self.pending:
                assert s.trial(id).failures == self.failures.get(id, 0)
            assert s.box is None or bool(s.box.is_feasible(s.X_pending).all())
            assert self.left_out <= set(s.excluded_points) or s.box is not None

    def values_of(self, X: Tensor, measured: list[set[int]]) -> Tensor:
        """`b x k` outcomes of points, NaN where they are not measured."""
        Y = self.objective(X).reshape(len(X), len(self.names))
        for place, columns in enumerate(measured):
            Y[place, [*{*range(len(self.names))} - columns]] = torch.nan
        return Y

    def missing(self, column: int) -> list[int]:
        """The trials that were told without an outcome."""
        told = zip(self.told, self.measured, strict=True)
        return [id for id, measured in told if id >= 0 and column not in measured]

    def may_ask(self) -> bool:
        once = isinstance(self.strategy, UncertaintyReduction) and self.num_proposed > 0
        return not self.strategy.is_finished and not once

    @precondition(may_ask)
    @rule(size=st.integers(1, 4), how=DISTURBANCES)
    def ask(self, size: int, how: tuple[Any, ...]) -> None:
        batch = self.take(lambda s: asked(s, size), how)
        again = sorted(self.waiting)[: min(size, self.twin.batch_size or size)]
        ids, last = batch.ids.tolist(), self.num_proposed + len(batch) - len(again)
        assert ids == [*again, *range(self.num_proposed, last)]
        assert len(ids) <= size and (ids or batch.note)
        old = [*self.pending.values()]
        self.pending |= {id: self.twin.trial(id).point for id in ids}
        if self.twin.box is None:
            new = {self.pending[id] for id in ids[len(again) :]}
            assert not new & self.left_out
            if self.twin.unique:
                known = {*self.twin.history.point.tolist(), *old}
                assert not new & known and len(new) == len(ids) - len(again)
        if last > self.num_proposed:
            number = 1 + max(self.batches.values(), default=-1)
            self.batches |= dict.fromkeys(range(self.num_proposed, last), number)
        self.num_proposed = last
        self.waiting = [id for id in self.waiting if id not in ids]

    def some(self, random: Any) -> list[int]:
        """Some pending trials in any order, one at least."""
        return random.sample(sorted(self.pending), random.randint(1, len(self.pending)))

    def forget(self, ids: list[int]) -> None:
        for id in ids:
            del self.pending[id]
        self.waiting = [id for id in self.waiting if id not in ids]

    def some_outcomes(self, random: Any, known: set[int] = frozenset()) -> set[int]:
        """Some of the outcomes that are not known, one at least."""
        left = sorted({*range(len(self.names))} - known)
        return {*random.sample(left, random.randint(1, len(left)))}

    @precondition(lambda self: self.pending)
    @rule(random=SEEDS, by=st.sampled_from(["ids", "points"]), how=DISTURBANCES)
    def tell(self, random: Any, by: str, how: tuple[Any, ...]) -> None:
        ids = self.some(random)
        measured = [self.some_outcomes(random) for _ in ids]
        X = self.twin.history.points(torch.tensor([self.pending[id] for id in ids]))
        Y = self.values_of(X, measured)
        if by == "points":  # of copies the oldest trial is meant
            left = sorted(self.pending)
            points = [self.pending[id] for id in ids]
            ids = []
            for point in points:
                ids.append(next(id for id in left if self.pending[id] == point))
                left.remove(ids[-1])
        self.forget(ids)
        self.told += ids
        self.measured += measured
        self.numbers += [self.batches[id] for id in ids]
        self.take(lambda s: s.tell(ids if by == "ids" else X, Y), how)

    def is_some_missing(self) -> bool:
        return any(self.missing(column) for column in range(len(self.names)))

    @precondition(is_some_missing)
    @rule(random=SEEDS, how=DISTURBANCES)
    def tell_later(self, random: Any, how: tuple[Any, ...]) -> None:
        """Outcomes that were missing, of some trials in any order."""
        left = {id for column in range(len(self.names)) for id in self.missing(column)}
        ids = random.sample(sorted(left), random.randint(1, len(left)))
        places = [self.told.index(id) for id in ids]
        new = [self.some_outcomes(random, self.measured[place]) for place in places]
        Y = self.values_of(self.twin.history.X[places], new)
        for place, columns in zip(places, new, strict=True):
            self.measured[place] |= columns
        self.take(lambda s: s.tell(ids, Y), how)

    @rule(random=SEEDS, how=DISTURBANCES)
    def tell_of_a_point_that_nobody_waits_for(
        self, random: Any, how: tuple[Any, ...]
    ) -> None:
        X = self.twin.candidates[:1] + 2.0 + 0.1 * len(self.told)
        if (box := self.twin.box) is not None:
            X = box.sample(1, len(self.told) + 100)
        self.told.append(-1)
        self.numbers.append(-1)
        self.measured.append(self.some_outcomes(random))
        Y = self.values_of(X, self.measured[-1:])
        self.take(lambda s: s.tell(X, Y), how)

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

    def may_move(self) -> bool:
        is_known = isinstance(self.strategy, ModelStrategy | RandomSearch)
        return is_known and self.strategy.box is None and self.table is None

    @precondition(may_move)
    @rule(how=DISTURBANCES)
    def set_candidates(self, how: tuple[Any, ...]) -> None:
        """New rows, and in another order a half of the present ones."""
        X = self.twin.candidates
        kept = {*range(0, len(X), 2), *self.twin.batch_points()}
        table = torch.cat([1 - X[:9], X[sorted(kept, reverse=True)]])
        pending = self.twin.X_pending
        self.take(lambda s: s.set_candidates(table), how)
        assert torch.equal(self.strategy.X_pending, pending)
        self.pending = {id: self.twin.trial(id).point for id in self.pending}
        self.table, self.left_out = table, set()

    @rule(how=DISTURBANCES)
    def resume(self, how: tuple[Any, ...]) -> None:
        with TemporaryDirectory() as folder:
            self.twin.save(Path(folder) / "state.pt")
            self.take(lambda s: s.resume(Path(folder) / "state.pt") and None, how)

    @precondition(lambda self: self.pending)
    @rule(value=st.sampled_from([float("nan"), float("inf")]))
    def bad_feedback(self, value: float) -> None:
        before = self.strategy.state_dict()
        with pytest.raises(InputDataError):
            self.strategy.tell(self.strategy.X_pending[:1], [[value] * len(self.names)])
        assert equal(self.strategy.state_dict(), before)

    def teardown(self) -> None:
        """They go on to the same bits."""
        if hasattr(self, "strategy"):
            assert are_alike(self.strategy, self.twin)
            for s in (self.strategy, self.twin):
                if not s.is_finished and self.name != "reduction":
                    s.run(self.objective, len(s.history) + 4, progress=False)
            assert are_alike(self.strategy, self.twin)


def check(name: str, examples: int, every: int = 10_000, steps: int = 16) -> None:
    run_state_machine_as_test(
        type(name, (Steps,), {"name": name, "every": every}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.one_in(5)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sampled(NAMES))
def test_any_steps(name: str) -> None:
    check(name, 1 if name.startswith("box") else 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_many_steps(name: str) -> None:
    check(name, 50)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_at_every_line(name: str) -> None:
    check(name, 2, every=1, steps=12)


def test_filters_of_warnings_are_those_of_before() -> None:
    """As where Ctrl-C comes while a model is built without some warnings."""
    before = list(warnings.filters)

    def stop(_: int) -> None:
        warnings.simplefilter("ignore", UserWarning)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TABLE["random"]().ask(3, progress=stop)
    assert list(warnings.filters) == before
