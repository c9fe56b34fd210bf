"""The kernel of a fit against the one it stands for."""

from threading import Lock
from typing import Any

import pytest
import torch
from botorch.models import MixedSingleTaskGP
from botorch.models.kernels import CategoricalKernel
from gpytorch.kernels import Kernel, RQKernel
from torch import Tensor

from botorch_sparse.kernels.fit_kernel import kernel_for_fit


def mixed(*batch_shape: int, **tkwargs: Any) -> tuple[Kernel, Tensor]:
    """BoTorch's kernel of numbers and categories, and points."""
    X = torch.rand(*batch_shape, 9, 5, generator=torch.Generator().manual_seed(0))
    X = X.to(**tkwargs)
    X[..., 3:] = (3 * X[..., 3:]).floor()
    kernel = MixedSingleTaskGP(X, X[..., :1], cat_dims=[3, 4]).covar_module
    for part in kernel.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            size = part.lengthscale.numel()
            values = torch.linspace(0.3, 0.9, size, **tkwargs)
            part.lengthscale = values.reshape(part.lengthscale.shape)
    return kernel, X


@pytest.mark.parametrize("batch_shape", [(), (2,)])
@pytest.mark.parametrize("diag", [False, True])
def test_categories_by_columns(batch_shape, diag, double):
    kernel, X = mixed(*batch_shape, **double)
    copied = kernel_for_fit(kernel, X.dtype)
    assert copied is not kernel
    for Z in (X, X.flip(-2), X.expand(3, *X.shape)):
        pair = [k(X.expand_as(Z), Z, diag=diag) for k in (copied, kernel)]
        ours, expected = pair if diag else [K.to_dense() for K in pair]
        torch.testing.assert_close(ours, expected)
        weights = torch.linspace(0.0, 1.0, ours.numel(), **double).reshape(ours.shape)
        gradients = [
            torch.autograd.grad(
                (weights * K).sum(), list(kernel.parameters()), materialize_grads=True
            )
            for K in (ours, expected)
        ]
        torch.testing.assert_close(*gradients)


@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_float32_parameters_get_the_gradient(device):
    kernel, X = mixed(dtype=torch.float32, device=device)
    exact, _ = mixed(dtype=torch.float64, device=device)
    exact.load_state_dict(kernel.state_dict())
    ours = kernel_for_fit(kernel, X.dtype)(X.double()).to_dense().sum()
    expected = exact(X.double()).to_dense().sum()
    assert ours.dtype == torch.float64
    torch.testing.assert_close(ours, expected)
    gradients = torch.autograd.grad(ours, list(kernel.parameters()))
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    for gradient, other in zip(
        gradients, torch.autograd.grad(expected, list(exact.parameters())), strict=True
    ):
        torch.testing.assert_close(gradient, other.float())


def test_other_kernels_stay(double):
    kernel = RQKernel().to(**double)
    assert kernel_for_fit(kernel, torch.float64) is kernel


class Locked(Kernel):
    """A user's kernel of categories, with what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.categories = CategoricalKernel(active_dims=[3, 4])
        self.lock, self.last = Lock(), {}

    def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Any:
        with self.lock:
            self.last["x1"] = x1 * self.categories.lengthscale  # of a graph
            return self.categories(x1, x2, **params)


@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_only_tensors_and_modules_are_copied(tkwargs):
    _, X = mixed(**tkwargs)
    kernel = Locked().to(**tkwargs)
    expected = kernel(X).to_dense()
    copied = kernel_for_fit(kernel, X.dtype)
    ours = copied(X.double()).to_dense()
    assert ours.dtype == torch.float64 and copied.lock is kernel.lock
    torch.testing.assert_close(ours.to(X), expected)
    parameters = list(kernel.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(ours.sum(), parameters),
        torch.autograd.grad(expected.sum(), parameters),
    )
