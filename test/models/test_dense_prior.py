"""The density and its gradient, against torch's own by automatic differentiation."""

import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator import to_linear_operator

from botorch_sparse.models import dense_prior
from botorch_sparse.models.dense_prior import DensePrior, cholesky_inverse


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_value_and_gradient(batch_shape):
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(*batch_shape, 5, 7, generator=generator, dtype=torch.float64)
    mean, Y = torch.randn(2, *batch_shape, 5, generator=generator, dtype=torch.float64)
    found = []
    for kind in (DensePrior, torch.distributions.MultivariateNormal):
        root, center = A.clone().requires_grad_(), mean.clone().requires_grad_()
        K = root @ root.mT + 0.1 * torch.eye(5, dtype=torch.float64)
        value = kind(center, K).log_prob(Y)
        value.sum().backward()
        found.append([value.detach(), root.grad, center.grad])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_noise_on_the_diagonal(batch_shape):
    """As a likelihood adds it, one variance for all points, and outliers' own."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(*batch_shape, 5, 7, generator=generator, dtype=torch.float64)
    Y = torch.randn(*batch_shape, 5, generator=generator, dtype=torch.float64)
    likelihood = GaussianLikelihood(batch_shape=torch.Size(batch_shape)).double()
    raw, found = likelihood.noise_covar.raw_noise, []
    for kind in (DensePrior, MultivariateNormal):
        root, extra = A.clone().requires_grad_(), torch.arange(5.0).double()
        covariance = to_linear_operator(root @ root.mT).add_diagonal(extra)
        value = likelihood(kind(torch.zeros_like(Y), covariance)).log_prob(Y)
        gradients = torch.autograd.grad(value.sum(), [root, raw])
        found.append([value.detach(), *gradients])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_second_derivatives(batch_shape):
    """As a closure of one's own may want them; by finite differences."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(*batch_shape, 3, 5, generator=generator, dtype=torch.float64)
    center = torch.randn(*batch_shape, 3, generator=generator, dtype=torch.float64)

    def log_density(root, center):
        K = to_linear_operator(root @ root.mT).add_diagonal(0.1 + center.square())
        return DensePrior(center, K).log_prob(torch.ones_like(center))

    inputs = A.requires_grad_(), center.requires_grad_()
    assert torch.autograd.gradgradcheck(log_density, inputs)


def test_float32_is_as_float64_within():
    """What is ill-conditioned in float32 has the value that float64 gives it."""
    X = torch.linspace(0, 1, 200)
    K = (-20 * (X.unsqueeze(-1) - X).square()).exp() + 1e-4 * torch.eye(200)
    Y = (6 * X).sin()
    value = DensePrior(torch.zeros(200), K).log_prob(Y)
    exact = MultivariateNormal(torch.zeros(200).double(), K.double()).log_prob(
        Y.double()
    )
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_the_inverse_by_blocks(batch_shape, monkeypatch):
    """And its derivative, with odd numbers of rows at each split."""
    monkeypatch.setattr(dense_prior, "MOST_AS_ONE", 3)
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(*batch_shape, 13, 13, generator=generator, dtype=torch.float64)
    L = A.tril(-1) + A.abs().diagonal(dim1=-2, dim2=-1).add(1.0).diag_embed()
    torch.testing.assert_close(cholesky_inverse(L), torch.linalg.inv(L @ L.mT))
    assert torch.autograd.gradcheck(
        lambda L: cholesky_inverse(L.tril()), L.requires_grad_()
    )
