"""Covariances and gradients in closed form against GPyTorch's kernels."""

from math import exp
from typing import Any

import pytest
import torch
from forbid_large import ForbidLarge
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_sparse.kernels import kernel_for_fit, stationary
from botorch_sparse.kernels.stationary import MATERN, RBF, stationary_covariance

F64 = torch.float64
KINDS = {
    "rbf": RBFKernel,
    "matern32": lambda **options: MaternKernel(1.5, **options),
    "matern52": lambda **options: MaternKernel(2.5, **options),
}
PROFILES = {"rbf": RBF, "matern32": MATERN[1.5], "matern52": MATERN[2.5]}


def made(kind: str, *batch_shape: int, d: int = 3, **tkwargs: Any) -> Kernel:
    """A kernel with a scale and different lengthscales."""
    options = {"ard_num_dims": d, "batch_shape": torch.Size(batch_shape)}
    kernel = ScaleKernel(KINDS[kind](**options), batch_shape=options["batch_shape"])
    size = kernel.base_kernel.raw_lengthscale.shape
    kernel.base_kernel.lengthscale = torch.linspace(0.3, 1.5, size.numel()).view(size)
    kernel.outputscale = torch.linspace(0.7, 2.0, size[:-2].numel()).view(size[:-2])
    return kernel.to(**tkwargs)


def points(*shape: int, **tkwargs: Any) -> Tensor:
    """Some of them equal, and far from zero."""
    X = torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=F64)
    X[..., 1, :] = X[..., 0, :]
    return (20.0 + X).to(**tkwargs)


def both(kernel: Kernel, X: Tensor, X2: Tensor, dtype: torch.dtype) -> list[Any]:
    """The matrix and the gradients by all of a kernel and its copy for fits."""
    found = []
    for each in (kernel_for_fit(kernel, dtype), kernel):
        inputs = [t.clone().requires_grad_() for t in (X, X2)]
        pair = inputs if X is not X2 else inputs[:1] * 2
        K = each(*pair).to_dense()
        weights = torch.linspace(-1.0, 2.0, K.numel()).view(K.shape).to(K)
        wanted = [*kernel.parameters(), *(inputs if X is not X2 else inputs[:1])]
        found.append([K.detach(), *torch.autograd.grad((weights * K).sum(), wanted)])
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("entries", [2**16, 16, 3])
@pytest.mark.parametrize(
    "batch_shape, shapes",
    [
        ((), ((9, 3), None)),
        ((), ((9, 3), (4, 3))),
        ((), ((1, 3), (4, 3))),
        ((2,), ((9, 3), None)),
        ((2,), ((2, 9, 3), (4, 3))),
        ((), ((5, 2, 9, 3), (2, 4, 3))),
        ((2,), ((5, 1, 4, 3), (9, 3))),
    ],
)
def test_values_and_gradients(kind, entries, batch_shape, shapes, device, monkeypatch):
    """Of square and other matrices, however many rows are done at once."""
    monkeypatch.setattr(stationary, "ENTRIES", entries)
    monkeypatch.setattr(stationary, "FEWEST_ROWS", 1)
    tkwargs = {"dtype": F64, "device": device}
    kernel, (shape, shape2) = made(kind, *batch_shape, **tkwargs), shapes
    X = points(*shape, **tkwargs) if shape[-2] > 1 else 20 + torch.rand(1, 3, **tkwargs)
    X2 = X if shape2 is None else points(*shape2, **tkwargs)
    ours, expected = both(kernel, X, X2, F64)
    # GPyTorch's distances of equal points are 1e-15, and their roots 1e-8.
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_square", [True, False])
def test_second_derivatives(kind, is_square, double):
    """As a closure of one's own may want them; by finite differences."""
    g = torch.Generator().manual_seed(1)
    Z, Z2 = (torch.rand(4, 2, generator=g, dtype=F64) for _ in range(2))

    def covariance(Z: Tensor, Z2: Tensor) -> Tensor:
        ell = torch.tensor([0.7, 1.3], dtype=F64)
        return stationary_covariance(Z, Z if is_square else Z2, ell, PROFILES[kind])

    inputs = Z.requires_grad_(), Z2.requires_grad_(not is_square)
    assert torch.autograd.gradcheck(covariance, inputs)
    assert torch.autograd.gradgradcheck(covariance, inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_second_derivatives(kind):
    """Nothing of `n x n x d` is formed."""
    n, d = 40, 50
    Z = torch.rand(n, d, generator=torch.Generator().manual_seed(0), dtype=F64)
    ell = torch.full((d,), 2.0, dtype=F64, requires_grad=True)
    with ForbidLarge(2 * n * n):
        K = stationary_covariance(Z, Z, ell, PROFILES[kind])
        (first,) = torch.autograd.grad(K.square().sum(), ell, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), ell)
    assert bool((second != 0).all())


@pytest.mark.parametrize("kind", KINDS)
def test_an_offset_costs_no_digits(kind):
    """Of gradients in the lengthscales, though points are a million from zero."""
    g = torch.Generator().manual_seed(0)
    X = torch.randint(0, 2**20, (20, 3), generator=g).double() / 2**20
    found = []
    for offset in (0.0, 2.0**20):
        ell = torch.tensor([0.01, 1.0, 100.0], dtype=F64, requires_grad=True)
        Y = X + offset
        weights = torch.linspace(-1.0, 2.0, 400, dtype=F64).view(20, 20)
        weights = weights + 1e6 * torch.eye(20, dtype=F64)
        K = stationary_covariance(Y, Y, ell, PROFILES[kind])
        found += torch.autograd.grad((weights * K).sum(), ell)
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_no_points(kind):
    kernel, X = kernel_for_fit(made(kind, dtype=F64), F64), points(4, 3)
    assert kernel(X[:0], X).to_dense().shape == (0, 4)
    assert kernel(X, X[:0]).to_dense().shape == (4, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_definition(kind):
    """By the textbook's formula, in a loop."""
    X = points(5, 2)
    kernel = made(kind, d=2, dtype=F64).requires_grad_(False)
    ell, scale = kernel.base_kernel.lengthscale[0], float(kernel.outputscale)
    K = kernel_for_fit(kernel, F64)(X).to_dense()
    for i in range(5):
        for j in range(5):
            r = float(((X[i] - X[j]) / ell).norm())
            a = {"matern32": 3.0**0.5, "matern52": 5.0**0.5}.get(kind, 0.0) * r
            expected = {
                "rbf": exp(-0.5 * r * r),
                "matern32": (1 + a) * exp(-a),
                "matern52": (1 + a + a * a / 3) * exp(-a),
            }[kind]
            assert float(K[i, j]) == pytest.approx(scale * expected, rel=1e-6)
    assert torch.equal(K.diagonal(), K.new_full((5,), scale))


def test_bits_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(stationary, "KERNEL_ENTRY", 1e6)  # worth several threads
    Z = points(300, 3).requires_grad_()
    found, before = [], torch.get_num_threads()
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            K = stationary_covariance(Z, Z, torch.ones(3, dtype=F64), MATERN[2.5])
            found.append([K, *torch.autograd.grad(K.square().sum(), Z)])
    finally:
        torch.set_num_threads(before)
    for one, three in zip(*found, strict=True):
        assert torch.equal(one, three)


def test_other_kernels_stay_as_they_are():
    rough = MaternKernel(0.5).double()
    X = points(6, 2)
    K = kernel_for_fit(rough, F64)(X).to_dense()
    torch.testing.assert_close(K, rough(X).to_dense())
    own = type("Own", (RBFKernel,), {})().double()
    assert kernel_for_fit(own, F64) is own
