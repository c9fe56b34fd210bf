"""The kernel of one element of a batch."""

import copy
from itertools import chain

import torch
from botorch.exceptions import UnsupportedError
from gpytorch.kernels import ArcKernel, CylindricalKernel, Kernel, ScaleKernel

from botorch_sparse.argument_checks import check_kind

# Dimensions of a parameter after its batch dimensions, for kernels that hold others,
# whose batch shape a parameter need not have. One of a kernel without others inside has
# the batch shape of that kernel, and needs no entry.
TRAILING_DIMS: dict[type[Kernel], dict[str, int]] = {
    Kernel: {"raw_lengthscale": 2},
    ScaleKernel: {"raw_outputscale": 0},
    ArcKernel: {"raw_angle": 2, "raw_radius": 2},
    CylindricalKernel: {"raw_angular_weights": 1, "raw_alpha": 1, "raw_beta": 1},
}


def kernel_at(kernel: Kernel, index: tuple[int, ...]) -> Kernel:
    """The kernel of one element of a batch.

    GPyTorch's own indexing takes `active_dims` for a part of the batch, and expects
    that all kernels inside have the same batch shape.

    Args:
        kernel: A kernel, whose batch shape broadcasts with the batch.
        index: An index into the batch; the last ones index the kernel.

    Returns:
        A copy without batch dimensions; the kernel itself where it has none.

    Raises:
        UnsupportedError: If a kernel inside has more batch dimensions, or if it
            cannot be known which ones a parameter has.
    """
    check_kind("kernel", kernel, Kernel, "a GPyTorch kernel, such as RBFKernel()")
    if len(kernel.batch_shape) == 0:
        return kernel
    kernel = copy.deepcopy(kernel).train()  # in eval mode kernels may keep results
    found = [module for module in kernel.modules() if isinstance(module, Kernel)]
    # A scale kernel's own parameter may have the batch shape of the kernel inside.
    shapes = [module.batch_shape for module in found]
    if any(len(shape) > len(index) for shape in shapes):
        raise UnsupportedError(
            f"{type(kernel).__name__} in a batch of shape {tuple(found[0].batch_shape)}"
            f" has kernels inside of batch shapes {[tuple(s) for s in shapes[1:]]}; "
            "there must be no further dimensions. Build one model for each output and "
            "element of the batch instead (ModelListGP)."
        )
    for module, batch_shape in zip(found, shapes, strict=True):
        _take(module, batch_shape, index)
    return kernel


def _take(kernel: Kernel, batch_shape: torch.Size, index: tuple[int, ...]) -> None:
    """Keep one element of what a kernel itself holds."""
    tensors = chain(
        kernel.named_parameters(recurse=False), kernel.named_buffers(recurse=False)
    )
    for name, tensor in tensors:
        if name != "active_dims" and tensor.dim() > 0:
            own = _batch_of(kernel, batch_shape, name, tensor.shape)
            _take_bounds(kernel, name, index, tensor.dim() - len(own))
            tensor.data = tensor.data[_aligned(index, own)]
    kernel._batch_shape = torch.Size()


def _take_bounds(
    kernel: Kernel, name: str, index: tuple[int, ...], num_others: int
) -> None:
    """Keep one element of a parameter's bounds, if these have a batch."""
    constraint = kernel.constraint_for_parameter_name(name)
    for bound in () if constraint is None else constraint.buffers(recurse=False):
        batch_shape = bound.shape[: max(0, bound.dim() - num_others)]
        bound.data = bound.data[_aligned(index, batch_shape)]


def _batch_of(
    kernel: Kernel, batch_shape: torch.Size, name: str, shape: torch.Size
) -> torch.Size:
    """The batch dimensions of a parameter: its kernel's, or of the kernels inside.

    A shape that fits neither, or both, is refused.
    """
    for kind, dims in TRAILING_DIMS.items():
        if isinstance(kernel, kind) and name in dims:
            return shape[: len(shape) - dims[name]]
    known = {kernel._batch_shape, batch_shape}
    found = [own for own in known if shape[: len(own)] == own]
    if len(found) != 1:
        raise UnsupportedError(
            f"Got a {type(kernel).__name__} whose {name} has shape {tuple(shape)}; "
            f"which dimensions belong to a batch of shape {tuple(batch_shape)} "
            "cannot be known. Build one model for each output and element of the batch "
            "instead (ModelListGP), or add its number of other dimensions to "
            "botorch_sparse.kernels.TRAILING_DIMS."
        )
    return found[0]


def _aligned(index: tuple[int, ...], batch_shape: torch.Size) -> tuple[int, ...]:
    """The index into a batch shape that is broadcast."""
    own = index[len(index) - len(batch_shape) :]
    return tuple(i if size > 1 else 0 for i, size in zip(own, batch_shape, strict=True))
