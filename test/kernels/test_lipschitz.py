"""Slopes of stationary kernels, against differences of the kernel itself."""

import pytest
import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)

from botorch_sparse.kernels.lipschitz import lipschitz_constants

DIM = 3


def ready(kernel: Kernel, seed: int = 0) -> Kernel:
    """In double precision, with hyperparameters of its own."""
    kernel = kernel.double().requires_grad_(False)
    g = torch.Generator().manual_seed(seed)
    for parameter in kernel.parameters():
        shape = parameter.shape
        parameter.copy_(torch.randn(shape, generator=g, dtype=torch.float64))
    return kernel


def scaled(base: Kernel) -> Kernel:
    return ScaleKernel(base)


KERNELS = {
    "RBF": lambda: RBFKernel(),
    "RBF, ARD": lambda: RBFKernel(ard_num_dims=DIM),
    "RQ": lambda: RQKernel(ard_num_dims=DIM),
    "Matern 3/2": lambda: MaternKernel(1.5, ard_num_dims=DIM),
    "Matern 5/2": lambda: MaternKernel(2.5),
    "scaled": lambda: scaled(RBFKernel(ard_num_dims=DIM)),
    "some columns": lambda: RBFKernel(ard_num_dims=2, active_dims=(2, 0)),
    "scaled columns": lambda: scaled(RBFKernel(ard_num_dims=2, active_dims=(2, 0))),
    "sum": lambda: scaled(RBFKernel()) + scaled(MaternKernel(2.5)),
    "product": lambda: (
        scaled(RBFKernel(active_dims=(0,)))
        * scaled(MaternKernel(1.5, active_dims=(1, 2)))
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_slopes_are_second_differences(name):
    r"""`2 (k(0) - k(h e_i)) / h^2` is at most the slope, and nearly so.

    Its error is of order h for Matern-3/2 (the third derivative jumps), less for
    others, and rounding adds `eps / h^2`.
    """
    kernel, h = ready(KERNELS[name]()), 1e-5
    found = lipschitz_constants(kernel, DIM)
    assert found is not None
    origin = torch.zeros(1, DIM, dtype=torch.float64)
    variance = float(kernel(origin).to_dense())
    assert found.variance == pytest.approx(variance, rel=1e-12)
    apart = kernel(origin, h * torch.eye(DIM).double()).to_dense().squeeze(0)
    squares = 2 * (variance - apart) / h**2
    steepest = float(found.squares.max())
    assert found.squares.tolist() == pytest.approx(
        squares.tolist(), rel=1e-3, abs=1e-3 * steepest
    )


@pytest.mark.parametrize("name", KERNELS)
def test_no_function_changes_faster(name):
    """The largest change of a function of norm one is `|k_x - k_x'|`."""
    kernel = ready(KERNELS[name](), seed=1)
    found = lipschitz_constants(kernel, DIM)
    assert found is not None
    g = torch.Generator().manual_seed(0)
    X = torch.randn(200, DIM, generator=g, dtype=torch.float64)
    change = 2 * (found.variance - kernel(X, X[:1] * 0).to_dense().squeeze(-1))
    assert bool((change <= X.square() @ found.squares + 1e-12).all())


@pytest.mark.parametrize(
    "kernel",
    [
        MaternKernel(0.5),
        LinearKernel(),
        scaled(MaternKernel(0.5)),
        RBFKernel() + LinearKernel(),
        RBFKernel(batch_shape=torch.Size([2])),
    ],
)
def test_others_are_not_known(kernel):
    assert lipschitz_constants(kernel, DIM) is None
