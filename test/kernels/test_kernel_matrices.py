"""Matrices and diagonals of kernels, against a closed form and against each other."""

from typing import Any

import pytest
import torch
from botorch.models.kernels import CategoricalKernel
from gpytorch.kernels import (
    HammingIMQKernel,
    Kernel,
    MaternKernel,
    RBFKernel,
    ScaleKernel,
)

from botorch_sparse.kernels import dense_covariance, prior_variance, stationary
from botorch_sparse.kernels.kernel_matrices import covariance_sums


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


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("columns", [None, (2, 0)])
def test_weighted_sums(nu, columns, double):
    """And their gradients, as of the matrix, with equal points and an offset."""
    g = torch.Generator().manual_seed(0)
    X, X2 = (20.0 + torch.rand(n, 3, generator=g).to(**double) for n in (4, 6))
    X2[2] = X[1]
    weights = torch.randn(4, 6, generator=g).to(**double)
    base = MaternKernel(nu, ard_num_dims=3 - (columns is not None), active_dims=columns)
    base.lengthscale = torch.linspace(0.3, 0.9, base.ard_num_dims)
    kernel = ScaleKernel(ScaleKernel(base)).to(**double).requires_grad_(False)
    kernel.outputscale, found = 2.0, []
    for f in (
        covariance_sums,
        lambda k, *args: (k(*args[:2]) @ args[2].mT).diagonal(),
    ):
        at = X.clone().requires_grad_()
        sums = f(kernel, at, X2, weights)
        (slope,) = torch.autograd.grad((sums * weights[:, 0]).sum(), at)
        found.append((sums.detach(), slope))
    # GPyTorch's distances of equal points are 1e-15, and their roots 1e-8.
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6)


def test_weighted_sums_of_batches(double):
    """And none of the other derivatives of a kernel that requires some."""
    kernel = ScaleKernel(MaternKernel(), batch_shape=torch.Size([4])).to(**double)
    kernel.outputscale = torch.linspace(1.0, 2.0, 4, **double)
    X = torch.rand(4, 2, **double, requires_grad=True)
    weights = torch.ones(4, 4, **double)
    sums = covariance_sums(kernel, X, X.detach(), weights)
    torch.testing.assert_close(sums, dense_covariance(kernel, X).sum(-1))
    sums = covariance_sums(kernel.base_kernel, X, X.detach(), weights)
    (slope,) = torch.autograd.grad(sums.sum(), X, create_graph=False, retain_graph=True)
    assert slope.isfinite().all()
    with pytest.raises(NotImplementedError, match="first derivatives alone"):
        torch.autograd.grad(sums.sum(), X, create_graph=True)


def test_sees_its_own_columns_alone(double):
    X = torch.rand(5, 3, generator=torch.Generator().manual_seed(0)).to(**double)
    own, plain = RBFKernel(active_dims=(2, 0)).to(**double), RBFKernel().to(**double)
    expected = dense_covariance(plain, X[:, [2, 0]])
    torch.testing.assert_close(dense_covariance(own, X), expected)
    scaled = ScaleKernel(own).to(**double)
    torch.testing.assert_close(
        dense_covariance(scaled, X), scaled.outputscale * expected
    )


PAIR = torch.Size([2])


@pytest.mark.parametrize("nu", [1.5, 2.5])
@pytest.mark.parametrize(
    "case", ["plain", "columns", "twice", "batch", "scales", "one"]
)
def test_matern_kernels_with_and_without_gradients(case, nu, device, monkeypatch):
    """Rows a few at a time against the matrix that GPyTorch differentiates."""
    monkeypatch.setattr(stationary, "ENTRIES", 8)
    monkeypatch.setattr(stationary, "FEWEST_ROWS", 2)
    plain, batch = MaternKernel(nu, ard_num_dims=2), {"batch_shape": PAIR}
    kernel = {
        "plain": plain,
        "columns": ScaleKernel(MaternKernel(nu, active_dims=(2, 0), ard_num_dims=2)),
        "twice": ScaleKernel(ScaleKernel(plain)),
        "batch": ScaleKernel(MaternKernel(nu, ard_num_dims=2, **batch), **batch),
        "scales": ScaleKernel(plain, **batch),
        "one": ScaleKernel(plain, batch_shape=torch.Size([1])),
    }[case].to(device, torch.float64)
    for number, parameter in enumerate(kernel.parameters()):
        values = torch.arange(1.0 + number, 1.0 + number + parameter.numel())
        parameter.data = 0.4 * values.view(parameter.shape).to(parameter)
    d, g = 3 if case == "columns" else 2, torch.Generator().manual_seed(0)
    X = torch.rand(7, d, generator=g, dtype=torch.float64).to(device)
    for X2 in (None, X[:3], X[3:] + 0.1, X[:0]):
        expected = dense_covariance(kernel, X, X2)
        assert expected.requires_grad
        with torch.no_grad():
            found = dense_covariance(kernel, X, X2)
        torch.testing.assert_close(found, expected.detach(), rtol=1e-9, atol=1e-12)


def one_hot(*batch_shape: int, **tkwargs: Any) -> torch.Tensor:
    """Sequences of four tokens of three kinds."""
    g = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 3, (*batch_shape, 5, 4), generator=g)
    return torch.nn.functional.one_hot(tokens, 3).flatten(-2).to(**tkwargs)


KERNELS = {
    "broadcasts its diagonal": lambda: HammingIMQKernel(vocab_size=3),
    "the same, scaled": lambda: ScaleKernel(HammingIMQKernel(vocab_size=3)),
    "the same, scaled in a batch": lambda: ScaleKernel(
        HammingIMQKernel(vocab_size=3), batch_shape=PAIR
    ),
    "forms the matrix": CategoricalKernel,
    "in a batch": lambda: ScaleKernel(MaternKernel(batch_shape=PAIR), batch_shape=PAIR),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("batch_shape", [(), (2,), (3, 2)])
def test_is_the_diagonal_of_the_matrix(name, batch_shape, double):
    kernel: Kernel = KERNELS[name]().to(**double)
    X = one_hot(*batch_shape, **double)
    expected = kernel(X).to_dense().diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(prior_variance(kernel, X), expected)
