"""How fast functions of a kernel's space change."""

import math
from typing import NamedTuple, TypeAlias

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor


class LipschitzConstants(NamedTuple):
    """How fast functions of a stationary kernel's space change along each feature."""

    variance: float  # `k(0)`
    squares: Tensor  # `d`, minus the second derivatives of `k` at 0; float64, on host


Known: TypeAlias = LipschitzConstants | None


@torch.no_grad()
def lipschitz_constants(covar_module: Kernel, dim: int) -> Known:
    r"""The slopes :math:`g_i^2 = -\partial_i^2 k(0)`, where they are known.

    A stationary kernel is :math:`\int \cos(\omega^\top \delta) \, dS(\omega)`, so that
    by the reproducing property

    .. math::
        |f(x) - f(x')|^2 \le \|f\|^2 \, 2 (k(0) - k(\delta))
        \le \|f\|^2 \textstyle\sum_i g_i^2 \delta_i^2, \qquad \delta = x - x',

    if the mixed derivatives vanish, as they do for the kernels known here: Gaussian,
    rational quadratic, Matern with nu of 3/2 and 5/2, and their scaled ones, sums and
    products.

    Args:
        covar_module: The kernel.
        dim: Number d of features.

    Returns:
        None for other kernels, such as Matern-1/2, for which they are infinite.
    """
    place = covar_module.active_dims
    inner = _of_forward(covar_module, dim if place is None else len(place))
    if inner is None or place is None:
        return inner
    every = inner.squares.new_zeros(dim)
    return LipschitzConstants(
        inner.variance, every.index_add(0, place.cpu(), inner.squares)
    )


def _of_forward(covar_module: Kernel, dim: int) -> Known:
    """The constants for the features that `forward` gets."""
    kind = type(covar_module)
    if len(covar_module.batch_shape):
        return None
    if kind is ScaleKernel:
        return _scaled(covar_module, dim)
    if kind is AdditiveKernel or kind is ProductKernel:
        return _combined(covar_module, dim)
    if (steepness := _steepness(covar_module)) is None:
        return None
    squares = steepness / covar_module.lengthscale.double().square().flatten().cpu()
    return LipschitzConstants(1.0, squares.expand(dim))


def _steepness(covar_module: Kernel) -> float | None:
    """Minus the second derivative at zero for a lengthscale of one."""
    kind = type(covar_module)
    if kind is RBFKernel or kind is RQKernel:
        return 1.0
    if kind is MaternKernel and covar_module.nu > 1:
        return float(covar_module.nu / (covar_module.nu - 1))
    return None


def _scaled(covar_module: Kernel, dim: int) -> Known:
    """An outputscale times a kernel, whose `forward` alone is called."""
    if (inner := _of_forward(covar_module.base_kernel, dim)) is None:
        return None
    scale = float(covar_module.outputscale)
    return LipschitzConstants(scale * inner.variance, scale * inner.squares)


def _combined(covar_module: Kernel, dim: int) -> Known:
    """A sum or a product, in which the other kernels have their variance."""
    parts = [lipschitz_constants(kernel, dim) for kernel in covar_module.kernels]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    variances = [part.variance for part in known]
    squares = torch.stack([part.squares for part in known])
    if type(covar_module) is AdditiveKernel:
        return LipschitzConstants(sum(variances), squares.sum(0))
    others = [math.prod(variances) / variance for variance in variances]
    weights = squares.new_tensor(others)
    return LipschitzConstants(
        math.prod(variances), (weights.unsqueeze(-1) * squares).sum(0)
    )
