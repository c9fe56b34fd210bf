"""Runs that are saved and loaded go on to the same bits, also in a new process."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import box_table
import finish_runs
import pytest
import sbpe_problems
import strategy_table
import torch
from botorch.exceptions import InputDataError
from finish_runs import OBJECTIVES, TABLES, finish
from strategy_table import GP, TABLE, equal, objective, without_times
from torch import Tensor

from botorch_sparse.acquisition.confidence import FixedBeta
from botorch_sparse.strategies import Strategy

# Enough for batches of several points before and after the interruption.
START, TOTAL = 12, 30
OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0], [1.5, -0.5]], dtype=torch.float64)


class Interrupted(Exception):
    """The objective gave up."""


def interrupted_objective(after: int) -> Any:
    """An objective that fails at the call in which it would pass `after` points."""
    seen = 0

    def evaluate(X: Tensor) -> Tensor:
        nonlocal seen
        seen += len(X)
        if seen > after:
            raise Interrupted
        return objective(X)

    return evaluate


def objective_raises(strategy: Strategy, interrupt: bool) -> None:
    """The objective raises in the middle of the run."""
    if interrupt:
        with pytest.raises(Interrupted):
            strategy.run(interrupted_objective(START), TOTAL, progress=False)
        assert len(strategy.pending) > 0


def before_the_first_batch(strategy: Strategy, interrupt: bool) -> None:
    """Nothing has happened yet."""


def first_batch_pending(strategy: Strategy, interrupt: bool) -> None:
    """The very first batch is out."""
    batch = strategy.ask(TOTAL)
    if not interrupt:
        strategy.tell(batch, objective(batch.X))


def part_of_a_batch_told(strategy: Strategy, interrupt: bool) -> None:
    """Half of a batch has been told."""
    strategy.run(objective, START, progress=False)
    batch = strategy.ask(20)
    if interrupt:
        half = len(batch) // 2
        strategy.tell(batch.X[:half], objective(batch.X[:half]))
    else:
        strategy.tell(batch, objective(batch.X))


SCENARIOS = [
    objective_raises,
    before_the_first_batch,
    first_batch_pending,
    part_of_a_batch_told,
]
CASES = [(name, scenario) for name in TABLE for scenario in SCENARIOS]


@cache
def plain_run(name: str) -> Strategy:
    """A run without any interruption."""
    strategy = TABLE[name](seed=3)
    strategy.run(objective, TOTAL, progress=False)
    return strategy


def saved(strategy: Strategy, name: str, total: int = TOTAL, **run: Any) -> Any:
    """What `finish` takes; the seed that counts is that of the state."""
    plain = {"domain": "table", "name": name, "arguments": {"seed": 99}}
    return plain | {"total": total, "state": strategy.state_dict()} | run


@pytest.mark.parametrize("name, scenario", CASES)
def test_goes_on(name: str, scenario: Any) -> None:
    interrupted = TABLE[name](seed=3)
    scenario(interrupted, True)
    theirs = finish(saved(interrupted, name))
    strategy = plain_run(name)
    if scenario is part_of_a_batch_told:
        strategy = TABLE[name](seed=3)
        scenario(strategy, False)
        strategy.run(objective, TOTAL, progress=False)
    assert len(strategy.history) == TOTAL
    assert equal(without_times(theirs), without_times(strategy.state_dict()))


# Few candidates and much noise: repeats alternate, and rows outgrow unique points.
REBUILDING: dict[str, Any] = {"lam": 30.0, "noise_variance": 30.0, "seed": 5}
REBUILDING["candidates"] = strategy_table.make_candidates(8)


def rebuilt() -> tuple[Strategy, dict[str, Any]]:
    """An exact strategy that has factorized anew, and has rows since."""
    strategy = TABLE["gpucb"](**REBUILDING)
    strategy.run(objective, 80, progress=False)
    return strategy, saved(strategy, "gpucb", 100, arguments=REBUILDING)


def off_table_and_pending(name: str) -> tuple[Strategy, dict[str, Any]]:
    """Points beside the table, part of one batch told, and another one pending."""
    strategy = TABLE[name](seed=3)
    strategy.tell(OUTSIDE, objective(OUTSIDE))
    strategy.run(objective, START, progress=False)
    more = torch.cat([OUTSIDE[:1], OUTSIDE[:2] + 0.25, strategy.candidates[:3]])
    strategy.tell(more, objective(more))
    first = strategy.ask(20)
    strategy.tell(first.X[:1], objective(first.X[:1]))
    strategy.ask(20)
    return strategy, saved(strategy, name)


def middle_of_a_batch(domain: str, name: str) -> tuple[Strategy, dict[str, Any]]:
    """Part of one batch told, and another one pending."""
    strategy, f = TABLES[domain][name](seed=3), OBJECTIVES[domain]
    if domain == "box":
        X = strategy.box.sample(6, 0)
        strategy.tell(X, f(X))
    strategy.run(f, 7, progress=False)
    first = strategy.ask(3)
    strategy.tell(first.X[:1], f(first.X[:1]))
    strategy.ask(2)
    total = {"box": 10, "sbpe": 18}[domain]
    return strategy, saved(strategy, name, total, domain=domain)


BOXES = ["bbkb-global-local", "gpbucb-sum", "bbkb-inferred", "gpucb-inferred"]
BOXES += [*box_table.SUBSET, "random"]
ELSEWHERE: dict[str, Any] = {
    "rebuilt": rebuilt,
    **{f"table-{name}": lambda n=name: off_table_and_pending(n) for name in TABLE},
    **{
        f"{domain}-{name}": lambda d=domain, n=name: middle_of_a_batch(d, n)
        for domain, names in (("box", BOXES), ("sbpe", sbpe_problems.TABLE))
        for name in names
    },
}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of each run the strategy, the number to reach, and the state at the end.

    One new process finishes all of them.
    """
    folder = tmp_path_factory.mktemp("resume")
    runs = {key: make() for key, make in ELSEWHERE.items()}
    torch.save({key: run for key, (_, run) in runs.items()}, folder / "in.pt")
    here = Path(__file__).parents
    subprocess.run(
        [sys.executable, finish_runs.__file__, folder / "in.pt", folder / "out.pt"],
        check=True,
        env=os.environ | {"PYTHONPATH": f"{here[2]}{os.pathsep}{here[1]}"},
    )
    finished = torch.load(folder / "out.pt", weights_only=True)
    return {key: (*run, finished[key]) for key, run in runs.items()}


@pytest.mark.parametrize("key", ELSEWHERE)
def test_new_process_goes_on(key: str, elsewhere: dict[str, Any]) -> None:
    strategy, run, theirs = elsewhere[key]
    if key == "rebuilt":
        assert 1 < run["state"]["surrogate"]["num_rebuilt"] < len(strategy.history)
    strategy.run(OBJECTIVES[run["domain"]], run["total"], progress=False)
    assert len(strategy.history) == run["total"]
    assert equal(without_times(theirs), without_times(strategy.state_dict()))


@pytest.mark.parametrize("name", TABLE)
def test_a_used_strategy_can_load(name: str) -> None:
    """What a strategy saw before it loads a state leaves no trace."""
    used, other = TABLE[name](seed=1), TABLE[name](seed=2)
    used.tell(OUTSIDE + 1.0, objective(OUTSIDE + 1.0))
    used.run(objective, 8, progress=False)
    for start in (0, 5):  # a state before, and one after, the first feedback
        if start:
            other.tell(OUTSIDE, objective(OUTSIDE))
            other.run(objective, start, progress=False)
        used.load_state_dict(other.state_dict())
        assert equal(used.state_dict(), other.state_dict())
        twin = TABLE[name](seed=8)
        twin.load_state_dict(other.state_dict())
        expected = twin.run(objective, 14, progress=False)
        history = used.run(objective, 14, progress=False)
        assert torch.equal(history.indices, expected.indices)
        assert equal(without_times(used.state_dict()), without_times(twin.state_dict()))


@pytest.mark.parametrize("name", TABLE)
def test_saving_does_not_disturb(name: str) -> None:
    saved, plain = TABLE[name](seed=1), TABLE[name](seed=1)
    states = []
    for total in range(4, 17, 4):
        states.append(saved.state_dict())
        copy = [list(states[-1]["pending"]), len(states[-1]["history"]["Y"])]
        saved.run(objective, total, progress=False)
        plain.run(objective, total, progress=False)
        # A state taken earlier does not change with the strategy.
        assert copy == [states[-1]["pending"], len(states[-1]["history"]["Y"])]
    assert equal(without_times(saved.state_dict()), without_times(plain.state_dict()))


MISMATCHES: list[tuple[str, dict[str, Any], str]] = [
    *[(name, {"lam": 0.5}, r"\['lam'\] differ") for name in GP],
    *[
        (name, {"covar_module": strategy_table.make_kernel(0.31)}, "'kernel'")
        for name in GP
    ],
    *[(name, {"radius": FixedBeta(4.0)}, "'radius'") for name in GP],
    *[
        (name, {"candidates": strategy_table.make_candidates(149)}, "'candidates'")
        for name in TABLE
    ],
    *[
        (
            name,
            {"candidates": strategy_table.make_candidates().flip(-1)},
            "'candidates'",
        )
        for name in TABLE
    ],
    ("bbkb-global", {"termination": "global-local"}, "'rule'"),
    ("bbkb-global-local", {"local_bound": "paper"}, "'rule'"),
    ("bbkb-global", {"oversampling": 3.0}, "'sampler'"),
    ("bbkb-global", {"ratio_threshold": 3.0}, "'rule'"),
    ("bkb", {"oversampling": 3.0}, "'sampler'"),
    ("gpbucb-sum", {"rule": "product"}, "'rule'"),
    ("bbkb-global", {"max_memory": 0}, "'max_memory'"),
    ("random", {"batch_size": 8}, "'batch_size'"),
]


@pytest.mark.parametrize("name, change, match", MISMATCHES)
def test_built_otherwise(name: str, change: dict[str, Any], match: str) -> None:
    strategy, other = TABLE[name](), TABLE[name](**change)
    strategy.run(objective, 3, progress=False)
    before = other.state_dict()
    with pytest.raises(InputDataError, match="does not fit this strategy.*" + match):
        other.load_state_dict(strategy.state_dict())
    assert equal(other.state_dict(), before)


def test_another_strategy_or_version() -> None:
    state = TABLE["gpucb"]().state_dict()
    with pytest.raises(InputDataError, match="'strategy'"):
        TABLE["bkb"]().load_state_dict(state)
    with pytest.raises(InputDataError, match="version"):
        TABLE["gpucb"]().load_state_dict(state | {"version": 0})
    with pytest.raises(InputDataError, match="does not fit"):
        TABLE["gpucb"]().load_state_dict({})


def test_float32_resumes() -> None:
    """The same bits in float32, within one process."""
    tkwargs = {"dtype": torch.float32, "device": torch.device("cpu")}
    arguments = {
        "candidates": strategy_table.make_candidates(**tkwargs),
        "covar_module": strategy_table.make_kernel(**tkwargs),
    }
    for name in GP:
        straight, first = TABLE[name](**arguments), TABLE[name](**arguments)
        first.run(objective, 8, progress=False)
        straight.run(objective, 8, progress=False)
        second = TABLE[name](**arguments)
        second.load_state_dict(first.state_dict())
        a = straight.run(objective, 16, progress=False)
        b = second.run(objective, 16, progress=False)
        assert torch.equal(a.indices, b.indices) and torch.equal(a.Y, b.Y)
        assert a.Y.dtype == torch.float32
