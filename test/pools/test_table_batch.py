"""Batches against the dense recomputation of every bound."""

from typing import Any

import numpy as np
import pytest
import torch
from batch_oracles import (
    HOST,
    Array,
    Dense,
    DevicePool,
    Problem,
    assert_close,
    device_batch,
    fewer,
    make_problem,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from strategy_table import make_kernel

from botorch_sparse.pools import NystromPool
from botorch_sparse.pools import nystrom_pool as pool_module
from botorch_sparse.pools.cross_covariance import CrossCovariance
from botorch_sparse.pools.device_batch import (
    BLOCK,
    BlockBatch,
    DeviceMoments,
    EagerBatch,
    eager_is_cheaper,
)
from botorch_sparse.pools.host_batch import HostBatch
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows
from botorch_sparse.pools.table_batch import TableBatch
from botorch_sparse.posteriors import NystromPosterior

KINDS = ["pool", "eager", "blocks", "exact"]
TOLERANCE = {torch.float64: 1e-7, torch.float32: 5e-3}


class SmallBlocks(BlockBatch):
    """Two candidates at a time, which often are too few."""

    first_block = 2


class Blocks(BlockBatch):
    """A small part of the candidates at a time."""

    first_block = 64


def start(
    kind: str,
    problem: Problem,
    multiplier: float,
    selectable: SelectableRows = ALL_ROWS,
    max_memory: int = 2**30,
    **tkwargs: Any,
) -> TableBatch:
    """A batch of each kind; those of devices work on the host as well."""
    if kind == "exact":
        return problem.exact_pool(**tkwargs).batch(multiplier, None, selectable)
    if kind == "pool":
        pool = problem.pool(max_memory=max_memory, **tkwargs)
        return pool.batch(multiplier, None, selectable)
    pool = problem.pool(DevicePool, max_memory=max_memory, **tkwargs)
    batch = EagerBatch if kind == "eager" else SmallBlocks
    return device_batch(batch, pool, multiplier, selectable=selectable)


def dense_of(kind: str, problem: Problem) -> Dense:
    """The oracle of a kind."""
    return Dense(problem, "exact" if kind == "exact" else "nystrom")


def brute_force(
    dense: Dense, multiplier: float, batch: list[int], excluded: list[int], once: bool
) -> Array:
    """The bounds of all from variances computed anew; minus infinity where closed."""
    bounds: Array = dense.mean + multiplier * np.sqrt(dense.variance_after(batch))
    bounds[[*excluded, *(batch if once else [])]] = -np.inf
    return bounds


def follow(
    state: TableBatch,
    dense: Dense,
    multiplier: float,
    steps: int,
    tolerance: float,
    pending: list[int] | None = None,
    excluded: list[int] | None = None,
    once: bool = False,
) -> None:
    """Every choice attains the dense maximum, every variance is the dense one."""
    batch: list[int] = []
    for row in pending or []:
        state.append(row)
        batch.append(row)
    for _ in range(steps):
        expected = brute_force(dense, multiplier, batch, excluded or [], once)
        row = state.argmax()
        assert expected[row] >= expected.max() - tolerance
        state.append(row)
        before = dense.variance_after(batch)[row]
        near = pytest.approx(before, rel=tolerance, abs=tolerance)
        assert state.variances_before[-1] == near
        batch.append(row)
    expected = brute_force(dense, multiplier, batch, excluded or [], once)
    assert_close(state.values(), expected, atol=tolerance)
    first = dense.variance[batch]
    assert_close(np.array(state.variances), first, rtol=tolerance, atol=tolerance)
    assert state.rows == batch
    lam = state.noise
    assert state.sum_ratio == pytest.approx(1 + sum(state.variances) / lam)
    product = np.prod(1 + np.array(state.variances_before) / lam)
    assert state.product_ratio == pytest.approx(product)


@settings(derandomize=True, deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    multiplier=st.floats(0.0, 30.0),
    log_lam=st.floats(-3.0, 2.0),
    steps=st.integers(1, 20),
    pending=st.lists(st.integers(0, 11), max_size=8),
)
def test_all_batches_are_dense(
    seed: int, multiplier: float, log_lam: float, steps: int, pending: list[int]
) -> None:
    problem = make_problem(seed, lam=10**log_lam)
    for kind in KINDS:
        dense = dense_of(kind, problem)
        state = start(kind, problem, multiplier, **HOST)
        follow(state, dense, multiplier, steps, 1e-7, pending)


@pytest.mark.one_in(10)
@pytest.mark.parametrize("once", [False, True], ids=["repeats", "once"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_may_be_chosen(kind: str, once: bool, tkwargs: dict[str, Any]) -> None:
    """In memory and streamed, with pending points among the excluded and elsewhere."""
    for seed in fewer(range(6), tkwargs, 2):
        problem, g = make_problem(seed, lam=0.1), np.random.default_rng(seed)
        A = len(problem.X)
        excluded = g.choice(A, A // 3, replace=False).tolist()
        pending = [excluded[0], int(g.integers(A))]
        there = torch.tensor(excluded, device=tkwargs["device"])
        memory = 0 if seed % 2 and kind != "eager" else 2**30
        state = start(
            kind, problem, 1.5, SelectableRows(there, once), memory, **tkwargs
        )
        left = A - len({*excluded, *pending})
        follow(
            state,
            dense_of(kind, problem),
            1.5,
            left if once else 15,
            TOLERANCE[tkwargs["dtype"]],
            pending,
            excluded,
            once,
        )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("multiplier", [0.1, 2.0, 20.0])
@pytest.mark.parametrize("max_memory", [0, 2**30], ids=["streamed", "kept"])
def test_more_candidates_than_the_first_block(
    max_memory: int, multiplier: float
) -> None:
    problem = make_problem(4, num_candidates=600, lam=0.02, kernel="scaled")
    assert HostBatch.first_block < len(problem.X)
    excluded = list(range(0, 600, 3))
    selectable = SelectableRows(torch.tensor(excluded), True)
    state = start("pool", problem, multiplier, selectable, max_memory, **HOST)
    assert type(state) is HostBatch
    follow(state, Dense(problem), multiplier, 25, 1e-9, [1, 5], excluded, True)


def test_means_of_what_may_be_chosen(double: dict[str, Any]) -> None:
    mean = torch.arange(4.0).to(**double)
    assert ALL_ROWS.mean(mean) is mean
    assert SelectableRows(once=True).mean(mean) is not mean  # it is going to change
    left = SelectableRows(torch.tensor([0, 2], device=mean.device)).mean(mean)
    assert left.tolist() == [-np.inf, 1.0, -np.inf, 3.0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_memory", [0, 2**30], ids=["streamed", "kept"])
def test_ties_go_to_the_lowest_that_may_be_chosen(
    max_memory: int, kind: str, double: dict[str, Any]
) -> None:
    """A table that holds the winner many times, in places away from the first row."""
    if max_memory == 0 and kind == "eager":
        pytest.skip("the eager path needs the features in memory")
    problem = make_problem(11, num_candidates=30, num_inducing=4, lam=0.1)
    dense = dense_of(kind, problem)
    best = int((dense.mean + 2 * np.sqrt(dense.variance)).argmax())
    data = problem.X[problem.row]
    X = torch.cat([problem.X, problem.X[best].expand(50, -1)])
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    copies = (X[order] == problem.X[best]).all(-1).nonzero().squeeze(-1).tolist()
    problem.X = X[order]
    place = order.argsort()
    problem.row, problem.inducing = place[problem.row], place[problem.inducing]
    assert torch.equal(problem.X[problem.row], data)
    for excluded in ([], copies[:2]):
        there = torch.tensor(excluded, dtype=torch.long, device=double["device"])
        state = start(kind, problem, 2.0, SelectableRows(there), max_memory, **double)
        row = state.argmax()
        if kind == "pool":  # to the bit
            assert row == copies[len(excluded)]
        assert row in copies and row not in excluded


def test_ties_after_points(double: dict[str, Any]) -> None:
    """Two halves of a table, uncorrelated and alike to the bit, take turns."""
    X = torch.tensor([[0.0], [0.25], [1024.0], [1024.25]], **double)
    kernel = make_kernel(0.5, **double)  # powers of two: nothing is rounded
    posterior = NystromPosterior.from_data(
        kernel, X, X[:, 0] * 0, X[:, 0] * 0 + 0.5, X[[0, 2]]
    )
    pool = DevicePool(X, 0.5)
    pool.update(posterior)
    for state in (pool.batch(1.0), device_batch(SmallBlocks, pool, 1.0)):
        assert [*state.choose(6)] == [1, 3, 1, 3, 1, 3]


def test_no_inducing_points(double: dict[str, Any]) -> None:
    """Nothing shrinks: the first of the ties, each time."""
    problem = make_problem(0, kernel="scaled")
    problem.inducing = problem.inducing[:0]
    for kind in ("pool", "eager", "blocks"):
        for max_memory in (0, 2**20):
            state = start(kind, problem, 1.0, ALL_ROWS, max_memory, **double)
            assert state.choose(3) == [0, 0, 0]


def test_a_long_run_and_more_pending_points_than_inducing_ones() -> None:
    """Rows beyond m are folded, a run is one row: variances stay those of a solve."""
    problem = make_problem(3, num_candidates=60, num_inducing=5, lam=0.05)
    rows = [7] * 400 + [(13 * i) % 60 for i in range(80)] + [7] * 50
    for kind in KINDS:
        dense, state = dense_of(kind, problem), start(kind, problem, 3.0, **HOST)
        for row in rows:
            state.append(row)
        expected = brute_force(dense, 3.0, rows, [], False)
        assert_close(state.values(), expected, rtol=1e-7, atol=1e-7)


def test_batches_leave_the_pool_alone(double: dict[str, Any]) -> None:
    problem = make_problem(8)
    for kind in (HostBatch, EagerBatch, SmallBlocks):
        pool = problem.pool(NystromPool if kind is HostBatch else DevicePool, **double)
        before = [moment.clone() for moment in pool.all_moments()]
        if kind is HostBatch:
            state = pool.batch(1.0, None, SelectableRows(once=True))
        else:
            state = device_batch(kind, pool, 1.0)
        state.choose(8)
        state.values().zero_()
        assert float(state.values().abs().max()) > 0
        for moment, then in zip(pool.all_moments(), before, strict=True):
            assert torch.equal(moment, then)


@pytest.mark.parametrize("once", [False, True], ids=["repeats", "once"])
def test_few_candidates_are_looked_at(
    once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem(21, num_candidates=3000, lam=0.5, kernel="scaled")
    pool = problem.pool(max_memory=0, **HOST)
    looked_at, lines = [], CrossCovariance.lines

    def spy(self: Any, index: Array) -> Array:
        looked_at.append(len(index))
        return lines(self, index)

    monkeypatch.setattr(CrossCovariance, "lines", spy)
    pool.batch(1.0, None, SelectableRows(once=once)).choose(60)
    assert 0 < sum(looked_at) < 0.5 * 60 * len(problem.X)


def test_blocks_look_at_few(
    double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of a streamed table at each step, and now and then all of it."""
    problem = make_problem(22, num_candidates=3000, lam=0.5, kernel="scaled")
    pool = problem.pool(DevicePool, max_memory=0, **double)
    looked_at, lookup = [], DeviceMoments.cross_covariance

    def spy(self: DeviceMoments, index: torch.Tensor | slice) -> torch.Tensor:
        K = lookup(self, index)
        looked_at.append(K.shape[-1])
        return K

    monkeypatch.setattr(DeviceMoments, "cross_covariance", spy)
    device_batch(Blocks, pool, 10.0).choose(100)
    assert sum(looked_at) < 0.2 * 100 * len(problem.X)


@pytest.mark.parametrize("num", [60, 97, 128, 500])
def test_tiles_are_of_one_size(num: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of their rows are padding, and moments are those of the posterior."""
    monkeypatch.setattr(pool_module, "TILE_ROWS", 96)
    problem = make_problem(6, num_candidates=num)
    pool = problem.pool(DevicePool)
    state, tiles = pool._state, -(-num // 96)
    assert isinstance(state, DeviceMoments) and state.kept is not None
    assert len(state.kept) == tiles and state.width * tiles < num + 8 * tiles
    expected = problem.posterior().moments(problem.X)
    for ours, theirs in zip(pool.all_moments(), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)


def test_choice_of_path_is_a_function_of_sizes(
    double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert eager_is_cheaper(20640, 110) and eager_is_cheaper(10**6, 300)
    assert not eager_is_cheaper(10**6, 1000) and not eager_is_cheaper(10**9, 1000)
    problem = make_problem(6, num_candidates=40)
    is_device = problem.pool(**double).on_device
    for cheaper, there in [(True, EagerBatch), (False, BlockBatch)]:
        monkeypatch.setattr(pool_module, "eager_is_cheaper", lambda *_, c=cheaper: c)
        expected = there if is_device else HostBatch
        assert type(problem.pool(**double).batch(1.0)) is expected
        expected = BlockBatch if is_device else HostBatch
        assert type(problem.pool(max_memory=0, **double).batch(1.0)) is expected


@pytest.mark.parametrize("max_memory", [0, 2**30], ids=["streamed", "kept"])
def test_bits_of_a_block_depend_on_no_refresh(
    max_memory: int, double: dict[str, Any]
) -> None:
    """A pass over all after few points, or after all: of several blocks of rows."""
    problem = make_problem(9, num_candidates=50, num_inducing=12)
    pool = problem.pool(DevicePool, max_memory=max_memory, **double)
    rows = [(7 * i) % 50 for i in range(2 * BLOCK + 3)]
    often, rarely = (device_batch(SmallBlocks, pool, 3.0) for _ in range(2))
    for i, row in enumerate(rows):
        often.append(row)
        rarely.append(row)
        if i % 6 == 0:
            often.values()
    assert torch.equal(often.values(), rarely.values())
    assert often.variances_before == rarely.variances_before
