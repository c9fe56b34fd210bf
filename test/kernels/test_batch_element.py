"""Elements of kernels in batches, against the matrices of the whole batch."""

from typing import Any

import pytest
import torch
from botorch.exceptions import UnsupportedError
from botorch.models.kernels.orthogonal_additive_kernel import OrthogonalAdditiveKernel
from device_cases import sweep
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import (
    ArcKernel,
    CylindricalKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)

from botorch_sparse.kernels import kernel_at

BATCH, LAST = torch.Size([3, 2]), torch.Size([2])
IN = {"batch_shape": BATCH}
KERNELS = {
    "active dims": lambda: ScaleKernel(
        RBFKernel(ard_num_dims=2, active_dims=[1, 3], **IN), **IN
    ),
    "as many active dims as elements": lambda: RBFKernel(
        active_dims=[0, 2, 3], ard_num_dims=3, **IN
    ),
    "nested sum": lambda: ScaleKernel(
        RBFKernel(active_dims=[0, 2], **IN)
        + MaternKernel(ard_num_dims=2, active_dims=[1, 3], **IN),
        **IN,
    ),
    "product, one factor in a batch": lambda: ScaleKernel(
        RBFKernel(**IN) * LinearKernel(active_dims=[1])
    ),
    "batches that broadcast": lambda: (
        ScaleKernel(RBFKernel(), batch_shape=LAST)
        + PeriodicKernel(active_dims=[2], batch_shape=torch.Size([3, 1]))
    ),
    "last dimension alone": lambda: PolynomialKernel(2, batch_shape=LAST),
    "unbatched lengthscales as many as elements": lambda: ArcKernel(
        MaternKernel(batch_shape=torch.Size([1, 2])), ard_num_dims=2, active_dims=[0, 1]
    ),
    "as many angular weights as elements": lambda: CylindricalKernel(
        2, MaternKernel(batch_shape=LAST), active_dims=[1]
    ),
    "bounds in batches": lambda: ScaleKernel(
        RBFKernel(
            lengthscale_constraint=Interval(
                torch.tensor([0.1, 0.2]).reshape(2, 1, 1), torch.tensor(0.9)
            ),
            ard_num_dims=2,
            active_dims=[0, 1],
            **IN,
        ),
        outputscale_constraint=GreaterThan(torch.arange(1.0, 7.0).reshape(3, 2)),
        **IN,
    ),
    "scale alone": lambda: ScaleKernel(RBFKernel(active_dims=[3]), **IN),
}


def randomized(kernel: Kernel, **tkwargs: Any) -> Kernel:
    generator = torch.Generator().manual_seed(0)
    for parameter in kernel.to(**tkwargs).parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = values.to(parameter)
    return kernel


@sweep("name", KERNELS, ["nested sum"])
def test_is_a_slice_of_the_batch(name, double):
    kernel = randomized(KERNELS[name](), **double)
    state = {k: v.clone() for k, v in kernel.state_dict().items()}
    X = torch.rand(6, 4, generator=torch.Generator().manual_seed(1)).to(**double)
    whole = kernel(X.expand(*BATCH, 6, 4)).to_dense()
    for i in range(3):
        for j in range(2):
            element = kernel_at(kernel, (i, j))
            assert element.batch_shape == torch.Size()
            torch.testing.assert_close(element(X).to_dense(), whole[i, j])
            torch.testing.assert_close(element(X, diag=True), whole[i, j].diagonal())
    assert all(torch.equal(v, state[k]) for k, v in kernel.state_dict().items())


def test_further_batch_dimensions_inside():
    kernel = OrthogonalAdditiveKernel(dim=4, batch_shape=LAST)
    with pytest.raises(UnsupportedError, match="no further dimensions"):
        kernel_at(kernel, (1,))


def test_no_batch_is_the_kernel_itself():
    kernel = ScaleKernel(RBFKernel(active_dims=[1]))
    assert kernel_at(kernel, (1, 0)) is kernel


class Shifted(Kernel):
    """A kernel that holds another and a parameter of one number for each dimension."""

    def __init__(self, inner: Kernel, dim: int) -> None:
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(dim))
        self.inner = inner

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, **params: Any) -> Any:
        return self.inner.forward(x1 + self.shift, x2, **params)


def test_dimensions_that_may_be_those_of_the_batch():
    inner = RBFKernel(batch_shape=LAST)
    with pytest.raises(UnsupportedError, match=r"shift has shape \(2,\)"):
        kernel_at(Shifted(inner, dim=2), (1,))
    assert kernel_at(Shifted(inner, dim=3), (1,)).shift.shape == (3,)


def test_parameters_that_lack_the_batch():
    kernel = LinearKernel(batch_shape=LAST)
    kernel.raw_variance.data = torch.zeros(1, 1)
    with pytest.raises(UnsupportedError, match=r"raw_variance has shape \(1, 1\)"):
        kernel_at(kernel, (1,))
