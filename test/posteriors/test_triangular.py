"""Triangular systems by blocks: residuals, and when blocks are taken."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch.distributions import MultivariateNormal

from botorch_sparse.posteriors import NystromFeatures
from botorch_sparse.posteriors import features as module
from botorch_sparse.posteriors.factorization import factorize_batch
from botorch_sparse.posteriors.features import BLOCK_ROWS, CHUNK_SIZE, MANY_COLUMNS
from botorch_sparse.posteriors.objective import low_rank_objective

EPS = torch.finfo(torch.float64).eps
SIZES = [BLOCK_ROWS + 20, 2 * BLOCK_ROWS, 2 * BLOCK_ROWS + 45]


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
    X = module._by_blocks(A.to(device), B.to(device), upper).cpu()
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

    monkeypatch.setattr(module, "_by_blocks", by_blocks)
    L = torch.eye(BLOCK_ROWS + 1, **double)
    A = L.mT if upper else L
    many = torch.ones(len(L), MANY_COLUMNS, **double)
    leaves = [each.clone().requires_grad_() for each in (A, many)]
    for one, other in ((leaves[0], many), (A, leaves[1])):
        module.solve_triangular(one, other, upper=upper).sum().backward()
    torch.testing.assert_close(leaves[1].grad, many)
    assert leaves[0].grad is not None
    for one, other in (
        (A, many[:, 1:]),
        (A.expand(2, -1, -1), many),
        (A, many.expand(2, -1, -1)),
        (A[1:, 1:], many[1:]),
        (A.float(), many.float()),
    ):
        module.solve_triangular(one, other, upper=upper)
    assert not calls
    with torch.no_grad():
        module.solve_triangular(A, leaves[1], upper=upper)
    assert len(calls) == (not many.is_cpu)


def uniform(*shape, **options):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)).to(**options)


@torch.no_grad()
def test_features_of_many_points_are_those_of_few(double):
    """A device's blocks and the host's substitution, and the definition."""
    kernel = kernel_of("Matern").to(**double)
    S, X = uniform(BLOCK_ROWS + 30, 3, **double), uniform(MANY_COLUMNS, 3, **double)
    features = NystromFeatures.of(kernel, S)
    phi = features.features(X)
    parts = torch.cat([features.features(x) for x in X.split(100)])
    torch.testing.assert_close(phi, parts, rtol=1e-6, atol=1e-8)
    K = kernel(X, features.inducing_points).to_dense()
    torch.testing.assert_close(phi @ features.chol_inducing.mT, K)


def test_chunks_suit_the_device(double):
    """Few on the host; on a device as many as make 2^24 features, in batches too."""
    kernel = kernel_of("Matern").to(**double)
    features = NystromFeatures.of(kernel, uniform(64, 3, **double))
    num = CHUNK_SIZE if features.chol_inducing.is_cpu else 2**24 // 64
    for batch, rows in (((), num), ((4,), max(CHUNK_SIZE, num // 4))):
        X = torch.empty(1, 1, **double).expand(*batch, 600_000, 3)
        assert features.chunks(X)[0] == slice(0, rows)
    few = NystromFeatures.of(kernel, uniform(64, 3, **double), chunk_size=7)
    assert few.chunks(X)[0] == slice(0, 7)


def test_the_objective_with_blocks_has_the_dense_value_and_gradients(double):
    kernel = ScaleKernel(kernel_of("Matern")).to(**double)
    X, S = uniform(MANY_COLUMNS, 3, **double), uniform(BLOCK_ROWS + 30, 3, **double)
    error, noise = (6 * X).sin().sum(-1), torch.full((len(X),), 0.1, **double)
    parameters = [*kernel.parameters()]

    def gradients(value):
        return value, *torch.autograd.grad(value, parameters)

    with torch.no_grad():
        factor = factorize_batch(kernel(S).to_dense())
    features = NystromFeatures.from_factor(kernel, S, factor)
    found = gradients(low_rank_objective(features, X, error, noise))
    K, cross = kernel(S).to_dense(), kernel(S, X).to_dense()
    Q = cross.mT @ torch.linalg.solve(K, cross)
    prior = MultivariateNormal(torch.zeros_like(error), Q + noise.diag())
    left = (kernel(X, diag=True) - Q.diagonal()) / noise
    expected = gradients(prior.log_prob(error) - 0.5 * left.sum())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)
