"""Batches over a table that ranks share have the bits of one process's."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from thread_ranks import together
from torch import Tensor

from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.optim.pool import MAX_MEMORY, NystromPool
from botorch_sparse.optim.ranks import Ranks
from botorch_sparse.optim.rules import Global, Local, Rule
from botorch_sparse.optim.sharded_pool import ShardedPool
from botorch_sparse.optim.shards import TILE, Shard
from botorch_sparse.posteriors import NystromPosterior

ROWS, LAM = 4 * TILE - 300, 0.1


def problem(seed: int, kernel: str = "rbf") -> tuple[Tensor, NystromPosterior]:
    """Candidates of which some are alike, and a posterior."""
    X = torch.rand(ROWS, 3, generator=torch.Generator().manual_seed(seed)).double()
    X[TILE + 7] = X[3 * TILE + 7] = X[5]
    rows = torch.arange(0, ROWS, 61)
    module = RBFKernel() if kernel == "rbf" else MaternKernel(nu=1.5)
    module = module.double().requires_grad_(False)
    module.lengthscale = 0.6 if kernel == "rbf" else 3.0
    Y, noise = (5 * X[rows]).sum(-1).sin(), torch.full((len(rows),), LAM).double()
    S = X[rows]
    return X, NystromPosterior.from_data(module, X[rows], Y, noise, S)


def chosen(
    pool: NystromPool, rule: Rule | None, choosable: Choosable = ALL
) -> tuple[list[int], list[float], list[float], float]:
    """A batch, with points that are pending on several ranks."""
    batch = pool.batch(20.0, rule, choosable)
    for row in (3, 3 * TILE + 1, 3 * TILE + 1, 2 * TILE, 3):
        batch.append(row)
    rows = batch.choose(40)
    return rows, batch.variances, batch.variances_before, batch.product_ratio


@pytest.mark.parametrize("max_memory", [0, 2**18, MAX_MEMORY])
@pytest.mark.parametrize("rule", [None, Global(12.0), Local(5.0)])
@pytest.mark.parametrize("screened", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_batches_have_the_same_bits(
    size: int,
    screened: bool,
    rule: Rule | None,
    max_memory: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kept, in a little memory or streamed; by branch and bound or not."""
    if screened:
        monkeypatch.setattr("botorch_sparse.optim.pool.SCREENED", 0)
    X, posterior = problem(size, "rbf" if rule else "matern")
    pool = NystromPool(X, LAM, max_memory=max_memory)
    pool.update(posterior)
    whole = chosen(pool, rule)

    def choose(ranks: Ranks) -> object:
        shard = Shard(ROWS, ranks)
        own = ShardedPool(
            X[shard.start : shard.stop], LAM, shard=shard, max_memory=max_memory
        )
        own.update(posterior)
        return chosen(own, rule)

    assert together(size, choose) == [whole] * size
    assert rule is None or 2 < len(whole[0]) < 40  # the rule ended it
    assert len({row // TILE for row in whole[0]}) > 1


@pytest.mark.parametrize("once", [False, True])
def test_what_may_not_be_chosen_is_not(once: bool) -> None:
    X, posterior = problem(0)
    pool = NystromPool(X, LAM)
    pool.update(posterior)
    first = pool.batch(20.0).choose(10)
    choosable = Choosable(torch.tensor(sorted({*first})), once)
    whole = chosen(pool, None, choosable)

    def choose(ranks: Ranks) -> object:
        shard = Shard(ROWS, ranks)
        own = ShardedPool(X[shard.start : shard.stop], LAM, shard=shard)
        own.update(posterior)
        return chosen(own, None, choosable)

    assert together(3, choose) == [whole] * 3
    assert not {*whole[0]} & {*first}
    assert not once or len({*whole[0]}) == len(whole[0])


def test_moments_come_from_the_owners() -> None:
    X, posterior = problem(1)
    pool = NystromPool(X, LAM)
    pool.update(posterior)
    rows = torch.tensor([ROWS - 1, 0, TILE, TILE - 1, 0])

    def moments(ranks: Ranks) -> list[Tensor]:
        shard = Shard(ROWS, ranks)
        own = ShardedPool(X[shard.start : shard.stop], LAM, shard=shard)
        own.update(posterior)
        return [*own.moments(rows)]

    for mean, variance in together(4, moments):
        assert torch.equal(mean, pool.moments(rows).mean)
        assert torch.equal(variance, pool.moments(rows).variance)
        assert np.isfinite(mean.numpy()).all()


def test_moments_of_a_few_rows_embed_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks leave the others to branch and bound, as one process does."""
    monkeypatch.setattr("botorch_sparse.optim.pool.SCREENED", 0)
    X, posterior = problem(1)
    rows = torch.tensor([3, ROWS - 1, 3])

    def embedded(ranks: Ranks) -> int:
        shard = Shard(ROWS, ranks)
        own = ShardedPool(X[shard.start : shard.stop], LAM, shard=shard)
        own.update(posterior)
        own.moments(rows)
        return own.num_exact

    assert together(3, embedded) == [1, 0, 1]
    assert together(1, embedded) == [2]
