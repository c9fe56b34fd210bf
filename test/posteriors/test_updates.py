"""Rank-q and variance-only updates against rebuilding from scratch."""

from itertools import product
from typing import Any

import oracles
import torch
from device_cases import sweep
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior

KERNELS = ["rbf", "matern32", "linear", "sum", "product"]


def data(n: int, lam: float, seed: int = 0, **tkwargs: Any) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    Y = X.cos().sum(-1) + lam**0.5 * torch.randn(n, generator=g, dtype=torch.float64)
    noise = lam * (0.5 + torch.rand(n, generator=g, dtype=torch.float64))
    Z = torch.rand(11, 2, generator=g, dtype=torch.float64)
    return [t.to(**tkwargs) for t in (X, Y, noise, Z)]


def from_data(kernel: Kernel, *data: Tensor) -> NystromPosterior:
    """With a prior mean of 0.3, which each update has to subtract."""
    mean = ConstantMean().to(data[0]).requires_grad_(False)
    mean.initialize(constant=0.3)
    return NystromPosterior.from_data(kernel, *data, mean_module=mean)


def assert_same(
    actual: NystromPosterior, expected: NystromPosterior, Z: Tensor
) -> None:
    tolerance = {"rtol": 1e-6, "atol": 1e-8}
    a, b = actual.moments(Z), expected.moments(Z)
    torch.testing.assert_close(a.mean, b.mean, **tolerance)
    torch.testing.assert_close(a.variance, b.variance, **tolerance)


@sweep("name, q", product(KERNELS, [0, 1, 5, 39]), [("matern32", 5), ("linear", 1)])
def test_condition_is_from_data_with_all(name, q, double):
    X, Y, noise, Z = data(40, 1e-2, **double)
    kernel, n = oracles.make_kernel(name, **double), 40 - q
    whole = from_data(kernel, X, Y, noise, X[:10])
    part = from_data(kernel, X[:n], Y[:n], noise[:n], X[:10])
    assert_same(part.condition(X[n:], Y[n:], noise[n:]), whole, Z)
    one_by_one = part
    for i in range(n, 40):
        row = slice(i, i + 1)
        one_by_one = one_by_one.condition(X[row], Y[row], noise[row])
    assert_same(one_by_one, whole, Z)


def test_condition_leaves_the_original_alone(double):
    X, Y, noise, Z = data(20, 1e-2, **double)
    kernel = oracles.make_kernel("rbf", **double)
    posterior = from_data(kernel, X, Y, noise, X[:5])
    before = posterior.moments(Z)
    posterior.condition(X, Y, noise)
    posterior.hallucinate(X[:3], noise[:3])
    assert torch.equal(posterior.moments(Z).mean, before.mean)
    assert torch.equal(posterior.moments(Z).variance, before.variance)


@sweep("name", KERNELS, ["matern32", "linear"])
def test_representer_weights_after_fantasies(name, double):
    X, Y, noise, Z = data(40, 1e-2, **double)
    kernel = oracles.make_kernel(name, **double)
    posterior = from_data(kernel, X[:30], Y[:30], noise[:30], X[:8])
    new = (t[30:].unflatten(0, (5, 2)) for t in (X, Y, noise))
    fantasies = posterior.condition(*new)
    assert bool(fantasies.updates) == (posterior.num_inducing > 2)
    weights = fantasies.representer_weights().unsqueeze(-1)
    means = fantasies.covariance_with_inducing(Z).mT @ weights
    for i, mean in enumerate(means.squeeze(-1)):
        rows = torch.tensor([*range(30), 30 + 2 * i, 31 + 2 * i])
        each = (t[rows.to(t.device)] for t in (X, Y, noise))
        whole = from_data(kernel, *each, X[:8])
        torch.testing.assert_close(mean, whole.mean(Z) - 0.3, rtol=1e-6, atol=1e-8)
    # Two fantasies one after the other are one of both.
    one = [t[30:32] for t in (X, Y, noise)], [t[32:34] for t in (X, Y, noise)]
    first, second = ([t.unsqueeze(0) for t in each] for each in one)
    twice = posterior.condition(*first).condition(*second)
    whole = from_data(kernel, X[:34], Y[:34], noise[:34], X[:8])
    for each in (twice, twice.absorbed()):
        moments, expected = each.moments(Z), whole.moments(Z)
        for got, value in zip(moments, expected, strict=True):
            torch.testing.assert_close(got[0], value, rtol=1e-6, atol=1e-8)


@sweep("name", oracles.KERNELS, ["matern52"])
def test_hallucinated_variance(name, double):
    """The variance of a posterior whose data include the pending points."""
    X, Y, noise, Z = data(30, 1e-2, **double)
    pending, pending_noise = torch.cat([Z[:4], Z[:1], X[:1]]), noise[:6]
    kernel = oracles.make_kernel(name, **double)
    posterior = from_data(kernel, X, Y, noise, X[:7])
    update = posterior.hallucinate(pending, pending_noise)
    actual = posterior.hallucinated_variance(Z, update)
    X, d, P, S, T = oracles.to_cpu(
        X, torch.cat([noise, pending_noise]), pending, X[:7], Z
    )
    expected = oracles.dtc(
        oracles.DENSE[name], torch.cat([X, P]), torch.zeros(36).double(), d, S, T
    )
    torch.testing.assert_close(
        actual.cpu(), expected.variance, rtol=1e-6, atol=1e-8, check_dtype=True
    )
    # Means are frozen: nothing but the variance depends on the pending points.
    none = posterior.hallucinate(pending[:0], pending_noise[:0])
    torch.testing.assert_close(
        posterior.hallucinated_variance(Z, none), posterior.variance(Z)
    )


def test_hallucinate_far_beyond_the_number_of_features(tkwargs):
    """More pending points than inducing points, most of them the same."""
    X, Y, noise, Z = data(30, 1e-1, **tkwargs)
    kernel = oracles.make_kernel("matern52", **tkwargs)
    posterior = from_data(kernel, X, Y, noise, X[:5])
    pending = torch.cat([Z[:1].expand(60, -1), Z])
    pending_noise = torch.full((71,), 0.1, **tkwargs)
    update = posterior.hallucinate(pending, pending_noise)
    rebuilt = posterior.condition(
        pending, torch.zeros_like(pending_noise), pending_noise
    )
    tolerance = 1e-9 if tkwargs["dtype"] == torch.float64 else 1e-4
    torch.testing.assert_close(
        posterior.hallucinated_variance(Z, update),
        rebuilt.variance(Z),
        rtol=tolerance,
        atol=tolerance * 0.1,
    )
