"""Covariances as a matrix, against a closed form."""

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from botorch_sparse.kernels import dense_covariance


@pytest.mark.parametrize("batch_shape", [(), (3,)])
def test_is_the_matrix(batch_shape, double):
    g = torch.Generator().manual_seed(0)
    X = torch.rand(*batch_shape, 5, 2, generator=g).to(**double)
    kernel = ScaleKernel(RBFKernel()).to(**double).requires_grad_(False)
    kernel.outputscale, kernel.base_kernel.lengthscale = 2.0, 0.5
    for X2 in (None, X[..., :3, :] + 1.0):
        other = X if X2 is None else X2
        distance = (X.unsqueeze(-2) - other.unsqueeze(-3)).square().sum(-1)
        expected = 2.0 * torch.exp(-distance / (2 * 0.5**2))
        torch.testing.assert_close(dense_covariance(kernel, X, X2), expected)


def test_sees_its_own_columns_alone(double):
    X = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)).to(**double)
    own, plain = RBFKernel(active_dims=(2, 0)).to(**double), RBFKernel().to(**double)
    expected = dense_covariance(plain, X[:, [2, 0]])
    torch.testing.assert_close(dense_covariance(own, X), expected)
    scaled = ScaleKernel(own).to(**double)
    torch.testing.assert_close(
        dense_covariance(scaled, X), scaled.outputscale * expected
    )
