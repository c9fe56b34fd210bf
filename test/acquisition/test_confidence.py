"""Confidence radii against formulas worked out here, and against the oracles."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    BKBRadius,
    ConfidenceRadius,
    FixedBeta,
    RadiusStatistics,
)

ORACLES = Path(__file__).parents[1] / "data" / "bbkb_reference_cases.json"
CASES = json.loads(ORACLES.read_text())
COMMON = {"norm_bound": 1.5, "noise_variance": 0.09, "delta": 0.05}
STATISTICS = RadiusStatistics(
    lam=0.25,
    num_evaluations=7,
    ratio_threshold=2.0,
    log_det_sum=3.0,
    log_det_sum_inflated=5.0,
    leverage_sum=2.0,
)
RADII: list[ConfidenceRadius] = [
    *(
        BBKBRadius(**COMMON, constants=constants, inflation=inflation)
        for constants in ("practical", "theory")
        for inflation in ("default", "sqrt", "paper", None)
    ),
    BKBRadius(**COMMON),
    BKBRadius(**COMMON, constants="theory"),
]
# log(1/0.05) = log 20; sqrt(lam) F = 0.5 * 1.5; xi = 0.3
PRACTICAL = 0.75 + 0.3 * math.sqrt(2 * 3.0 + math.log(20))
THEORY = 0.6 * math.sqrt(5.0 + math.log(20)) + 2.414213562373095 * 0.75


@pytest.mark.parametrize(
    ("constants", "inflation", "expected"),
    [
        ("practical", "default", PRACTICAL),
        ("practical", None, PRACTICAL),
        ("practical", "sqrt", 1.4142135623730951 * PRACTICAL),
        ("theory", "default", 1.4142135623730951 * THEORY),
        ("theory", "sqrt", 1.4142135623730951 * THEORY),
        ("theory", "paper", 2 * THEORY),
        ("theory", None, THEORY),
    ],
)
def test_bbkb_by_hand(constants, inflation, expected):
    radius = BBKBRadius(**COMMON, constants=constants, inflation=inflation)
    assert radius.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-14)


def test_bkb_by_hand():
    practical = 0.75 + 0.3 * math.sqrt(math.log(7) * 2.0 + math.log(20))
    radius = BKBRadius(**COMMON)
    assert radius.paper_value(STATISTICS) == pytest.approx(practical, rel=1e-14)


@pytest.mark.parametrize(
    ("lam", "log"),
    [
        (4.0, math.log(14)),  # as printed: log(kappa^2 t)
        (1.0, math.log(14)),
        (1e-4, (1 + math.log(1 + 14 / 1e-4)) / 2),  # Eq. 6
    ],
)
def test_bkb_theory_by_hand(lam, log):
    radius = BKBRadius(**COMMON, constants="theory", kernel_bound=2.0, accuracy=0.6)
    width = 0.6 * math.sqrt(4 * log * 2.0 + math.log(20))  # alpha = 1.6 / 0.4
    expected = width + (1 + 1 / math.sqrt(0.4)) * math.sqrt(lam) * 1.5
    value = radius.paper_value(replace(STATISTICS, lam=lam))
    assert value == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"case{case['case']}")
def test_bkb_oracle(case):
    pulled = case["pulled_indices"]
    assert len(set(pulled)) < len(pulled)  # repeats count
    statistics = RadiusStatistics(
        lam=case["lam"],
        num_evaluations=len(pulled),
        ratio_threshold=case["ratio_threshold"],
        leverage_sum=sum(case["variances_over_lambda"][i] for i in pulled),
    )
    radius = BKBRadius(case["fnorm"], case["noise_variance"], case["delta"])
    expected = case["beta_bkb_practical"]
    assert radius.paper_value(statistics) == pytest.approx(expected, rel=1e-10)


def test_fixed_beta():
    radius = FixedBeta(3.0)
    assert radius.botorch_beta(STATISTICS) == 3.0
    assert radius.multiplier(STATISTICS) == pytest.approx(math.sqrt(3.0), rel=1e-15)
    assert radius.paper_value(STATISTICS) == pytest.approx(
        math.sqrt(3.0) / 2, rel=1e-15
    )


@pytest.mark.parametrize("radius", [*RADII, FixedBeta(3.0)], ids=repr)
def test_scales(radius):
    assert isinstance(radius, ConfidenceRadius)
    value = radius.paper_value(STATISTICS)
    assert type(value) is float
    assert radius.multiplier(STATISTICS) == pytest.approx(2 * value)  # 1 / sqrt(0.25)
    assert radius.botorch_beta(STATISTICS) == pytest.approx(4 * value**2)
    assert radius.offset(STATISTICS) == 0.0


@pytest.mark.parametrize("radius", RADII, ids=repr)
def test_before_any_evaluation(radius):
    """Only the bias and the confidence are left."""
    value = radius.paper_value(RadiusStatistics(lam=0.25))
    if radius.constants == "practical":
        expected = 0.75 + 0.3 * math.sqrt(math.log(20))
    else:
        expected = 0.75 * (1 + math.sqrt(2)) + 0.6 * math.sqrt(math.log(20))
    assert value == pytest.approx(expected, rel=1e-14)


def test_add_batch(tkwargs):
    start = RadiusStatistics(lam=0.5, ratio_threshold=2.0, leverage_sum=1.0)
    both = start.add_batch(torch.tensor([1.0, 0.25], **tkwargs))
    both = both.add_batch(torch.tensor([0.5], **tkwargs))
    assert both.num_evaluations == 3
    assert both.log_det_sum == pytest.approx(math.log(2 * 1.25 * 1.5), rel=1e-14)
    assert both.log_det_sum_inflated == pytest.approx(math.log(4 * 1.75 * 2.5))
    assert (both.lam, both.ratio_threshold, both.leverage_sum) == (0.5, 2.0, 1.0)


def exact_leverage(K: torch.Tensor, lam: float, s: int, seen: int) -> torch.Tensor:
    """Exact `var(x_s) / lam` given the first `seen` points, densely."""
    inverse = (K[:seen, :seen] + lam * torch.eye(seen, dtype=K.dtype)).inverse()
    return (K[s, s] - K[s, :seen] @ inverse @ K[:seen, s]) / lam


@pytest.mark.parametrize("lam", [1.0, 1e-4])
def test_log_det_of_exact_posterior(lam):
    """Chain rule; frozen batches give more; BKB's theory bound covers it at any lam."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(12, 2, generator=generator, dtype=torch.float64)
    K = torch.exp(-2 * torch.cdist(X, X).square())
    eye = torch.eye(12, dtype=torch.float64)
    log_det = (eye + K / lam).logdet().item()
    sums = {}
    for size in (1, 4):
        statistics = RadiusStatistics(lam=lam)
        for start in range(0, 12, size):
            leverage = [
                exact_leverage(K, lam, s, start) for s in range(start, start + size)
            ]
            statistics = statistics.add_batch(torch.stack(leverage))
        sums[size] = statistics.log_det_sum
    assert sums[1] == pytest.approx(log_det, rel=1e-8)
    assert sums[4] > log_det

    trace = torch.linalg.solve(K + lam * eye, K).trace().item()
    final = replace(statistics, leverage_sum=trace)
    radius = BKBRadius(0.0, 1.0, math.exp(-1e-9), constants="theory", accuracy=1e-9)
    # With F = 0, xi = 1, alpha = 1 and log(1/delta) = 0 it is 2 sqrt(l_t tr), and the
    # proof's Proposition 11 asks for sqrt(2 log det).
    assert radius.paper_value(final) >= math.sqrt(2 * log_det)
    printed = 2 * math.sqrt(math.log(12) * trace)
    assert (printed < math.sqrt(2 * log_det)) == (lam < 1)  # the paper's, without lam
