"""A constant prior mean by generalized least squares, against dense NumPy."""

from typing import Any

import numpy as np
import oracles
import pytest
import torch
from batch_oracles import (
    Array,
    Problem,
    assert_close,
    fewer,
    make_problem,
    sparse_problem,
)
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean
from torch import Tensor

from botorch_sparse.pools import ExactPool
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import (
    condition_with_constant_mean,
    posterior_of_chosen,
)

TOLERANCE = {
    torch.float64: {"rtol": 1e-8, "atol": 1e-8},
    torch.float32: {"rtol": 2e-3, "atol": 2e-3},
}


def dense_moments(
    problem: Problem, rows: Any, Y: Array, noise: Array, S: Tensor | None
) -> tuple[float, Array, Array]:
    """The constant, and mean and variance of all candidates.

    With inducing points `S` the covariance of the data is `Q + D`, else `K + D`.
    """
    k, X = oracles.DENSE[problem.kernel], problem.X
    q = k if S is None else oracles.nystrom_kernel(k, S)
    data, one = X[torch.as_tensor(np.asarray(rows))], np.ones(len(Y))
    inverse = np.linalg.inv(q(data, data).numpy() + np.diag(noise))
    c = float(one @ inverse @ Y / (one @ inverse @ one))
    cross = q(X, data).numpy()
    variance = k(X, X).numpy().diagonal() - (cross @ inverse * cross).sum(-1)
    return c, c + cross @ inverse @ (Y - c), variance


def conditioned(problem: Problem, **tkwargs: Any) -> NystromPosterior:
    """The posterior with a constant; the prior's own mean has no part in it."""
    mean_module = ConstantMean().to(**tkwargs)
    mean_module.initialize(constant=7.0)
    S = problem.X[problem.inducing].to(**tkwargs)
    kernel = problem.make_kernel(**tkwargs)
    prior = NystromPosterior.prior(kernel, S, mean_module=mean_module, chunk_size=4)
    data = (t.to(**tkwargs) for t in problem.data)
    return condition_with_constant_mean(prior, *data)


def check(problem: Problem, posterior: NystromPosterior) -> None:
    X = problem.X.to(posterior.inducing_points)
    tolerance = TOLERANCE[X.dtype]
    c, mean, variance = dense_moments(
        problem,
        problem.row,
        problem.Y.numpy(),
        problem.noise.numpy(),
        problem.X[problem.inducing],
    )
    moments = posterior.moments(X)
    assert_close(posterior.mean_module(X[:1]), np.full(1, c), **tolerance)
    assert_close(moments.mean, mean, **tolerance)
    assert_close(moments.variance, variance, **tolerance)


@pytest.mark.parametrize("is_sparse", [False, True], ids=["any", "fewer"])
def test_nystrom(is_sparse, tkwargs):
    """Points evaluated once or more often, all of them inducing or only some."""
    make = sparse_problem if is_sparse else make_problem
    single = tkwargs["dtype"] == torch.float32
    for seed in fewer(range(15), tkwargs, 2):
        problem = make(seed, lam=0.1 if single else None)
        assert is_sparse <= (len(problem.inducing) < len(problem.row))
        check(problem, conditioned(problem, **tkwargs))


def test_one_point(double):
    """The constant is that observation, and so is the mean everywhere."""
    problem = make_problem(3, lam=0.3)
    for name in ("row", "count", "Y", "inducing"):
        setattr(problem, name, getattr(problem, name)[:1])
    problem.inducing = problem.row
    posterior = conditioned(problem, **double)
    check(problem, posterior)
    mean = posterior.mean(problem.X.to(**double))
    assert_close(mean, np.full(len(mean), float(problem.Y)), rtol=1e-12)


def test_an_offset_moves_the_constant_alone(double):
    problem = sparse_problem(5)
    plain = conditioned(problem, **double)
    problem.Y = problem.Y + 1024.0
    moved = conditioned(problem, **double)
    # an ulp of 1024, times a bound on the condition number of Q + D
    condition = 1 + oracles.OUTPUTSCALE * len(problem.row) / float(problem.noise.min())
    eps = 1024 * torch.finfo(torch.float64).eps * condition
    assert eps < 1e-7
    X = problem.X.to(**double)
    assert_close(moved.mean(X) - 1024.0, plain.mean(X), atol=eps)
    assert_close(moved.weights, plain.weights, atol=eps)


def test_repeats_are_folded_or_not(double):
    """Each evaluation by itself leads to what their means lead to."""
    problem = sparse_problem(8, lam=0.2)
    folded = conditioned(problem, **double)
    count = problem.count.long()
    spread = [torch.linspace(-1, 1, int(c)).double() for c in count]
    problem.Y = problem.Y.repeat_interleave(count) + torch.cat(
        [s - s.mean() for s in spread]
    )
    problem.row = problem.row.repeat_interleave(count)
    problem.count = torch.ones(len(problem.row), dtype=torch.float64)
    assert len(problem.row) > len(count)
    unfolded = conditioned(problem, **double)
    X = problem.X.to(**double)
    assert_close(unfolded.mean(X), folded.mean(X).cpu().numpy(), atol=1e-9)


def test_the_way_of_an_accelerator_is_the_same(double):
    for seed in fewer(range(6), double):
        problem = sparse_problem(seed)
        X, Y, noise = (t.to(**double) for t in problem.data)
        chosen = torch.arange(len(problem.inducing), device=X.device)
        kernel = problem.make_kernel(**double)
        k_diag = kernel(X[chosen], diag=True)
        problem.inducing = problem.row[: len(chosen)]
        posterior = posterior_of_chosen(
            kernel, X, Y, noise, chosen, k_diag, chunk_size=1000
        )
        check(problem, posterior)


def test_a_kernel_that_explains_constants_leaves_finite_numbers():
    """The denominator is lost in rounding; its least value is that of the rounding."""
    kernel = ScaleKernel(RBFKernel()).double().requires_grad_(False)
    kernel.outputscale, kernel.base_kernel.lengthscale = 1e12, 1e3
    X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0)).double()
    Y, noise = X[:, 0].sin(), torch.full((30,), 1e-6).double()
    posterior = condition_with_constant_mean(
        NystromPosterior.prior(kernel, X), X, Y, noise
    )
    mean = posterior.mean(X)
    assert bool(mean.isfinite().all()) and float((mean - Y).abs().max()) < 1.0


def exact_pool(problem: Problem, **tkwargs: Any) -> ExactPool:
    kernel = problem.make_kernel(**tkwargs)
    X = problem.X.to(**tkwargs)
    return ExactPool(X, kernel, problem.lam, has_constant=True)


def check_pool(pool: ExactPool, problem: Problem, data: list[Any]) -> None:
    rows, Y, noise = zip(*data, strict=True)
    _, mean, variance = dense_moments(
        problem, rows, np.asarray(Y), np.asarray(noise), None
    )
    tolerance = TOLERANCE[pool.X.dtype]
    assert_close(pool.mean, mean, **tolerance)
    assert_close(pool.variance, variance, **tolerance)


def test_exact_pool(tkwargs):
    """From nothing: single evaluations, runs, repeats that come back, rebuilds."""
    for seed in fewer(range(8), tkwargs, 2):
        problem, g = make_problem(seed, lam=0.1), np.random.default_rng(seed)
        pool, data = exact_pool(problem, **tkwargs), list[Any]()
        assert not pool.mean.any()
        for step in range(12):
            index = int(g.integers(0, min(8, len(problem.X))))
            for _ in range(int(g.integers(1, 4))):
                y = 3.0 + float(g.standard_normal())
                pool.extend([index], [y])
                data.append((index, y, problem.lam))
                check_pool(pool, problem, data)
            if step == 6:
                rows, Y, noise = zip(*data, strict=True)
                values = torch.tensor([Y, noise], dtype=torch.float64).to(pool.X)
                pool.rebuild(pool.X[list(rows)], *values)
                check_pool(pool, problem, data)


@pytest.mark.parametrize("later", [[(2, 3.5), (0, 2.5)], [(0, 2.5), (2, 3.5)]])
def test_an_exact_pool_stays_where_another_goes_on(later, double):
    """Also in the middle of a run, whose row the other one writes anew."""
    pool = exact_pool(make_problem(2, lam=0.1), **double)
    twin = exact_pool(make_problem(2, lam=0.1), **double)
    for p in (pool, twin):
        for index, y in [(1, 5.0), (2, 3.0), (2, 4.0)]:
            p.extend([index], [y])
    other = pool.fork()
    for index, y in [(2, 1e3), (0, -1e3)]:
        other.extend([index], [y])
    for p in (pool, twin):
        for index, y in later:
            p.extend([index], [y])
    assert torch.equal(pool.mean, twin.mean)
    assert torch.equal(pool.variance, twin.variance)


def test_exact_pool_without_a_constant_shrinks_to_the_prior_mean(double):
    """What the constant changes: far from all data the mean is that, and not zero."""
    problem = make_problem(0, kernel="matern32", lam=0.1)
    far = torch.full_like(problem.X[:1], 1e6)
    problem.X = torch.cat([problem.X, far])
    pool = exact_pool(problem, **double)
    plain = problem.exact_pool(**double)
    plain.reset()
    for p in (pool, plain):
        for index in (0, 1, 1, 2):
            p.extend([index], [5.0])
    assert float(plain.mean[-1]) == 0.0
    assert float(pool.mean[-1]) == pytest.approx(5.0, rel=1e-12)
