"""One point with the number of evaluations that halves its variance."""

from typing import Any

import pytest
import torch
from strategy_table import (
    TABLE,
    make_candidates,
    objective,
)
from torch import Tensor

from botorch_sparse.batching.rules import UntilHalved
from botorch_sparse.strategies import Batch

NAMES = ["bbkb-global", "bbkb-global-local", "bkb", "gpucb", "gpbucb-product"]
LAM = 1.0
REPEAT = "until-uncertainty-halves"


def noisy(X: Tensor) -> Tensor:
    """Feedback whose noise is about as large as the signal."""
    g = torch.Generator().manual_seed(int(1e6 * float(X.sum())) % 2**31)
    return objective(X) + torch.randn(len(X), generator=g, dtype=X.dtype)


def build(name: str, **kwargs: Any) -> Any:
    return TABLE[name](**{"lam": LAM, "noise_variance": 1.0, "seed": 2} | kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_one_point_until_its_variance_halves(name: str) -> None:
    strategy = build(name, repeat=REPEAT)
    for _ in range(15):
        pool = strategy.surrogate.view.pool
        before = pool.all_variances().clone()
        batch = strategy.ask()
        X, counts = batch.unique()
        assert len(X) == 1 and counts.tolist() == [len(batch)]
        index = int(batch.indices[0])
        if len(strategy.history) > 0:
            v = float(before[index])
            assert len(batch) == max(1, -(-LAM // v))
            c = len(batch)
            assert v / (1 + c * v / LAM) <= v / 2 * (1 + 1e-9) or v > LAM
            if c > 1:  # and not one evaluation more than that
                assert v / (1 + (c - 1) * v / LAM) > v / 2
            # By Lemma 1 no variance has shrunk by more than 1 + c v / lam.
            ucb = pool.batch(1.0)
            for _ in range(c):
                ucb.append(index)
            after = (ucb.values() - pool.all_moments().mean).square()
            assert float((before / after).max()) <= 1 + c * v / LAM + 1e-6
        strategy.tell(batch, noisy(batch.X))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NAMES)
def test_one_point_is_a_batch_however_often(name: str) -> None:
    """There is no other before all of its evaluations are told or withdrawn."""
    strategy = build(name, repeat=REPEAT)
    strategy.run(noisy, 60, progress=False)
    batch = strategy.ask()
    assert len(batch) > 1 and len(strategy.ask(3)) == 0
    strategy.tell(Batch(batch.X[:1], batch.indices[:1], batch.number), torch.ones(1))
    assert len(strategy.pending) == len(batch) - 1 and len(strategy.ask()) == 0
    strategy.run(noisy, 100, progress=False)


def test_evaluations_at_the_edge() -> None:
    rule = UntilHalved()
    assert rule.evaluations(2.0, 1.0, 50) == 1
    assert rule.evaluations(0.3, 1.0, 50) == 4
    assert rule.evaluations(0.25, 1.0, 50) == 4
    assert rule.evaluations(0.3, 1.0, 2) == 2
    assert rule.evaluations(0.0, 1.0, 50) == 50


def test_num_switches_and_unique_points() -> None:
    strategy = TABLE["random"]()
    assert strategy.history.num_switches == strategy.history.num_unique == 0
    X = make_candidates()[[3, 3, 5, 5, 3]]
    strategy.tell(X, objective(X))
    assert strategy.history.num_switches == 2 and strategy.history.num_unique == 2


def test_unique_points_of_a_batch(tkwargs: dict[str, Any]) -> None:
    X = torch.tensor([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [0.0, 1.0], [0.0, 1.0]])
    unique, counts = Batch(X.to(**tkwargs)).unique()
    assert torch.equal(unique, X[:2].to(**tkwargs))
    assert counts.tolist() == [2, 3]
    unique, counts = Batch(X[:0]).unique()
    assert unique.shape == (0, 2) and len(counts) == 0
