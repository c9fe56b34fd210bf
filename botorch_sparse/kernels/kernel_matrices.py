"""Kernel matrices and diagonals as tensors, in the precision that they need.

In float32 a kernel is known to 1e-7 and the factor of `K_SS` amplifies that a
thousandfold: means and variances would be off by percents for smooth kernels. A
posterior is small, so it is built and evaluated in float64 whatever the data are in.
"""

import copy
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from gpytorch import Module
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, ZeroMean
from linear_operator import to_dense
from torch import Tensor

from botorch_sparse.argument_checks import check_kind, check_tensors
from botorch_sparse.kernels.stationary import (
    MATERN,
    Profile,
    stationary_covariance,
    stationary_sums,
)
from botorch_sparse.kernels.tanimoto import TanimotoKernel


def dense_covariance(kernel: Kernel, X: Tensor, X2: Tensor | None = None) -> Tensor:
    """`k(X, X2)`, `batch_shape x n x n2`; of `X` with itself without `X2`.

    Without gradients, Matern kernels are evaluated a few rows at a time, which a cache
    holds: half of GPyTorch's time or less, but for small matrices. Of these, a lazy one
    of GPyTorch takes twice the time. That there are none is a setting of GPyTorch's
    too, which threads would take from each other.
    """
    check_kind("kernel", kernel, Kernel, "a GPyTorch kernel, such as RBFKernel()")
    check_tensors(X=X)
    X2 = X if X2 is None else X2
    if kernel.active_dims is not None:
        X, X2 = (points.index_select(-1, kernel.active_dims) for points in (X, X2))
    base, profile = unscaled(kernel), _profile(kernel)
    if torch.is_grad_enabled() or profile is None:
        return to_dense(Module.__call__(kernel, X, X2))
    K = stationary_covariance(X, X2, base.lengthscale, profile)
    while kernel is not base:
        scale = kernel.outputscale
        in_place = scale.dim() == 0 and scale.dtype == K.dtype
        K = K.mul_(scale) if in_place else K * scale.unsqueeze(-1).unsqueeze(-1)
        kernel = kernel.base_kernel
    return K


def covariance_sums(kernel: Kernel, X: Tensor, X2: Tensor, weights: Tensor) -> Tensor:
    r"""Sums :math:`\sum_j w_{ij} k(x_i, x'_j)` of `n` points, differentiable in them.

    Of Matern kernels without a batch shape they have first derivatives alone, in a half
    to a quarter of the time.
    """
    base, profile = unscaled(kernel), _profile(kernel)
    has_slopes = torch.is_grad_enabled() and X.requires_grad
    is_plain = kernel.active_dims is None and not kernel.batch_shape
    if profile is None or not has_slopes or not is_plain:
        return (weights * dense_covariance(kernel, X, X2)).sum(-1)
    sums = stationary_sums(X, X2, weights, base.lengthscale, profile)
    while kernel is not base:
        sums, kernel = sums * kernel.outputscale.detach(), kernel.base_kernel
    return sums


def _profile(kernel: Kernel) -> Profile | None:
    """What a Matern kernel is evaluated by; None for another kernel."""
    base = unscaled(kernel)
    return MATERN.get(base.nu) if type(base) is MaternKernel else None


def is_thread_safe(*modules: Module) -> bool:
    """Whether threads may evaluate kernels and means at the same time.

    Kernels by `dense_covariance`. Sums and products of kernels call their parts in a
    way that changes settings of GPyTorch, and a module of one's own may do anything.
    """
    safe = (RBFKernel, MaternKernel, TanimotoKernel, ZeroMean, ConstantMean)
    return all(type(unscaled(module)) in safe for module in modules)


def compares_counts(kernel: Kernel) -> bool:
    """Whether a kernel compares whole numbers exactly, of bytes as well."""
    return type(unscaled(kernel)) is TanimotoKernel


def count_covariance(kernel: Kernel, similarities: Sequence[Tensor]) -> Tensor:
    """What such a kernel makes of the similarities of each of its blocks, `n x n2`."""
    if type(kernel) is ScaleKernel:
        return count_covariance(kernel.base_kernel, similarities) * kernel.outputscale
    return kernel.product(similarities)


def unscaled(module: Module) -> Module:
    """The module inside of those that scale it."""
    while type(module) is ScaleKernel:
        module = module.base_kernel
    return module


def prior_variance(kernel: Kernel, X: Tensor) -> Tensor:
    """`k(x, x)`, `batch_shape x n`, for `batch_shape x n x d` points.

    Each point is an element of a batch, so that it costs O(n) also with kernels that
    form the matrix to take its diagonal, as BoTorch's `CategoricalKernel` does. What a
    kernel leaves to broadcasting, as GPyTorch's `HammingIMQKernel` does, is expanded.
    """
    check_kind("kernel", kernel, Kernel, "a GPyTorch kernel, such as RBFKernel()")
    check_tensors(X=X)
    X = X[(None,) * max(0, len(kernel.batch_shape) + 2 - X.dim())]
    if compares_counts(kernel):  # the same for all
        one = kernel(X[..., :1, :], diag=True)
        return one.expand(*one.shape[:-1], X.shape[-2]).clone()
    alone = X.movedim(-2, 0).unsqueeze(-2)
    k_diag = kernel(alone, diag=True)
    # torch.broadcast_shapes imports sympy when it is first called, for 0.3 s.
    shape = np.broadcast_shapes(k_diag.shape, alone.shape[:-1])
    return k_diag.expand(shape).squeeze(-1).movedim(0, -1)


ModuleT = TypeVar("ModuleT", bound=Module)


def in_double(module: ModuleT, dtype: torch.dtype) -> ModuleT:
    """The module for float64 data; a copy without gradients if it is for float32 data.

    Args:
        module: A kernel or mean.
        dtype: The dtype of its data.
    """
    check_kind("module", module, torch.nn.Module, "a GPyTorch kernel or mean")
    if dtype == torch.float64:
        return module
    return copy.deepcopy(module).double().requires_grad_(False)
