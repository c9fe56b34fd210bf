"""Variances under growing data and inducing points against the dense posterior."""

from typing import Any

import oracles
import pytest
import torch
from device_cases import on_the_host, sweep
from torch import Tensor

from botorch_sparse.posteriors.incremental_variance import IncrementalVariance

KERNELS = ["rbf", "matern52", "matern12", "scaled", "linear"]
LAM = 1e-2


def rows(num: int = 60, **tkwargs: Any) -> Tensor:
    g = torch.Generator().manual_seed(3)
    return torch.rand(num, 2, generator=g, dtype=torch.float64).to(**tkwargs)


def dense(kernel: str, growing: IncrementalVariance) -> oracles.Dense:
    """The posterior from `n x n` matrices."""
    X = growing.X.cpu()
    data = growing.counts.cpu().nonzero().squeeze(-1)
    d = LAM / growing.counts.cpu()[data]
    zero = torch.zeros_like(d)
    S = X[growing.inducing]
    return oracles.dtc(oracles.DENSE[kernel], X[data], zero, d, S, X)


def grow(kernel: str, steps: int, seed: int = 0, **tkwargs: Any) -> IncrementalVariance:
    """Data and inducing points in random order, repeats of both among them."""
    X = rows(**tkwargs)
    growing = IncrementalVariance(oracles.make_kernel(kernel, **tkwargs), X, LAM)
    g = torch.Generator().manual_seed(seed)
    for step in range(steps):
        row = int(torch.randint(len(X), (1,), generator=g))
        growing.observe(row)
        if step % 2:
            growing.add_inducing(row)
        if step % 7 == 0:
            growing.observe(row)
    return growing


@sweep("kernel", KERNELS, ["matern52"])
def test_against_the_dense_posterior(kernel, double):
    for steps in (1, 2, 9, 40):
        growing = grow(kernel, steps, **double)
        expected = dense(kernel, growing).variance
        torch.testing.assert_close(
            growing.variance.cpu(), expected, rtol=1e-6, atol=1e-9
        )
        assert len(set(growing.inducing)) == growing.num_inducing
        assert (growing.residual[growing.inducing] == 0).all()


def test_the_parts_are_what_they_say(double):
    growing = grow("matern52", 30, **double)
    posterior = growing.posterior()
    phi = posterior.features(growing.X)
    torch.testing.assert_close(phi.mT, growing.features, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(
        posterior.residual(growing.X, phi), growing.residual, rtol=1e-7, atol=1e-11
    )
    torch.testing.assert_close(
        posterior.variance(growing.X), growing.variance, rtol=1e-7, atol=1e-11
    )
    assert posterior.weights.eq(0).all()


def test_linear_kernel_has_few_inducing_points(double):
    growing = grow("linear", 40, **double)
    assert growing.num_inducing == 2
    before = growing.variance
    free = next(r for r in range(60) if r not in growing.inducing)
    assert not growing.add_inducing(free) and growing.num_inducing == 2
    torch.testing.assert_close(growing.variance, before, rtol=0, atol=1e-12)


def test_set_inducing_is_the_same_posterior(double):
    growing = grow("matern52", 30, **double)
    other = IncrementalVariance(growing.covar_module, growing.X, LAM)
    other.counts += growing.counts
    order = torch.tensor(growing.inducing[::-1], device=growing.X.device)
    other.set_inducing(order)
    torch.testing.assert_close(other.variance, growing.variance, rtol=1e-8, atol=1e-11)
    for posterior in (growing, other):  # and both go on alike
        posterior.observe(5)
        posterior.add_inducing(7)
        posterior.observe(7)
    torch.testing.assert_close(other.variance, growing.variance, rtol=1e-8, atol=1e-11)


def test_rows_that_come_later(double):
    growing = grow("matern32", 20, **double)
    new = rows(5, **double) + 0.3
    growing.add_rows(new)
    growing.observe(62)
    growing.add_inducing(62)
    growing.observe(3)
    torch.testing.assert_close(
        growing.variance.cpu(),
        dense("matern32", growing).variance,
        rtol=1e-6,
        atol=1e-9,
    )
    prior = IncrementalVariance(growing.covar_module, growing.X[:3], LAM)
    prior.add_rows(new)
    assert prior.variance.shape == (8,) and prior.num_inducing == 0


@on_the_host
def test_small_noise_and_many_repeats_stay_sound(double):
    """The variance of one point seen 3000 times is lam / 3000, to many digits."""
    X = rows(20, **double)
    growing = IncrementalVariance(oracles.make_kernel("rbf", **double), X, 1e-8)
    assert growing.add_inducing(4)
    for _ in range(3000):
        growing.observe(4)
    assert float(growing.variance[4]) == pytest.approx(1e-8 / 3000, rel=1e-3)
    assert bool((growing.variance >= 0).all())


@on_the_host
def test_rounding_does_not_add_up(double):
    r"""One inducing point `z`: :math:`e(x) = k(x, z)^2 / (1 + \sum_s k(x_s, z)^2 / d)`.

    With the noise 1e-10 of the signal, what rounding leaves of the first subtraction
    is 1e-3 of that after 2000 observations, and stays if nothing is renewed.
    """
    X, lam = rows(20, **double), 1e-10
    growing = IncrementalVariance(oracles.make_kernel("matern12", **double), X, lam)
    assert growing.add_inducing(4)
    for step in range(2000):
        growing.observe(step % 20)
    k = oracles.DENSE["matern12"](X, X[4:5]).squeeze(-1)
    expected = k.square() / (1 + growing.counts @ k.square() / lam)
    torch.testing.assert_close(growing.embedded, expected, rtol=1e-9, atol=0.0)


@on_the_host
@pytest.mark.parametrize("lam", [1e-2, 1e-6, 1e-9])
def test_small_noise_and_more_inducing_points_than_data(lam, double):
    r"""`e` is `phi' (R' R)^-1 phi` with the QR factor of `[I; D^-1/2 Phi']`.

    Its condition number is at most :math:`(n / \lambda)^{1/2}`, here 5e5, and squared,
    times `m` rounding units, 1e-2: the most that updates of the inverse may lose.
    """
    X = rows(300, **double)
    growing = IncrementalVariance(oracles.make_kernel("matern52", **double), X, lam)
    for step in range(250):
        growing.add_inducing((7 * step) % 300)
        worst = int(growing.variance.argmax())
        growing.observe(worst if step % 2 else (74 * step) % 300)
        if step % 10 == 9:
            phi = growing.features
            data = (growing.counts / lam).sqrt().unsqueeze(-1) * phi.mT
            R = torch.linalg.qr(torch.cat([torch.eye(len(phi), **double), data])).R
            w = torch.linalg.solve_triangular(R.mT, phi, upper=False)
            expected = growing.residual + w.square().sum(0)
            torch.testing.assert_close(growing.variance, expected, rtol=1e-2, atol=0)


@on_the_host
@pytest.mark.parametrize("lam, solves", [(1e-2, 0), (1e-6, 0), (1e-11, 4), (1e-14, 40)])
def test_the_smaller_the_noise_the_more_solves(lam, solves, monkeypatch, double):
    """One after `j` updates where `j m eps`, with `m = 5`, is a thousandth of `lam`."""
    kernel = oracles.make_kernel("matern52", **double)
    growing = IncrementalVariance(kernel, rows(**double), lam)
    for row in range(5):
        growing.add_inducing(row)
    plain, calls = torch.linalg.cholesky_ex, []

    def spy(matrix: Tensor) -> Any:
        calls.append(len(matrix))
        return plain(matrix)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", spy)
    for row in range(40):
        growing.observe(row)
    assert len(calls) == solves


@on_the_host
def test_what_has_no_factor_goes_on(double):
    """Noise below the rounding of the signal: variances stay what they can be."""
    X = rows(20, **double)
    growing = IncrementalVariance(oracles.make_kernel("rbf", **double), X, 1e-40)
    for step in range(200):
        growing.observe(step % 20)
        growing.add_inducing(step % 20)
    assert growing.variance.isfinite().all()
    assert growing.variance.max() < 1e-6


def test_no_square_matrix_and_no_kernel_call_for_data(monkeypatch, double):
    """A data point costs products with what is there; an inducing point one column."""
    growing = grow("matern52", 10, **double)
    kernel, calls = growing.covar_module, []
    forward = kernel.forward

    def spy(x1: Tensor, x2: Tensor, **kwargs: Any) -> Tensor:
        calls.append((x1.shape[-2], x2.shape[-2]))
        return forward(x1, x2, **kwargs)

    monkeypatch.setattr(kernel, "forward", spy)
    growing.observe(1)
    assert calls == []
    free = next(r for r in range(60) if r not in growing.inducing)
    growing.add_inducing(free)
    assert calls == [(1, 60)]
