"""Kernels with other lengthscales than they were given."""

import copy

import torch
from botorch.exceptions import InputDataError
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel

from botorch_sparse.argument_checks import check_kind, check_number


@torch.no_grad()
def shrink_lengthscales(covar_module: Kernel, factor: float) -> Kernel:
    """A copy of a kernel in which every lengthscale is multiplied by a factor.

    For stationary kernels, `shrink_lengthscales(k, c)(X)` is `k(X / c)`. All kernels
    inside are looked at: scaled ones, sums, products, ARD and batches of lengthscales.
    What is no lengthscale stays, as do priors. A constraint on a lengthscale that would
    forbid the new value is replaced in the copy by positivity.

    Args:
        covar_module: The kernel, which stays as it is.
        factor: In (0, 1].

    Returns:
        The copy, without gradients.

    Raises:
        InputDataError: If the factor is out of its range, or if there is no
            lengthscale at all.
    """
    check_kind("covar_module", covar_module, Kernel, "a GPyTorch kernel")
    check_number("factor", factor, "(0, 1]", "need one in (0, 1], such as 0.5.")
    shrunk = copy.deepcopy(covar_module).requires_grad_(False)
    kernels = [k for k in shrunk.modules() if isinstance(k, Kernel)]
    with_lengthscale = [k for k in kernels if k.has_lengthscale]
    if not with_lengthscale:
        names = sorted({type(k).__name__ for k in kernels})
        raise InputDataError(
            f"Got a kernel without any lengthscale ({', '.join(names)}); need one with "
            "lengthscales to shrink, such as RBFKernel, or a radius that leaves the "
            "kernel as it is, such as FixedBeta(4.0)."
        )
    for kernel in with_lengthscale:
        _shrink(kernel, factor)
    return shrunk


def _shrink(kernel: Kernel, factor: float) -> None:
    """Multiply a kernel's own lengthscale, through its constraint."""
    lengthscale = kernel.lengthscale * factor
    constraint = kernel.raw_lengthscale_constraint
    # at the bound itself the raw value would be infinite
    if not (lengthscale > constraint.lower_bound.to(lengthscale)).all():
        constraint = Positive().to(lengthscale)
        kernel.register_constraint("raw_lengthscale", constraint)
    kernel.raw_lengthscale.copy_(constraint.inverse_transform(lengthscale))


def innermost(kernel: Kernel) -> Kernel:
    """The kernel inside of those that scale it."""
    while hasattr(kernel, "base_kernel"):
        kernel = kernel.base_kernel
    return kernel
