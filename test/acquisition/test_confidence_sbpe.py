"""S-BPE's radii against the paper's formulas, worked out here."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from botorch_sparse.acquisition.confidence import (
    RadiusStatistics,
    SBPEContinuousRadius,
    SBPERadius,
    discretization_constant,
)

COMMON: dict[str, Any] = {"norm_bound": 1.5, "noise_variance": 0.09, "delta": 0.05}
# tau = 0.5, n = 16, lambda_max / tau^2 = 0.36
STATISTICS = RadiusStatistics(lam=0.25, num_evaluations=16, lambda_max=0.36)


def printed_beta(delta: float) -> float:
    """Theorem 3.5 with lambda_max = 0.09: `sqrt(0.09) / 0.5 = 0.6`."""
    return (2 + 0.6) * 1.5 + 0.3 / 0.5 * math.sqrt(2 * math.log(1 / delta))


def test_theorem_3_5():
    radius = SBPERadius(**COMMON)
    assert radius.constants == "theory"
    assert radius.paper_value(STATISTICS) == pytest.approx(printed_beta(0.05))
    assert radius.multiplier(STATISTICS) == radius.paper_value(STATISTICS)
    assert radius.offset(STATISTICS) == 0.0


def test_equation_13():
    """B = 5 batches and 300 candidates: `beta(delta / (4 B |X|))`."""
    radius = SBPERadius(**COMMON, num_intervals=4 * 5 * 300)
    assert radius.paper_value(STATISTICS) == pytest.approx(printed_beta(0.05 / 6000))


def test_sharp_and_practical():
    L = math.log(20)
    sharp = math.sqrt(1.36) * 1.5 + 0.6 * math.sqrt(2 * L)
    radius = SBPERadius(**COMMON, bias="sharp")
    assert radius.paper_value(STATISTICS) == pytest.approx(sharp, rel=1e-14)
    many = replace(radius, num_intervals=50)
    expected = math.sqrt(1.36) * 1.5 + 0.6 * math.sqrt(2 * (L + math.log(50)))
    assert many.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-14)
    practical = SBPERadius(**COMMON, constants="practical", num_intervals=50)
    assert practical.paper_value(STATISTICS) == pytest.approx(sharp, rel=1e-14)


@pytest.mark.parametrize("h", [0.5, 3.0, 50.0])
def test_theorem_e_2(h):
    radius = SBPERadius(**COMMON, num_intervals=100, mgf_radius=h)
    L = math.log(100 / 0.05)
    noise = math.sqrt(2 * max(0.09, 2 * L / h**2) * L) / 0.5
    expected = 2.6 * 1.5 + noise
    assert radius.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-14)
    gaussian = SBPERadius(**COMMON, num_intervals=100).paper_value(STATISTICS)
    wider = radius.paper_value(STATISTICS)
    assert wider == gaussian if h == 50.0 else wider > gaussian


def test_theorem_e_2_bounds_exponential_noise():
    """Centred exponential noise: its moments allow h0 = 1/2, xi0 = 4; exact tails."""
    # E exp(h (E - 1)) = exp(-h) / (1 - h) <= exp(h^2 xi0 / 2) on |h| <= 1/2
    for h in torch.linspace(-0.5, 0.5, 101, dtype=torch.float64).tolist():
        assert -h - math.log1p(-h) <= 2 * h**2 + 1e-15
    radius = SBPERadius(0.0, 4.0, 0.5, mgf_radius=0.5)
    for delta in (0.5, 0.1, 1e-3, 1e-6):
        deviation = replace(radius, delta=delta).paper_value(RadiusStatistics(lam=1.0))
        assert math.exp(-(deviation + 1)) <= delta  # P(E - 1 > deviation)


@pytest.mark.parametrize("n", [1, 16, 400])
@pytest.mark.parametrize("kernel_bound", [1.0, 4.0])
def test_corollary_3_7(n, kernel_bound):
    radius = SBPEContinuousRadius(
        **COMMON, dim=3, kernel_bound=kernel_bound, discretization=7.0
    )
    statistics = replace(STATISTICS, num_evaluations=n)
    delta = 0.05
    # C_k^mu(delta / 2), as printed: F >= 1 and k_max >= 1
    norm = 1.5 * (1 + n**0.5 * kernel_bound / 0.5)
    norm += n**0.5 * 0.3 / 0.5 * math.sqrt(2 * math.log(2 * n / (delta / 2)))
    grid = 7.0 * norm**3 * n**3
    expected = printed_beta(delta / (2 * grid))
    assert radius.paper_value(statistics) == pytest.approx(expected, rel=1e-13)
    offset = 2 / n + expected * 2 / n**0.5
    assert radius.offset(statistics) == pytest.approx(offset, rel=1e-13)


def test_equation_15():
    """`beta~(delta / (4 B))` is Corollary 3.7 at that delta."""
    radius = SBPEContinuousRadius(**COMMON, dim=2, num_intervals=4 * 5)
    divided = SBPEContinuousRadius(**{**COMMON, "delta": 0.05 / 20}, dim=2)
    assert radius.paper_value(STATISTICS) == pytest.approx(
        divided.paper_value(STATISTICS), rel=1e-14
    )


def log_grid_size(radius: SBPEContinuousRadius) -> float:
    """The logarithm of the grid's size that a radius of STATISTICS takes."""
    noise = radius.paper_value(STATISTICS) - (2 + 0.6) * radius.norm_bound
    return (noise / 0.6) ** 2 / 2 - math.log(2 / 0.05)


def test_continuous_mends_small_numbers():
    """Below one, k_max enters by its root and F as 1; above, as printed."""
    small = SBPEContinuousRadius(**COMMON, dim=2, kernel_bound=0.25)
    root = SBPEContinuousRadius(**COMMON, dim=2, kernel_bound=0.5)
    n, L = 16, math.log(20)
    noise = 4 * 0.6 * math.sqrt(2 * (L + math.log(64)))
    expected = 2 * math.log((1.5 * (1 + 4 / 0.5 * 0.5) + noise) * n)
    assert log_grid_size(small) == pytest.approx(expected, rel=1e-13)
    assert log_grid_size(root) > expected
    weak = replace(small, norm_bound=0.3)
    expected = 2 * math.log((1 + 4 / 0.5 * 0.5 + noise) * n)
    assert log_grid_size(weak) == pytest.approx(expected, rel=1e-13)


def test_continuous_limits():
    radius = SBPEContinuousRadius(**COMMON, dim=40)
    assert math.isfinite(radius.paper_value(STATISTICS))  # the grid overflows
    none = replace(STATISTICS, num_evaluations=0)
    one = replace(STATISTICS, num_evaluations=1)
    assert radius.offset(none) == radius.offset(one)
    practical = replace(radius, constants="practical")
    assert practical.offset(STATISTICS) == 0.0
    finite = SBPERadius(**COMMON, constants="practical")
    assert practical.paper_value(STATISTICS) == finite.paper_value(STATISTICS)


@pytest.mark.parametrize("nu", [1.5, 2.5, None])
@pytest.mark.parametrize("dim", [1, 2])
def test_discretization_constant(nu, dim):
    """On the grid of the docstring the nearest point differs by at most 1/n.

    The largest change of a function of norm C is `C |k_x - k_x'|`.
    """
    lengthscale, outputscale, side, C, n = 0.3, 2.0, 1.5, 1.7, 2
    kernel = RBFKernel() if nu is None else MaternKernel(nu=nu)
    kernel = kernel.double().requires_grad_(False)
    kernel.lengthscale = lengthscale
    slope = {None: 1.0, 2.5: math.sqrt(5 / 3), 1.5: math.sqrt(3)}[nu]
    lipschitz = outputscale**0.5 / lengthscale * slope
    c = discretization_constant(dim, lipschitz, side)
    per_side = math.floor((c * (C * n) ** dim) ** (1 / dim))
    half_diagonal = 0.5 * side / per_side * math.sqrt(dim)
    x = torch.zeros(1, dim, dtype=torch.float64)
    z = torch.full((1, dim), half_diagonal / math.sqrt(dim), dtype=torch.float64)
    change = 2 * outputscale * (1 - float(kernel(x, z).to_dense()))
    assert C * change**0.5 <= 1 / n
    assert c == pytest.approx((1.5 * lipschitz) ** dim * dim ** (dim / 2), rel=1e-14)
    assert discretization_constant(dim, 1e-3) == 1.0
