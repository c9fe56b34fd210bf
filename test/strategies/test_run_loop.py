"""Runs: executors, failures, Ctrl-C at any moment, callbacks and stopping rules."""

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_all_start_methods, get_context
from types import SimpleNamespace
from typing import Any

import box_table
import pytest
import sbpe_problems
import torch
from botorch.exceptions import (
    BotorchError,
    BotorchTensorDimensionError,
    BotorchWarning,
    InputDataError,
    UnsupportedError,
)
from strategy_cases import ALL
from strategy_table import (
    TABLE,
    are_alike,
    equal,
    make_candidates,
    objective,
)
from torch import Tensor

from botorch_sparse.strategies import (
    Constraint,
    Objective,
    RandomSearch,
    StopAfter,
    StopAtHypervolume,
    StopAtTarget,
    StopOnConfidenceGap,
    StopOnNoImprovement,
    Strategy,
    ThompsonSampling,
)
from botorch_sparse.strategies.core import evaluation as run_loop
from botorch_sparse.strategies.core import transaction
from botorch_sparse.strategies.data import preference

pd = pytest.importorskip("pandas")

EXECUTORS = ["threads", "processes", "dask"]


def random_search(num: int = 60, **options: Any) -> RandomSearch:
    return RandomSearch(make_candidates(num), **{"batch_size": 6} | options)


@pytest.fixture(scope="module")
def dask_executor() -> Iterator[Executor]:
    distributed = pytest.importorskip("dask.distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address=":0",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


@pytest.fixture(params=EXECUTORS, scope="module")
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "dask":
        yield request.getfixturevalue("dask_executor")
    elif request.param == "threads":
        with ThreadPoolExecutor(3) as threads:
            yield threads
    elif "fork" not in get_all_start_methods():
        pytest.skip("new processes would import everything again")
    else:
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as processes:
            yield processes


def first_feature(X: Tensor) -> Tensor:
    """One point at a time; processes find this by its name."""
    assert X.shape == (1, 2) and X.dtype == torch.float64
    return X[:, 0]


def fails_on_the_left(X: Tensor) -> Tensor:
    if X[0, 0] < 0.5:
        raise ValueError("too far left")
    return X[:, 0]


def noise(X: Tensor) -> Tensor:
    return torch.rand(1)


OUTCOMES = [Objective("yield"), Constraint("cost", upper=0.5)]


def yield_and_cost(X: Tensor) -> Any:
    """A frame of any number of points, with the cost of those on the left alone."""
    cost = X[:, 1].where(X[:, 0] < 0.5, torch.nan)
    return pd.DataFrame({"cost": cost.numpy(), "yield": X[:, 0].numpy()})


def looked_up(index: Tensor) -> float:
    assert index.shape == (1,) and index.dtype == torch.long
    return float(index) / 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestExecutors:
    """Threads, processes and a Dask cluster do the same."""

    def test_all_points_are_evaluated(self, executor: Executor) -> None:
        strategy = random_search()
        history = strategy.run(first_feature, 15, progress=False, executor=executor)
        assert len(history) == 15 and len(strategy.pending) == 0
        assert torch.equal(history.Y, history.X[:, 0])
        assert sorted(history.trial.tolist()) == list(range(15))
        twin = random_search()
        proposed = [twin.ask().indices for _ in range(2)]
        expected = torch.cat([*proposed, twin.ask(3).indices])
        assert torch.equal(history.indices[history.trial.argsort()], expected)

    def test_by_index(self, executor: Executor) -> None:
        strategy = random_search(minimize=True)
        history = strategy.run(
            looked_up, 8, progress=False, executor=executor, by_index=True
        )
        assert history.Y.tolist() == [i / 2 for i in history.indices.tolist()]

    def test_several_outcomes(self, executor: Executor) -> None:
        strategy = random_search(outcomes=OUTCOMES)
        history = strategy.run(yield_and_cost, 15, progress=False, executor=executor)
        assert len(history) == 15 and len(strategy.pending) == 0
        assert equal(history.Y[:, 0], history.X[:, 0])
        expected = history.X[:, 1].where(history.X[:, 0] < 0.5, torch.nan)
        assert equal(history.Y[:, 1], expected) and 0 < expected.isnan().sum() < 15

    def test_one_that_raises_costs_no_other(self, executor: Executor) -> None:
        strategy = random_search()
        with pytest.warns(BotorchWarning, match="too far left") as caught:
            history = strategy.run(
                fails_on_the_left,
                15,
                progress=False,
                executor=executor,
                catch=ValueError,
            )
        assert len(history) == 15 and float(history.Y.min()) >= 0.5
        texts = [str(warning.message) for warning in caught]
        left_out = [text for text in texts if "left out" in text]
        assert len(left_out) >= len(strategy.excluded_points) > 0
        for row in strategy.excluded_points:
            assert any(f"(row {row})" in text for text in left_out)
            assert strategy.candidates[row, 0] < 0.5

    def test_other_errors_come_last(self, executor: Executor) -> None:
        """What has begun is told first; the trial that raised stays pending."""
        strategy = random_search()
        with pytest.raises(ValueError, match="too far left"):
            strategy.run(fails_on_the_left, 12, progress=False, executor=executor)
        assert len(strategy.history) + len(strategy.pending) == 6
        assert bool((strategy.X_pending[:, 0] < 0.5).any())
        history = strategy.run(first_feature, 12, progress=False, executor=executor)
        assert sorted(history.trial.tolist()) == list(range(12))


def test_dask_evaluates_the_same_point_again(dask_executor: Executor) -> None:
    """Dask takes equal calls for one; a noisy objective is to be called for each."""
    strategy = RandomSearch(torch.zeros(1, 1), batch_size=8)
    history = strategy.run(noise, 8, progress=False, executor=dask_executor)
    assert len(set(history.values.tolist())) == 8  # two agree once in 6e5 runs


@pytest.mark.slow
def test_dask_workers_may_be_other_processes() -> None:
    """Points and results cross their borders; the workers import torch."""
    distributed = pytest.importorskip("dask.distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(processes=True, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        strategy = random_search()
        history = strategy.run(
            lambda X: torch.cat([X[:, :1], X.new_tensor([[os.getpid()]])]).sum(),
            15,
            progress=False,
            executor=client.get_executor(),
        )
    processes = (history.values - history.X[:, 0]).round().tolist()
    assert len(history) == 15 and os.getpid() not in processes


def test_results_are_told_as_they_come() -> None:
    """The first of two points waits until the second one has been told."""
    strategy = random_search(batch_size=2)
    twin = random_search(batch_size=2)
    first = twin.ask().indices[0]
    told = threading.Event()
    tell = strategy.tell

    def spy(X: Any, Y: Any) -> None:
        tell(X, Y)
        told.set()

    def evaluate(index: Tensor) -> float:
        if index == first:
            assert told.wait(60)
        return 1.0

    strategy.tell = spy
    with ThreadPoolExecutor(2) as executor:
        history = strategy.run(
            evaluate, 2, progress=False, executor=executor, by_index=True
        )
    assert history.trial.tolist() == [1, 0]


def test_what_has_begun_is_told_before_an_error_is_raised() -> None:
    """Two begin, one raises; the other one's result comes later, and counts."""
    strategy = random_search(batch_size=3)
    begun, raised = threading.Event(), threading.Event()

    def evaluate(index: Tensor) -> float:
        if not begun.is_set():
            begun.set()
            assert raised.wait(60)
            return 7.0
        begun.wait(60)
        raised.set()
        raise RuntimeError("lamp broken")

    with ThreadPoolExecutor(2) as executor:
        with pytest.raises(RuntimeError, match="lamp broken"):
            strategy.run(evaluate, 3, progress=False, executor=executor, by_index=True)
    assert strategy.history.values.tolist() == [7.0] and len(strategy.pending) == 2


@pytest.mark.parametrize("value", [float("nan"), [1.0, 2.0]])
def test_values_that_are_no_number_can_be_caught(value: Any) -> None:
    strategy = random_search(batch_size=4)
    bad = {2}

    def evaluate(X: Tensor) -> Tensor:
        is_bad = len(strategy.history) in bad
        return torch.tensor(value) if is_bad else X[:, 0]

    with pytest.raises(InputDataError, match="need one finite"):
        strategy.run(evaluate, 4, progress=False, catch=(ZeroDivisionError,))
    assert len(strategy.history) == 2 and len(strategy.pending) == 2

    def once(X: Tensor) -> Tensor:
        is_bad = bool(bad)
        bad.clear()
        return torch.tensor(value) if is_bad else X[:, 0]

    with pytest.warns(BotorchWarning, match="tried once more"):
        history = strategy.run(once, 6, progress=False, catch=InputDataError)
    assert len(history) == 6 and not strategy.excluded_points


def test_a_point_is_tried_once_more_with_the_next_batch() -> None:
    table = pd.DataFrame({"heat": range(50)}, index=[f"key-{i}" for i in range(50)])
    strategy = RandomSearch(table, batch_size=4)
    calls: list[int] = []

    def evaluate(index: Tensor) -> float:
        calls.append(int(index))
        if len(calls) == 2:
            raise OSError("no answer")
        return 0.5

    with pytest.warns(BotorchWarning, match="key-.* raised OSError.*once more"):
        history = strategy.run(
            evaluate, 6, progress=False, by_index=True, catch=(OSError,), batch_size=4
        )
    assert calls[4] == calls[1]  # ahead of the new ones
    assert history.trial.tolist() == [0, 2, 3, 1, 4, 5]
    assert history.batch_number.tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.one_in(10)
@pytest.mark.parametrize("executor", [None, "immediate"])
@pytest.mark.parametrize(
    "name", ["bbkb-global", "random", "sbpe", "regions", "several"]
)
def test_an_outage_costs_no_point(name: str, executor: Any, tmp_path: Any) -> None:
    """Run gives up, and goes on to the bits of a run without it, also from a file."""
    sbpe = sbpe_problems.TABLE["table"]
    make, f, path = TABLE.get(name, sbpe), objective, tmp_path / "state.pt"
    if name == "sbpe":
        f = sbpe_problems.objective
    elif name == "regions":
        make, f = box_table.TABLE[name], box_table.objective
    elif name == "several":
        make, f = several, partly
    options = {"progress": False, "catch": OSError, "batch_size": 3}
    options["executor"] = executor and Immediate()
    strategy, straight = make(seed=3), make(seed=3)
    for s in (strategy, straight):
        s.run(f, 9, **options)

    calls: list[int] = []

    def fail(X: Tensor) -> Tensor:
        calls.append(1)
        raise OSError("no power")

    with (
        pytest.warns(BotorchWarning, match="raised"),
        pytest.raises(OSError, match="no power") as caught,
    ):
        strategy.run(fail, 18, checkpoint=path, **options)
    assert 100 <= len(calls) <= (100 if executor is None else 102)
    assert "They count for no point" in notes(caught.value)
    assert not strategy.excluded_points and 1 <= len(strategy.pending) <= 3
    assert all(strategy.trial(id).failures == 0 for id in strategy.pending_ids.tolist())
    resumed = make(seed=3).resume(path)
    for s in (strategy, resumed, straight):
        s.run(f, 18, **options)
    assert are_alike(strategy, resumed, straight)


def test_what_was_before_a_failure_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once a result has come: a posterior may be as large as the memory allows."""
    strategy, kept, calls = random_search(), list[Any](), list[int]()
    undo_point = run_loop.undo_point

    def watched(self: Strategy) -> Any:
        undo = undo_point(self)
        kept.append(weakref.ref(undo))
        return undo

    def evaluate(X: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise OSError
        assert len(calls) < 7 or kept[0]() is None
        return objective(X)

    monkeypatch.setattr(run_loop, "undo_point", watched)
    with pytest.warns(BotorchWarning, match="OSError"):
        strategy.run(evaluate, 12, progress=False, catch=OSError)
    assert len(kept) == 1


def test_an_outage_with_results_of_others() -> None:
    """What a callback told stays; rows that were left out can be readmitted."""
    strategy = random_search(batch_size=3, unique=True)

    def tell(strategy: Strategy, batch: Any, history: Any) -> None:
        if len(history) == 0:
            strategy.tell([[0.5, 2.0]], [7.0])

    with (
        pytest.warns(BotorchWarning, match="raised"),
        pytest.raises(ZeroDivisionError) as caught,
    ):
        strategy.run(
            lambda X: 1 / 0,
            30,
            progress=False,
            catch=ZeroDivisionError,
            callbacks=tell,
        )
    assert "readmit()" in notes(caught.value)
    assert strategy.history.values.tolist() == [7.0]
    assert len(strategy.excluded_points) > len(strategy.pending) > 0
    strategy.readmit()
    assert strategy.excluded_points == set(strategy.pending.tolist())


@pytest.mark.parametrize("by_key", [False, True])
def test_a_series_of_the_objective_is_paired_by_its_index(by_key: bool) -> None:
    """By keys or by places; see `tell`."""
    table = pd.DataFrame({"heat": torch.arange(20.0).numpy()}, index=range(99, 79, -1))
    heat = table.heat if by_key else table.heat.reset_index(drop=True)
    strategy = RandomSearch(table, batch_size=5, unique=True)

    def evaluate(index: Tensor) -> Any:
        return heat.iloc[index.tolist()].sort_values()

    history = strategy.run(evaluate, 10, progress=False, by_index=True)
    assert torch.equal(history.Y, history.X[:, 0])


def test_a_table_of_failures_ends_the_run() -> None:
    strategy = random_search(2)
    with pytest.warns(BotorchWarning, match="ZeroDivisionError"):
        history = strategy.run(
            lambda X: 1 / 0, 5, progress=False, catch=ZeroDivisionError
        )
    assert len(history) == 0 and strategy.is_finished and len(strategy.pending) == 0


def interrupting(f: Callable[..., Any], call: int) -> Callable[..., Any]:
    """`f`, with Ctrl-C at one of its calls."""
    calls: list[int] = []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return f(*args, **kwargs)

    return wrapped


# A strategy of three outcomes, some of which are not measured.
several = ALL["table-thompson-several"].make


def partly(X: Tensor) -> Tensor:
    Y = ALL["table-thompson-several"].objective(X)
    Y[X[:, 0] > 0.5, 1] = Y[X[:, 1] > 0.5, 0] = torch.nan
    return Y


PLACES = ["objective", "point", "tell", "ask", "_learn", "_select", "callback", "save"]


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", ["bbkb-global", "random", "several"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_interrupted_by_ctrl_c(
    name: str, place: str, call: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on to the bits of one that was left alone, here and from a file."""
    make, usual = TABLE.get(name, several), partly if name == "several" else objective
    strategy, path = make(seed=3), tmp_path / "state.pt"
    options: dict[str, Any] = {"progress": False, "batch_size": 3}
    if place == "point":  # one by one: part of a batch is told
        options["catch"] = ZeroDivisionError
    f, callback = usual, lambda *args: None
    with pytest.MonkeyPatch.context() as patch:
        if place in ("objective", "point"):
            f = interrupting(usual, call)
        elif place == "callback":
            callback = interrupting(callback, call)
        else:
            original = getattr(type(strategy), place)
            patch.setattr(type(strategy), place, interrupting(original, call))
        with pytest.raises(KeyboardInterrupt):
            strategy.run(f, 14, callbacks=[callback], checkpoint=path, **options)
    resumed, straight = make(seed=8).resume(path), make(seed=3)
    assert equal(resumed.state_dict(), strategy.state_dict())
    for s in (strategy, resumed, straight):
        s.run(usual, 14, **options)
    assert are_alike(strategy, resumed, straight)


def test_a_second_ctrl_c_does_not_wait() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with transaction.undivided():
            signal.raise_signal(signal.SIGINT)
            steps.append("after the first")
            signal.raise_signal(signal.SIGINT)
            steps.append("after the second")
    assert steps == ["after the first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_an_executor_works() -> None:
    """Results that are there are told; what is out is evaluated by the next run."""
    strategy = random_search(batch_size=4)
    hold, calls = threading.Event(), []
    main = threading.main_thread().ident

    def evaluate(index: Tensor) -> float:
        calls.append(1)
        if len(calls) != 3:  # a second signal would end pytest
            return 1.0
        while len(strategy.history) < 2:
            time.sleep(1e-3)
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        assert hold.wait(60)
        return 2.0

    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(KeyboardInterrupt):
            strategy.run(evaluate, 8, progress=False, executor=executor, by_index=True)
        hold.set()
    assert len(strategy.history) == 2 and strategy.pending_ids.tolist() == [2, 3]
    history = strategy.run(
        lambda i: 3.0 + i, 8, progress=False, by_index=True, batch_size=1
    )
    assert len(history) == 8 and sorted(history.trial.tolist()) == list(range(8))


def test_ctrl_c_is_not_lost_in_an_error() -> None:
    """It comes once the block has ended, with the block's error as its context."""
    with pytest.raises(KeyboardInterrupt) as caught, transaction.undivided():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("the block's own")
    assert isinstance(caught.value.__context__, ValueError)


def test_what_has_begun_is_told_where_an_executor_takes_no_more() -> None:
    class Full(ThreadPoolExecutor):
        taken = 0

        def submit(self, *args: Any, **kwargs: Any) -> Any:
            self.taken += 1
            if self.taken > 2:
                raise RuntimeError("shut down")
            return super().submit(*args, **kwargs)

    strategy = random_search(30, batch_size=4)
    with Full(2) as executor, pytest.raises(RuntimeError, match="shut down"):
        strategy.run(
            lambda X: time.sleep(0.1) or X.sum(-1), 8, executor=executor, progress=False
        )
    assert len(strategy.history) == 2 and len(strategy.pending) == 2


class Immediate(Executor):
    """Has evaluated a point when `submit` returns."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def test_ctrl_c_when_results_are_there() -> None:
    """It comes while the first one is told: so are the others, but for a bad one."""
    strategy = random_search(batch_size=4)
    strategy.tell = interrupting(strategy.tell, 1)
    values = iter([1.0, 2.0, float("nan"), 4.0])
    with pytest.raises(KeyboardInterrupt):
        strategy.run(lambda X: next(values), 4, progress=False, executor=Immediate())
    assert strategy.history.values.tolist() == [1.0, 2.0, 4.0]
    assert strategy.pending_ids.tolist() == [2]


def test_callbacks() -> None:
    strategy = random_search()
    seen: list[tuple[Any, list[int], int]] = []

    def first(*args: Any) -> str:
        seen.append((args[0], args[1].ids.tolist(), len(args[2])))
        return ""

    def second(strategy: Strategy, batch: Any, history: Any) -> bool:
        return len(history) >= 12

    history = strategy.run(objective, 30, progress=False, callbacks=[second, first])
    assert len(history) == 12
    ids = [list(range(6)), list(range(6, 12))]
    assert seen == [(strategy, ids[0], 6), (strategy, ids[1], 12)]


def test_batch_size() -> None:
    strategy = random_search()
    strategy.run(objective, 10, progress=False, batch_size=4)
    assert [batch.size for batch in strategy.history.batches] == [4, 4, 2]


def test_stop_after() -> None:
    strategy = random_search()
    strategy.run(objective, 100, progress=False, callbacks=StopAfter(0.0))
    assert len(strategy.history) == 6
    strategy.run(objective, 100, progress=False, callbacks=[StopAfter(1e9)])
    assert len(strategy.history) == 100


FALLING = [-1.0, -2.0, -2.25, -2.5, -2.75, -2.0, -2.75, -9.0]


@pytest.mark.parametrize(
    ("rule", "minimize", "values", "num"),
    [
        (StopAtTarget(4.0), False, [1.0, 3.0, 2.0, 4.0, 9.0], 4),
        (StopAtTarget(-4.0), True, [-1.0, -3.0, -2.0, -4.0, -9.0], 4),
        (StopOnNoImprovement(2, 0.0), True, FALLING, 7),
        (StopOnNoImprovement(2, 0.5), True, FALLING, 4),
    ],
)
def test_rules_that_stop(rule, minimize, values, num):
    strategy, left = random_search(minimize=minimize, batch_size=1), iter(values)
    options = {"progress": False, "callbacks": [rule]}
    history = strategy.run(lambda X: [next(left)], len(values), **options)
    assert history.Y.tolist() == values[:num]


NAN, INF = float("nan"), float("inf")
COST, DUST = Objective("cost", minimize=True), Constraint("dust", upper=1.0)
TWO = [Objective("yield"), COST]
# Above the point (0, 9) these have the volumes 1, 1, 4, 5, 5 and 5.
FRONT = [[1.0, 8.0], [2.0, 9.5], [2.0, 7.0], [1.0, 6.0], [1.5, 7.5], [0.5, 8.0]]


@pytest.mark.parametrize(
    ("rule", "outcomes", "values", "num"),
    [
        # The constraint comes first: its sign is not the objective's.
        (StopAtTarget(4.0), [DUST, COST], [[2.0, 1.0], [0.5, 5.0], [1.0, 4.0]], 3),
        (StopAtTarget(4.0), [COST, DUST], [[1.0, 2.0], [3.0, NAN], [9.0, 0.0]], 3),
        (StopAtTarget(4.0), [COST, DUST], [[NAN, 2.0], [4.0, 1.0], [9.0, 0.0]], 2),
        (StopAtTarget(INF), [COST, DUST], [[1.0, 2.0], [4.0, 1.0], [9.0, 0.0]], 2),
        (StopAtHypervolume(4.0, [0, 9]), TWO, FRONT, 3),
        (StopAtHypervolume(4.5, torch.tensor([0, 9])), TWO, FRONT, 4),
        (StopAtHypervolume(4.5, [0, 9]), [*TWO, DUST], [[*y, 2.0] for y in FRONT], 6),
        (
            StopAtHypervolume(0.5),
            [Objective("yield", threshold=0.5)],
            [[0.9], [1.0]],
            2,
        ),
        (StopOnNoImprovement(2), TWO, FRONT, 6),
        (StopOnNoImprovement(2, 1.0), TWO, [*FRONT[2:], [9.0, 1.0]], 3),
        (
            StopOnNoImprovement(2),
            TWO,
            [[1.0, 8.0], [2.0, NAN], [3.0, NAN], FRONT[2]],
            4,
        ),
        # Nothing is feasible, then something is, which counts whatever its value.
        (
            StopOnNoImprovement(2),
            [COST, DUST],
            [[1.0, 5.0], [1.0, 4.0], [0.0, 6.0], [7.0, 0.5], [8.0, 0.0], [7.5, 1.0]],
            6,
        ),
        (StopOnNoImprovement(1), [COST, DUST], [[1.0, 5.0], [0.0, 5.0], [7.0, 0.5]], 2),
    ],
)
def test_rules_that_stop_with_several_outcomes(
    rule: Any, outcomes: list[Any], values: list[list[float]], num: int
) -> None:
    reference = [objective for objective in outcomes if objective in TWO]
    if len(reference) == 2 and isinstance(rule, StopOnNoImprovement):
        outcomes = [Objective("yield", threshold=0.0), *outcomes[1:]]
        outcomes[1] = Objective("cost", minimize=True, threshold=9.0)
    strategy, left = random_search(outcomes=outcomes, batch_size=1), iter(values)
    options = {"progress": False, "callbacks": [rule]}
    history = strategy.run(lambda X: [next(left)], len(values), **options)
    assert equal(history.Y.reshape(num, -1).tolist(), values[:num])


def test_rules_for_other_outcomes_say_so() -> None:
    """The batch before is told and kept."""
    for rule, match in (
        (StopAtTarget(1.0), "take StopAtHypervolume"),
        (StopOnConfidenceGap(1.0), "take StopOnNoImprovement"),
    ):
        strategy = random_search(outcomes=TWO)
        with pytest.raises(UnsupportedError, match=match):
            strategy.run(lambda X: X, 12, progress=False, callbacks=rule)
        assert len(strategy.history) == 6
    with pytest.raises(InputDataError, match="one for each objective"):
        strategy.run(
            lambda X: X, 12, progress=False, callbacks=StopAtHypervolume(1.0, [1.0])
        )


@pytest.mark.parametrize(
    ("outcomes", "values", "shown"),
    [
        ([COST, DUST], [[3.0, 0.5], [2.0, 1.0], [1.0, 9.0]], "best=2,"),
        ([DUST, COST], [[0.5, 3.0], [1.0, 2.0], [9.0, 1.0]], "best=2,"),
        ([COST, DUST], [[3.0, 1.5], [2.0, 1.0], [1.0, NAN]], "best=2,"),
        # Two from the limit, where the values have a standard deviation of 1.
        ([COST, DUST], [[1.0, 3.0], [1.0, 4.0], [1.0, 5.0]], "infeasible by 2 sd"),
        ([COST, DUST], [[1.0, NAN]] * 3, "infeasible by inf sd"),
        ([*TWO, DUST], [[1.0, 2.0, 3.0]] * 3, "infeasible by 2 sd"),
    ],
)
def test_progress_of_several_outcomes(
    outcomes: Any, values: Any, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy = random_search(outcomes=outcomes, batch_size=3)
    strategy.run(lambda X: values, 3)
    assert shown in capsys.readouterr().err


def test_progress_of_several_objectives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Volumes and sizes of fronts; none is computed while the last one was dear."""
    outcomes = [Objective("yield", threshold=0.0)]
    outcomes.append(Objective("cost", minimize=True, threshold=9.0))
    now, left = [0.0], iter(FRONT)
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr("botorch_sparse.strategies.core.run_loop.time", clock)
    volumes = preference.dominated_hypervolume

    def dear(*args: Any) -> float:
        now[0] += 1.0
        return volumes(*args)

    monkeypatch.setattr(preference, "dominated_hypervolume", dear)

    def evaluate(X: Tensor) -> list[list[float]]:
        now[0] += 7.0  # so that the third one after a volume has the next
        return [next(left)]

    strategy = random_search(outcomes=outcomes, batch_size=1)
    strategy.run(evaluate, 6)
    assert now[0] == 6 * 7.0 + 2
    assert "front=2, hypervolume=5" in capsys.readouterr().err  # of the fourth


@pytest.mark.one_in(3)
@pytest.mark.parametrize("minimize", [False, True])
@pytest.mark.parametrize("name", TABLE)
def test_progress_shows_the_best_of_all(
    name: str, minimize: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy = TABLE[name](minimize=minimize)
    best = -7.0 if minimize else 7.0
    strategy.tell([[0.5, 0.5]], [best])  # before the run
    strategy.run(objective, 10, progress=True)
    shown = capsys.readouterr().err
    for part in (type(strategy).__name__, "10/10", "batch=", "m=", f"best={best:.4g}"):
        assert part in shown
    strategy.run(objective, 12, progress=False)
    assert capsys.readouterr().err == ""


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", []))


@pytest.mark.parametrize("how", ["at once", "one by one", "executor"])
def test_an_error_says_at_which_point(how: str) -> None:
    index = [f"key-{i}" for i in range(50)]
    strategy = RandomSearch(pd.DataFrame({"heat": range(50)}, index=index))
    options: dict[str, Any] = {"progress": False, "batch_size": 4}
    if how == "one by one":
        options["catch"] = ZeroDivisionError
    elif how == "executor":
        options["executor"] = Immediate()
    bad = {1, 3} if how == "executor" else {1}
    calls: list[int] = []

    def evaluate(X: Tensor) -> Tensor:
        calls.append(1)
        if how == "at once" or len(calls) - 1 in bad:
            raise OSError("no answer")
        return X[:, 0]

    with pytest.raises(OSError, match="no answer") as caught:
        strategy.run(evaluate, 4, **options)
    text = notes(caught.value)
    row = strategy.trial(1).point
    assert f"trial 1 at the point [{row}.0] (row {row}, key 'key-{row}')" in text
    assert ("1 other trials failed too" in text) == (how == "executor")
    told = {"at once": [], "one by one": [0], "executor": [0, 2]}[how]
    assert strategy.history.trial.tolist() == told


def test_a_broken_executor_is_no_failure_of_a_point() -> None:
    strategy = random_search(batch_size=3)

    def evaluate(X: Tensor) -> Tensor:
        raise BrokenProcessPool("a process died")

    with pytest.raises(BrokenExecutor, match="a process died") as caught:
        strategy.run(evaluate, 3, progress=False, executor=Immediate(), catch=Exception)
    assert "stay pending" in notes(caught.value)
    assert strategy.pending_ids.tolist() == [0, 1, 2]
    assert all(strategy.trial(id).failures == 0 for id in range(3))


ODD: dict[str, tuple[Any, str]] = {
    "nothing": (None, r"objective\(X\)=None of type NoneType.*need one number"),
    "text": ("1.5", r"objective\(X\)='1.5' of type str.*need one number"),
    "complex": (1 + 2j, r"of type complex.*need one number"),
    "dict": ({"yield": 1.0}, r"of type dict.*need one number"),
    "complex tensor": (torch.ones(1) * 1j, r"need a dense tensor of real numbers"),
    "None in a list": ([None], r"of type list.*need one number"),
    "an error": (ValueError("x"), r"of type ValueError.*need one number"),
    "two numbers": ((1.0, 2.0), r"returned 1.0, 2.0 for one point; need one finite"),
    "no number": ([], r"returned no values for one point; need one finite"),
    "an empty frame": (pd.DataFrame(), r"returned no values for one point"),
    "NaN": (float("nan"), r"returned nan for one point; need one finite"),
    "infinity": (-float("inf"), r"returned -inf for one point; need one finite"),
    "a huge integer": (10**400, r"of type int.*need one number"),
}


@pytest.mark.parametrize("form", ODD)
def test_what_is_no_value_is_named_with_its_point(form: str) -> None:
    """One by one or together; nothing is told, and it can be evaluated again."""
    value, match = ODD[form]
    strategy = random_search(batch_size=3)
    executor: dict[str, Any] = {"executor": Immediate()}
    for how in ({"catch": ZeroDivisionError}, executor):
        before = strategy.state_dict() if len(strategy.pending) else None
        with pytest.raises(InputDataError, match=match) as caught:
            strategy.run(lambda X: value, 3, progress=False, **how)
        assert "Raised by trial 0 at the point [" in notes(caught.value)
        assert before is None or equal(strategy.state_dict(), before)
    with pytest.raises(BotorchError, match=r"b = 3|real numbers") as caught:
        strategy.run(lambda X: value, 3, progress=False)
    assert "trial 0 at the point [" in notes(caught.value)
    assert strategy.pending_ids.tolist() == [0, 1, 2] and len(strategy.history) == 0
    assert len(strategy.run(objective, 3, progress=False)) == 3


def test_values_of_another_shape_are_named_with_their_points() -> None:
    """Of one outcome, and of two."""
    for outcomes, value, match in (
        (None, torch.ones(3, 2), r"shape \(3, 2\); need `b` or `b x 1` .* b = 3"),
        (OUTCOMES, torch.ones(3), r"shape \(3,\); need `b x 2` numbers, with b = 3"),
    ):
        strategy = random_search(batch_size=3, outcomes=outcomes)
        with pytest.raises(BotorchTensorDimensionError, match=match) as caught:
            strategy.run(lambda X, value=value: value, 3, progress=False)
        assert "trial 2 at the point [" in notes(caught.value)
    for how in ({"catch": ZeroDivisionError}, {"executor": Immediate()}):
        strategy = random_search(batch_size=3, outcomes=OUTCOMES)
        with pytest.raises(InputDataError, match="2 numbers, for 'yield', 'cost'"):
            strategy.run(lambda X: None, 3, progress=False, **how)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
@pytest.mark.parametrize("bad", [[1, 3], [0, 1, 2, 3]])
def test_values_that_are_not_finite_cost_no_other(
    shape: tuple[int, ...], bad: list[int]
) -> None:
    strategy = random_search(batch_size=4)
    seen: list[int] = []

    def evaluate(X: Tensor) -> Tensor:
        seen.append(len(X))
        Y = X[:, 0].clone()
        if len(seen) == 1:
            Y[bad] = float("nan")
        return Y.reshape(shape)

    with pytest.raises(InputDataError, match=f"trial {bad[0]} at the point .*pending"):
        strategy.run(evaluate, 4, progress=False)
    assert strategy.pending_ids.tolist() == bad
    assert len(strategy.history) == 4 - len(bad)
    history = strategy.run(evaluate, 4, progress=False)
    assert seen == [4, len(bad)] and len(strategy.pending) == 0
    assert torch.equal(history.Y, history.X[:, 0])


def test_a_run_that_goes_on_asks_its_callbacks_first() -> None:
    """The target is reached: nothing more is evaluated."""
    strategy = random_search()
    strategy.tell([[0.5, 0.5]], [9.0])  # old results are no batch
    seen: list[list[int]] = []

    def spy(strategy: Strategy, batch: Any, history: Any) -> None:
        seen.append(batch.ids.tolist())
        assert torch.equal(batch.X, history.X[1:][batch.ids])
        assert batch.indices.tolist() == history.indices[1:][batch.ids].tolist()

    rules = [spy, StopAtTarget(8.0)]
    strategy.run(objective, 30, progress=False, callbacks=rules)
    assert seen == [list(range(6))]
    twin = random_search()
    twin.load_state_dict(strategy.state_dict())
    assert len(twin.run(objective, 30, progress=False, callbacks=rules)) == 7
    assert seen == [list(range(6))] * 2
    assert len(twin.run(objective, 30, progress=False, callbacks=[spy])) == 30


def as_tensor(frame: Any) -> Tensor:
    values = frame[["yield", "cost"]].to_numpy().tolist()
    return torch.tensor(values, dtype=torch.double)


FORMS: dict[str, Callable[[Any], Any]] = {
    "frame": lambda frame: frame,
    "tensor": as_tensor,
    "array": lambda frame: as_tensor(frame).numpy(),
    "lists": lambda frame: as_tensor(frame).tolist(),
}


@pytest.mark.parametrize("how", ["at once", "one by one", "executor"])
@pytest.mark.parametrize("form", FORMS)
def test_an_objective_of_several_outcomes(form: str, how: str) -> None:
    """In any form, with outcomes that are not measured; also by the rows' numbers."""
    options: dict[str, Any] = {"progress": False}
    if how == "one by one":
        options["catch"] = ZeroDivisionError
    elif how == "executor":
        options["executor"] = Immediate()
    strategy = random_search(outcomes=OUTCOMES)
    X = strategy.candidates
    strategy.run(lambda X: FORMS[form](yield_and_cost(X)), 12, **options)
    history = strategy.run(
        lambda rows: FORMS[form](yield_and_cost(X[rows])), 20, by_index=True, **options
    )
    expected = as_tensor(yield_and_cost(X[history.indices]))
    assert equal(history.Y, expected) and history.trial.tolist() == list(range(20))
    assert bool(expected.isnan().any())


def test_frames_of_the_objective_are_paired_by_their_index() -> None:
    table = pd.DataFrame({"heat": torch.arange(20.0).numpy()}, index=range(99, 79, -1))
    strategy = RandomSearch(table, batch_size=5, unique=True, outcomes=OUTCOMES)

    def evaluate(index: Tensor) -> Any:
        heat = table.heat.iloc[index.tolist()]
        return pd.DataFrame({"cost": -heat, "yield": heat}).sample(
            frac=1, random_state=0
        )

    history = strategy.run(evaluate, 10, progress=False, by_index=True)
    assert torch.equal(history.Y, history.X * torch.tensor([1.0, -1.0]))


@pytest.mark.parametrize("how", ["at once", "one by one", "executor"])
@pytest.mark.parametrize(
    "bad", [[NAN, NAN], [1.0, INF], [NAN, -INF], [1e151, 1.0], [2e200, NAN]]
)
def test_points_without_usable_outcomes_cost_no_other(
    how: str, bad: list[float]
) -> None:
    options: dict[str, Any] = {"progress": False}
    if how == "one by one":
        options["catch"] = ZeroDivisionError
    elif how == "executor":
        options["executor"] = Immediate()
    strategy = ThompsonSampling(make_candidates(60), batch_size=4, outcomes=OUTCOMES)
    is_good = iter([True, False, True, False] + [True] * 9)

    def evaluate(X: Tensor) -> list[list[float]]:
        return [[1.0, NAN] if next(is_good) else bad for _ in X]

    with pytest.raises(InputDataError, match="The objective returned") as caught:
        strategy.run(evaluate, 4, **options)
    first = [1] if how == "one by one" else [1, 3]
    text = f"{caught.value} {notes(caught.value)}"
    assert "trial 1 at the point" in text and "NaN" in text
    pending = [1, 2, 3] if how == "one by one" else first
    assert strategy.pending_ids.tolist() == pending
    assert len(strategy.history) == 4 - len(pending)
    next(is_good)
    if how == "one by one":
        is_good = iter([True] * 9)
    strategy.run(evaluate, 4, **options)
    assert len(strategy.pending) == 0 and len(strategy.history) == 4


@pytest.mark.parametrize("how", ["at once", "one by one", "executor"])
@pytest.mark.parametrize(
    "value",
    [
        lambda X: X[:, :1],
        lambda X: torch.ones(len(X), 3),
        lambda X: pd.DataFrame({"yield": X[:, 0].numpy()}),
        lambda X: pd.DataFrame({"yield": X[:, 0].numpy(), "weight": 1.0}),
    ],
)
def test_an_objective_without_a_column_for_each_outcome(how: str, value: Any) -> None:
    """Nothing is told, and all points stay pending."""
    options: dict[str, Any] = {"progress": False, "batch_size": 3}
    if how == "one by one":
        options["catch"] = ZeroDivisionError
    elif how == "executor":
        options["executor"] = Immediate()
    strategy = random_search(outcomes=OUTCOMES)
    with pytest.raises(BotorchError, match="need"):
        strategy.run(value, 3, **options)
    assert strategy.pending_ids.tolist() == [0, 1, 2] and len(strategy.history) == 0


@pytest.mark.parametrize("by_index", [False, True])
@pytest.mark.parametrize("inference", [False, True])
def test_an_objective_may_write_to_its_input(by_index: bool, inference: bool) -> None:
    """What it was paid for is told of the point that was proposed."""

    def evaluate(X: Tensor) -> Tensor:
        Y = X.double().reshape(len(X), -1).sum(-1)
        X *= 0
        X.numpy()[:] += 2
        return Y

    strategy = random_search(unique=True)
    with torch.inference_mode(inference):
        history = strategy.run(evaluate, 12, progress=False, by_index=by_index)
    X = history.indices[:, None].double() if by_index else history.X
    assert torch.equal(history.Y, X.sum(-1))
    assert torch.equal(history.X, make_candidates(60)[history.indices])
