"""Batches over a table that ranks share have the bits of one process's."""

import copy
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from batch_oracles import DevicePool, device_batch
from botorch.utils.sampling import manual_seed
from device_cases import sweep
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from rounding_by_place import needs_products_that_round_alike
from thread_ranks import together
from torch import Tensor

from botorch_sparse.batching.rules import Global, Local, Rule
from botorch_sparse.distributed import Ranks
from botorch_sparse.distributed.sharded_pool import ShardedPool
from botorch_sparse.kernels import TanimotoKernel
from botorch_sparse.pools import CompactRows, sample_paths
from botorch_sparse.pools.device_batch import EagerBatch
from botorch_sparse.pools.nystrom_pool import MAX_MEMORY, NystromPool
from botorch_sparse.pools.path_maximizers import path_maximizers
from botorch_sparse.pools.shard import ALL_ROWS, RANK_TILE, SelectableRows, Shard
from botorch_sparse.posteriors import NystromPosterior

# Sums over columns round the last ones, where these are fewer than 32, by themselves.
ROWS, LAM = 4 * RANK_TILE - 288, 0.1
CHUNK_SIZE = 1504  # on a device: none is a whole number of tiles
HOST = torch.device("cpu")


def problem(
    seed: int, kernel: str = "rbf", device: torch.device = HOST
) -> tuple[Tensor, NystromPosterior]:
    """Candidates of which some are alike, and a posterior."""
    X = torch.rand(ROWS, 3, generator=torch.Generator().manual_seed(seed)).double()
    X[RANK_TILE + 7] = X[3 * RANK_TILE + 7] = X[5]
    X = X.to(device)
    kernels = {"rbf": RBFKernel(), "matern": MaternKernel(nu=1.5)}
    module: Kernel = kernels.get(kernel, TanimotoKernel())
    module = module.to(X).requires_grad_(False)
    if module.has_lengthscale:
        module.lengthscale = 0.6 if kernel == "rbf" else 3.0
    S = X[::61]
    Y, noise = (5 * S).sum(-1).sin(), torch.full_like(S[:, 0], LAM)
    return X, NystromPosterior.from_data(module, S, Y, noise, S)


def shared_pool(
    ranks: Ranks, X: Tensor, posterior: NystromPosterior, max_memory: int = MAX_MEMORY
) -> ShardedPool:
    """A rank's rows under a posterior."""
    shard = Shard(len(X), ranks)
    rows = X[shard.start : shard.stop]
    pool = ShardedPool(
        rows, LAM, shard=shard, max_memory=max_memory, chunk_size=CHUNK_SIZE
    )
    pool.update(posterior)
    return pool


def chosen(
    pool: NystromPool, rule: Rule | None, selectable: SelectableRows = ALL_ROWS
) -> tuple[list[int], list[float], list[float], float]:
    """A batch, with points that are pending on several ranks."""
    batch = pool.batch(20.0, rule, selectable)
    for row in (3, 3 * RANK_TILE + 1, 3 * RANK_TILE + 1, 2 * RANK_TILE, 3):
        batch.append(row)
    rows = batch.choose(40)
    return rows, batch.variances, batch.variances_before, batch.product_ratio


RULES = [None, Global(12.0), Local(5.0)]
CASES = [*product([2, 4], [False, True], RULES, [0, 2**18, MAX_MEMORY])]
# On a device blocks are taken of what is streamed.
ELSEWHERE = [(2, False, RULES[2], MAX_MEMORY), (4, False, RULES[2], 0)]
ELSEWHERE += [(4, False, RULES[0], MAX_MEMORY), (3, False, RULES[1], 0)]
ELSEWHERE += [(1, False, RULES[2], MAX_MEMORY)]


@pytest.mark.one_in(5)
@sweep("size, screened, rule, max_memory", CASES, ELSEWHERE)
def test_batches_have_the_same_bits(
    size: int,
    screened: bool,
    rule: Rule | None,
    max_memory: int,
    device: torch.device,
    set_first_block: Callable[[int], None],
    request: pytest.FixtureRequest,
) -> None:
    """Kept, in a little memory or streamed; by branch and bound or not."""
    if screened:
        request.getfixturevalue("screened_at_any_size")
    set_first_block(200)
    X, posterior = problem(size, "rbf" if rule else "matern", device)
    pool = NystromPool(X, LAM, max_memory=max_memory, chunk_size=CHUNK_SIZE)
    pool.update(posterior)
    whole = chosen(pool, rule)

    def choose(ranks: Ranks) -> object:
        return chosen(shared_pool(ranks, X, posterior, max_memory), rule)

    assert together(size, choose, device) == [whole] * size
    assert rule is None or 2 < len(whole[0]) < 40  # the rule ended it
    assert len({row // RANK_TILE for row in whole[0]}) > 1


@pytest.mark.slow_sim
@sweep("once, max_memory", [(False, 0), (True, MAX_MEMORY)], [(True, 0)])
def test_what_may_not_be_chosen_is_not(
    once: bool,
    max_memory: int,
    device: torch.device,
    set_first_block: Callable[[int], None],
) -> None:
    set_first_block(200)
    X, posterior = problem(0, device=device)
    pool = NystromPool(X, LAM, max_memory=max_memory, chunk_size=CHUNK_SIZE)
    pool.update(posterior)
    first = pool.batch(20.0).choose(10)
    selectable = SelectableRows(torch.tensor(sorted({*first}), device=device), once)
    whole = chosen(pool, None, selectable)

    def choose(ranks: Ranks) -> object:
        own = shared_pool(ranks, X, posterior, max_memory)
        return chosen(own, None, selectable)

    assert together(3, choose, device) == [whole] * 3
    assert not {*whole[0]} & {*first}
    assert not once or len({*whole[0]}) == len(whole[0])


@needs_products_that_round_alike
def test_moments_come_from_the_owners(device: torch.device) -> None:
    X, posterior = problem(1, device=device)
    pool = NystromPool(X, LAM)
    pool.update(posterior)
    rows = torch.tensor([ROWS - 1, 0, RANK_TILE, RANK_TILE - 1, 0])

    def moments(ranks: Ranks) -> list[Tensor]:
        return [*shared_pool(ranks, X, posterior).moments(rows)]

    for mean, variance in together(4, moments, device):
        assert torch.equal(mean, pool.moments(rows).mean)
        assert torch.equal(variance, pool.moments(rows).variance)
        assert np.isfinite(mean.cpu().numpy()).all()


@pytest.mark.usefixtures("screened_at_any_size")
def test_moments_of_a_few_rows_embed_these() -> None:
    """Ranks leave the others to branch and bound, as one process does."""
    X, posterior = problem(1)
    rows = torch.tensor([3, ROWS - 1, 3])

    def embedded(ranks: Ranks) -> int:
        own = shared_pool(ranks, X, posterior)
        own.moments(rows)
        return own.num_exact

    assert together(3, embedded) == [1, 0, 1]
    assert together(1, embedded) == [2]


@sweep("max_memory, size", [(0, 2), (MAX_MEMORY, 3)], [(MAX_MEMORY, 2), (0, 3)])
def test_of_equal_rows_the_lowest_is_chosen(
    max_memory: int,
    size: int,
    device: torch.device,
    set_first_block: Callable[[int], None],
) -> None:
    """Each row is there twice, the first rank has none of the best, and blocks are
    often too small to be certain.
    """
    set_first_block(4)
    X, posterior = problem(5, device=device)
    half = 2 * RANK_TILE
    pool = NystromPool(X[:half], LAM)
    pool.update(posterior)
    X = X[pool.batch(20.0).values().argsort()].repeat(2, 1)

    def choose(ranks: Ranks) -> list[int]:
        own = shared_pool(ranks, X, posterior, max_memory)
        return own.batch(20.0).choose(25)

    first, *others = together(size, choose, device)
    assert max(first) < half and others == [first] * (size - 1)
    pool = DevicePool(X, LAM)
    pool.update(posterior)
    eager = device_batch(EagerBatch, pool, 20.0)  # all bounds after each point
    for row in first:
        bounds = eager.values().cpu()
        assert float(bounds[row]) >= float(bounds.max()) * (1 - 1e-12)
        eager.append(row)


def test_values_at_rows_of_another_device(device: torch.device) -> None:
    """Rows of the host, or of the device, whichever has the values."""
    values, rows = torch.arange(10.0), torch.tensor([7, 2])
    for mine, theirs in ((values, rows.to(device)), (values.to(device), rows)):
        found = Shard(10).at(mine, theirs)
        assert found.device == mine.device and found.tolist() == [7.0, 2.0]


def feasible_first(_: list[Tensor], values: list[Tensor]) -> list[Tensor]:
    """Values where other ones are above zero, else those."""
    first, limit = values
    below = limit.where(limit <= 0, -torch.inf)
    return [first.where(limit > 0, -torch.inf), below]


@sweep("once, size", product([False, True], [2, 3]), [(True, 2)])
def test_paths_of_two_outcomes_have_the_maximizers_of_one_process(
    once: bool, size: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level by level, as a loop over all rows finds them."""
    X, posterior = problem(0, device=device)
    draws = []
    for seed in (3, 4):
        with manual_seed(seed):
            draws.append(sample_paths.SamplePaths.draw(posterior, 6, 64))
    firsts = {id(posterior): draws[0]}
    monkeypatch.setattr(
        sample_paths.SamplePaths,
        "draw",
        lambda p, *_, **__: firsts.get(id(p), draws[1]),
    )
    both = [posterior, copy.copy(posterior)]
    selectable = SelectableRows(None, once)
    whole = path_maximizers(X, both, 6, selectable, levels=feasible_first)

    def choose(ranks: Ranks) -> list[int]:
        shard = Shard(ROWS, ranks)
        own = X[shard.start : shard.stop]
        return path_maximizers(
            own, both, 6, selectable, levels=feasible_first, shard=shard
        )

    assert together(size, choose, device) == [whole] * size
    values, limits = (paths(X).tolist() for paths in draws)
    taken = set[int]()
    for b, row in enumerate(whole):
        ranked = [
            (limits[b][i] > 0, values[b][i] if limits[b][i] > 0 else limits[b][i], -i)
            for i in range(ROWS)
            if i not in taken
        ]
        best = max(ranked)
        assert ranked[[-r[-1] for r in ranked].index(row)][:2] >= (
            best[0],
            best[1] - 1e-5,
        )
        taken |= {row} if once else set()


@sweep(
    "once, size, kernel",
    product([False, True], [2, 3, 4], ["rbf", "tanimoto"]),
    [(True, 2, "rbf"), (False, 4, "rbf"), (True, 2, "tanimoto")],
)
def test_sample_paths_have_the_maximizers_of_one_process(
    once: bool,
    size: int,
    kernel: str,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also among copies of a row, excluded rows, and where a path's best is taken."""
    X, posterior = problem(0, kernel, device=device)
    with manual_seed(3):  # one generator for all threads would not do
        paths = sample_paths.SamplePaths.draw(posterior, 12, 64)
    monkeypatch.setattr(sample_paths.SamplePaths, "draw", lambda *_, **__: paths)
    first = path_maximizers(X, [posterior], 12, SelectableRows(None, once))
    excluded = torch.tensor(sorted({*first[::2], 0, ROWS - 1}), device=device)
    selectable = SelectableRows(excluded, once)
    whole = path_maximizers(X, [posterior], 12, selectable)

    def choose(ranks: Ranks) -> list[int]:
        shard = Shard(ROWS, ranks)
        own = X[shard.start : shard.stop]
        return path_maximizers(own, [posterior], 12, selectable, shard=shard)

    assert together(size, choose, device) == [whole] * size
    assert not {*whole} & {*selectable.excluded.tolist()}
    num_different = len({*whole})
    assert num_different == 12 if once else num_different > 1


def test_ranks_keep_counts_of_one_type() -> None:
    """What rows have in common with points, where one rank's are larger or few."""
    g, half = torch.Generator().manual_seed(0), 2 * RANK_TILE
    first = torch.randint(0, 4, (half, 24), generator=g)
    different = torch.randint(0, 40, (100, 24), generator=g)
    second = different[torch.randint(0, 100, (half,), generator=g)]
    X = CompactRows(torch.cat([first, second]).to(torch.uint8), 24)
    S = X[::100]
    data = S, S.sum(-1).sin(), torch.full((len(S),), LAM).double(), S
    kernel = TanimotoKernel().double().requires_grad_(False)
    posterior, memory = NystromPosterior.from_data(kernel, *data), 1_600 * len(X)

    def choose(ranks: Ranks) -> tuple[list[int], torch.dtype]:
        shard = Shard(len(X), ranks)
        own = X.part(slice(shard.start, shard.stop))
        pool = ShardedPool(own, LAM, shard=shard, max_memory=memory)
        pool.update(posterior)
        return pool.batch(20.0).choose(12), pool._columns.values.dtype

    (whole,) = together(1, choose)
    assert together(2, choose) == [whole] * 2
    assert whole[1] == torch.int16
