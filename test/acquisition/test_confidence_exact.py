"""Radii of exact posteriors against the papers' formulas, worked out here."""

import math
from dataclasses import replace
from typing import Any

import pytest
from botorch.exceptions import InputDataError

from botorch_sparse.acquisition.confidence import (
    ChowdhuryGopalanRadius,
    ConfidenceRadius,
    RadiusStatistics,
    SrinivasAgnosticRadius,
    SrinivasCompactRadius,
    SrinivasFiniteRadius,
)

NORM: dict[str, Any] = {"norm_bound": 1.5, "noise_variance": 0.09, "delta": 0.05}
STATISTICS = RadiusStatistics(lam=0.25, num_evaluations=6, log_det_sum=3.0)


def both(cls: Any, **arguments: Any) -> list[ConfidenceRadius]:
    return [cls(**arguments, constants=c) for c in ("practical", "theory")]


RADII = [
    *both(SrinivasFiniteRadius, num_candidates=200, delta=0.05),
    *both(SrinivasCompactRadius, dim=3, delta=0.05),
    *both(SrinivasAgnosticRadius, **NORM),
    *both(ChowdhuryGopalanRadius, **NORM),
]


def test_srinivas_finite_by_hand():
    practical, theory = both(SrinivasFiniteRadius, num_candidates=200, delta=0.05)
    # t = 7; zeta(2) = pi^2 / 6 = 1.6449...
    beta = 2 * (math.log(200) + 2 * math.log(7) + math.log(1.6449340668482264 / 0.05))
    assert theory.paper_value(STATISTICS) == pytest.approx(beta, rel=1e-14)
    assert theory.botorch_beta(STATISTICS) == theory.paper_value(STATISTICS)
    assert theory.multiplier(STATISTICS) == pytest.approx(beta**0.5, rel=1e-14)
    assert practical.paper_value(STATISTICS) == pytest.approx(beta / 5, rel=1e-14)


def test_srinivas_finite_is_a_union_bound():
    """Two Gaussian tails at all points and times: `|X| sum_t exp(-beta_t / 2) = delta`.

    The sum over all times is pi^2 / 6 times that of the first, as `1 / t^2`.
    """
    radius = SrinivasFiniteRadius(40, 0.1, constants="theory")
    betas = [
        radius.paper_value(RadiusStatistics(lam=1.0, num_evaluations=n))
        for n in range(20000)
    ]
    total = 40 * sum(math.exp(-beta / 2) for beta in betas)
    assert total == pytest.approx(0.1, rel=1e-4)
    assert total < 0.1


def test_srinivas_compact_by_hand():
    radius = SrinivasCompactRadius(
        dim=3,
        delta=0.05,
        side=2.0,
        gradient_amplitude=1.5,
        gradient_scale=0.7,
        constants="theory",
    )
    first = math.log(49 * 2 * 9.869604401089358 / 0.15)
    second = math.log(49 * 3 * 0.7 * 2.0 * math.log(12 * 1.5 / 0.05) ** 0.5)
    expected = 2 * first + 6 * second
    assert radius.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-14)
    practical = replace(radius, constants="practical")
    assert practical.paper_value(STATISTICS) == pytest.approx(expected / 5, rel=1e-14)


@pytest.mark.parametrize("change", [{"gradient_scale": 1e-9}, {"side": 1e-9}])
def test_srinivas_compact_has_one_grid_point(change):
    """A grid has at least one point, so its logarithm is not below 0."""
    radius = SrinivasCompactRadius(dim=2, delta=0.1, constants="theory", **change)
    flat = SrinivasFiniteRadius(1, 0.1 / 4, constants="theory")
    assert radius.paper_value(STATISTICS) == pytest.approx(flat.paper_value(STATISTICS))


def test_srinivas_agnostic_by_hand():
    radius = SrinivasAgnosticRadius(**NORM, kernel_bound=2.0, constants="theory")
    gain = 1.5 + 0.5 * math.log(9)  # half of 3, and one point of k/lam = 8
    expected = 2 * 2.25 + 300 * gain * math.log(7 / 0.05) ** 3
    assert radius.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-14)
    given = replace(radius, max_information_gain=lambda t: 10.0 * t)
    expected = 2 * 2.25 + 300 * 70.0 * math.log(7 / 0.05) ** 3
    assert given.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-14)
    practical = replace(given, constants="practical")
    assert practical.botorch_beta(STATISTICS) == pytest.approx(expected / 5, rel=1e-14)


def test_srinivas_agnostic_needs_bounded_noise():
    radius = SrinivasAgnosticRadius(1.0, 0.3, 0.1)
    with pytest.raises(InputDataError, match=r"noise_variance=0\.3 above lam=0\.25"):
        radius.paper_value(STATISTICS)


def test_chowdhury_gopalan_by_hand():
    practical, theory = both(ChowdhuryGopalanRadius, **NORM)
    # R / sqrt(lam) = 0.3 / 0.5; gamma = 3 / 2
    expected = 1.5 + 0.6 * math.sqrt(2 * (1.5 + 1 + math.log(20)))
    assert theory.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-14)
    assert theory.multiplier(STATISTICS) == theory.paper_value(STATISTICS)
    expected = 1.5 + 0.6 * math.sqrt(2 * (1.5 + math.log(20)))
    assert practical.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-14)
    given = ChowdhuryGopalanRadius(
        **NORM, constants="theory", max_information_gain=lambda n: 0.5 * n
    )
    expected = 1.5 + 0.6 * math.sqrt(2 * (3.0 + 1 + math.log(20)))
    assert given.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("constants", ["practical", "theory"])
@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_units_do_not_matter(constants, scale):
    """Y in other units: norm and width scale alike, the factor of sigma stays.

    In the kernel `k scale^2` a function `scale f` has the norm of f.
    """
    radius = ChowdhuryGopalanRadius(**NORM, constants=constants)
    scaled = replace(radius, noise_variance=0.09 * scale**2)
    statistics = replace(STATISTICS, lam=0.25 * scale**2)
    assert scaled.multiplier(statistics) == pytest.approx(radius.multiplier(STATISTICS))


@pytest.mark.parametrize("radius", RADII, ids=repr)
def test_scales(radius):
    assert isinstance(radius, ConfidenceRadius)
    assert type(radius.paper_value(STATISTICS)) is float
    multiplier = radius.multiplier(STATISTICS)
    assert radius.botorch_beta(STATISTICS) == pytest.approx(multiplier**2, rel=1e-14)
    assert radius.offset(STATISTICS) == 0.0
    batched = radius.multiplier(replace(STATISTICS, ratio_threshold=4.0))
    theory = radius.constants == "theory"
    assert batched == pytest.approx(2 * multiplier if theory else multiplier)
