"""The Nystrom posterior as an exact GP with pseudo-data at the inducing points."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.pseudo_data import (
    pseudo_data,
    whitening_matrix,
)


def problem(
    lam: float, num_inducing: int, kernel: Any, **tkwargs: Any
) -> tuple[NystromPosterior, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    X = torch.rand(120, 2, generator=g, dtype=torch.float64).to(**tkwargs)
    posterior = NystromPosterior.from_data(
        kernel.to(**tkwargs).requires_grad_(False),
        X,
        (5 * X).sin().sum(-1),
        torch.full((120,), lam, **tkwargs),
        X[:num_inducing],
    )
    Z = torch.rand(60, 2, generator=g, dtype=torch.float64).to(**tkwargs)
    return posterior, X, Z


@pytest.mark.parametrize("lam", [1e-4, 1e-2, 10.0])
@pytest.mark.parametrize("num_inducing", [1, 10, 60])
def test_variance_of_pseudo_data(lam, num_inducing, double):
    """The factor's square inverts K^-1 - (K + G)^-1, which gives the variance."""
    posterior, X, Z = problem(lam, num_inducing, MaternKernel(nu=1.5), **double)
    factor, z = pseudo_data(posterior)
    assert torch.equal(factor, factor.tril())
    S, kernel = posterior.inducing_points, posterior.covar_module
    K, K_SX = kernel(S).to_dense(), kernel(S, X).to_dense()
    G = K_SX @ K_SX.mT / lam
    precision = torch.linalg.inv(K) - torch.linalg.inv(K + G)
    error = torch.cholesky_inverse(factor) - precision
    assert error.norm() < 1e-5 * precision.norm()
    k = kernel(S, Z).to_dense()
    variance = kernel(Z, diag=True) - (k * (precision @ k)).sum(0)
    torch.testing.assert_close(variance, posterior.variance(Z), rtol=1e-6, atol=1e-9)
    mean = torch.linalg.solve_triangular(factor, k, upper=False).mT @ z
    torch.testing.assert_close(mean, posterior.mean(Z), rtol=1e-5, atol=1e-7)


def test_directions_without_data(double):
    """An inducing point that hardly sees the data: B = I to rounding, still finite."""
    posterior, X, _ = problem(1e6, 20, RBFKernel(), **double)
    y = torch.linalg.solve_triangular(
        pseudo_data(posterior)[0],
        posterior.covariance_with_inducing(X),
        upper=False,
    )
    k_diag = posterior.covar_module(X, diag=True)
    torch.testing.assert_close(
        k_diag - y.square().sum(0), posterior.variance(X), rtol=1e-9, atol=1e-12
    )


def test_whitening_matrix(double):
    posterior, _, Z = problem(1e-2, 30, RBFKernel(), **double)
    k_S = posterior.covariance_with_inducing(Z)
    w = posterior.whiten(posterior.features(Z))
    torch.testing.assert_close((whitening_matrix(posterior) @ k_S).mT, w)
