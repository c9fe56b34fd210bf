"""Runs that are saved and loaded go on to the same bits, in a new process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import strategy_table
import torch
from botorch.exceptions import InputDataError
from strategy_table import GP, TABLE, equal, objective, without_times
from torch import Tensor

from botorch_sparse.acquisition.confidence import FixedBeta
from botorch_sparse.strategies import Strategy

TOTAL = 90
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
            strategy.run(interrupted_objective(40), TOTAL, progress=False)
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
    strategy.run(objective, 30, progress=False)
    batch = strategy.ask(20)
    if interrupt:
        half = len(batch) // 2
        strategy.tell(batch.X[:half], objective(batch.X[:half]))
    else:
        strategy.tell(batch, objective(batch.X))


def two_batches_pending(strategy: Strategy, interrupt: bool) -> None:
    """A second batch was asked for with part of the first one told."""
    strategy.run(objective, 30, progress=False)
    first = strategy.ask(20)
    strategy.tell(first.X[:1], objective(first.X[:1]))
    second = strategy.ask(20)
    if not interrupt:
        X = torch.cat([first.X[1:], second.X])
        strategy.tell(X, objective(X))


def off_table_points(strategy: Strategy, interrupt: bool) -> None:
    """Points that are not in the table were told, before and within the run."""
    strategy.tell(OUTSIDE, objective(OUTSIDE))
    strategy.run(objective, 30, progress=False)
    more = torch.cat([OUTSIDE[:1], OUTSIDE[:2] + 0.25, strategy.candidates[:3]])
    strategy.tell(more, objective(more))
    objective_raises(strategy, interrupt)


SCENARIOS = [
    objective_raises,
    before_the_first_batch,
    first_batch_pending,
    part_of_a_batch_told,
    two_batches_pending,
    off_table_points,
]
CASES = [(name, scenario) for name in TABLE for scenario in SCENARIOS]


def key_of(name: str, scenario: Any) -> str:
    return f"{name}:{scenario.__name__}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All interrupted runs, saved here and finished by one new process."""
    folder = tmp_path_factory.mktemp("resume")
    runs: dict[str, Any] = {}
    for name, scenario in CASES:
        strategy = TABLE[name](seed=3)
        scenario(strategy, True)
        runs[key_of(name, scenario)] = {
            "name": name,
            "arguments": {"seed": 99},  # the state's generator counts
            "total": TOTAL,
            "state": strategy.state_dict(),
        }
    strategy, total = after_rebuilds(210)
    runs["rebuilt"] = {
        "name": "gpucb",
        "arguments": REBUILDING | {"radius": None},
        "total": total,
        "state": strategy.state_dict(),
    }
    torch.save(runs, folder / "in.pt")
    subprocess.run(
        [sys.executable, strategy_table.__file__, folder / "in.pt", folder / "out.pt"],
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    return torch.load(folder / "out.pt", weights_only=True)


@pytest.mark.parametrize("name, scenario", CASES, ids=[key_of(*case) for case in CASES])
def test_new_process_goes_on(
    name: str, scenario: Any, finished: dict[str, Any]
) -> None:
    strategy = TABLE[name](seed=3)
    scenario(strategy, False)
    history = strategy.run(objective, TOTAL, progress=False)
    theirs = finished[key_of(name, scenario)]
    assert len(history) == TOTAL
    assert torch.equal(theirs["indices"], history.indices)
    assert theirs["Y"].dtype == torch.float64
    assert torch.equal(theirs["Y"], history.Y)
    ours = strategy.state_dict()
    assert equal(without_times(theirs["state"]), without_times(ours))


# Few candidates and much noise: repeats alternate, and rows outgrow unique points.
REBUILDING: dict[str, Any] = {"lam": 30.0, "noise_variance": 30.0, "seed": 5}


def after_rebuilds(interrupt_at: int) -> tuple[Strategy, int]:
    """An exact strategy that has factorized anew, and has rows since."""
    candidates = strategy_table.make_candidates()
    strategy = TABLE["gpucb"](candidates=candidates, **REBUILDING)
    strategy.run(objective, interrupt_at, progress=False)
    return strategy, 260


def test_after_rebuilds(finished: dict[str, Any]) -> None:
    strategy, total = after_rebuilds(210)
    rebuilt = strategy.state_dict()["surrogate"]["num_rebuilt"]
    assert 1 < rebuilt < 210
    history = strategy.run(objective, total, progress=False)
    assert torch.equal(finished["rebuilt"]["indices"], history.indices)
    theirs = without_times(finished["rebuilt"]["state"])
    assert equal(theirs, without_times(strategy.state_dict()))


@pytest.mark.parametrize("name", TABLE)
def test_a_used_strategy_can_load(name: str) -> None:
    """What a strategy saw before it loads a state leaves no trace."""
    used, other = TABLE[name](seed=1), TABLE[name](seed=2)
    used.tell(OUTSIDE + 1.0, objective(OUTSIDE + 1.0))
    used.run(objective, 40, progress=False)
    for start in (0, 25):  # a state before, and one after, the first feedback
        if start:
            other.tell(OUTSIDE, objective(OUTSIDE))
            other.run(objective, start, progress=False)
        used.load_state_dict(other.state_dict())
        assert equal(used.state_dict(), other.state_dict())
        twin = TABLE[name](seed=8)
        twin.load_state_dict(other.state_dict())
        expected = twin.run(objective, 60, progress=False)
        history = used.run(objective, 60, progress=False)
        assert torch.equal(history.indices, expected.indices)
        assert equal(without_times(used.state_dict()), without_times(twin.state_dict()))


@pytest.mark.parametrize("name", TABLE)
def test_saving_does_not_disturb(name: str) -> None:
    saved, plain = TABLE[name](seed=1), TABLE[name](seed=1)
    states = []
    for total in range(10, 61, 10):
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
    ("bbkb-global", {"termination": "global-local"}, "'termination'"),
    ("bbkb-global-local", {"local_bound": "paper"}, "'local_bound'"),
    ("bbkb-global", {"oversampling": 3.0}, "'oversampling'"),
    ("bbkb-global", {"ratio_threshold": 3.0}, "'ratio_threshold'"),
    ("bkb", {"oversampling": 3.0}, "'oversampling'"),
    ("gpbucb-sum", {"rule": "product"}, "'rule'"),
    ("bbkb-global", {"max_memory": 0}, "'max_memory'"),
    ("random", {"batch_size": 8}, "'batch_size'"),
]


@pytest.mark.parametrize("name, change, match", MISMATCHES)
def test_built_otherwise(name: str, change: dict[str, Any], match: str) -> None:
    strategy, other = TABLE[name](), TABLE[name](**change)
    strategy.run(objective, 10, progress=False)
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
        first.run(objective, 25, progress=False)
        straight.run(objective, 25, progress=False)
        second = TABLE[name](**arguments)
        second.load_state_dict(first.state_dict())
        a = straight.run(objective, 60, progress=False)
        b = second.run(objective, 60, progress=False)
        assert torch.equal(a.indices, b.indices) and torch.equal(a.Y, b.Y)
        assert a.Y.dtype == torch.float32
