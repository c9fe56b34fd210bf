"""GSSBO's radius against Theorem 5.1, Eq. 19 and Theorem 5.2, worked out here."""

import math
import warnings
from dataclasses import replace

import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import BotorchWarning

from botorch_sparse.acquisition.confidence import (
    GSSBORadius,
    RadiusStatistics,
    SrinivasCompactRadius,
    SubsetStatistics,
)

# E = 0.02, lam = 0.5: E / lam^2 = 0.08; |k| = 3, |y| = 2
STATISTICS = SubsetStatistics(
    lam=0.5,
    num_evaluations=9,
    lambda_max=0.04,
    feedback_norm=2.0,
    cross_covariance_norm=3.0,
    min_std=0.1,
)
A, B = 3 * 2 * 0.08, 3 * math.sqrt(0.08)


def beta(delta: float = 0.1, dim: int = 2) -> float:
    """The bracket of Theorem 5.2, n = 10, a = b = r = 1, pi_n = pi^2 n^2 / 6."""
    weight = math.pi**2 * 100 / 6
    grid = 100 * dim * math.sqrt(math.log(4 * dim / delta))
    return 2 * math.log(4 * weight / delta) + 2 * dim * math.log(grid)


def test_equation_19():
    radius = GSSBORadius(2, 0.1)
    s = math.sqrt(beta())
    expected = s + (A + s * B) / 0.1
    assert radius.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-13)
    assert radius.multiplier(STATISTICS) == radius.paper_value(STATISTICS)
    assert radius.offset(STATISTICS) == 0.0


def test_offset_is_never_wider():
    radius = GSSBORadius(2, 0.1, penalty="offset")
    s = math.sqrt(beta())
    assert radius.multiplier(STATISTICS) == pytest.approx(s, rel=1e-13)
    assert radius.offset(STATISTICS) == pytest.approx(A + s * B, rel=1e-13)
    letter = GSSBORadius(2, 0.1)
    for sigma in (0.1, 0.3, 1.0):
        ours = radius.multiplier(STATISTICS) * sigma + radius.offset(STATISTICS)
        theirs = letter.multiplier(STATISTICS) * sigma
        assert ours == pytest.approx(theirs) if sigma == 0.1 else ours < theirs


def test_theorem_5_2():
    radius = GSSBORadius(2, 0.1, constants="paper")
    expected = (0.1 * beta() - A) / (0.1 + B)
    assert radius.paper_value(STATISTICS) == pytest.approx(expected, rel=1e-13)
    worse = replace(STATISTICS, feedback_norm=40.0)
    with pytest.warns(BotorchWarning, match="Theorem 5.2 is negative"):
        assert radius.paper_value(worse) == 0.0


def test_theorem_5_2_solves_equation_19():
    """Where its beta comes from: Eq. 19 of it gives back the exact one."""
    value = GSSBORadius(2, 0.1, constants="paper").paper_value(STATISTICS)
    assert value + (A + value * B) / 0.1 == pytest.approx(beta(), rel=1e-13)


def test_limits():
    """Without error it is Srinivas's; the practical one knows no error."""
    exact = replace(STATISTICS, lambda_max=0.0)
    theory = SrinivasCompactRadius(2, 0.1, constants="theory")
    practical = SrinivasCompactRadius(2, 0.1)
    for penalty in ("multiplier", "offset"):
        radius = GSSBORadius(2, 0.1, penalty=penalty)
        assert radius.multiplier(exact) == pytest.approx(theory.multiplier(exact))
        assert radius.offset(exact) == 0.0
    ours = GSSBORadius(2, 0.1, constants="practical")
    plain = RadiusStatistics(lam=0.5, num_evaluations=9)
    assert ours.multiplier(plain) == pytest.approx(practical.multiplier(plain))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = GSSBORadius(2, 0.1, constants="paper").paper_value(exact)
    assert value == pytest.approx(theory.botorch_beta(exact), rel=1e-13)


def test_cross_covariance_norm():
    """Without it, `kappa^2 sqrt(n)`, which bounds it for any data."""
    radius = GSSBORadius(2, 0.1, kernel_bound=1.5, penalty="offset")
    bounded = replace(STATISTICS, cross_covariance_norm=None)
    given = replace(STATISTICS, cross_covariance_norm=1.5 * 3)
    assert radius.offset(bounded) == pytest.approx(radius.offset(given), rel=1e-14)


@pytest.mark.parametrize("seed", range(10))
def test_theorem_5_1_holds(seed):
    """A and B bound the errors of mean and standard deviation at random problems."""
    generator = torch.Generator().manual_seed(seed)
    lam, n, m = 0.3, 12, 9
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    Z = torch.rand(50, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(n, generator=generator, dtype=torch.float64)

    def k(P: torch.Tensor, Q: torch.Tensor) -> torch.Tensor:
        return torch.exp(-2 * torch.cdist(P, Q).square())

    S = X[:m]
    K, K_hat = k(X, X), k(X, S) @ torch.linalg.pinv(k(S, S)) @ k(S, X)
    eye = torch.eye(n, dtype=torch.float64)
    moments = []
    for matrix in (K, K_hat):
        gain = torch.linalg.solve(matrix + lam * eye, k(X, Z)).mT
        variance = (1 - (gain * k(Z, X)).sum(-1)).clamp_min(0.0)
        moments.append((gain @ y, variance.sqrt()))
    (mean, std), (mean_hat, std_hat) = moments
    statistics = SubsetStatistics(
        lam=lam,
        num_evaluations=n,
        lambda_max=float(torch.linalg.matrix_norm(K - K_hat, 2)) / lam,
        feedback_norm=float(y.norm()),
        cross_covariance_norm=float(k(Z, X).norm(dim=-1).max()),
    )
    radius = GSSBORadius(2, 0.1, penalty="offset")  # offset A + s B; A is 0 if y is
    s_times_B = radius.offset(replace(statistics, feedback_norm=0.0))
    assert (mean - mean_hat).abs().max() <= radius.offset(statistics) - s_times_B
    s = radius.multiplier(statistics)
    assert (std - std_hat).abs().max() <= s_times_B / s


def test_errors():
    plain = RadiusStatistics(lam=0.5, num_evaluations=9)
    with pytest.raises(InputDataError, match="Pass SubsetStatistics"):
        GSSBORadius(2, 0.1).paper_value(plain)
    for constants in ("theory", "paper"):
        radius = GSSBORadius(2, 0.1, constants=constants)  # type: ignore[arg-type]
        with pytest.raises(InputDataError, match=r'min_std=0\.0.*penalty="offset"'):
            radius.paper_value(replace(STATISTICS, min_std=0.0))
