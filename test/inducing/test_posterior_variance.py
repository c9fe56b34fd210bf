"""Posterior variance sampling: probabilities, counts, fallback."""

import oracles
import pytest
import torch
from botorch.exceptions import InputDataError
from device_cases import on_the_host
from torch import Tensor

from botorch_sparse.inducing import PosteriorVarianceSampler


def draw(
    sampler: PosteriorVarianceSampler, variance: Tensor, noise: Tensor, seed: int = 0
) -> Tensor:
    X = torch.zeros(len(noise), 1).to(noise)
    generator = torch.Generator().manual_seed(seed)
    kernel = oracles.make_kernel("rbf", dtype=noise.dtype, device=noise.device)
    return sampler(kernel, X, noise, generator=generator, variance=variance)


@on_the_host
def test_probabilities(double):
    """Inclusion frequencies of 2000 draws against `min(1, q n_i var / lam)`.

    Hoeffding: each of the 40 frequencies is off by more than 0.07 with probability at
    most 2 exp(-2 * 2000 * 0.07^2) < 7e-9; the whole test fails by chance below 3e-7.
    """
    lam, q, repeats = 0.1, 1.5, 2000
    g = torch.Generator().manual_seed(5)
    variance = 0.05 * torch.rand(40, generator=g, dtype=torch.float64)
    counts = torch.randint(1, 5, (40,), generator=g)
    expected = (q * counts * variance / lam).clamp_max(1.0)
    assert (expected == 1).any() and (expected < 0.1).any()
    sampler = PosteriorVarianceSampler(oversampling=q)
    noise = (lam / counts).to(**double)
    generator = torch.Generator().manual_seed(6)
    kernel = oracles.make_kernel("rbf", **double)
    X = torch.rand(40, 1, **double)
    included = torch.zeros(40)
    together = torch.zeros(40, 40)
    for _ in range(repeats):
        index = sampler(
            kernel, X, noise, generator=generator, variance=variance.to(**double)
        ).cpu()
        included[index] += 1
        together[index.unsqueeze(-1), index] += 1
    assert ((included / repeats - expected).abs() < 0.07).all()
    assert (included[expected == 1] == repeats).all()
    # Independent: pairs occur with the product of the probabilities (1560 more
    # Hoeffding bounds, below 1.1e-5 together).
    pairs = expected.unsqueeze(-1) * expected
    off = (together / repeats - pairs).fill_diagonal_(0.0)
    assert off.abs().max() < 0.07


def test_same_seed_same_points(tkwargs):
    variance, noise = torch.full((99,), 0.02), torch.full((99,), 0.1)
    here = draw(PosteriorVarianceSampler(), variance, noise, seed=3)
    there = draw(
        PosteriorVarianceSampler(), variance.to(**tkwargs), noise.to(**tkwargs), seed=3
    )
    assert torch.equal(here, there.cpu())
    other = draw(PosteriorVarianceSampler(), variance, noise, seed=4)
    assert not torch.equal(here, other)


def test_empty_draw_falls_back(tkwargs):
    noise = torch.ones(6, **tkwargs)
    variance = torch.tensor([1.0, 3.0, 2.0, 3.0, 0.0, 1.0], **tkwargs) * 1e-12
    assert draw(PosteriorVarianceSampler(), variance, noise).tolist() == [1]
    assert draw(PosteriorVarianceSampler(), 0 * variance, noise).tolist() == [0]
    # Repeats count: the third point was seen ten times.
    noise[2] /= 10
    assert draw(PosteriorVarianceSampler(), variance, noise).tolist() == [2]


def test_no_points(double):
    nothing = torch.zeros(0, **double)
    assert draw(PosteriorVarianceSampler(), nothing, nothing).tolist() == []


def test_errors(double):
    with pytest.raises(InputDataError, match=r"Start with RecursiveRLSSampler"):
        PosteriorVarianceSampler()(
            oracles.make_kernel("rbf", **double),
            torch.rand(3, 1, **double),
            torch.ones(3, **double),
            generator=torch.Generator(),
        )
