"""What all strategies promise, on one table of them."""

import math
from collections import Counter
from typing import Any

import pytest
import strategy_table
import torch
from botorch.exceptions import InputDataError
from finish_runs import OBJECTIVES, TABLES
from strategy_table import (
    BATCHED,
    GP,
    NO_BOUND,
    TABLE,
    are_alike,
    equal,
    objective,
    unending,
    without_times,
)
from torch import Tensor

from botorch_sparse.acquisition.confidence import FixedBeta

OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0], [1.5, -0.5]], dtype=torch.float64)
ON_A_BOX = ["bbkb-global-local", "gpbucb-inferred", "thompson", "random"]
REPEAT = "until-uncertainty-halves"
all_strategies = pytest.mark.parametrize("name", TABLE)
gp_strategies = pytest.mark.parametrize("name", GP)


@pytest.mark.one_in(3)
@all_strategies
@pytest.mark.parametrize("total", [1, 17])
def test_run_reaches_the_number_exactly(name: str, total: int) -> None:
    strategy = TABLE[name]()
    history = strategy.run(objective, total, progress=False)
    assert len(strategy.history) == total
    assert len(history) == len(history.Y) == len(history.X) == total
    assert len(strategy.pending) == 0
    strategy.run(objective, total, progress=False)
    strategy.run(objective, total - 1, progress=False)  # already there
    assert len(history) == total
    strategy.run(objective, total + 3, progress=False)
    assert len(history) == total + 3


@pytest.mark.one_in(10)
@pytest.mark.parametrize(
    "domain, name",
    [*[("table", name) for name in TABLE], *[("box", name) for name in ON_A_BOX]],
)
def test_same_seed_same_run(domain: str, name: str) -> None:
    runs = [TABLES[domain][name](seed=seed) for seed in (4, 4, 5)]
    for strategy in runs:
        torch.rand(3)  # the global generator has no part in it
        state = torch.get_rng_state()
        total = 25 if domain == "table" else 6
        strategy.run(OBJECTIVES[domain], total, progress=False)
        assert torch.equal(torch.get_rng_state(), state)
    states = [without_times(strategy.state_dict()) for strategy in runs]
    assert equal(states[0], states[1])
    assert not torch.equal(runs[0].history.X, runs[2].history.X)


@pytest.mark.one_in(3)
@all_strategies
def test_history_fields(name: str) -> None:
    strategy = TABLE[name]()
    history = strategy.run(objective, 40, progress=False)
    X = strategy.candidates
    assert history.indices.dtype == torch.long
    assert torch.equal(history.X, X[history.indices])
    assert torch.equal(history.Y, objective(X)[history.indices])  # to the bit
    assert history.Y.dtype == X.dtype and history.Y.device == X.device
    sizes = [batch.size for batch in history.batches]
    assert sum(sizes) == 40 and min(sizes) >= 1
    counts = Counter(history.batch_number.tolist())
    assert [counts[b] for b in range(len(sizes))] == sizes
    assert history.batch_number.tolist() == sorted(history.batch_number.tolist())
    assert history.num_inducing.tolist() == [b.num_inducing for b in history.batches]
    for batch in history.batches:
        assert batch.ask_seconds > 0 and batch.tell_seconds > 0
    total = sum(b.ask_seconds + b.tell_seconds for b in history.batches)
    assert history.seconds == pytest.approx(total)
    if name == "random":
        return
    assert history.batches[0].num_inducing == 0
    assert min(b.num_inducing for b in history.batches[1:]) >= 1
    assert all(math.isnan(b.beta) == (name in NO_BOUND) for b in history.batches)
    if name in BATCHED:
        assert max(sizes) > 1
    if name in ("bkb", "gpucb"):
        assert max(sizes) == 1


@pytest.mark.one_in(5)
@all_strategies
def test_run_by_index_and_column_of_Y(name: str) -> None:
    values = objective(strategy_table.make_candidates())
    plain, by_index = TABLE[name](), TABLE[name]()
    plain.run(lambda X: objective(X).unsqueeze(-1), 20, progress=False)
    shapes = []

    def lookup(index: Tensor) -> Tensor:
        shapes.append((index.dtype, index.dim()))
        return values[index]

    by_index.run(lookup, 20, progress=False, by_index=True)
    assert set(shapes) == {(torch.long, 1)}
    assert are_alike(plain, by_index)


@gp_strategies
def test_pending_points_shrink_the_variance_alone(name: str) -> None:
    strategy = unending(name, radius=FixedBeta(1e6))  # all but exploration
    strategy.run(objective, 30, progress=False)
    mean = strategy.surrogate.view.pool.all_moments().mean.clone()
    chosen = torch.cat([strategy.ask(1).indices for _ in range(8)])
    assert torch.equal(strategy.surrogate.view.pool.all_moments().mean, mean)
    assert len(set(chosen.tolist())) > 1
    # One batch of eight, without end, chooses the same.
    other = unending(name, radius=FixedBeta(1e6))
    other.run(objective, 30, progress=False)
    ucb = other.surrogate.view.pool.batch(1e3)
    expected = []
    for _ in range(8):
        expected.append(ucb.argmax())
        ucb.append(expected[-1])
    assert chosen.tolist() == expected


@all_strategies
def test_points_never_proposed(name: str) -> None:
    strategy = TABLE[name]()
    before = strategy.state_dict()
    X = strategy.candidates[[3, 8, 3]]
    strategy.tell(X[:0], torch.zeros(0))  # nothing told, nothing changed
    assert equal(strategy.state_dict(), before)
    strategy.tell(X, objective(X))  # before any ask
    strategy.tell(OUTSIDE, objective(OUTSIDE))
    strategy.tell(OUTSIDE[1:2], objective(OUTSIDE[1:2]))
    history = strategy.history
    assert history.indices.tolist() == [3, 8, 3, -1, -1, -1, -1]
    assert history.batch_number.tolist() == [-1] * 7 and history.num_extra == 2
    assert torch.equal(history.Y, objective(history.X))
    zeros = torch.tensor([[-0.0, 3.0], [0.0, 3.0]], dtype=torch.float64)
    strategy.tell(zeros, torch.zeros(2))
    assert history.num_extra == 3
    strategy.run(objective, 20, progress=False)
    assert (history.indices[9:] >= 0).all()


def test_many_points_beside_the_table() -> None:
    """A warm start costs less than a comparison of all pairs; equal ones share."""
    strategy = TABLE["random"]()
    X = torch.rand(3000, 2, dtype=torch.float64) + 2
    compared, equal_of = [], torch.equal

    def spy(a: Tensor, b: Tensor) -> bool:
        compared.append(1)
        return equal_of(a, b)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "equal", spy)
        strategy.tell(torch.cat([X, X]), torch.zeros(6000))
    assert strategy.history.num_extra == 3000
    assert len(compared) < 20_000


@all_strategies
def test_inputs_with_gradients_and_other_dtypes(name: str) -> None:
    strategy = TABLE[name]()
    batch = strategy.ask(1)
    X = batch.X.clone().requires_grad_()
    strategy.tell(X, X.sum(-1))
    assert torch.equal(strategy.history.indices, batch.indices)
    batch = strategy.ask(1)
    strategy.tell(batch, torch.tensor([1]))  # an integer
    strategy.tell(strategy.candidates[:1], torch.tensor([True]))
    assert strategy.history.Y[1:].tolist() == [1.0, 1.0]
    assert strategy.state_dict()["history"]["Y"].dtype == torch.float64


@pytest.mark.parametrize(
    "name, change, match",
    [
        ("bkb", {"optimizer_options": {}}, "optimizer_options with candidates"),
        ("bkb", {"repeat": REPEAT, "batch_size": 3}, "need one of them"),
        ("random", {"fixed_features": {0: 1.0}}, r"candidates with \['fixed_features'"),
    ],
)
def test_arguments_that_do_not_go_together(
    name: str, change: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputDataError, match=match):
        TABLE[name](**change)
