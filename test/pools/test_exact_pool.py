"""The exact pool against dense Gaussian process regression."""

from typing import Any

import numpy as np
import oracles
import pytest
import torch
from batch_oracles import Problem, assert_close, fewer, make_problem
from gpytorch.means import ConstantMean

from botorch_sparse.kernels import TanimotoKernel
from botorch_sparse.pools import CompactRows, ExactPool

TOLERANCE = {
    torch.float64: {"rtol": 1e-8, "atol": 1e-8},
    torch.float32: {"rtol": 2e-3, "atol": 2e-3},
}


def dense_posterior(
    problem: Problem, data: list[tuple[int, float, float]]
) -> oracles.Dense:
    """The exact posterior of all candidates, from rows, values and noise variances."""
    rows, Y, noise = zip(*data, strict=True)
    values = torch.tensor([Y, noise], dtype=torch.float64)
    X = problem.X
    return oracles.exact(oracles.DENSE[problem.kernel], X[list(rows)], *values, X)


def check(
    pool: ExactPool, problem: Problem, data: list[tuple[int, float, float]]
) -> None:
    expected, tolerance = dense_posterior(problem, data), TOLERANCE[pool.X.dtype]
    assert_close(pool.mean, expected.mean, **tolerance)
    assert_close(pool.variance, expected.variance, **tolerance)


def evaluations(problem: Problem) -> list[tuple[int, float, float]]:
    columns = (problem.row, problem.Y, problem.noise)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def test_rebuild_and_append(tkwargs: dict[str, Any]) -> None:
    """Runs, repeats that come back later, and rebuilds in between."""
    for seed in fewer(range(12), tkwargs, 2):
        problem, g = make_problem(seed, lam=0.1), np.random.default_rng(seed)
        pool, data = problem.exact_pool(**tkwargs), evaluations(problem)
        check(pool, problem, data)
        for _ in range(8):
            index = int(g.integers(0, min(8, len(problem.X))))
            for _ in range(int(g.integers(1, 5))):
                y = float(g.standard_normal())
                pool.extend([index], [y])
                data.append((index, y, problem.lam))
            check(pool, problem, data)
        rows, Y, noise = zip(*data, strict=True)
        values = torch.tensor([Y, noise], dtype=torch.float64).to(pool.X)
        pool.rebuild(pool.X[list(rows)], *values)
        check(pool, problem, data)
        pool.extend([0], [1.0])
        check(pool, problem, [*data, (0, 1.0, problem.lam)])


def test_a_run_is_one_row(double: dict[str, Any]) -> None:
    pool = make_problem(0).exact_pool(**double)
    n = pool.num_rows
    for index, rows in [(3, 1), (3, 1), (3, 1), (5, 2), (3, 3), (3, 3)]:
        pool.extend([index], [0.5])
        assert pool.num_rows == n + rows


def test_buffer_growth(double: dict[str, Any]) -> None:
    """The buffer doubles, twice and again, and keeps what is in it."""
    problem = make_problem(3, num_candidates=90, lam=0.3)
    g = np.random.default_rng(0)
    pool = ExactPool(problem.X.to(**double), problem.make_kernel(**double), problem.lam)
    data = []
    for step in fewer(range(70), double, 35):
        data.append((step, float(g.standard_normal()), problem.lam))
        pool.extend(*([each] for each in data[-1][:2]))
        if step in (0, 15, 16, 17, 31, 32, 33, 64, 69):
            check(pool, problem, data)
    assert pool.num_rows == len(data)


def test_a_pool_stands_still_under_a_batch(tkwargs: dict[str, Any]) -> None:
    """Whose rows are behind its own, one of which is an open run's."""
    pool, twin = (make_problem(40, lam=0.1).exact_pool(**tkwargs) for _ in range(2))
    for p in (pool, twin):
        for index in (1, 1, 2):
            p.extend([index], [0.3])
    batch = pool.batch(1.5)
    batch.append(2)
    batch.choose(15)
    assert bool((batch.values() < twin.batch(1.5).values()).any())
    assert torch.equal(pool.mean, twin.mean) and pool.num_rows == twin.num_rows
    for p in (pool, twin):
        for index in (2, 2, 4, 1):
            p.extend([index], [-0.7])
    assert torch.equal(pool.mean, twin.mean)
    assert torch.equal(pool.variance, twin.variance)


def test_information_gain_and_prior_mean(double: dict[str, Any]) -> None:
    problem = make_problem(9, lam=0.2)
    mean_module = ConstantMean().to(**double)
    mean_module.initialize(constant=2.0)
    pool = ExactPool(
        problem.X.to(**double),
        problem.make_kernel(**double),
        problem.lam,
        mean_module=mean_module,
    )
    assert_close(pool.mean, np.full(len(problem.X), 2.0))
    X, Y, noise = problem.data
    pool.rebuild(*(t.to(**double) for t in (X, Y, noise)))
    K = oracles.DENSE[problem.kernel](X, X) / noise.unsqueeze(-1)
    gain = float(torch.logdet(torch.eye(len(X), dtype=torch.float64) + K))
    assert pool.information_gain == pytest.approx(gain, rel=1e-10)
    problem.Y = Y - 2.0
    mean = dense_posterior(problem, evaluations(problem)).mean + 2.0
    assert_close(pool.mean, mean, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("parts", [[7], [1, 1, 5], [3, 4]])
def test_evaluations_at_once_are_those_one_by_one(
    parts: list[int], tkwargs: dict[str, Any]
) -> None:
    """To the last bit, however they are cut, in the middle of a run too."""
    pool, twin = (make_problem(5, lam=0.1).exact_pool(**tkwargs) for _ in range(2))
    index, Y = [4, 1, 1, 1, 6, 4, 4], [0.1, 0.2, 0.3, -1.0, 0.5, 0.6, 2.0]
    for i, y in zip(index, Y, strict=True):
        twin.extend([i], [y])
    for rows in torch.arange(7).split(parts):
        pool.extend([index[i] for i in rows], [Y[i] for i in rows])
    assert torch.equal(pool.mean, twin.mean)
    assert torch.equal(pool.variance, twin.variance)


@pytest.mark.parametrize("is_in_table", [True, False])
def test_covariances_with_whitened_data(
    is_in_table: bool, tkwargs: dict[str, Any]
) -> None:
    """Of rows and of points beside the table, after a rebuild, runs and forks."""
    problem = make_problem(11, lam=0.2)
    pool = problem.exact_pool(**tkwargs)
    X, Y, noise = (t.to(**tkwargs) for t in problem.data)
    if is_in_table:
        pool.rebuild(X, Y, noise, problem.row.to(X.device))
    data = list(zip(problem.row.tolist(), noise.tolist(), strict=True))
    for i in (2, 2, 5, 0):
        pool.extend([i], [1.0])
        data.append((i, problem.lam))
    other = pool.fork()
    other.extend([0], [3.0])
    other.extend([3], [3.0])
    kernel = oracles.DENSE[problem.kernel]
    rows, d = zip(*data, strict=True)
    K = kernel(problem.X[list(rows)], problem.X[list(rows)])
    K = K + torch.diag(torch.tensor(d, dtype=torch.float64))
    beside = problem.X[:4] + 0.1
    Z = torch.cat([problem.X, beside])
    k = kernel(Z, problem.X[list(rows)])
    expected = k @ torch.linalg.solve(K, k.mT)
    at = pool.cross_covariance_at(beside.to(**tkwargs))
    whole = torch.cat([pool.cross_covariance(slice(None)), at], dim=1)
    found = whole.mT @ pool.explained_weights(whole)
    assert_close(found, expected, **TOLERANCE[pool.X.dtype])


def test_rows_of_counts() -> None:
    """As bytes they are as they are in float64."""
    g = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 3, (40, 12), generator=g).to(torch.uint8)
    kernel, rows = TanimotoKernel().double().requires_grad_(False), torch.arange(5)
    Y, noise = rows.double(), torch.full((5,), 0.1).double()
    dense, compact = (
        ExactPool(X, kernel, 0.1, has_constant=True)
        for X in (counts.double(), CompactRows(counts, 12))
    )
    for pool in (dense, compact):
        pool.rebuild(pool.X[rows], Y, noise, rows)
        pool.extend([7, 7, 3], [1.0, 2.0, 3.0])
    assert_close(compact.mean, dense.mean, rtol=1e-10, atol=1e-10)
    assert_close(compact.variance, dense.variance, rtol=1e-10, atol=1e-10)


def test_a_run_needs_one_column(
    double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, asked = make_problem(5, lam=0.1).exact_pool(**double), list[list[int]]()
    columns = ExactPool._columns

    def counted(self: ExactPool, rows: list[int]) -> Any:
        asked.append(rows)
        return columns(self, rows)

    monkeypatch.setattr(ExactPool, "_columns", counted)
    for index in ([4, 4, 1, 1, 4], [4, 4, 2], []):
        pool.extend(index, [0.5] * len(index))
    assert asked == [[4, 1, 4], [2], []]
