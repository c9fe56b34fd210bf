"""The kernel that a fit evaluates.

It is in float64, goes by columns for categories, and has gradients in closed form where
it is stationary (`botorch_sparse.kernels.stationary`).
"""

from typing import Any, cast

import torch
from botorch.models.kernels import CategoricalKernel
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor
from torch.nn import Module

from botorch_sparse.argument_checks import check_kind
from botorch_sparse.kernels.stationary import (
    MATERN,
    RBF,
    stationary_covariance,
)


def kernel_for_fit(kernel: Kernel, dtype: torch.dtype) -> Kernel:
    """The same kernel of float64 data, whose gradients flow to its own parameters.

    Args:
        kernel: The kernel, which follows its data's dtype.
        dtype: That dtype.

    Returns:
        The kernel itself, or a copy that holds its parameters in float64, and shares
        what is neither a tensor nor a module.
    """
    check_kind("kernel", kernel, Kernel, "a GPyTorch kernel, such as RBFKernel()")
    is_quick = not any(type(part) in QUICKER for part in kernel.modules())
    if dtype == torch.float64 and is_quick:
        return kernel
    return cast(Kernel, _copy_for_fit(kernel, {}))


def _copy_for_fit(module: Module, known: dict[int, Module]) -> Module:
    """The copy of a module; it shares all but the modules inside and tensors."""
    if id(module) in known:
        return known[id(module)]
    kind: type[Module] = type(module)
    kind = QUICKER.get(kind, kind)
    copied = known[id(module)] = kind.__new__(kind)
    held = vars(copied)
    held.update((name, _in_double(value)) for name, value in vars(module).items())
    for name in ("_parameters", "_buffers"):
        held[name] = {key: _in_double(value) for key, value in held[name].items()}
    held["_modules"] = {
        name: None if part is None else _copy_for_fit(part, known)
        for name, part in module._modules.items()
    }
    return copied


def _in_double(value: object) -> object:
    """A tensor of floats in float64, and whatever else as it is."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.double()
    return value


class CategoryColumns(CategoricalKernel):
    r"""BoTorch's `CategoricalKernel`, summed up column by column.

    .. math:: k(x, x') = \exp\Big(-\frac1d \sum_j [x_j \neq x'_j] / \ell_j\Big)

    Its tensors are `n x m`, where BoTorch's are `n x m x d` with a broadcast over the
    last dimension. On 700 points, 256 inducing points and 2 such columns that is half
    of the time of an objective with BoTorch's mixed kernel.
    """

    def forward(
        self,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        last_dim_is_batch: bool = False,
    ) -> Tensor:
        """The kernel matrix, or its diagonal."""
        if last_dim_is_batch:
            return super().forward(x1, x2, diag, last_dim_is_batch)
        d = x1.shape[-1]
        weights = (1 / (d * self.lengthscale)).expand(*self.batch_shape, 1, d)
        if diag:
            return torch.exp(-((x1 != x2) * weights).sum(-1))
        distance = torch.zeros((), dtype=x1.dtype, device=x1.device)
        for j in range(d):
            differs = x1[..., j].unsqueeze(-1) != x2[..., j].unsqueeze(-2)
            distance = distance + differs.to(x1.dtype) * weights[..., j].unsqueeze(-1)
        return torch.exp(-distance)


class RBFInClosedForm(RBFKernel):
    """GPyTorch's `RBFKernel` by `stationary_covariance`."""

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor:
        """The kernel matrix, or its diagonal."""
        if diag or params.get("last_dim_is_batch"):
            return super().forward(x1, x2, diag=diag, **params)
        return stationary_covariance(x1, x2, self.lengthscale, RBF)


class MaternInClosedForm(MaternKernel):
    """GPyTorch's `MaternKernel` by `stationary_covariance`."""

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor:
        """The kernel matrix, or its diagonal."""
        profile = MATERN.get(self.nu)
        if diag or profile is None or params.get("last_dim_is_batch"):
            return super().forward(x1, x2, diag=diag, **params)
        return stationary_covariance(x1, x2, self.lengthscale, profile)


# What stands for a kernel in a fit, by its type.
QUICKER: dict[type[Module], type[Module]] = {
    CategoricalKernel: CategoryColumns,
    MaternKernel: MaternInClosedForm,
    RBFKernel: RBFInClosedForm,
}
