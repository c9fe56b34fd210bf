"""Strategies that are limits of one another, and tables at the edge."""

from typing import Any

import pytest
import strategy_table
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


@pytest.mark.one_in(2)
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


def test_all_points_inducing_is_gp_bucb() -> None:
    """With a huge oversampling every evaluated point is inducing: the exact limit."""
    X = strategy_table.make_candidates(40)
    for seed in range(2):
        arguments = {
            "covar_module": strategy_table.make_kernel(0.2),
            "radius": FixedBeta(9.0),
            "lam": 0.05,
            "seed": seed,
            "ratio_threshold": 3.0,
            "candidates": X,
        }
        sparse = TABLE["bbkb-global"](oversampling=1e12, **arguments)
        exact = TABLE["gpbucb-sum"](**arguments)
        for strategy in (sparse, exact):
            strategy.tell(X, objective(X))
        for _ in range(5):
            batches = [strategy.ask() for strategy in (sparse, exact)]
            assert torch.equal(batches[0].indices, batches[1].indices)
            for strategy, batch in zip((sparse, exact), batches, strict=True):
                strategy.tell(batch, objective(batch.X))
        assert sparse.surrogate.view.num_inducing() == 40
        pools = sparse.surrogate.view.pool, exact.surrogate.view.pool
        torch.testing.assert_close(
            pools[0].all_moments().mean, pools[1].mean, rtol=1e-6, atol=1e-8
        )
        torch.testing.assert_close(
            pools[0].all_variances(), pools[1].variance, rtol=1e-6, atol=1e-9
        )
        assert max(b.size for b in sparse.history.batches) > 1


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
