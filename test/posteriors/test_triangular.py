"""Triangular systems by blocks: residuals, and when blocks are taken."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from botorch_sparse.posteriors import NystromFeatures, triangular
from botorch_sparse.posteriors.factorization import factorize_batch
from botorch_sparse.posteriors.triangular import BLOCK_ROWS, MANY_COLUMNS

EPS = torch.finfo(torch.float64).eps
SIZES = [BLOCK_ROWS + 1, 2 * BLOCK_ROWS, 2 * BLOCK_ROWS + 45]


def cholesky_of(kernel, m):
    """The factor of a kernel matrix, of fewer rows where points are redundant."""
    X = torch.rand(m, 3, generator=torch.Generator().manual_seed(m)).double()
    return factorize_batch(kernel.double()(X).to_dense().detach()).chol


def kernel_of(name):
    kernel = RBFKernel() if name == "RBF" else MaternKernel(nu=2.5)
    kernel.lengthscale = 1.5
    return kernel


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("name", ["RBF", "Matern"])
def test_blocks_have_the_residual_of_a_substitution(name, m, upper, by_columns, device):
    """Row by row, with the condition of the diagonal blocks.

    Row i of the residual is at most c m eps |L_ii| |L_ii^-1| (|L| |X|)_i.
    """
    L = cholesky_of(kernel_of(name), m)
    m = len(L)
    B = torch.rand(m, MANY_COLUMNS, generator=torch.Generator().manual_seed(1)).double()
    A = L.mT if upper else L
    B = B.mT.contiguous().mT if by_columns else B
    X = triangular._by_blocks(A.to(device), B.to(device), upper).cpu()
    bound = A.abs() @ X.abs()
    for start in range(0, m, BLOCK_ROWS):
        own = A[start : start + BLOCK_ROWS, start : start + BLOCK_ROWS]
        inverse = torch.linalg.inv(own)
        bound[start : start + BLOCK_ROWS] = own.abs() @ (
            inverse.abs() @ bound[start : start + BLOCK_ROWS]
        )
    assert ((A @ X - B).abs() <= 4 * m * EPS * bound).all()


@pytest.mark.parametrize("upper", [False, True])
def test_a_device_takes_blocks_for_many_columns_without_gradient(
    upper, double, monkeypatch
):
    calls = []

    def by_blocks(A, B, upper):
        calls.append(B.shape)
        return torch.linalg.solve_triangular(A, B, upper=upper)

    monkeypatch.setattr(triangular, "_by_blocks", by_blocks)
    L = torch.eye(BLOCK_ROWS + 1, **double)
    A = L.mT if upper else L
    many, few = (torch.ones(len(L), k, **double) for k in (MANY_COLUMNS, 5))
    leaf = many.clone().requires_grad_()
    triangular.solve_triangular(A, leaf, upper=upper).sum().backward()
    torch.testing.assert_close(leaf.grad, many)
    triangular.solve_triangular(A, few, upper=upper)
    triangular.solve_triangular(A, few.expand(2, -1, -1), upper=upper)
    assert not calls
    with torch.no_grad():
        triangular.solve_triangular(A, leaf, upper=upper)
    assert len(calls) == (not many.is_cpu)


@torch.no_grad()
def test_features_of_many_points_are_those_of_few(double):
    """A device's blocks and chunks, and the host's substitution."""
    kernel = kernel_of("Matern").to(**double)
    S, X = (torch.rand(n, 3, **double) for n in (BLOCK_ROWS + 30, MANY_COLUMNS))
    features = NystromFeatures.of(kernel, S)
    phi = features.features(X)
    parts = torch.cat([features.features(x) for x in X.split(100)])
    torch.testing.assert_close(phi, parts, rtol=1e-6, atol=1e-8)
    K = kernel(X, features.inducing_points).to_dense()
    torch.testing.assert_close(phi @ features.chol_inducing.mT, K)
