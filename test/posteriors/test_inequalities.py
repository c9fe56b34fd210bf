"""Inequalities that must never fail, as property tests.

Each example draws a kernel, data in clusters (down to exact and nearly exact repeats)
and inducing points among and beside the data; the rest follows from a seed.
"""

from typing import NamedTuple

import oracles
import torch
from gpytorch.kernels import Kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior

# Rounding, relative to the variance and to the prior variance k(x, x).
RELATIVE, ABSOLUTE = 1e-6, 1e-9


class Case(NamedTuple):
    """A random posterior, points to predict, and pending points with their noise."""

    name: str
    kernel: Kernel
    posterior: NystromPosterior
    X: Tensor
    noise: Tensor
    S: Tensor
    Z: Tensor
    pending: Tensor
    pending_noise: Tensor

    @property
    def scale(self) -> Tensor:
        return self.kernel(self.Z, diag=True)

    @property
    def rounding(self) -> float:
        """That of the kernel between equal points, which a variance holds twice."""
        return 2 * oracles.effect_of_rounding(
            lambda: oracles.DENSE[self.name](self.Z, self.Z)
        )


def make_case(
    name: str, seed: int, n: int, m: int, d: int, spread: float, log_lam: float
) -> Case:
    g = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=g, dtype=torch.float64)

    centres = 2 * uniform(3, d) - 1
    X = centres[torch.randint(3, (n,), generator=g)] + spread * (uniform(n, d) - 0.5)
    beside = uniform(m, d) + 1e-8 * uniform(m, d)
    among = X[torch.randint(n, (m,), generator=g)] + 1e-9 * uniform(m, 1).round()
    S = torch.where(uniform(m, 1) < 0.7, among, beside)
    Z = torch.cat([X[:3], S[:2], 4 * uniform(4, d) - 2, X[:1] + 1e-7])
    kernel = oracles.make_kernel(name, dtype=torch.float64)
    lam = 10.0**log_lam * kernel(X, diag=True).max().clamp_min(1e-3)
    noise = lam * (0.3 + uniform(n))
    posterior = NystromPosterior.from_data(kernel, X, uniform(n), noise, S)
    pending = torch.cat([X[:1], X[:1], Z[5:8], uniform(2, d)])
    pending_noise = lam * (0.3 + uniform(len(pending)))
    return Case(name, kernel, posterior, X, noise, S, Z, pending, pending_noise)


cases = st.builds(
    make_case,
    name=st.sampled_from(oracles.KERNELS),
    seed=st.integers(0, 2**20),
    n=st.integers(1, 25),
    m=st.integers(1, 12),
    d=st.integers(1, 3),
    spread=st.sampled_from([2.0, 0.3, 1e-3, 1e-8, 0.0]),
    log_lam=st.sampled_from([-4.0, -2.0, 0.0]),
)
property_test = settings(deadline=None, derandomize=True, max_examples=50)


def slack(case: Case, value: Tensor) -> Tensor:
    return RELATIVE * value.abs() + ABSOLUTE * case.scale + case.rounding


@property_test
@given(cases)
def test_variance_is_positive_and_below_the_prior(case):
    variance = case.posterior.variance(case.Z)
    assert (variance >= 0).all()
    assert (variance <= case.scale + slack(case, case.scale)).all()
    covariance = case.posterior.covariance(case.Z)
    torch.testing.assert_close(covariance.diagonal(), variance, rtol=1e-6, atol=1e-9)
    smallest = torch.linalg.eigvalsh(covariance)[0]
    assert smallest >= -1e-8 * case.scale.max()


@property_test
@given(cases)
def test_hallucinated_variance_never_grows(case):
    before = case.posterior.variance(case.Z)
    for j in range(len(case.pending) + 1):
        update = case.posterior.hallucinate(case.pending[:j], case.pending_noise[:j])
        after = case.posterior.hallucinated_variance(case.Z, update)
        assert (after >= 0).all()
        assert (after <= before + 1e-12 * case.scale).all()
        before = after


@property_test
@given(cases)
def test_two_sided_certificate(case):
    """`variance / alpha <= exact variance <= alpha variance`."""
    dense = oracles.DENSE[case.name]
    q = oracles.nystrom_kernel(dense, case.S)
    root = case.noise.sqrt()
    gap = (dense(case.X, case.X) - q(case.X, case.X)) / root.unsqueeze(-1) / root
    alpha = oracles.alpha(torch.linalg.eigvalsh(gap)[-1].clamp_min(0.0))
    exact = oracles.exact(dense, case.X, torch.zeros_like(root), case.noise, case.Z)
    variance = case.posterior.variance(case.Z)
    assert (variance <= alpha * exact.variance + alpha * slack(case, variance)).all()
    assert (exact.variance <= alpha * variance + alpha * slack(case, variance)).all()
