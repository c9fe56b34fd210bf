"""Each candidate of a table at most once."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from box_table import BOUNDS
from strategy_table import (
    INFERRED,
    TABLE,
    equal,
    make_candidates,
    make_kernel,
    objective,
)

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.pools.host_batch import HostBatch
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    RandomSearch,
    ThompsonSampling,
)

all_strategies = pytest.mark.parametrize("name", TABLE)
BETA = 4.0
CLASSES = [BBKB, BKB, GPUCB, GPBUCB, ThompsonSampling]


def build(name: str, **kwargs: Any) -> Any:
    return TABLE[name](unique=True, **kwargs)


@pytest.mark.one_in(5)
@all_strategies
def test_no_row_comes_twice(name: str) -> None:
    """Within and over batches, with rows pending, told by value, failed, withdrawn."""
    strategy = build(name, seed=1, batch_size=8)
    X, proposed = strategy.candidates, list[int]()
    known = [5, 17, 40]
    strategy.tell(X[known], objective(X[known]))
    for step in range(12):
        batch = strategy.ask(8)
        rows = batch.indices.tolist()
        assert len(set(rows)) == len(rows)
        assert not {*rows} & {*proposed, *known}
        proposed += rows
        if step % 3 == 0:  # some stay pending, one fails, one is told by its value
            strategy.tell(batch.X[:1], objective(batch.X[:1]))
            strategy.fail(batch.ids[1:2])
            beside = next(i for i in range(150) if i not in {*proposed, *known})
            strategy.tell(X[beside : beside + 1], objective(X[beside : beside + 1]))
            known.append(beside)
        else:
            strategy.tell(batch, objective(batch.X))
    assert len(proposed) > 12 and len(strategy.state_dict()["failed"]) > 0
    batch = strategy.ask(3)
    strategy.withdraw(batch)  # may be proposed again
    assert not {*batch.indices.tolist()} & {*strategy.excluded_points}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", [*TABLE, "inferred-bbkb", "inferred-thompson"])
def test_all_rows_and_then_none(name: str) -> None:
    """Thirty rows, each once; then there is nothing left to propose."""
    X = make_candidates(30)
    if name.startswith("inferred-"):
        strategy: Any = INFERRED[name.removeprefix("inferred-")](candidates=X)
    else:
        strategy = build(name, candidates=X)
    history = strategy.run(objective, 29, progress=False)
    last = strategy.ask()
    assert len(last) == 1
    with pytest.raises(UnsupportedError, match=r"(?i)none .*is left"):
        strategy.ask()
    strategy.tell(last, objective(last.X))
    assert sorted(history.indices.tolist()) == list(range(30))
    assert strategy.is_finished
    state = strategy.state_dict()
    with pytest.raises(UnsupportedError, match="are evaluated or pending"):
        strategy.ask(5)
    assert equal(strategy.state_dict(), state)
    assert len(strategy.run(objective, 40, progress=False)) == 30


def brute_force(strategy: Any) -> int:
    """The largest bound of a row that is neither evaluated, pending nor failed.

    By appending all pending points to a bound over all candidates.
    """
    pool = strategy.surrogate.view.pool
    batch = pool.batch(BETA**0.5)
    for index in strategy.pending.tolist():
        batch.append(index)
    values = batch.values().cpu().clone()
    values[sorted(strategy.excluded_points)] = -torch.inf
    return int(values.argmax())


@pytest.mark.parametrize(
    "name", ["bbkb-global", "bbkb-streamed", "bkb", "gpucb", "gpbucb-sum"]
)
def test_choices_are_those_of_a_brute_force(name: str, double: dict[str, Any]) -> None:
    """Point by point, on a table larger than what is refreshed at first."""
    X = make_candidates(300, **double)
    assert HostBatch.first_block < len(X)
    kernel = {"covar_module": make_kernel(**double)}
    kernel |= {"batch_size": 4, "radius": FixedBeta(BETA)}
    strategy = build(name, candidates=X, **kernel)
    strategy.tell(X[::40], objective(X[::40]))
    size = 5 if double["device"].type == "cpu" else 2
    for _ in range(size):
        rows = []
        for _ in range(4):
            expected = brute_force(strategy)
            rows += strategy.ask(1).indices.tolist()
            assert rows[-1] == expected
        pending = strategy.history.points(strategy.pending)
        strategy.tell(pending, objective(pending).cpu())


@pytest.mark.parametrize("unique", [True, False])
def test_initial_rows_are_others_than_those_that_failed(unique: bool) -> None:
    strategy = INFERRED["bbkb"](
        candidates=make_candidates(8), num_initial=6, unique=unique
    )
    failed = strategy.ask(4)
    strategy.fail(failed)
    others = strategy.ask(4)
    rows = [*failed.indices.tolist(), *others.indices.tolist()]
    assert sorted(rows) == list(range(8))


def test_random_search_repeats_by_default() -> None:
    """The yardstick of regret; that of the best value takes each row once."""
    X = make_candidates(10)
    rows = RandomSearch(X, batch_size=50).ask().indices.tolist()
    assert len(rows) == 50
    strategy = RandomSearch(X, batch_size=50, unique=True)
    strategy.tell(torch.full((1, 2), 9.0).double(), [1.0])  # no row of the table
    rows = strategy.ask().indices.tolist()
    assert sorted(rows) == list(range(10)) and rows != sorted(rows)
    with pytest.raises(InputDataError, match="unique=True with bounds; points of a"):
        RandomSearch(bounds=BOUNDS, unique=True)


@pytest.mark.parametrize("cls", CLASSES)
def test_defaults(cls: Any) -> None:
    """Once where the kernel is inferred; as the theorems have it where it is given."""
    X = make_candidates(10)
    assert cls(X).unique is True
    assert cls(X, unique=False).unique is False
    kernel = TABLE["bkb"]().surrogate.view.prior.covar_module
    assert cls(X, covar_module=kernel).unique is False
    assert cls(bounds=BOUNDS).unique is False
    with pytest.raises(InputDataError, match="unique=True with bounds; points of a"):
        cls(bounds=BOUNDS, unique=True)


@pytest.mark.parametrize("name", ["bbkb-global", "gpbucb-product"])
def test_uncertainty_sampling_takes_each_once_too(name: str) -> None:
    """Also none that failed, whether each may come once or not."""
    X = make_candidates(20)
    strategy = build(name, candidates=X, lam=1.0, min_batch_width=50)
    batch = strategy.ask(15)
    assert len(set(batch.indices.tolist())) == len(batch) == 15
    strategy.fail(batch.ids[:1])
    rest = strategy.ask(15)
    assert sorted([*batch.indices.tolist(), *rest.indices.tolist()]) == list(range(20))
    strategy = TABLE[name](candidates=X, lam=1.0, min_batch_width=50)
    batch = strategy.ask(1)
    strategy.fail(batch.ids)
    again = strategy.ask(60).indices.tolist()
    assert len(again) > 20 and int(batch.indices[0]) not in again


@pytest.mark.parametrize("cls", [BBKB, BKB])
def test_repeats_contradict_it(cls: Any) -> None:
    X = make_candidates(20)
    repeat = "until-uncertainty-halves"
    with pytest.raises(InputDataError, match="unique=True with repeat="):
        cls(
            X,
            TABLE["bkb"]().surrogate.view.prior.covar_module,
            unique=True,
            repeat=repeat,
        )
    assert cls(X, repeat=repeat).unique is False  # the default gives way
