"""Kernels with shorter lengthscales: those of inputs farther apart."""

import copy
from collections.abc import Callable

import pytest
import torch
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.priors import GammaPrior

from botorch_sparse.kernels import shrink_lengthscales

BATCH = torch.Size([2])
KERNELS: dict[str, Callable[[], Kernel]] = {
    "rbf": RBFKernel,
    "matern": lambda: MaternKernel(nu=1.5),
    "rational-quadratic": RQKernel,
    "scaled-ard": lambda: ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=3)),
    "batch": lambda: ScaleKernel(
        RBFKernel(ard_num_dims=3, batch_shape=BATCH), batch_shape=BATCH
    ),
    "sum": lambda: AdditiveKernel(
        ScaleKernel(RBFKernel(active_dims=(0, 2))), MaternKernel(nu=0.5)
    ),
    "product": lambda: ScaleKernel(
        ProductKernel(RBFKernel(active_dims=(1,)), MaternKernel(ard_num_dims=3))
    ),
    "operators": lambda: ScaleKernel(RBFKernel() + MaternKernel()) * RQKernel(),
    "bounded": lambda: RBFKernel(lengthscale_constraint=Interval(0.3, 5.0)),
    "botorch": lambda: get_covar_module_with_dim_scaled_prior(3),
    "prior": lambda: MaternKernel(
        ard_num_dims=3,
        lengthscale_prior=GammaPrior(3.0, 6.0),
        lengthscale_constraint=GreaterThan(0.3),
    ),
}


def make(name: str) -> Kernel:
    """The kernel with lengthscales from 0.4 to 1.2."""
    kernel = KERNELS[name]().double()
    generator = torch.Generator().manual_seed(2)
    for part in kernel.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            size = part.lengthscale.shape
            draw = torch.rand(size, generator=generator, dtype=torch.float64)
            part.lengthscale = 0.4 + 0.8 * draw
    return kernel


@pytest.mark.parametrize("factor", [1.0, 0.8, 0.5, 1e-3])
@pytest.mark.parametrize("name", KERNELS)
def test_is_the_kernel_of_inputs_farther_apart(name, factor):
    """Bounds on lengthscales, which 0.5 and 1e-3 pass, do not matter."""
    kernel = make(name)
    state = copy.deepcopy(kernel.state_dict())
    shrunk = shrink_lengthscales(kernel, factor)
    generator = torch.Generator().manual_seed(3)
    X = factor * torch.rand(12, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        K, expected = shrunk(X).to_dense(), kernel(X / factor).to_dense()
    assert K.shape == expected.shape
    # GPyTorch expands |x - z|^2: rough kernels see the root of its rounding
    torch.testing.assert_close(K, expected, rtol=0, atol=1e-7)
    different = kernel(X).to_dense().detach() - expected
    assert factor == 1 or different.abs().max() > 0.05

    assert not any(p.requires_grad for p in shrunk.parameters())
    assert all(p.requires_grad for p in kernel.parameters())
    again = kernel.state_dict()
    assert again.keys() == state.keys()
    assert all(torch.equal(again[key], state[key]) for key in state)


@pytest.mark.parametrize("name", KERNELS)
def test_lengthscales_are_multiplied(name):
    kernel = make(name)
    shrunk = shrink_lengthscales(kernel, 0.7)
    for part, other in zip(kernel.modules(), shrunk.modules(), strict=False):
        if isinstance(part, Kernel) and part.has_lengthscale:
            expected = 0.7 * part.lengthscale.detach()
            torch.testing.assert_close(
                other.lengthscale, expected, rtol=1e-13, atol=1e-13
            )


def test_bounds_are_kept_where_they_fit():
    kernel = RBFKernel(lengthscale_constraint=GreaterThan(0.025)).double()
    kernel.lengthscale = 1.0
    kept = shrink_lengthscales(kernel, 0.1).raw_lengthscale_constraint
    assert isinstance(kept, GreaterThan)
    gone = shrink_lengthscales(kernel, 0.025)
    assert isinstance(gone.raw_lengthscale_constraint, Positive)
    assert gone.raw_lengthscale.isfinite().all()
    assert isinstance(kernel.raw_lengthscale_constraint, GreaterThan)


def test_of_a_shrunk_kernel():
    kernel = make("botorch")
    twice = shrink_lengthscales(shrink_lengthscales(kernel, 0.2), 0.3)
    once = shrink_lengthscales(kernel, 0.06)
    torch.testing.assert_close(
        twice.lengthscale, once.lengthscale, rtol=1e-13, atol=0.0
    )
