"""Feedback, failures and arguments on continuous domains."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
)
from box_table import BOUNDS, OPTIONS, TABLE, objective
from strategy_table import are_alike, equal
from torch import Tensor

from botorch_sparse.strategies import BBKB, Batch, RandomSearch
from botorch_sparse.strategies.data.evaluations import RunRecord
from botorch_sparse.strategies.surrogates import box_posterior as module

# One with batches of one point, and one without.
SOME = ["bbkb-global-local", "gpbucb-inferred", "random"]


def warm(name: str) -> Any:
    """A strategy that knows six points of the box."""
    strategy = TABLE[name]()
    X = strategy.box.sample(6, 0)
    strategy.tell(X, objective(X))
    return strategy


@pytest.mark.parametrize("name", SOME)
def test_feedback_in_any_order(name: str) -> None:
    strategy = warm(name)
    first, second = strategy.ask(3), strategy.ask(3)
    strategy.tell(second, objective(second.X))
    assert torch.equal(strategy.X_pending, first.X)
    for x in first.X.float().flip(0):  # in float32, one by one, backwards
        strategy.tell(x.unsqueeze(0), objective(x.unsqueeze(0)))
    assert len(strategy.pending) == 0
    expected = torch.cat([second.X, first.X.flip(0)])
    assert torch.equal(strategy.history.X[6:], expected)
    corner = BOUNDS[1:].expand(2, -1)
    strategy.tell(corner, torch.zeros(2, 1))  # never asked for
    assert strategy.history.batch_number[-2:].tolist() == [-1, -1]
    batch = strategy.ask(2)
    strategy.withdraw(batch)
    assert len(strategy.pending) == 0
    assert len(strategy.run(objective, 16, progress=False)) == 16


@pytest.mark.parametrize("name", SOME)
def test_failures_leave_no_trace(name: str, monkeypatch: Any) -> None:
    strategy = warm(name)
    batch = strategy.ask(3)
    before = strategy.state_dict()
    bad = torch.full((len(batch),), float("nan"))
    with pytest.raises(InputDataError, match="NaN"):
        strategy.tell(batch, bad)
    with pytest.raises(BotorchTensorDimensionError, match="need `b x 2`"):
        strategy.tell(batch.X[:, :1], bad)
    assert equal(strategy.state_dict(), before)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    if name == "random":
        return
    new = torch.cat([batch.X, BOUNDS])
    with monkeypatch.context() as patch:
        patch.setattr(module.SparseSingleTaskGP, "nystrom_posterior", fail)
        with pytest.raises(KeyboardInterrupt):
            strategy.tell(new, objective(new))
    assert equal(strategy.state_dict(), before)
    with monkeypatch.context() as patch:
        patch.setattr(module, "draw_seed", fail)
        with pytest.raises(KeyboardInterrupt):
            strategy.ask()
    assert equal(strategy.state_dict(), before)
    twin = TABLE[name](seed=9)
    twin.load_state_dict(before)
    for s in (strategy, twin):
        s.tell(new, objective(new))
        s.run(objective, 13, progress=False)
    assert are_alike(strategy, twin)


@pytest.mark.parametrize("name", ["bbkb-inferred", "gssbo", "rssbo", "random"])
def test_an_ask_that_fails_half_way(name: str, monkeypatch: Any) -> None:
    strategy, twin = TABLE[name](), TABLE[name]()
    before, add_point, calls = strategy.state_dict(), RunRecord.add_point, []

    def fail_at_third(self: Any, x: Tensor) -> int:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return add_point(self, x)

    with monkeypatch.context() as patch:
        patch.setattr(RunRecord, "add_point", fail_at_third)
        with pytest.raises(KeyboardInterrupt):
            strategy.ask()
    assert equal(strategy.state_dict(), before)
    assert torch.equal(strategy.ask().X, twin.ask().X)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"bounds": None}, InputDataError, "Got neither of candidates and bounds"),
    ({"candidates": BOUNDS}, InputDataError, "Got both of candidates and bounds"),
    ({"bounds": BOUNDS[0]}, BotorchTensorDimensionError, "need `2 x d`"),
    ({"bounds": BOUNDS.flip(0)}, InputDataError, "every lower bound below"),
    ({"bounds": BOUNDS * float("inf")}, InputDataError, "need finite"),
    ({"fixed_features": {2: 0.0}}, InputDataError, r"fixed_features\[2\]=0.0"),
    ({"fixed_features": {1: 9.0}}, InputDataError, "a value within its bounds"),
    ({"lam": -1.0, "covar_module": 0}, InputDataError, "lam=-1.0; need a positive"),
    ({"lam": 1.0}, InputDataError, "lam=1.0 without covar_module"),
    ({"min_batch_width": 3}, InputDataError, "needs the kernel"),
    ({"num_initial": 0}, InputDataError, "num_initial=0; need at least 1"),
]


@pytest.mark.parametrize("change, error, match", BAD)
def test_bad_arguments(change: dict[str, Any], error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        BBKB(**{"bounds": BOUNDS} | change)


def test_a_batch_of_a_resumed_strategy_can_be_told() -> None:
    """Batches are known by their coordinates, as after a restart."""
    strategy = warm("bbkb-inferred")
    batch = strategy.ask(3)
    other = TABLE["bbkb-inferred"](optimizer_options=OPTIONS)
    other.load_state_dict(strategy.state_dict())
    other.tell(Batch(batch.X.clone(), None, batch.number), objective(batch.X))
    assert len(other.pending) == 0
    assert other.history.batch_number[-1] == batch.number


def test_inferred_models_have_a_largest_size() -> None:
    """All points are inducing up to it, and no more than that many beyond."""
    X = torch.rand(
        25, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    Y = (9 * X).sin().sum(-1)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    for n in (8, 25):
        strategy = BBKB(bounds=bounds, oversampling=1e6)
        strategy.surrogate = replace(strategy.surrogate, exact_size=9, max_inducing=9)
        strategy.tell(X[:n], Y[:n])
        strategy.ask(1)
        assert strategy.surrogate.view.num_inducing() == min(n, 9)


@pytest.mark.parametrize("kind", ["inequality", "equality"])
def test_a_state_of_other_constraints_is_refused(kind: str) -> None:
    def constrained(least: float) -> RandomSearch:
        constraint = (torch.tensor([0, 1]), torch.ones(2, dtype=torch.float64), least)
        return RandomSearch(bounds=BOUNDS, **{f"{kind}_constraints": [constraint]})

    state = constrained(0.5).state_dict()
    constrained(0.5).load_state_dict(state)
    with pytest.raises(InputDataError, match="constraints"):
        constrained(0.6).load_state_dict(state)
