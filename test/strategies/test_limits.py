"""Strategies that are limits of one another, and tables at the edge."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import LinearKernel
from gpytorch.means import Mean, ZeroMean
from strategy_table import TABLE, objective

from botorch_sparse.acquisition.confidence import FixedBeta
from botorch_sparse.strategies import BBKB, GPBUCB


@pytest.mark.parametrize("name", ["bbkb-global", "bbkb-global-local", "gpbucb-sum"])
def test_threshold_one_gives_batches_of_one(name: str) -> None:
    strategy = TABLE[name](ratio_threshold=1.0)
    history = strategy.run(objective, 20, progress=False)
    assert [batch.size for batch in history.batches] == [1] * 20


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mean_module", [ZeroMean(), None], ids=repr)
@pytest.mark.parametrize("cls", [BBKB, GPBUCB])
def test_candidates_without_variance(cls: Any, mean_module: Mean | None) -> None:
    """A candidate of variance zero adds nothing to any bound: the batch still ends."""
    kernel = LinearKernel().double().requires_grad_(False)
    X = torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1)
    strategy = cls(X, covar_module=kernel, lam=1e-2, mean_module=mean_module)
    strategy.tell(X, -10 * X.squeeze(-1))  # best at x = 0, known for sure
    batch = strategy.ask()
    assert set(batch.indices.tolist()) == {0}
    strategy.tell(batch, torch.zeros(len(batch)))
    assert len(strategy.run(lambda X: -10 * X, 200, progress=False)) >= 200


def test_bkb_is_bbkb_without_batches() -> None:
    runs = [
        TABLE["bkb"](radius=FixedBeta(4.0)),
        TABLE["bbkb-global"](radius=FixedBeta(4.0), ratio_threshold=1.0),
    ]
    for strategy in runs:
        strategy.run(objective, 30, progress=False)
    assert torch.equal(runs[0].history.indices, runs[1].history.indices)


def test_gpbucb_cut_to_one_is_gpucb() -> None:
    runs = [TABLE[name](radius=FixedBeta(4.0)) for name in ("gpucb", "gpbucb-product")]
    for strategy in runs:
        for _ in range(40):
            batch = strategy.ask(1)
            strategy.tell(batch, objective(batch.X))
    assert torch.equal(runs[0].history.indices, runs[1].history.indices)
