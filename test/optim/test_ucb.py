"""Lazy and eager argmax against the dense recomputation of every bound."""

from typing import Any

import numpy as np
import pytest
import torch
from batch_oracles import (
    HOST,
    Array,
    Dense,
    Problem,
    assert_close,
    fewer,
    make_problem,
)
from gpytorch.kernels import RBFKernel
from hypothesis import given, settings
from hypothesis import strategies as st

from botorch_sparse.optim import (
    BlockUCB,
    CandidatePool,
    EagerUCB,
    LazyUCB,
    eager_is_cheaper,
)
from botorch_sparse.posteriors import NystromPosterior


class SmallBlockUCB(BlockUCB):
    """Two candidates at a time, which often are too few."""

    first_block = 2


class SmallLazyUCB(LazyUCB):
    """Two candidates of a streamed pool at first."""

    first_block = 2


CLASSES = [LazyUCB, EagerUCB, SmallBlockUCB]


def brute_force(dense: Dense, multiplier: float, batch: list[int]) -> Array:
    return dense.mean + multiplier * np.sqrt(dense.variance_after(batch))


def follow(
    ucb: LazyUCB | EagerUCB | BlockUCB,
    dense: Dense,
    multiplier: float,
    steps: int,
    tolerance: float,
    pending: list[int],
) -> None:
    """Every choice attains the dense maximum, every variance is the dense one."""
    batch: list[int] = []
    for index in pending:
        ucb.append(index)
        batch.append(index)
    for _ in range(steps):
        expected = brute_force(dense, multiplier, batch)
        index = ucb.argmax()
        assert isinstance(index, int)
        assert expected[index] >= expected.max() - tolerance
        variance = float(ucb.append(index))
        assert variance == pytest.approx(
            dense.variance_after(batch)[index], rel=tolerance, abs=tolerance
        )
        batch.append(index)
    assert_close(ucb.values(), brute_force(dense, multiplier, batch), atol=tolerance)
    assert ucb.argmax() == int(ucb.values().argmax())


@pytest.mark.parametrize("cls", CLASSES)
def test_dense_recomputation(cls: Any, tkwargs: dict[str, Any]) -> None:
    """Small multipliers repeat one candidate many times, large ones wander."""
    single = tkwargs["dtype"] == torch.float32
    for seed in fewer(range(40), tkwargs, 10 if single else 2):
        problem = make_problem(seed, lam=0.1 if single else None)
        dense, g = Dense(problem), np.random.default_rng(seed)
        multiplier = float(10 ** g.uniform(-1.5, 1))
        pending = g.integers(0, len(problem.X), int(g.integers(0, 6))).tolist()
        pending = sorted(pending * 2) if seed % 2 else pending
        follow(
            cls(problem.pool(**tkwargs), multiplier, problem.lam),
            dense,
            multiplier,
            steps=int(g.integers(1, 30)),
            tolerance=5e-3 if single else 1e-8,
            pending=pending,
        )


def test_streamed_pools_are_refreshed_in_blocks() -> None:
    for seed in range(20):
        problem = make_problem(seed, num_candidates=60, lam=0.05)
        ucb = SmallLazyUCB(problem.pool(max_memory=0, **HOST), 3.0, problem.lam)
        follow(ucb, Dense(problem), 3.0, steps=12, tolerance=1e-8, pending=[seed])


@pytest.mark.parametrize("max_memory", [0, 2**30])
@pytest.mark.parametrize("cls", CLASSES)
def test_long_batch_with_heavy_repeats(
    cls: Any, max_memory: int, double: dict[str, Any]
) -> None:
    num = 1500 if double == HOST else 100
    problem = make_problem(7, num_candidates=num, lam=0.02, kernel="scaled")
    dense = Dense(problem)
    pool = problem.pool(max_memory=max_memory, **double)
    ucb, batch = cls(pool, 0.5, problem.lam), []
    for step in fewer(range(200), double, 60):
        if step % 50 == 0:
            expected = brute_force(dense, 0.5, batch)
        batch.append(ucb.argmax())
        if step % 50 == 0:
            assert expected[batch[-1]] >= expected.max() - 1e-9
        ucb.append(batch[-1])
    assert len(set(batch)) < len(batch) / 2
    assert_close(ucb.values(), brute_force(dense, 0.5, batch), atol=1e-9)


@pytest.mark.parametrize("cls", CLASSES)
def test_points_appended_in_any_order(cls: Any, double: dict[str, Any]) -> None:
    """Appended points need not be the argmax, and argmax may be asked for twice."""
    for seed in fewer(range(15), double):
        problem = make_problem(300 + seed)
        dense, g = Dense(problem), np.random.default_rng(seed)
        ucb, batch = cls(problem.pool(**double), 1.0, problem.lam), []
        for _ in range(30):
            action = g.integers(0, 4)
            if action == 0:
                expected = brute_force(dense, 1.0, batch)
                index = ucb.argmax()
                assert index == ucb.argmax()
                assert expected[index] >= expected.max() - 1e-9
            elif action == 1:
                assert_close(ucb.values(), brute_force(dense, 1.0, batch), atol=1e-9)
            else:
                index = int(g.integers(0, 3)) if action == 2 else ucb.argmax()
                for _ in range(int(g.integers(1, 4))):
                    before = dense.variance_after(batch)[index]
                    assert float(ucb.append(index)) == pytest.approx(before, rel=1e-8)
                    batch.append(index)


@pytest.mark.parametrize("cls", CLASSES)
def test_bounds_never_rise(cls: Any, tkwargs: dict[str, Any]) -> None:
    slack = 1e-5 if tkwargs["dtype"] == torch.float32 else 1e-12
    for seed in fewer(range(8), tkwargs):
        problem = make_problem(500 + seed, lam=0.1)
        ucb = cls(problem.pool(**tkwargs), 1.5, problem.lam)
        values = ucb.values()
        for _ in range(25):
            ucb.append(ucb.argmax())
            fresh = ucb.values()
            assert (fresh <= values + slack).all()
            values = fresh


@pytest.mark.parametrize("max_memory", [0, 2**30])
@pytest.mark.parametrize("cls", CLASSES)
def test_exact_ties_go_to_the_lowest_index(
    cls: Any, max_memory: int, double: dict[str, Any]
) -> None:
    """Rows 1 and 2, mirror images of row 0, tie with it to the bit; all others less."""
    if max_memory == 0 and cls is EagerUCB:
        pytest.skip("the eager path needs the features in memory")
    problem = make_problem(11, num_candidates=30, num_inducing=4, lam=0.1)
    pool = problem.pool(max_memory=max_memory, **double)
    best = int((pool.mean + 2 * pool.variance.sqrt()).argmax())
    # A table that holds the winner many times, in places away from the first row.
    X = torch.cat([pool.X, pool.X[best].expand(50, -1)])
    X = X[torch.randperm(len(X), generator=torch.Generator().manual_seed(0))]
    pool = CandidatePool(X, max_memory=max_memory)
    pool.update(problem.posterior(**double))
    copies = (X == problem.X[best].to(X)).all(-1).nonzero().squeeze(-1).tolist()
    # Equal rows may differ in the last bit of a matrix product: make them tie.
    for moments in (pool.mean, pool.variance):
        moments[copies] = moments[copies[0]].clone()
    assert len(copies) > 40
    assert cls(pool, 2.0, problem.lam).argmax() == copies[0]


def test_ties_after_points(double: dict[str, Any]) -> None:
    """Two halves of a table, uncorrelated and alike to the bit, take turns."""
    X = torch.tensor([[0.0], [0.25], [1024.0], [1024.25]], **double)
    kernel = RBFKernel().to(**double).requires_grad_(False)
    kernel.lengthscale = 0.5  # with all else a power of two: nothing is rounded
    posterior = NystromPosterior.from_data(
        kernel, X, X[:, 0] * 0, X[:, 0] * 0 + 0.5, X[[0, 2]]
    )
    for cls in CLASSES:
        pool = CandidatePool(X)
        pool.update(posterior)
        ucb, chosen = cls(pool, 1.0, 0.5), []
        for _ in range(6):
            chosen.append(ucb.argmax())
            ucb.append(chosen[-1])
        assert chosen == [1, 3, 1, 3, 1, 3]


def test_lazy_looks_at_few(double: dict[str, Any]) -> None:
    """Features are looked up for a small part of the table only."""
    problem = make_problem(21, num_candidates=3000, lam=0.5, kernel="scaled")
    pool = problem.pool(max_memory=0, **double)
    looked_at, lookup = [], pool.whitened_features

    def spy(index: torch.Tensor | slice) -> torch.Tensor:
        w = lookup(index)
        looked_at.append(len(w))
        return w

    pool.whitened_features = spy  # type: ignore[method-assign]
    ucb = LazyUCB(pool, 1.0, problem.lam)
    for _ in range(100):
        ucb.append(ucb.argmax())
    assert sum(looked_at) < 0.2 * 100 * len(problem.X)


def test_the_pool_is_left_alone(double: dict[str, Any]) -> None:
    problem = make_problem(8)
    pool = problem.pool(**double)
    mean, variance = pool.mean.clone(), pool.variance.clone()
    w = pool.whitened_features(slice(None)).clone()
    for cls in CLASSES:
        ucb = cls(pool, 1.0, problem.lam)
        for _ in range(20):
            ucb.append(ucb.argmax())
        ucb.values().zero_()
        assert float(ucb.values().abs().max()) > 0
    assert torch.equal(pool.mean, mean) and torch.equal(pool.variance, variance)
    assert torch.equal(pool.whitened_features(slice(None)), w)


def test_choice_of_path_is_a_function_of_sizes() -> None:
    for A, m in [(10, 1), (4177, 30), (20640, 110), (10**6, 300), (10**9, 1000)]:
        assert len({eager_is_cheaper(A, m) for _ in range(5)}) == 1
    assert eager_is_cheaper(20640, 110)
    assert not eager_is_cheaper(10**9, 1000)


def test_blocks_look_at_few(double: dict[str, Any]) -> None:
    """A block of a streamed table at each step, and now and then all of it."""
    problem = make_problem(22, num_candidates=3000, lam=0.5, kernel="scaled")
    pool = problem.pool(max_memory=0, **double)
    looked_at, lookup = [], pool.cross_covariance

    def spy(index: torch.Tensor | slice) -> torch.Tensor:
        K = lookup(index)
        looked_at.append(K.shape[-1])
        return K

    pool.cross_covariance = spy  # type: ignore[method-assign]
    ucb = SmallBlockUCB(pool, 10.0, problem.lam)
    for _ in range(100):
        ucb.append(ucb.argmax())
    assert 0 < looked_at.count(3000) < 10  # two were too few
    assert sum(looked_at) < 0.2 * 100 * len(problem.X)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    multiplier=st.floats(0.0, 30.0),
    log_lam=st.floats(-3.0, 2.0),
    steps=st.integers(1, 25),
    pending=st.lists(st.integers(0, 11), max_size=8),
)
def test_lazy_is_eager_is_dense(
    seed: int, multiplier: float, log_lam: float, steps: int, pending: list[int]
) -> None:
    problem = make_problem(seed, lam=10**log_lam)
    dense: Dense = Dense(problem)
    for cls in CLASSES:
        pool = problem.pool(**HOST)
        ucb = cls(pool, multiplier, problem.lam)
        follow(ucb, dense, multiplier, steps, 1e-7, pending)


def duplicated(problem: Problem) -> Problem:
    """The same problem with every candidate there twice."""
    problem.X = torch.cat([problem.X, problem.X])
    return problem


@pytest.mark.parametrize("cls", CLASSES)
def test_duplicated_candidates(cls: Any, double: dict[str, Any]) -> None:
    for seed in fewer(range(5), double):
        problem = duplicated(make_problem(700 + seed))
        follow(
            cls(problem.pool(**double), 1.0, problem.lam),
            Dense(problem),
            1.0,
            steps=30,
            tolerance=1e-8,
            pending=[],
        )
