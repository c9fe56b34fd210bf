"""Evaluations that hang: they fail, their processes end, and the run goes on."""

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from functools import partial
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

import hanging_objectives as objectives
import pytest
import torch
from botorch.exceptions import BotorchWarning
from refusals import refused
from strategy_table import are_alike, make_candidates

from botorch_sparse.strategies import RandomSearch, Strategy
from botorch_sparse.strategies.core import evaluation
from botorch_sparse.strategies.core.evaluation_process import evaluate_within, packed

psutil = pytest.importorskip("psutil")

# Long for evaluations that return at once, on a slow machine too.
TIMEOUT = 5.0
OFTEN: dict[str, Any] = {"progress": False, "by_index": True}


def random_search(batch_size: int = 6) -> RandomSearch:
    return RandomSearch(make_candidates(60), batch_size=batch_size, unique=True)


def left_out(strategy: Strategy) -> set[int]:
    """The rows that failed."""
    told = {*strategy.history.indices.tolist(), *strategy.pending.tolist()}
    return {*strategy.excluded_points} - told


def called(folder: Path) -> list[tuple[int, list[int]]]:
    """The rows that an objective was called with, and the processes of each call."""
    texts = [path.read_text().split() for path in folder.glob("called-*")]
    return [(int(row), [*map(int, pids)]) for row, *pids in texts]


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or dead and waits for a parent that looks."""
    for _ in range(6000):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def processes() -> Iterator[Executor]:
    if "fork" not in get_all_start_methods():
        pytest.skip("new processes would import everything again")
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as executor:
        yield executor


DASK = pytest.param("dask", marks=pytest.mark.slow)


@pytest.fixture(params=["none", "threads", "processes", DASK])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor | None]:
    if request.param == "none":
        yield None
    elif request.param == "threads":
        with ThreadPoolExecutor(1) as threads:  # all others wait for the first one
            yield threads
    elif request.param == "processes":
        yield request.getfixturevalue("processes")
    else:
        distributed = pytest.importorskip("dask.distributed")
        options = {"processes": False, "dashboard_address": ":0"}
        with (
            distributed.LocalCluster(2, threads_per_worker=1, **options) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client.get_executor()


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_hangs_is_left_out(executor: Executor | None, tmp_path: Path) -> None:
    """All else has results, also after a resume, and no process is left."""
    rows = random_search().ask().indices.tolist()
    is_serial = executor is None or isinstance(executor, ThreadPoolExecutor)
    bad = {rows[0]} if is_serial else {rows[0], rows[4]}
    objective = partial(objectives.hangs, tmp_path, bad)
    options = OFTEN | {"executor": executor, "timeout": TIMEOUT}
    strategy, path = random_search(), tmp_path / "state.pt"
    with pytest.warns(BotorchWarning, match="took longer than timeout=5") as caught:
        history = strategy.run(objective, 5, checkpoint=path, **options)
    assert len(caught) == len(bad) and len(history) == 5
    assert all("left out" in str(warning.message) for warning in caught)
    assert left_out(strategy) == bad and len(strategy.pending) == 0
    resumed = random_search().resume(path)
    for s in (strategy, resumed):
        history = s.run(objective, 54, catch=ZeroDivisionError, **OFTEN)
        assert history.Y.tolist() == [i / 2 for i in history.indices.tolist()]
        assert not bad & set(history.indices.tolist())
    assert are_alike(strategy, resumed)
    calls = called(tmp_path)
    assert sum(row in bad for row, _ in calls) == len(bad)
    ended = {pid for _, pids in calls for pid in pids} - {os.getpid()}
    assert len(ended) >= 2 * len(bad) and all(map(has_ended, ended))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_others_do_in_the_pool_goes_on(
    processes: Executor, tmp_path: Path
) -> None:
    strategy, is_over = random_search(), tmp_path / "is over"
    row = int(random_search().ask().indices[0])
    other = processes.submit(objectives.waits_for, is_over)
    objective = partial(objectives.hangs, tmp_path, {row})
    with pytest.warns(BotorchWarning, match="took longer"):
        strategy.run(objective, 5, executor=processes, timeout=TIMEOUT, **OFTEN)
    is_over.touch()
    assert other.result() == "done" and left_out(strategy) == {row}


@pytest.mark.slow
def test_dask_workers_may_be_other_processes(tmp_path: Path) -> None:
    """These are daemonic, and have processes of their own all the same."""
    distributed = pytest.importorskip("dask.distributed")
    strategy = random_search()
    bad = set(random_search().ask().indices[1:3].tolist())

    def objective(index: Any) -> float:  # not to be found by its name
        return objectives.hangs(tmp_path, bad, index)

    options = {"processes": True, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(2, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster) as client,
        pytest.warns(BotorchWarning, match="took longer"),
    ):
        workers = set(client.run(os.getpid).values())
        history = strategy.run(
            objective, 10, executor=client.get_executor(), timeout=20.0, **OFTEN
        )
        assert set(client.run(os.getpid).values()) == workers
    assert len(history) == 10 and left_out(strategy) == bad
    pids = [pid for _, pids in called(tmp_path) for pid in pids]
    assert not set(pids) & workers and all(map(has_ended, pids))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_evaluations_differ_by_their_noise(processes: Executor, library: str) -> None:
    """Processes of one origin would draw the same numbers."""
    options = OFTEN | {"executor": processes, "timeout": TIMEOUT}
    history = random_search().run(partial(objectives.noise, library), 6, **options)
    assert len(set(history.values.tolist())) == 6


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", ["crash", "error", "own error"])
def test_what_a_process_raises(form: str) -> None:
    """It arrives, or else its text does; the trial stays pending, as ever."""
    objective, error, match = {
        "crash": (objectives.crashes, ChildProcessError, "ended with code 3"),
        "error": (objectives.raises, KeyError, "no such row"),
        "own error": (
            *(objectives.raises_what_is_not_picklable, RuntimeError),
            "TwoWords: lamp broken",
        ),
    }[form]
    strategy, options = random_search(batch_size=1), OFTEN | {"timeout": TIMEOUT}
    with pytest.raises(error, match=match) as caught:
        strategy.run(objective, 6, **options)
    notes = " ".join(caught.value.__notes__)
    assert "Raised by trial 0" in notes
    assert form == "crash" or "in raises" in notes
    assert strategy.pending_ids.tolist() == [0] and len(strategy.history) == 0

    class IsOver(Exception):
        """What ends the run."""

    def is_left_out(strategy: Strategy, *_: Any) -> None:
        if left_out(strategy):
            raise IsOver

    with (
        pytest.warns(BotorchWarning, match="tried once more|left out") as warned,
        pytest.raises(IsOver),
    ):
        strategy.run(objective, 6, catch=error, callbacks=is_left_out, **options)
    assert len(warned) == 2


@pytest.mark.parametrize("catch", [(), TimeoutError])
def test_late_ones_are_not_tried_again(
    catch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But an outage counts for no point, as ever: the run gives up."""
    late: list[bytes] = []

    def is_late(timeout: float, payload: bytes) -> None:
        assert timeout == 2.5
        late.append(payload)

    monkeypatch.setattr(evaluation, "evaluate_within", is_late)
    monkeypatch.setattr(evaluation, "MAX_FAILURES", 8)
    strategy, options = random_search(), OFTEN | {"timeout": 2.5, "catch": catch}
    with (
        pytest.warns(BotorchWarning, match="left out") as warned,
        pytest.raises(TimeoutError, match="took longer") as caught,
    ):
        strategy.run(objectives.raises, 60, **options)
    assert len(late) == len(set(late)) == len(warned) == 8
    assert "They count for no point" in str(caught.value.__notes__)
    assert not left_out(strategy) and strategy.pending_ids.tolist() == list(range(6))


def test_ctrl_c_ends_the_process(tmp_path: Path) -> None:
    """It does not wait for the objective; the trial stays pending."""
    strategy = random_search()
    row = int(random_search().ask().indices[2])

    def interrupt() -> None:
        while row not in {row for row, _ in called(tmp_path)}:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident
    assert main is not None
    thread = threading.Thread(target=interrupt)
    thread.start()
    objective = partial(objectives.hangs, tmp_path, {row})
    with pytest.raises(KeyboardInterrupt):
        strategy.run(objective, 6, timeout=1e9, **OFTEN)
    thread.join()
    assert len(strategy.history) == 2 and len(strategy.pending) == 4
    assert all(has_ended(pid) for _, pids in called(tmp_path) for pid in pids)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_ends_with_its_worker(processes: Executor, tmp_path: Path) -> None:
    """Such as one that the system kills; so do those of a Dask cluster that closes."""
    call = partial(objectives.hangs, tmp_path, {3}, torch.tensor([3]))
    future = processes.submit(evaluate_within, 1e9, packed(call, call))
    while not called(tmp_path):
        time.sleep(0.01)
    [(_, pids)] = called(tmp_path)
    os.kill(psutil.Process(pids[0]).ppid(), signal.SIGKILL)
    with pytest.raises(BrokenExecutor):
        future.result()
    assert all(map(has_ended, pids))


def test_an_objective_has_to_be_picklable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is asked for; functions of functions take cloudpickle."""
    strategy, options = random_search(), OFTEN | {"timeout": TIMEOUT}
    lock = threading.Lock()
    refused("can't be pickled", strategy.run, lambda i: lock and 1.0, 6, **options)
    local = lambda index: float(index)  # noqa: E731 (no name to be found by)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    refused("or install cloudpickle", strategy.run, local, 6, **options)
    assert len(strategy.pending) == 0
    monkeypatch.delitem(sys.modules, "cloudpickle")
    pytest.importorskip("cloudpickle")
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(local)
    history = strategy.run(local, 2, **options)
    assert history.Y.tolist() == history.indices.tolist()
