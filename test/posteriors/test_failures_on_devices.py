"""What raises on the host does not pass in silence on a device."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from linear_operator.utils.errors import NanError

from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.incremental_variance import IncrementalVariance
from botorch_sparse.strategies.sbpe.exploration import largest_contribution, read_batch


@pytest.fixture
def away(double):
    if double["device"].type == "cpu":
        pytest.skip("the host raises where it factorizes")
    return double


def rows(**tkwargs: Any) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(20, 2, dtype=torch.float64, generator=generator).to(**tkwargs)


def test_certificates(away):
    X = rows(**away)
    prior = NystromPosterior.prior(RBFKernel().to(X), X[:5])
    noise = torch.full((20,), 1e-309, **away)  # its inverse is infinite
    with pytest.raises(NanError, match="noise variances are too small"):
        accuracy_certificate(prior, X, noise)


def test_designs_without_feedback(double):
    """The host looks at the same."""
    posterior = IncrementalVariance(RBFKernel().to(**double), rows(**double), 0.1)
    posterior.embedded[7] = torch.nan
    counts = torch.ones(20, **double)
    with pytest.raises(NanError, match="lam is too small"):
        read_batch(posterior, counts, counts, 20)
    posterior.residual[7] = torch.nan
    with pytest.raises(NanError, match="lam is too small"):
        largest_contribution(posterior, counts)


def test_negative_noise_shows(away):
    X = rows(**away)
    Y = X.sin().sum(-1, keepdim=True)
    Y = (Y - Y.mean()) / Y.std()
    model = SparseSingleTaskGP(X, Y, inducing_points=X[:6]).eval()
    noise = torch.tensor([[-0.1], [0.1]], **away)
    conditioned = model.condition_on_observations(X[:2], Y[:2], noise=noise)
    assert conditioned.posterior(X[3:5]).mean.isnan().all()
