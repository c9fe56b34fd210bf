"""Radii around radii: guesses of the norm that double, and random factors."""

import math
from dataclasses import replace
from typing import Any

import oracles
import pytest
import torch

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    ChowdhuryGopalanRadius,
    ConfidenceRadius,
    FixedBeta,
    GuessAndDouble,
    RadiusStatistics,
    RandomizedRadius,
    SBPEContinuousRadius,
    ShiftedExponentialRadius,
    posterior_mean_norm,
)
from botorch_sparse.posteriors import NystromPosterior

COMMON: dict[str, Any] = {"norm_bound": 1.5, "noise_variance": 0.09, "delta": 0.05}
STATISTICS = RadiusStatistics(
    lam=0.25, num_evaluations=7, log_det_sum=3.0, log_det_sum_inflated=5.0
)
# W = 0.3 / 0.5 sqrt(5 + 2 log 20)
W = 0.6 * math.sqrt(5 + 2 * math.log(20))


@pytest.mark.parametrize(
    ("excess", "bound"),
    [(-9.0, 1.5), (1.0, 1.5), (1.5, 1.5), (1.6, 3.0), (5.9, 6.0), (13.0, 24.0)],
)
def test_doubles_when_refuted(excess, bound):
    radius = GuessAndDouble(BBKBRadius(**COMMON))
    statistics = radius.update(STATISTICS, W + excess)
    assert radius.norm_bound(statistics) == bound
    known = BBKBRadius(**{**COMMON, "norm_bound": bound})
    for method in ("paper_value", "multiplier", "botorch_beta", "offset"):
        assert getattr(radius, method)(statistics) == pytest.approx(
            getattr(known, method)(statistics)
        )


def test_never_forgets():
    radius = GuessAndDouble(BBKBRadius(**COMMON))
    high = radius.update(STATISTICS, W + 4.0)
    assert high.norm_lower_bound == pytest.approx(4.0)
    assert radius.update(high, 0.0) == high
    grown = high.add_batch(torch.tensor([1.0]))
    assert radius.norm_bound(grown) == 6.0


def test_approximation_weakens_the_evidence():
    radius = GuessAndDouble(BBKBRadius(**COMMON))
    rough = replace(STATISTICS, lambda_max=2.0)
    statistics = radius.update(rough, W + 3.0)
    assert statistics.norm_lower_bound == pytest.approx(3.0 / math.sqrt(1.5))


def test_offset_and_constants_pass_through():
    inner = SBPEContinuousRadius(**COMMON, dim=2)
    radius = GuessAndDouble(inner)
    assert radius.constants == "theory"
    assert isinstance(radius, ConfidenceRadius)
    assert radius.offset(STATISTICS) == inner.offset(STATISTICS) > 0


def problem(seed: int) -> tuple[Any, ...]:
    """Data of a function of known norm: X, y, its norm, the noise variance."""
    generator = torch.Generator().manual_seed(seed)
    X, C = torch.rand(50, 2, generator=generator, dtype=torch.float64).split([30, 20])
    weights = 20 * torch.randn(20, generator=generator, dtype=torch.float64)
    dense = oracles.DENSE["rbf"]
    norm = float((weights @ dense(C, C) @ weights).sqrt())
    noise = torch.randn(30, generator=generator, dtype=torch.float64)
    return X, dense(X, C) @ weights + 0.3 * noise, norm, 0.09


@pytest.mark.parametrize("num_inducing", [5, 30])
@pytest.mark.parametrize("seed", range(5))
def test_evidence_is_no_more_than_the_norm(seed, num_inducing):
    """The norm of the mean against a dense form; the bound never passes the norm."""
    X, y, norm, noise = problem(seed)
    d, S = torch.full((30,), noise, dtype=X.dtype), X[:num_inducing]
    kernel = oracles.make_kernel("rbf", dtype=X.dtype)
    posterior = NystromPosterior.from_data(kernel, X, y, d, S)
    dense = oracles.DENSE["rbf"]
    # mean = k_S' c with c = K_SS^+ mean(S); its norm is sqrt(mean(S)' K_SS^+ mean(S))
    mean = oracles.dtc(dense, X, y, d, S, S, rtol=1e-10).mean
    dense_norm = (mean @ torch.linalg.pinv(dense(S, S), rtol=1e-10) @ mean).sqrt()
    mean_norm = posterior_mean_norm(posterior)
    assert mean_norm == pytest.approx(float(dense_norm), rel=1e-3)

    residual = dense(X, X) - oracles.nystrom_kernel(dense, S)(X, X)
    gain = float(torch.logdet(torch.eye(30, dtype=X.dtype) + dense(X, X) / noise))
    statistics = RadiusStatistics(
        lam=noise,
        num_evaluations=30,
        log_det_sum=gain,
        log_det_sum_inflated=gain,
        lambda_max=float(torch.linalg.eigvalsh(residual)[-1]) / noise,
    )
    guess = GuessAndDouble(ChowdhuryGopalanRadius(norm / 100, noise, 0.05))
    statistics = guess.update(statistics, mean_norm)
    assert statistics.norm_lower_bound <= norm
    assert guess.norm_bound(statistics) <= 2 * norm
    assert guess.norm_bound(statistics) > norm / 4


@pytest.mark.parametrize(
    ("distribution", "above_one"),
    [("exponential", math.exp(-1.6)), ("half-normal", 0.20190)],
)
def test_random_factor(distribution, above_one):
    """Mean s + m, and how often the draw passes 1 (s = 0.2, m = 0.5).

    For the half-normal: P(|N| > 0.8 / (0.5 sqrt(pi / 2))) = erfc(0.9027).
    """
    base = BBKBRadius(**COMMON)
    radius = RandomizedRadius(base, 3, distribution=distribution, shift=0.2)
    draws = torch.tensor(
        [radius.draw(replace(STATISTICS, num_evaluations=n)) for n in range(4000)]
    )
    # five standard errors: a false alarm in less than one of 10^6 seeds
    assert draws.mean() == pytest.approx(0.7, abs=5 * 0.5 / 4000**0.5)
    rate = float((draws > 1).double().mean())
    assert rate == pytest.approx(above_one, abs=5 * 0.5 / 4000**0.5)
    assert draws.min() >= 0.2
    following = torch.corrcoef(torch.stack([draws[1:], draws[:-1]]))[0, 1]
    assert following.abs() < 5 / 4000**0.5

    Z = radius.draw(STATISTICS)
    assert radius.multiplier(STATISTICS) == Z * base.multiplier(STATISTICS)
    assert radius.botorch_beta(STATISTICS) == radius.multiplier(STATISTICS) ** 2
    assert radius.paper_value(STATISTICS) == base.paper_value(STATISTICS)


def test_shifted_exponential():
    radius = ShiftedExponentialRadius(200, seed=1)
    shift = 2 * math.log(100)
    draws = torch.tensor(
        [
            radius.botorch_beta(replace(STATISTICS, num_evaluations=n)) - shift
            for n in range(4000)
        ]
    )
    assert draws.min() >= 0
    assert draws.mean() == pytest.approx(2.0, abs=5 * 2 / 4000**0.5)
    assert float((draws > 2).double().mean()) == pytest.approx(math.exp(-1), abs=0.04)
    assert ShiftedExponentialRadius(1).paper_value(STATISTICS) >= 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: RandomizedRadius(FixedBeta(1.0), seed),
        lambda seed: ShiftedExponentialRadius(50, seed),
    ],
    ids=["exploration", "shifted-exponential"],
)
def test_draws_resume(make):
    """A function of seed and evaluations; the representation tells seeds apart."""
    radius, again = make(5), make(5)
    other = replace(STATISTICS, num_evaluations=8)
    value = radius.multiplier(STATISTICS)
    assert radius.multiplier(STATISTICS) == value == again.multiplier(STATISTICS)
    assert radius.multiplier(replace(STATISTICS, log_det_sum=9.0)) == value
    assert radius.multiplier(other) != value != make(6).multiplier(STATISTICS)
    assert repr(radius) == repr(again) != repr(make(6))
    drawn = [make(torch.Generator().manual_seed(2)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    generator = torch.Generator().manual_seed(2)
    first, second = make(generator), make(generator)
    assert first == drawn[0] != second
    assert isinstance(first.seed, int)
