"""S-BPE as every strategy: state, failures, pending points, bad input."""

import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.exceptions import (
    BotorchWarning,
    InputDataError,
    UnsupportedError,
)
from sbpe_problems import CASES, TABLE, make_kernel, make_table
from sbpe_problems import objective as f
from strategy_table import Faulty, are_alike, equal, faulty_kernel

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.strategies import SBPE

all_cases = pytest.mark.parametrize("case", CASES)


def build(case: str, **overrides: Any) -> SBPE:
    return TABLE[case](**overrides)


def tries(strategy: SBPE, kernel: Faulty, step: Callable[[], Any]) -> tuple[Any, int]:
    """What a step returns once it succeeds, and how often it failed before.

    The kernel fails at its first, third and sixth call; a failure leaves no trace.
    """
    for failures, call in enumerate((0, 2, 5)):
        before, kernel.countdown = strategy.state_dict(), call
        try:
            return step(), failures
        except (InputDataError, RuntimeError):
            assert equal(strategy.state_dict(), before)
        finally:
            kernel.countdown = None
    return step(), 3


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ["table", "every", "random", "box", "table nan"])
def test_a_kernel_that_fails(name: str) -> None:
    """`ask`, `tell` and `withdraw` leave no trace, and the run is that of a twin."""
    kernel, total = faulty_kernel(0.6), 0
    case, _, returns_nan = name.partition(" ")
    kernel.returns_nan = bool(returns_nan)
    strategy = build(case, covar_module=kernel, seed=1)
    twin = build(case, covar_module=faulty_kernel(0.6), seed=1)
    for _ in range(3):
        batch, failures = tries(strategy, kernel, partial(strategy.ask, 8))
        same = twin.ask(8)
        total += failures
        assert torch.equal(same.X, batch.X)
        Y = f(batch.X)
        for ids in (batch.ids[2:], batch.ids[1:2]):  # and a withdrawal ends the batch
            step = partial(strategy.tell, ids, Y[ids - batch.ids[0]])
            total += tries(strategy, kernel, step)[1]
            twin.tell(ids, Y[ids - batch.ids[0]])
        step = partial(strategy.withdraw, batch.ids[:1])
        total += tries(strategy, kernel, step)[1]
        twin.withdraw(batch.ids[:1])
    assert total > 0
    assert are_alike(strategy, twin)


@pytest.mark.parametrize("exploration", ["variance", "random"])
def test_bookkeeping_does_not_grow_with_the_batch(exploration: str) -> None:
    """A step late in a long batch copies nothing that is as long as the batch.

    A list of that many references would take eight bytes for each point.
    """
    X, length = make_table(20), 2400
    plain = {"lam": 0.1, "num_evaluations": length, "schedule": [length]}
    strategy = SBPE(X, make_kernel(), exploration=exploration, **plain)

    def step(num: int) -> int:
        tracemalloc.start()
        try:
            strategy.tell(strategy.ask(num), torch.zeros(num))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    step(80)
    early, places = min(step(4) for _ in range(5)), len(strategy.history)
    for _ in range(5):
        step(400)
    late, places = min(step(4) for _ in range(5)), len(strategy.history) - places
    assert late - early < 4 * places


def test_a_file_does_not_hold_the_table(tmp_path: Path) -> None:
    """`torch.save` writes all that a view is of."""
    X = torch.rand(500, 80, dtype=torch.float64)
    strategy = SBPE(X, make_kernel(), num_evaluations=30, lam=1e-2)
    for _ in range(2):
        batch = strategy.ask(3)
        strategy.save(tmp_path / "state.pt")
        assert (tmp_path / "state.pt").stat().st_size < X.nbytes / 4
        strategy.tell(batch, batch.X[:, 0])


@pytest.mark.one_in(3)
@all_cases
def test_waiting_for_a_batch(case: str) -> None:
    strategy = build(case)
    batch = strategy.ask()
    empty = strategy.ask()
    assert len(empty) == 0 and f"pending: {len(batch)}." in empty.note
    strategy.tell(batch.X[:2], f(batch.X[:2]))
    empty = strategy.ask()
    assert len(empty) == 0 and f"pending: {len(batch) - 2}." in empty.note
    strategy.withdraw(batch)
    assert len(strategy.pending) == 0
    strategy.ask()
    assert strategy.history.rounds[0].num_evaluations == 2
    assert strategy.history.rounds[0].length == len(batch)


def test_withdrawing_the_rest_ends_the_batch() -> None:
    """Also the last batch, after which there is nothing to ask for."""
    strategy = build("table", num_evaluations=20, schedule=[15, 5])
    strategy.run(f, 15, progress=False)
    batch = strategy.ask()
    strategy.tell(batch.X[:3], f(batch.X[:3]))
    assert len(strategy.history.rounds) == 1
    strategy.withdraw(batch)
    rounds = strategy.history.rounds
    assert [r.num_evaluations for r in rounds] == [15, 3]
    state = strategy.state_dict()
    with pytest.raises(UnsupportedError, match="All 20 evaluations"):
        strategy.ask()
    assert equal(strategy.state_dict(), state)


@pytest.mark.parametrize("case", ["table", "random", "exact", "inferred"])
def test_rows_that_failed_do_not_come_again(case: str) -> None:
    """In no batch, and they do not survive; 12 rows come often."""
    options: dict[str, Any] = {"candidates": make_table(12), "num_evaluations": 60}
    options |= {"radius": FixedBeta(1e4)}  # rules nothing out
    strategy, other = build(case, **options, seed=1), build(case, **options, seed=2)
    batch = strategy.ask(3)
    failed = batch.indices[1:].tolist()
    strategy.fail(batch.ids[1:])
    strategy.tell(batch.ids[:1], f(batch.X[:1]))
    other.load_state_dict(strategy.state_dict())
    with pytest.warns(BotorchWarning, match="ends with 58"):
        rows = strategy.run(f, 60, progress=False).indices.tolist()
    assert not set(rows) & set(failed)
    assert (~strategy.survivors).nonzero().flatten().tolist() == sorted(failed)
    with pytest.warns(BotorchWarning, match="ends with 58"):
        assert other.run(f, 60, progress=False).indices.tolist() == rows


def test_a_row_that_failed_rules_out_no_other() -> None:
    """The best row was measured, and failed then: the next best one takes its place."""
    X = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
    strategy = build("table", candidates=X, radius=FixedBeta(1e-6), schedule=[12, 108])
    batch = strategy.ask()
    rows = batch.indices.tolist()
    last = len(rows) - 1 - rows[::-1].index(5)  # row 5 comes twice or more often
    others = [i for i in range(12) if i != last]
    strategy.tell(batch.ids[others], batch.X[others, 0])
    assert strategy.round_number == 0
    strategy.fail(batch.ids[last:][:1])
    assert strategy.round_number == 1
    assert strategy.survivors.nonzero().flatten().tolist() == [4]
    assert strategy.recommend().index == 4
    assert set(strategy.ask().indices.tolist()) == {4}


def test_a_row_that_failed_is_not_recommended() -> None:
    strategy = build("table", candidates=make_table(3), num_evaluations=60)
    strategy.tell(batch := strategy.ask(), f(batch.X))
    best = strategy.recommend().index
    batch = strategy.ask()
    strategy.fail(batch.ids[batch.indices == best])
    assert strategy.survivors[best] and strategy.recommend().index != best
    strategy.fail(strategy.pending_ids)  # the others fail too
    while not strategy.is_finished:
        strategy.fail(strategy.ask(1))
    assert len(strategy.state_dict()["failed"]) == 3
    state = strategy.state_dict()
    with pytest.raises(UnsupportedError, match="have failed: none is left"):
        strategy.ask()
    assert equal(strategy.state_dict(), state)


def test_a_run_ends_at_the_horizon() -> None:
    """Withdrawn points are not replaced; points from elsewhere count on top."""
    strategy = build("table")
    strategy.withdraw(strategy.ask(5))
    with pytest.warns(BotorchWarning, match="120 evaluations ends with 115"):
        history = strategy.run(f, 120, progress=False)
    assert len(history) == 115 and strategy.num_left == 0
    assert [r.length for r in history.rounds] == strategy.lengths
    other = build("table")
    other.tell(make_table(5, seed=4), torch.zeros(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(other.run(f, 60, progress=False)) == 60
        assert len(other.run(f, 125, progress=False)) == 125
    with pytest.warns(BotorchWarning, match="num_evaluations=126"):
        assert len(other.run(f, 126, progress=False)) == 125


def test_a_batch_without_any_feedback_rules_nothing_out() -> None:
    strategy = build("table")
    strategy.withdraw(strategy.ask())
    second = strategy.ask()
    assert strategy.history.rounds[0].num_evaluations == 0
    assert bool(strategy.survivors.all())
    strategy.tell(second, f(second.X))
    assert strategy.confidence_gap() < float("inf")
