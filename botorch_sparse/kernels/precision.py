"""Float32 data, float64 posterior.

In float32 a kernel is known to 1e-7 and the factor of `K_SS` amplifies that a
thousandfold: means and variances would be off by percents for smooth kernels. A
posterior is small, so it is built and evaluated in float64 whatever the data are in.
"""

import copy
from typing import TypeVar

import torch
from gpytorch.module import Module

from botorch_sparse.doors import check_kind

ModuleT = TypeVar("ModuleT", bound=Module)


def in_double(module: ModuleT, dtype: torch.dtype) -> ModuleT:
    """The module for float64 data; a copy without gradients for data of `dtype` less.

    Args:
        module: A kernel or mean, which follows its data's dtype.
        dtype: That dtype.
    """
    check_kind("module", module, torch.nn.Module, "a GPyTorch kernel or mean")
    if dtype == torch.float64:
        return module
    return copy.deepcopy(module).double().requires_grad_(False)
