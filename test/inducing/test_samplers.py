"""What every sampler without a previous posterior owes: contract, cost, guarantee."""

import math
from collections.abc import Callable
from typing import Any

import oracles
import pytest
import torch
from device_cases import on_the_host
from sampler_cases import (
    abalone,
    clustered,
    draw,
    effective_dimension,
    is_accurate,
    largest_gap,
    rbf,
)
from torch import Tensor

from botorch_sparse.inducing import (
    BLESSSampler,
    CertifiedSampler,
    InducingPointSampler,
    RecursiveRLSSampler,
)
from botorch_sparse.inducing.certificate import BLOCK_ROWS
from botorch_sparse.inducing.sampler import CHUNK_SIZE

SAMPLERS = [RecursiveRLSSampler, BLESSSampler, CertifiedSampler]
DELTA = 0.05
every_sampler = pytest.mark.parametrize("make", SAMPLERS)
weighted_sampler = pytest.mark.parametrize("make", SAMPLERS[:2])
Make = Callable[..., Any]


@every_sampler
@pytest.mark.parametrize("n", [0, 1, 7, 40, 700])
def test_sorted_unique_indices(make, n, tkwargs):
    X = clustered(max(n, 1), **tkwargs)[:n]
    sampler = make()
    assert isinstance(sampler, InducingPointSampler)
    index = draw(sampler, X, torch.full((n,), 0.1, **tkwargs), seed=0)
    assert index.dtype == torch.int64 and index.device == X.device
    assert torch.equal(index, index.unique())
    assert len(index) >= min(n, 1) and (index < n).all()


@every_sampler
@pytest.mark.filterwarnings("ignore:A not p.d.")  # points of probability zero
def test_zero_kernel(make, double):
    X = torch.zeros(20, 2, **double)
    kernel = oracles.make_kernel("linear", **double)
    noise = torch.ones(20, **double)
    assert len(make()(kernel, X, noise, generator=torch.Generator())) >= 1


@on_the_host
@every_sampler
@pytest.mark.parametrize("cap", [1, 20, 60])
def test_max_inducing_points(make, cap, double):
    X = clustered(600, **double)
    noise = torch.full((600,), 1e-4, **double)
    assert len(draw(make(max_inducing_points=None), X, noise, 0)) > 80
    index = draw(make(max_inducing_points=cap), X, noise, 0)
    assert len(index) == cap
    assert torch.equal(index, index.unique())


def test_probabilities_of_one_level(double):
    r"""min(1, q 3/2 var / d log(sum / delta)) given a random half, of which all stay.

    Of 30 points half are fewer than the 21 that a level of delta / 3 takes whole, and
    more than the 8 of delta.
    """
    X, noise = clustered(30, **double), torch.linspace(1, 9, 30, **double)
    sampler = RecursiveRLSSampler(oversampling=1.0, delta=0.5)
    kernel, g = rbf(0.3, **double), torch.Generator().manual_seed(5)
    index, p = sampler.sample(kernel, X, noise, generator=g)
    g = torch.Generator().manual_seed(5)
    half = torch.rand(30, generator=g, dtype=torch.float64).to(X.device) < 0.5
    assert 8 < half.sum() <= 21
    K, S = kernel(X).to_dense(), half.nonzero().squeeze(-1)
    A = K[S][:, S] + noise[S].diag()
    variance = 1 - (K[:, S] * torch.linalg.solve(A, K[S]).mT).sum(-1)
    leverage = 1.5 * variance / noise
    expected = (leverage * (leverage.sum() / 0.5).log().clamp_min(1)).clamp_max(1)
    torch.testing.assert_close(p, expected[index])
    drawn = torch.rand(30, generator=g, dtype=torch.float64).to(X.device) < expected
    assert torch.equal(index, drawn.nonzero().squeeze(-1))


@on_the_host
@every_sampler
def test_heteroscedastic_noise(make, double):
    """Precise points have more leverage, and the guarantee is relative to the noise."""
    X = clustered(400, **double)
    noise = torch.full((400,), 1.0, **double)
    noise[::2] = 1e-3
    K = rbf(0.3, **double)(X).to_dense()
    for seed in range(5):
        index = draw(make(), X, noise, seed)
        assert (index % 2 == 0).sum() > 2 * (index % 2 == 1).sum()
        assert largest_gap(K, index, noise) <= 1.0


@every_sampler
def test_repeats_and_zero_prior_variance(make, double):
    X = torch.cat(
        [clustered(30, **double)[:, :2]] * 10 + [torch.zeros(50, 2, **double)]
    )
    noise = torch.full((350,), 1e-2, **double)
    index = make()(
        oracles.make_kernel("linear", **double),
        X,
        noise,
        generator=torch.Generator().manual_seed(0),
    )
    assert (index < 300).all()


@on_the_host
@every_sampler
def test_nothing_of_size_n_by_n(make, double):
    n = 5000
    X = clustered(n, **double)
    kernel = oracles.RecordingKernel().to(**double)
    index = make(max_inducing_points=100)(
        kernel, X, torch.full((n,), 0.1, **double), generator=torch.Generator()
    )
    assert len(index) <= 100
    largest = max(100 * CHUNK_SIZE, BLOCK_ROWS * 3000)  # the certificate's blocks
    assert max(shape.numel() for shape in kernel.shapes) <= largest
    assert not any(shape[-2:].count(n) == 2 for shape in kernel.shapes)


@pytest.mark.one_in(2)
@on_the_host
@weighted_sampler
def test_weights_are_inclusion_probabilities(make, double):
    """Sums over the sample, divided by `p_i`, have the sums over all as expectation.

    Means of 200 draws are normal to a good approximation: one of these three lies
    beyond 5 standard errors (measured from the draws) with probability 2e-6.
    """
    X, totals, largest = weighted_sums(make(), 200, **double)
    off = totals.mean(0) - summands(X).sum(0)
    assert (off.abs() <= 5 * totals.std(0) / math.sqrt(200)).all()
    assert largest > 2  # not all points are certain


@pytest.mark.one_in(2)
@on_the_host
@weighted_sampler
def test_weights_leave_out_what_a_cap_left_out(make, double):
    """The docstrings say so: all three sums are too small, by 5 standard errors."""
    X, totals, _ = weighted_sums(make(max_inducing_points=20), 200, **double)
    short = summands(X).sum(0) - totals.mean(0)
    assert (short > 5 * totals.std(0) / math.sqrt(200)).all()


def summands(X: Tensor) -> Tensor:
    """Of three sums over points: one, being beyond a plane, and a coordinate."""
    return torch.stack([X[:, 0] ** 0, (X[:, 1] > 0.4).to(X), X[:, 2].abs()], -1)


def weighted_sums(
    sampler: Any, repeats: int, **tkwargs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Points, the same sums estimated from draws (`repeats x 3`), the largest weight.

    A draw of no point, which is replaced, has a probability below exp(-20).
    """
    X = clustered(300, **tkwargs)
    noise, kernel = torch.full((300,), 0.3, **tkwargs), rbf(0.3, **tkwargs)
    generator = torch.Generator().manual_seed(1)
    totals, weights = [], []
    for _ in range(repeats):
        index, p = sampler.sample(kernel, X, noise, generator=generator)
        assert index.shape == p.shape and ((p > 0) & (p <= 1)).all()
        totals.append((summands(X[index]) / p.unsqueeze(-1)).sum(0))
        weights.append((1 / p).max())
    return X, torch.stack(totals), torch.stack(weights).max()


@on_the_host
def test_bless_estimates_leverage_scores(double):
    """`p / q-bar` is the score to a factor two; without the weights P it is three."""
    X, sampler = abalone(600).to(**double), BLESSSampler()
    kernel, noise = rbf(17.5, **double), torch.full((600,), 1e-2, **double)
    K = kernel(X).to_dense()
    exact = torch.linalg.solve(K + noise.diag(), K).diagonal()
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        index, p = sampler.sample(kernel, X, noise, generator=generator)
        index, p = index[p < 1], p[p < 1]
        ratio = p / sampler.oversampling / exact[index]
        assert 0.6 < ratio.median() < 2.0


def count_good(sampler: Any, X: Tensor, lengthscale: float, lam: float, n: int) -> int:
    """Draws with `lambda_max(K - Q) <= lam` and `m <= 3 d_eff log(d_eff / delta)`."""
    K = rbf(lengthscale, dtype=X.dtype)(X).to_dense()
    noise = torch.full((len(X),), lam, dtype=X.dtype)
    d_eff = effective_dimension(K, noise)
    bound = 3 * d_eff * math.log(d_eff / DELTA)
    draws = (draw(sampler, X, noise, seed, lengthscale) for seed in range(n))
    return sum(len(i) <= bound and is_accurate(K, i, noise) for i in draws)


@every_sampler
def test_guarantee_on_clusters(make):
    """Seeds are fixed; at a failure rate of 1 in 100, 2 of 10 fail with 4e-3."""
    sampler = make(max_inducing_points=None)
    X = clustered(600, dtype=torch.float64)
    assert count_good(sampler, X, 0.3, 1e-2, 10) >= 9


@every_sampler
def test_guarantee_on_part_of_abalone(make):
    """At a failure rate of 1 in 100, 2 of 10 fail with probability 4e-3."""
    sampler = make(max_inducing_points=None)
    assert count_good(sampler, abalone(500), 17.5, 1e-4, 10) >= 9


@pytest.mark.slow
@every_sampler
def test_guarantee_on_abalone(make):
    """At least 95 of 100 draws; n = 4177."""
    sampler = make(max_inducing_points=None)
    assert count_good(sampler, abalone(), 17.5, 1e-4, 100) >= 95
