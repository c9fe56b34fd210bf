"""The radius for unknown hyperparameters: its schedule, and what norms allow it."""

import itertools
import math
from dataclasses import replace

import oracles
import pytest
import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    RadiusStatistics,
    UnknownHyperparameters,
)

STATISTICS = RadiusStatistics(
    lam=0.25,
    num_evaluations=7,
    ratio_threshold=2.0,
    log_det_sum=3.0,
    log_det_sum_inflated=5.0,
)
STATIONARY = ["rbf", "matern12", "matern32", "matern52"]


def after(num_evaluations: int) -> RadiusStatistics:
    return replace(STATISTICS, num_evaluations=num_evaluations)


@pytest.mark.parametrize(
    ("num_evaluations", "dim", "quarters"),
    [  # growth 1/4 from 10 on: g^dim = (t / 10)^(1/4), in quarters of a doubling
        *((t, dim, 0) for t in (0, 1, 9, 10, 19) for dim in (1, 2, 5)),
        (20, 1, 1),
        (39, 1, 1),
        (40, 1, 2),
        (80, 1, 3),
        (159, 1, 3),
        (160, 1, 4),
        (39, 2, 0),
        (40, 2, 1),
        (160, 2, 2),
        (10 * 2**20, 1, 20),
        (10 * 2**20, 5, 4),
    ],
)
def test_schedule_by_hand(num_evaluations, dim, quarters):
    radius = UnknownHyperparameters(growth=0.25, start=10, dim=dim)
    factor = radius.lengthscale_factor(after(num_evaluations))
    assert factor == pytest.approx(0.5 ** (quarters / 4), rel=1e-15)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("growth", [0.0, 0.2, 0.39])
def test_few_steps_just_below_the_smooth_schedule(growth, dim):
    radius = UnknownHyperparameters(growth=growth, dim=dim)
    times = range(1, 100_000, 7)
    factors = [radius.lengthscale_factor(after(t)) for t in times]
    assert factors == sorted(factors, reverse=True)
    for t, factor in zip(times, factors, strict=True):
        smooth = max(1.0, t / 10) ** (growth / dim)
        assert 1 - 1e-12 <= smooth * factor < 2**0.25 * (1 + 1e-12)
    at_most = 1 + 4 * growth / dim * math.log2(times[-1] / 10)
    assert at_most - 1 < len(set(factors)) <= at_most


@pytest.mark.parametrize("constants", ["practical", "theory"])
@pytest.mark.parametrize("noise_variance", [0.09, None])
def test_is_the_radius_of_the_larger_norm(constants, noise_variance):
    """At 160 in 2-d g = 2^(1/2), step 2 of delta / (1 * 2), delta / (2 * 3), ..."""
    radius = UnknownHyperparameters(
        1.5,
        noise_variance,
        0.05,
        growth=0.25,
        norm_growth=0.125,
        dim=2,
        constants=constants,
    )
    statistics = after(160)
    bound = 16**0.125 * 2**0.5 * 1.5  # b(t) g(t)^(d / 2) B_0
    assert radius.current_norm_bound(statistics) == pytest.approx(bound, rel=1e-14)
    known = BBKBRadius(
        bound, noise_variance or 0.25, 0.05 / (3 * 4), constants=constants
    )
    for method in ("paper_value", "multiplier", "botorch_beta"):
        expected = getattr(known, method)(statistics)
        assert getattr(radius, method)(statistics) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_grows_with_time(dim):
    """Strictly, once the first evaluations are over; slower than the root of time."""
    radius = UnknownHyperparameters(dim=dim)
    values = [radius.multiplier(after(t)) for t in (1, 10, 11, 30, 100, 1000, 10**6)]
    assert values[0] == values[1]
    assert all(a < b for a, b in itertools.pairwise(values[1:]))
    assert radius.current_norm_bound(after(10**7)) < 1000**0.5


def test_without_growth_is_known():
    radius = UnknownHyperparameters(1.5, 0.09, 0.05, growth=0, norm_growth=0, dim=3)
    for t in (0, 10**6):
        assert radius.lengthscale_factor(after(t)) == 1
        expected = BBKBRadius(1.5, 0.09, 0.05 / 2).multiplier(STATISTICS)
        assert radius.multiplier(after(t)) == expected


def test_dimension_is_told():
    radius = UnknownHyperparameters(growth=0.25)
    for method in ("lengthscale_factor", "multiplier", "current_norm_bound"):
        with pytest.raises(InputDataError, match=r"without dim.*X.shape\[-1\]"):
            getattr(radius, method)(STATISTICS)
    known = radius.in_dimension(2)
    assert known == replace(radius, dim=2)
    assert known.in_dimension(5) is known
    assert radius.dim is None


def test_other_errors():
    with pytest.raises(InputDataError, match=r"growth=0.3 and norm_growth=0.2.*0.5"):
        UnknownHyperparameters(growth=0.3, norm_growth=0.2)


# The norm under a shorter lengthscale: oracles.DENSE has one of 0.6, so that
# `dense(g X, g Z)` has one of 0.6 / g.


@pytest.mark.parametrize("g", [1.2, 2.0, 5.0])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", STATIONARY)
def test_norms_grow_by_no_more_than_the_volume(name, dim, g):
    r"""`|f|_short^2 <= g^d |f|_long^2` for all f: g^d K_short - K_long >= 0.

    (That of two kernels is positive semi-definite if and only if the norms are so
    ordered, Aronszajn 1950.) Rounding moves an eigenvalue by n eps times the largest.
    """
    dense = oracles.DENSE[name]
    generator = torch.Generator().manual_seed(dim)
    X = 3 * torch.rand(120, dim, generator=generator, dtype=torch.float64)
    short, long = g**dim * dense(g * X, g * X), dense(X, X)
    tolerance = 120 * torch.finfo(X.dtype).eps * float(torch.linalg.norm(short, 2))
    assert float(torch.linalg.eigvalsh(short - long)[0]) >= -tolerance


def sum_of_kernels(dim: int, seed: int | None) -> tuple[Tensor, Tensor]:
    """Centers on a grid and weights, random or all one; 0.4 apart in 1-d."""
    axis = torch.arange(-24, 25, dtype=torch.float64) * 0.4
    C = torch.cartesian_prod(*[axis[:: 2 * dim - 1]] * dim).reshape(-1, dim)
    if seed is None:
        return C, torch.ones(len(C), dtype=C.dtype)
    generator = torch.Generator().manual_seed(seed)
    return C, torch.randn(len(C), generator=generator, dtype=C.dtype)


def gaussian_norm(C: Tensor, weights: Tensor, g: float) -> float:
    r"""The norm under lengthscale l / g of a sum of kernels with l, in closed form.

    The densities are those of Gaussians, and so is their quotient
    :math:`S_l^2 / S_{l/g}`, that of a kernel with :math:`\rho^2 = 2 l^2 - (l/g)^2` and
    outputscale :math:`(l g / \rho)^d`.
    """
    length = oracles.LENGTHSCALE
    rho = math.sqrt(2 * length**2 - (length / g) ** 2)
    H = oracles.DENSE["rbf"](C * length / rho, C * length / rho)
    return math.sqrt(float(weights @ H @ weights) * (length * g / rho) ** C.shape[-1])


@pytest.mark.parametrize("num_evaluations", [10, 20, 80, 500, 10_000])
@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("dim", [1, 2])
def test_the_bound_in_use_holds(dim, seed, num_evaluations):
    """A bound that was right stays right, although nothing is added by `norm_growth`.

    The norm of the function, beside its closed form, by interpolation with the shorter
    kernel: never more, and most of it on a grid as fine as its lengthscale.
    """
    C, weights = sum_of_kernels(dim, seed)
    radius = UnknownHyperparameters(
        gaussian_norm(C, weights, 1.0), growth=0.4, norm_growth=0, dim=dim
    )
    statistics = after(num_evaluations)
    g = 1 / radius.lengthscale_factor(statistics)
    norm = gaussian_norm(C, weights, g)
    bound = radius.current_norm_bound(statistics)
    assert norm <= bound * (1 + 1e-12)

    dense = oracles.DENSE["rbf"]
    K = dense(C, C)
    assert gaussian_norm(C, weights, 1.0) ** 2 == pytest.approx(
        float(weights @ K @ weights), rel=1e-9
    )
    f = K @ weights
    short = dense(g * C, g * C)
    short.diagonal().add_(1e-9)  # which only lowers the norm
    interpolant = math.sqrt(float(f @ torch.linalg.solve(short, f)))
    assert interpolant <= norm * (1 + 1e-9)
    spacing = float((C[1] - C[0]).norm())
    assert spacing > oracles.LENGTHSCALE / g or interpolant > 0.9 * norm


@pytest.mark.parametrize("dim", [1, 2])
def test_no_smaller_power_is_enough(dim):
    """The norm of a wide function grows by nearly g^(d / 2) itself."""
    C, weights = sum_of_kernels(dim, None)
    growth = gaussian_norm(C, weights, 4.0) / gaussian_norm(C, weights, 1.0)
    assert 4.0 ** (0.47 * dim) < growth < 4.0 ** (0.5 * dim)
