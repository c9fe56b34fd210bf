"""The pool: moments, branch and bound, memory, and bits that depend on no neighbour."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import oracles
import pytest
import torch
from batch_oracles import HOST, Dense, Problem, assert_close, fewer, make_problem
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean
from rounding_by_place import needs_products_that_round_alike
from torch import Tensor
from torch_threads import threads_set

from botorch_sparse.batching import Local
from botorch_sparse.kernels import TanimotoKernel, dense_covariance
from botorch_sparse.kernels.tanimoto import sums_of_minima
from botorch_sparse.pools import CompactRows, NystromPool, cross_covariance, embedding
from botorch_sparse.pools import branch_and_bound as screening
from botorch_sparse.pools.branch_and_bound import CandidateMoments
from botorch_sparse.pools.embedding import (
    Embedding,
)
from botorch_sparse.pools.kernel_columns import (
    MOST_SPARE,
    KernelColumns,
    kernel_columns,
)
from botorch_sparse.pools.nystrom_pool import InducingOrder, greedy_order
from botorch_sparse.pools.path_maximizers import path_maximizers
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows
from botorch_sparse.pools.table_batch import LocalSums
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.threads import for_each

TOLERANCE = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},
    torch.float32: {"rtol": 1e-3, "atol": 1e-4},
}


def test_moments_and_squared_covariances_are_dense(tkwargs: dict[str, Any]) -> None:
    tolerance = TOLERANCE[tkwargs["dtype"]]
    for seed in fewer(range(12), tkwargs, 2):
        problem = make_problem(seed, lam=0.1)
        dense, g = Dense(problem), np.random.default_rng(seed)
        for max_memory in (0, 2**30):
            pool = problem.pool(max_memory=max_memory, **tkwargs)
            assert pool.in_memory == (max_memory > 0)
            mean, variance = pool.all_moments()
            assert_close(mean, dense.mean, **tolerance)
            assert_close(variance, dense.variance, **tolerance)
            assert pool.posterior is not None
            whitening = Embedding.of(pool.posterior).whitening
            w = (whitening @ pool.cross_covariance(slice(None))).mT.double().cpu()
            assert_close(w @ w.mT, dense.embedded, **tolerance)
            rows = g.integers(0, len(problem.X), 5)
            squares = pool.squared_covariances(torch.from_numpy(rows).to(mean.device))
            assert_close(squares[:, 0], dense.full[rows] ** 2, **tolerance)
            assert_close(squares[:, 1], dense.embedded[rows] ** 2, **tolerance)


def test_weights_of_what_data_explain_are_dense(tkwargs: dict[str, Any]) -> None:
    tolerance = TOLERANCE[tkwargs["dtype"]]
    for seed in fewer(range(6), tkwargs, 2):
        problem = make_problem(seed, lam=0.1)
        pool, dense = problem.pool(max_memory=2**30, **tkwargs), Dense(problem)
        K = pool.cross_covariance(slice(None))
        explained = (K.mT @ pool.explained_weights(K[:, :5])).double().cpu()
        assert pool.posterior is not None
        prior = dense_covariance(pool.posterior.covar_module, pool.X, pool.X[:5])
        assert_close(prior.double().cpu() - explained, dense.full[:, :5], **tolerance)


@pytest.mark.parametrize("kernel", [TanimotoKernel, RBFKernel])
def test_covariances_from_columns_that_are_kept(kernel: type[Kernel]) -> None:
    """Where these do not depend on the table, to the last bit, and are in memory."""
    g = torch.Generator().manual_seed(0)
    bits = (torch.rand(1100, 40, generator=g) < 0.1).to(torch.uint8)
    X, rows = CompactRows(bits, 40), torch.randperm(1100, generator=g)[:30]
    covar_module = kernel().double().requires_grad_(False)
    S = X[rows[:7]]
    found = NystromPool(X).kept_covariance(covar_module, S, rows)
    if kernel is RBFKernel:
        assert found is None
    else:
        assert found is not None
        assert torch.equal(found, dense_covariance(covar_module, S, X[rows]))
        none = NystromPool(X).kept_covariance(covar_module, S[:0], rows)
        assert none is not None and none.shape == (0, 30)
        small = NystromPool(X, max_memory=1100 * 7)
        assert small.kept_covariance(covar_module, S, rows) is None


def test_what_nobody_asks_for_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, calls = make_problem(0, lam=0.1), list[NystromPosterior]()
    compute = embedding.whitening_matrix

    def noted(posterior: NystromPosterior) -> Tensor:
        calls.append(posterior)
        return compute(posterior)

    monkeypatch.setattr(embedding, "whitening_matrix", noted)
    pool = problem.pool(max_memory=2**30, **HOST)
    pool.all_moments()
    assert not calls
    assert pool.posterior is not None
    known = Embedding.of(pool.posterior)
    assert not calls
    assert known.whitening is known.whitening
    assert len(calls) == 1


@pytest.mark.parametrize("most", [1, 100, 2**22])
def test_columns_of_different_rows_some_at_a_time(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botorch_sparse.pools.kernel_columns.MOST_AT_A_TIME", most)
    g = torch.Generator().manual_seed(0)
    bits = (torch.rand(33, 40, generator=g) < 0.1).to(torch.uint8)
    kernel = ScaleKernel(TanimotoKernel((10, 30))).double().requires_grad_(False)
    X = CompactRows(bits, 40)
    found = kernel_columns(kernel, X, X[:11])
    assert torch.equal(found, dense_covariance(kernel, X[:11], X[:]))


def large_problem(seed: int, max_memory: int) -> tuple[NystromPool, NystromPosterior]:
    """A pool on the host, and a posterior of several blocks."""
    g = torch.Generator().manual_seed(seed)
    size, m = (
        int(torch.randint(*r, (1,), generator=g)) for r in ((900, 2500), (2, 90))
    )
    lam = float(10 ** (2 - 5 * torch.rand(1, generator=g)))
    problem = make_problem(seed, num_candidates=size, num_inducing=m, lam=lam)
    pool = NystromPool(problem.X, lam, max_memory=max_memory)
    return pool, problem.posterior(**HOST)


@needs_products_that_round_alike
@pytest.mark.parametrize("max_memory", [0, 2**30], ids=["streamed", "kept"])
@pytest.mark.usefixtures("screened_at_any_size")
def test_branch_and_bound_changes_no_bit(max_memory: int) -> None:
    """Choices, their variances, and all bounds afterwards."""
    num_dropped = 0
    for seed in range(8):
        pool, posterior = large_problem(seed, max_memory)
        pool.update(posterior)
        assert not pool.is_embedded
        excluded = torch.arange(0, len(pool), 3) if seed % 3 == 0 else None
        selectable = SelectableRows(excluded, once=seed % 2 == 0)
        rows = torch.tensor([5, 0, 7, 5])
        found = []
        for screens in (True, False):
            pool.update(posterior)
            if not screens:
                pool.all_moments()
            state = pool.batch(10 ** (seed / 4 - 1), Local(50.0), selectable)
            num_dropped += len(pool) - pool.num_exact
            state.append(3)
            chosen, moments = state.choose(20), pool.moments(rows)
            numbers = [state.variances, state.variances_before, state.sum_ratio]
            found.append((chosen, numbers, [*moments, state.values()]))
        (ours, numbers, tensors), (theirs, expected, others) = found
        assert ours == theirs and numbers == expected
        assert all(torch.equal(*pair) for pair in zip(tensors, others, strict=True))
    assert num_dropped > 1000


@pytest.mark.usefixtures("screened_at_any_size")
def test_later_batches_of_a_screened_pool() -> None:
    """Another multiplier, other rows that are open: what was dropped comes back."""
    pool, posterior = large_problem(7, 2**30)
    pool.update(posterior)
    pool.batch(0.1).choose(3)
    assert pool.num_exact < len(pool) and not pool.is_embedded
    whole = NystromPool(pool.X, pool.noise)
    whole.update(posterior)
    whole.all_moments()
    assert whole.is_embedded and whole.num_exact == len(whole)
    best = whole.batch(20.0).choose(5)
    for selectable in (ALL_ROWS, SelectableRows(torch.tensor(best))):
        expected = whole.batch(20.0, None, selectable).choose(8)
        assert pool.batch(20.0, None, selectable).choose(8) == expected
    assert torch.equal(pool.all_variances(), whole.all_variances())


@needs_products_that_round_alike
@pytest.mark.usefixtures("screened_at_any_size")
def test_bounds_of_dropped_candidates_hold() -> None:
    for seed in (4, 5, 6, 7):
        pool, posterior = large_problem(seed, 2**30)
        pool.update(posterior)
        pool.batch(1.0)
        known = pool._state
        bounds, is_dropped = known.bounds(1.0), ~known.is_exact
        mean, variance = pool.all_moments()
        exact = mean + variance.sqrt()
        assert bool((bounds >= exact).all()) and bool(is_dropped.any())


def uniform_problem(num_inducing: int) -> tuple[Tensor, NystromPosterior]:
    """3,000 uniform rows, and a posterior of the first 120."""
    g = torch.Generator().manual_seed(7)
    X = torch.rand(3000, 4, generator=g, dtype=torch.float64)
    kernel = MaternKernel(nu=2.5).double().requires_grad_(False)
    noise = torch.full((120,), 0.1, dtype=torch.float64)
    Y = X[:120].sum(-1).sin()
    return X, NystromPosterior.from_data(kernel, X[:120], Y, noise, X[:num_inducing])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("max_memory", [0, 2**30])
@pytest.mark.usefixtures("screened_at_any_size")
def test_a_column_depends_on_no_neighbour(threads: int, max_memory: int) -> None:
    """Not on its place in a tile, on what shares the tile, nor on how many there are.

    That is a property of the machine's libraries, which the pool relies on. Kept kernel
    columns are centred by tiles of the table, which shards keep whole.
    """
    g = torch.Generator().manual_seed(0)
    X, posterior = uniform_problem(75)
    every, few = torch.arange(3000), torch.randperm(1024, generator=g)[:5] + 1024
    parts = [every, every[1024:], every[1024:2048]]
    if max_memory == 0:
        parts += [torch.randperm(3000, generator=g), every[700:2049]]
    with threads_set(threads):
        found = []
        for rows in parts:
            place = (rows[:, None] == few).int().argmax(0)
            lazy = NystromPool(X[rows], 0.1, max_memory=max_memory)
            eager = NystromPool(X[rows], 0.1, max_memory=max_memory)
            lazy.update(posterior)
            eager.update(posterior)
            eager.all_moments()
            assert not lazy.is_embedded
            state = eager.batch(3.0)
            state.append(int(place[0]))
            found.append([*lazy.moments(place), state.values()[place]])
            assert torch.equal(eager.moments(place).variance, found[-1][1])
    for values in found[1:]:
        for ours, theirs in zip(values, found[0], strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("max_memory", [0, 2**30])
def test_more_threads_change_no_bit(
    max_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads share batches of tiles, groups of columns, and parts of other passes."""
    X, posterior = uniform_problem(75)
    X, found, starts = X.repeat(7, 1), [], list[int]()

    def counted(parts: Any, work: float, start: Any) -> None:
        before = len(starts)
        for_each(parts, work, lambda: (starts.append(0), start())[1])
        most.append(len(starts) - before)

    monkeypatch.setattr(screening, "for_each", counted)
    for threads in (1, 2, 3):
        most: list[int] = []
        with threads_set(threads):
            pool = NystromPool(X, 0.1, max_memory=max_memory)
            pool.update(posterior)
            squares = pool.squared_covariances(torch.arange(11))
            paths = path_maximizers_of(X, posterior)
            found.append([*pool.all_moments(), squares, paths])
        assert max(most) == threads
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def path_maximizers_of(X: Tensor, posterior: NystromPosterior) -> Tensor:
    """Of five paths, a row each once."""
    with manual_seed(0):
        once = SelectableRows(None, once=True)
        return torch.tensor(path_maximizers(X, [posterior], 5, once))


def test_a_streamed_table_is_passed_once_for_many_points() -> None:
    """Each pass computes `k_S(x)` anew; a quarter of the memory holds the squares."""
    X, posterior = uniform_problem(110)
    rows = [*range(200, 220), 203]
    ratios = {}
    for memory in (0, 4 * 20 * 2 * 8 * len(X), 2**30):
        pool = NystromPool(X, 0.1, max_memory=memory)
        pool.update(posterior)
        sums = LocalSums(pool)
        sums.add(rows)
        ratios[pool.squares_at_a_time] = float(sums.ratio("both"))
        K = pool.squared_covariances(torch.tensor(rows)).sum(0)
        dense = 1 + (K.amax(0) / (0.1 * pool.all_variances())).max()
        assert ratios[pool.squares_at_a_time] == pytest.approx(float(dense), rel=1e-9)
    assert list(ratios) == [8, 20]


@pytest.mark.parametrize("room", [0, 4, 100])
def test_likely_points_fill_a_product(room: int) -> None:
    """While there is room for all, and their squares count only once they join."""
    X, posterior = uniform_problem(110)
    pool = NystromPool(X, 0.1, max_memory=4 * room * 2 * 8 * len(X))
    pool.update(posterior)
    sums, asked = LocalSums(pool), list[int]()

    def likely(num: int) -> list[int]:
        asked.append(num)
        return [7, 3, *range(20, 40)]

    for added, known in (([3, 4, 3], [3, 4, 7, 20, 24]), ([20, 7], [20, 7, 24])):
        sums.add(added, likely)
        assert sums.knows(known) == (room == 100)
        assert not sums.knows([25]) and not sums.knows([*known, 25])
    assert len(asked) == (room == 100)  # the others were known by then
    K = pool.squared_covariances(torch.tensor([3, 4, 3, 20, 7])).sum(0)
    dense = 1 + (K.amax(0) / (0.1 * pool.all_variances())).max()
    assert float(sums.ratio("both")) == pytest.approx(float(dense), rel=1e-9)


def test_batches_take_fewer_products_by_likely_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same points are chosen, none of the excluded ones is thought likely."""
    X, posterior = uniform_problem(110)
    pool = NystromPool(X, 5.0)
    pool.update(posterior)
    squares, seen = pool.squared_covariances, list[list[int]]()

    def noted(rows: Tensor) -> Tensor:
        seen.append(rows.tolist())
        return squares(rows)

    monkeypatch.setattr(pool, "squared_covariances", noted)
    best = pool.batch(2.0).argmax()
    open_to_all = SelectableRows(excluded=torch.tensor([best]), once=True)
    batches = [pool.batch(2.0, Local(1.5), open_to_all) for _ in range(2)]
    monkeypatch.setattr(batches[1], "_likely", lambda: None)
    chosen = [(batch.choose(200), len(seen)) for batch in batches]
    (rows, num), (others, total) = chosen
    assert rows == others and len(set(rows)) > 8
    assert 0 < num < total - num
    assert all(len(taken) == 8 and best not in taken for taken in seen[:num])


def test_a_batch_is_freed_with_its_last_name() -> None:
    """Its squares of a large table would wait for a full garbage collection."""
    X, posterior = uniform_problem(110)
    pool = NystromPool(X, 5.0)
    pool.update(posterior)
    batch = pool.batch(2.0, Local(1.5), SelectableRows(once=True))
    assert len(batch.choose(200)) > 8 and batch._sums is not None
    left = weakref.ref(batch), weakref.ref(batch._sums)
    gc.disable()
    try:
        del batch
        assert [name() for name in left] == [None, None]
    finally:
        gc.enable()


def test_a_group_of_columns_is_filled_with_those_likely_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a column is missing; they have the bits that they have alone."""
    X, _ = uniform_problem(110)
    kernel, num = RBFKernel().double().requires_grad_(False), []

    def counted(*args: Any) -> Tensor:
        num.append(1)
        return kernel_columns(*args)

    monkeypatch.setattr("botorch_sparse.pools.kernel_columns.kernel_columns", counted)
    columns, likely = KernelColumns(X), X[[7, 3, *range(40, 60)]]
    columns.find(kernel, X[:3], 100, likely)
    assert len(num) == 1 and columns.num_used == 8  # 0, 1, 2, 7, 3, 40, 41, 42
    slots = columns.find(kernel, X[[7, 42, 1]], 100, likely)
    assert len(num) == 1
    for slot, row in zip(slots, (7, 42, 1), strict=True):
        alone = kernel_columns(kernel, X, X[row : row + 1])
        assert torch.equal(columns.values[slot], alone[0])
    # 3, 40, 41 and 43 are spare, in 10 places: two more, and then their places.
    columns.find(kernel, X[80:81], 10, likely)
    assert len(num) == 2 and columns.num_used == 10
    before, asked = columns.find(kernel, X[[0, 1, 2, 7, 42, 80]], 10, likely), num[:]
    columns.find(kernel, X[90:93], 10, likely)
    assert len(num) == len(asked) + 1 and columns.num_used == 10
    after = columns.find(kernel, X[[0, 1, 2, 7, 42, 80]], 10, likely)
    assert len(num) == len(asked) + 1 and torch.equal(before, after)
    columns.find(kernel, X[100:103], 100, X[:0])  # no room is made for spare ones
    assert columns.num_used == 12


def test_columns_in_vain_do_not_pile_up() -> None:
    """Not more than a few of them, however often points are likely in vain."""
    X, _ = uniform_problem(110)
    kernel = RBFKernel().double().requires_grad_(False)
    columns = KernelColumns(X)
    for i in range(100):
        likely = X[500 + 7 * i : 507 + 7 * i]
        slots = columns.find(kernel, X[[0, 1, 10 + i]], 1000, likely)
    assert columns.num_used <= 102 + MOST_SPARE + 7
    assert len(set(slots.tolist())) == 3 and slots.max() < columns.num_used
    alone = kernel_columns(kernel, X, X[109:110])
    assert torch.equal(columns.values[slots[2]], alone[0])


@pytest.mark.parametrize("noise", [1e-1, 1e-4, 1e-7])
def test_bounds_are_above_what_is_computed(noise: float) -> None:
    """Of mean and variance, rounding included, with a factor that amplifies it."""
    g = torch.Generator().manual_seed(7)
    X = torch.rand(3000, 3, generator=g, dtype=torch.float64)
    kernel = RBFKernel().double().requires_grad_(False)
    Y, n = 100.0 * X[:120].sum(-1).sin(), torch.full((120,), noise, dtype=X.dtype)
    prior = ConstantMean().double().requires_grad_(False)
    prior.initialize(constant=3.0)
    data = X[:120], Y, n, X[:90]
    posterior = NystromPosterior.from_data(kernel, *data, mean_module=prior)
    m = posterior.num_inducing
    pool, order = NystromPool(X, noise), torch.randperm(m, generator=g)
    pool.update(posterior)
    exact = pool._state
    limits = screening.Bounds.of(exact.embedding, order, 1.0)
    tight = replace(limits, slack=0.0, mean_slack=0.0)
    for bounds, holds in ((limits, True), (tight, False)):
        known = CandidateMoments(exact.embedding, exact.cross, exact.prior, bounds)
        known.bound_all()
        assert (known.mean >= exact.mean).all() == holds
        assert not holds or (known.variance >= exact.variance).all()
        known._bound_again(bounds, torch.arange(len(X)))
        assert not holds or (known.variance >= exact.variance).all()


@pytest.mark.usefixtures("screened_at_any_size")
def test_promising_rows_are_exact_and_open() -> None:
    """A bound that is not exact is below the best, and a bad guess."""
    X, posterior = uniform_problem(110)
    pool = NystromPool(X, 5.0)
    for excluded in (torch.arange(0), torch.arange(3, len(X))):
        pool.update(posterior)
        pool.batch(2.0, None, SelectableRows(excluded=excluded)).choose(3)
        rows, known = pool._promising, pool._state
        assert len(rows) == (3 if len(excluded) else 64)
        assert known.is_exact[rows].all() and not torch.isin(rows, excluded).any()


def test_no_inducing_points(double: dict[str, Any]) -> None:
    X = torch.rand(30, 2, **double)
    posterior = NystromPosterior.from_data(
        oracles.make_kernel("scaled", **double), X[:0], X[:0, 0], X[:0, 0], X[:0]
    )
    for max_memory in (0, 2**20):
        pool = NystromPool(X, max_memory=max_memory)
        pool.update(posterior)
        assert_close(pool.all_moments().mean, np.zeros(30))
        prior = np.full(30, oracles.OUTPUTSCALE)
        assert_close(pool.all_variances(), prior, rtol=1e-12)
        (squares,) = pool.squared_covariances(torch.tensor([3], device=X.device))
        K = oracles.DENSE["scaled"](X.cpu(), X.cpu()).numpy()
        assert_close(squares[0], K[:, 3] ** 2, rtol=1e-10)
        assert_close(squares[1], np.zeros(30))


def updates_of(
    pool: NystromPool, count: int, seed: int, **tkwargs: Any
) -> list[NystromPosterior]:
    """Posteriors whose inducing sets overlap, as those of successive batches."""
    g = torch.Generator().manual_seed(seed)
    kernel, posteriors = oracles.make_kernel("scaled", **tkwargs), []
    for t in range(count):
        row = torch.randperm(40, generator=g)[: 10 + t].to(pool.X.device)
        X = pool.X[row]
        noise = torch.full((len(X),), 0.1, **tkwargs)
        posteriors.append(
            NystromPosterior.from_data(kernel, X, X.sin().sum(-1), noise, X[: 5 + t])
        )
    return posteriors


@pytest.mark.one_in(3)
@pytest.mark.parametrize("capacity", [6, 16, 1000])
def test_history_does_not_change_the_bits(
    capacity: int, tkwargs: dict[str, Any]
) -> None:
    """A pool that has seen much and a fresh one agree to the bit: runs resume."""
    X = torch.rand(300, 2, generator=torch.Generator().manual_seed(0)).to(**tkwargs)
    # Half of the memory is for columns.
    max_memory = 2 * max(capacity, 16) * len(X) * X.element_size()
    old = NystromPool(X, 0.1, max_memory=max_memory)
    row = torch.tensor([7], device=X.device)
    for posterior in updates_of(old, 10, seed=1, **tkwargs):
        old.update(posterior)
        fresh = NystromPool(X, 0.1, max_memory=max_memory)
        fresh.update(posterior)
        expected, tolerance = posterior.moments(X), TOLERANCE[tkwargs["dtype"]]
        for ours, theirs, near in zip(
            old.all_moments(), fresh.all_moments(), expected, strict=True
        ):
            assert torch.equal(ours, theirs)
            torch.testing.assert_close(ours, near, **tolerance)
        squares = [pool.squared_covariances(row) for pool in (old, fresh)]
        assert torch.equal(*squares)
        batches = [pool.batch(2.0) for pool in (old, fresh)]
        assert batches[0].choose(5) == batches[1].choose(5)
        assert batches[0].variances_before == batches[1].variances_before


def test_columns_that_were_forgotten_are_computed_again(double: dict[str, Any]) -> None:
    X = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)).to(**double)
    pool = NystromPool(X, 0.1, max_memory=2 * 16 * 200 * 8)
    first, *_ = updates_of(pool, 10, seed=2, **double)
    pool.update(first, noise=0.2)
    expected = pool.batch(2.0).choose(10)
    pool.forget_columns()
    assert pool.posterior is first and pool.batch(2.0).choose(10) == expected


def test_another_kernel_is_noticed(double: dict[str, Any]) -> None:
    """Kept kernel columns are never taken for those of other hyperparameters."""
    problem = make_problem(2, kernel="scaled", num_candidates=80)
    pool = problem.pool(**double)
    kernel = pool.posterior.covar_module
    kernel.base_kernel.lengthscale = 0.2  # in place
    for covar_module in (kernel, oracles.make_kernel("rbf", **double)):
        X, row = pool.X, problem.row.to(pool.X.device)
        data = (X[row], problem.Y.to(**double), problem.noise.to(**double))
        S = X[problem.inducing.to(X.device)]
        posterior = NystromPosterior.from_data(covar_module, *data, S)
        pool.update(posterior)
        for ours, theirs in zip(pool.all_moments(), posterior.moments(X), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-8)


def kept_bytes(value: Any, seen: set[int]) -> int:
    """Bytes of all tensors that an object holds, each once."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        is_new = storage.data_ptr() not in seen
        seen.add(storage.data_ptr())
        return storage.nbytes() if is_new else 0
    inside = value.values() if isinstance(value, dict) else ()
    if isinstance(value, list | tuple):
        inside = value
    elif type(value).__module__.startswith("botorch_sparse.pools"):
        inside = list(getattr(value, "__dict__", {}).values())
    return sum(kept_bytes(part, seen) for part in inside)


@pytest.mark.parametrize("columns", [0, 40, 130, 1000])
def test_memory_is_kept_to(columns: int) -> None:
    """Of all that a pool keeps, beside some numbers for each candidate."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(4000, 3, generator=g, dtype=torch.float64)
    max_memory = columns * len(X) * 8
    pool = NystromPool(X, 0.1, max_memory=max_memory)
    for start in (0, 30, 60, 0):
        data = X[start : start + 60]
        noise = torch.full((60,), 0.1, dtype=torch.float64)
        posterior = NystromPosterior.from_data(
            oracles.make_kernel("scaled", **HOST), data, data.sum(-1), noise, data[:50]
        )
        pool.update(posterior)
        state = pool.batch(2.0, Local(8.0))
        state.choose(30)
        per_candidate = 24 * 8 * len(X)  # X, moments, bounds, sums, ...
        matrices = 40 * 64 * 64 * 8
        kept = kept_bytes([pool, state], set())
        assert kept <= max_memory + per_candidate + matrices


@pytest.mark.parametrize(
    "X, error, match",
    [
        (torch.zeros(3), BotorchTensorDimensionError, r"shape \(3,\); need `A x d`"),
        (torch.zeros(0, 2), BotorchTensorDimensionError, r"shape \(0, 2\)"),
        (torch.zeros(3, 2, dtype=torch.long), InputDataError, "dtype torch.int64"),
        (torch.tensor([[0.0], [float("nan")]]), InputDataError, "with 1 entries"),
    ],
)
def test_bad_candidates(X: Tensor, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        NystromPool(X)


def test_before_any_posterior(double: dict[str, Any]) -> None:
    pool = NystromPool(torch.rand(5, 1, **double))
    k_diag = torch.arange(1.0, 6.0).to(**double)
    pool.reset(k_diag)
    assert torch.equal(pool.moments(torch.tensor([1, 2])).variance, k_diag[1:3])
    assert torch.equal(pool.all_variances(), k_diag) and pool.is_embedded
    with pytest.raises(InputDataError, match=r"call update\(posterior\) first"):
        pool.batch(1.0)


def test_nothing_of_size_A_by_A(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest kernel matrix of an update is a block by some tiles, or a column."""
    problem = make_problem(6, num_candidates=3000, num_inducing=10)
    sizes, known = [], cross_covariance.dense_covariance

    def spy(*args: Any) -> Tensor:
        K = known(*args)
        sizes.append(K.numel())
        return K

    posterior = problem.posterior(**HOST)
    monkeypatch.setattr(cross_covariance, "dense_covariance", spy)
    for max_memory in (0, 2**30):
        pool = NystromPool(problem.X, problem.lam, max_memory=max_memory)
        pool.update(posterior)
        pool.batch(1.0).argmax()
    assert sizes and max(sizes) <= 16 * 2**12


def known_of(problem: Problem, max_memory: int) -> CandidateMoments:
    """What a pool knows that has seen other inducing points."""
    posterior, (X, Y, noise) = problem.posterior(**HOST), problem.data
    pool = NystromPool(problem.X, problem.lam, max_memory=max_memory)
    S = posterior.inducing_points.flip(0)[:-3]
    kernel = posterior.covar_module
    pool.update(NystromPosterior.from_data(kernel, X, Y, noise, S))
    pool.update(posterior)
    return pool._state


def lonely_problem(seed: int, lam: float) -> Problem:
    """Six pseudo-observations explain most rows as well as all 40, up to rounding."""
    g = np.random.default_rng(seed)
    near, far = g.random((1400, 2)), 1e3 * np.arange(1, 35)[:, None] * np.ones(2)
    row = torch.from_numpy(g.permutation([*range(6), *range(1400, 1434)]))
    X = torch.from_numpy(np.concatenate([near, far]))
    Y, count = torch.from_numpy(g.standard_normal(40)), torch.ones(40).double()
    inducing = torch.from_numpy(g.permutation(row.numpy()))
    return Problem(X, row, count, Y, inducing, lam, "rbf")


@needs_products_that_round_alike
@pytest.mark.parametrize("max_memory", [0, 2**30], ids=["streamed", "kept"])
def test_bounds_are_never_below_what_the_embedding_computes(
    max_memory: int, screened_at_any_size: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by one rounding, after a quarter of the pseudo-observations and a half."""
    monkeypatch.setattr(screening, "LARGEST_SLACK", np.inf)  # with bounds anyway
    problems = [lonely_problem(seed, 10.0 ** (1 - 2 * seed)) for seed in range(6)]
    problems += [
        make_problem(seed, num_candidates=1500, num_inducing=40, lam=10.0 ** (1 - seed))
        for seed in range(6)
    ]
    steps = set()
    for problem in problems:
        known = known_of(problem, max_memory)
        rows, found = torch.arange(len(problem.X)), []
        known.screen(1.0, rows, np.inf, grows=False)
        assert not known.is_exact.any()
        found.append((known.level.clone(), known.mean.clone(), known.variance.clone()))
        best = float(known.bounds(1.0).median())
        known.screen(1.0, rows, best, grows=False)
        found.append((known.level.clone(), known.mean.clone(), known.variance.clone()))
        known.resolve_all()
        for level, mean, variance in found:
            assert bool((mean >= known.mean).all())
            assert bool((variance >= known.variance).all())
            steps |= set(level.tolist())
    assert steps == {1, 2, 3}


@pytest.mark.usefixtures("screened_at_any_size")
def test_bounds_that_round_too_much_are_not_used() -> None:
    problem = make_problem(3, num_candidates=1500, num_inducing=40, lam=0.1)
    assert not problem.pool(**HOST).is_embedded
    assert problem.pool(dtype=torch.float32, device=torch.device("cpu")).is_embedded


def test_the_first_points_explain_most_and_are_kept() -> None:
    problem = make_problem(5, num_candidates=200, num_inducing=70, lam=0.01)
    by_place = problem.X[problem.inducing, 0].argsort()  # one side of the table first
    problem.inducing = problem.inducing[by_place]
    posterior = problem.posterior(**HOST)
    m = posterior.num_inducing
    K = posterior.covariance_with_inducing(problem.X)
    embedding, squares = Embedding.of(posterior), []
    first = greedy_order(embedding.factor, K[:, ::3])
    assert len(first) == len(set(first)) == -(-m // 3)
    for points in (first[:4], [0, 1, 2, 3]):
        C = embedding.factor @ embedding.factor.mT
        explained = torch.linalg.solve(C[points][:, points], K[points])
        squares.append(float((K[points] * explained).sum()))
    assert squares[0] > 1.05 * squares[1]
    keys = [point.tobytes() for point in posterior.inducing_points.numpy()]
    order = InducingOrder(tuple(keys[i] for i in first))
    assert order.of(keys) == first and order.of(keys[:1] * 2) in ([], [1])
    assert order.after(0.1).after(0.2).points == order.points
    assert order.after(0.1).after(0.21).points == ()


def test_a_streamed_kernel_with_gradients() -> None:
    """A kernel that is given has gradients; nothing of a batch needs them."""
    X = torch.rand(600, 2, generator=torch.Generator().manual_seed(0)).double()
    kernel = ScaleKernel(RBFKernel()).double()
    noise = torch.full((20,), 0.1).double()
    posterior = NystromPosterior.from_data(kernel, X[:20], X[:20, 0], noise, X[:9])
    chosen = []
    for memory in (0, 2e4, 2**30):
        pool = NystromPool(X, 0.1, max_memory=memory)
        pool.update(posterior)
        chosen.append(pool.batch(2.0).choose(5))
    assert chosen[0] == chosen[1] == chosen[2]


@pytest.mark.parametrize(("most", "dtype"), [(1, torch.uint8), (40, torch.int16)])
def test_of_counts_what_points_have_in_common_is_kept(
    most: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In few bytes, whatever the hyperparameters, and with the kernel's own bits."""
    g, computed = torch.Generator().manual_seed(0), []

    def counted(*args: Any) -> Tensor:
        computed.append(len(args[1]))
        return sums_of_minima(*args)

    name = "botorch_sparse.pools.kernel_columns.sums_of_minima"
    monkeypatch.setattr(name, counted)
    counts = torch.randint(0, most + 1, (700, 40), generator=g, dtype=torch.uint8)
    counts[3] = 0
    rows = CompactRows(counts, 40)
    kept, streamed = (NystromPool(rows, max_memory=memory) for memory in (2**20, 0))

    def posterior_of(kernel: Kernel, S: Tensor) -> NystromPosterior:
        kernel, noise = kernel.double().requires_grad_(False), torch.full((50,), 0.1)
        data = rows[:50], rows[:50].sum(-1).sin(), noise.double()
        return NystromPosterior.from_data(kernel, *data, S)

    S = rows[torch.tensor([3, 1, 5, 9])]
    for scale in (0.7, 1.3):
        kernel = ScaleKernel(TanimotoKernel())
        kernel.outputscale = scale
        for pool in (kept, streamed):
            pool.update(posterior_of(kernel, S))
        assert kept.in_memory and not streamed.in_memory
        K = kept.cross_covariance(slice(None))
        assert torch.equal(K, dense_covariance(kernel, S, rows[:]))
        few = torch.tensor([600, 3, 8])
        assert torch.equal(kept.cross_covariance(few), K[:, few])
        pairs = zip(kept.all_moments(), streamed.all_moments(), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)
        squares = [pool.squared_covariances(few) for pool in (kept, streamed)]
        assert_close(*squares, rtol=1e-12)
        kept.renew_columns()
    assert sum(computed) == 6  # 600 and 8 are beside the inducing points
    assert kept._columns.values.dtype == dtype
    kernel.requires_grad_(True)
    for points, other, size in (
        (S, kernel, dtype.itemsize),
        (S / 2, kernel, 8),  # no counts
        (S, kernel, dtype.itemsize),
        (S, RBFKernel(), 8),
    ):
        posterior = NystromPosterior.prior(other.double(), points)
        kept.update(posterior)
        assert kept.in_memory and kept._columns.entry_size == size
        variance = posterior.variance(rows[:]).detach()
        assert_close(kept.all_moments().variance, variance, rtol=1e-9)
        assert len(kept.batch(2.0).choose(3)) == 3
