"""The exact pool against dense Gaussian process regression."""

from typing import Any

import numpy as np
import pytest
import torch
from batch_oracles import DenseExact, assert_close, make_problem
from gpytorch.means import ConstantMean

from botorch_sparse.optim import ExactCandidatePool

TOLERANCE = {
    torch.float64: {"rtol": 1e-8, "atol": 1e-8},
    torch.float32: {"rtol": 2e-3, "atol": 2e-3},
}


def check(
    pool: ExactCandidatePool, dense: DenseExact, data: list[tuple[int, float, float]]
) -> None:
    rows, Y, noise = zip(*data, strict=True)
    mean, variance = dense.mean_variance(rows, Y, noise)
    tolerance = TOLERANCE[pool.X.dtype]
    assert_close(pool.mean, mean, **tolerance)
    assert_close(pool.variance, variance, **tolerance)


@pytest.mark.parametrize("seed", range(25))
def test_rebuild_and_append(seed: int, tkwargs: dict[str, Any]) -> None:
    """Runs, repeats that come back later, and rebuilds in between."""
    problem = make_problem(seed, lam=0.1)
    dense, g = DenseExact(problem.kernel, problem.X), np.random.default_rng(seed)
    pool = problem.exact_pool(**tkwargs)
    columns = (problem.row, problem.Y, problem.noise)
    data = list(zip(*(c.tolist() for c in columns), strict=True))
    check(pool, dense, data)
    for _ in range(12):
        index = int(g.integers(0, min(8, len(problem.X))))
        for _ in range(int(g.integers(1, 5))):
            y = float(g.standard_normal())
            pool.append(index, y)
            data.append((index, y, problem.lam))
        check(pool, dense, data)
    rows, Y, noise = zip(*data, strict=True)
    values = torch.tensor([Y, noise], dtype=torch.float64).to(pool.X)
    pool.rebuild(pool.X[list(rows)], *values)
    check(pool, dense, data)
    pool.append(0, 1.0)
    check(pool, dense, [*data, (0, 1.0, problem.lam)])


def test_a_run_is_one_row(double: dict[str, Any]) -> None:
    pool = make_problem(0).exact_pool(**double)
    n = pool.num_rows
    for index, rows in [(3, 1), (3, 1), (3, 1), (5, 2), (3, 3), (3, 3)]:
        pool.append(index, 0.5)
        assert pool.num_rows == n + rows


def test_buffer_growth(double: dict[str, Any]) -> None:
    """Hundreds of rows: the buffer doubles and keeps what is in it."""
    problem = make_problem(3, num_candidates=90, lam=0.3)
    dense, g = DenseExact(problem.kernel, problem.X), np.random.default_rng(0)
    pool = ExactCandidatePool(
        problem.X.to(**double), problem.make_kernel(**double), problem.lam
    )
    data = []
    for step in range(300):
        data.append((step % 90, float(g.standard_normal()), problem.lam))
        pool.append(*data[-1][:2])
        if step in (0, 15, 16, 17, 31, 32, 33, 64, 299):
            check(pool, dense, data)
    assert pool.num_rows == 300


@pytest.mark.parametrize("seed", range(10))
def test_pending_points(seed: int, tkwargs: dict[str, Any]) -> None:
    """The variance with points pending; the pool stands still under a batch."""
    problem = make_problem(40 + seed, lam=0.1)
    dense, g = DenseExact(problem.kernel, problem.X), np.random.default_rng(seed)
    pool = problem.exact_pool(**tkwargs)
    for index in (1, 1, 2):  # an open run
        pool.append(index, 0.3)
    rows = [*problem.row.tolist(), 1, 1, 2]
    noise = [*problem.noise.tolist(), *[problem.lam] * 3]
    state = (pool.mean.clone(), pool.variance.clone(), pool.num_rows)
    tolerance = TOLERANCE[tkwargs["dtype"]]
    ucb = pool.ucb(1.5, problem.lam)
    for step in range(40):
        _, variance = dense.mean_variance(rows, [0.0] * len(rows), noise)
        bounds = state[0].cpu().double().numpy() + 1.5 * np.sqrt(variance)
        assert_close(ucb.values(), bounds, **tolerance)
        index = ucb.argmax()
        assert bounds[index] >= bounds.max() - tolerance["atol"]
        index = 2 if step == 0 else int(g.integers(0, 5)) if step % 3 == 0 else index
        assert float(ucb.append(index)) == pytest.approx(
            variance[index], rel=tolerance["rtol"], abs=tolerance["atol"]
        )
        rows.append(index)
        noise.append(problem.lam)
    assert torch.equal(pool.mean, state[0]) and torch.equal(pool.variance, state[1])
    assert pool.num_rows == state[2]
    twin = problem.exact_pool(**tkwargs)
    for index in (1, 1, 2):
        twin.append(index, 0.3)
    for other in (2, 2, 4, 1):  # goes on as if there had been no batch
        pool.append(other, -0.7)
        twin.append(other, -0.7)
    assert torch.equal(pool.mean, twin.mean)
    assert torch.equal(pool.variance, twin.variance)


def test_bounds_never_rise_and_ties(double: dict[str, Any]) -> None:
    X = torch.tensor([[0.0], [1e6], [2e6]], **double)  # uncorrelated
    kernel = make_problem(0, kernel="matern12").make_kernel(**double)
    ucb = ExactCandidatePool(X, kernel, 0.5).ucb(1.0, 0.5)
    chosen, values = [], ucb.values()
    for _ in range(6):
        chosen.append(ucb.argmax())
        ucb.append(chosen[-1])
        assert (ucb.values() <= values).all()
        values = ucb.values()
    assert chosen == [0, 1, 2, 0, 1, 2]


def test_information_gain_and_prior_mean(double: dict[str, Any]) -> None:
    problem = make_problem(9, lam=0.2)
    dense = DenseExact(problem.kernel, problem.X)
    X, row = problem.X.to(**double), problem.row
    mean_module = ConstantMean().to(**double)
    mean_module.initialize(constant=2.0)
    pool = ExactCandidatePool(
        X, problem.make_kernel(**double), problem.lam, mean_module=mean_module
    )
    assert_close(pool.mean, np.full(len(X), 2.0))
    pool.rebuild(X[row], problem.Y.to(**double), problem.noise.to(**double))
    K = dense.K[np.ix_(row.tolist(), row.tolist())] / problem.noise.numpy()[:, None]
    gain = np.linalg.slogdet(np.eye(len(row)) + K)[1]
    assert pool.information_gain == pytest.approx(gain, rel=1e-10)
    mean, _ = dense.mean_variance(
        row.tolist(), problem.Y.numpy() - 2.0, problem.noise.tolist()
    )
    assert_close(pool.mean, mean + 2.0, rtol=1e-9, atol=1e-9)


def test_float64_inputs_stay_on_device(double: dict[str, Any]) -> None:
    pool = make_problem(1).exact_pool(**double)
    pool.append(0, 1.0)
    ucb = pool.ucb(1.0, 0.1)
    for tensor in (pool.mean, pool.variance, ucb.values(), ucb.append(0)):
        assert tensor.dtype == torch.float64
        assert tensor.device.type == pool.X.device.type
