"""A kernel's diagonal, and one element of its batch."""

import copy
from itertools import chain

import torch
from botorch.exceptions import UnsupportedError
from gpytorch.kernels import Kernel
from torch import Tensor


def prior_variance(kernel: Kernel, X: Tensor) -> Tensor:
    """`k(x, x)`, `batch_shape x n`, for `batch_shape x n x d` points.

    Each point is an element of a batch, so that it costs O(n) also with kernels that
    form the matrix to take its diagonal, as BoTorch's `CategoricalKernel` does.
    """
    X = X[(None,) * max(0, len(kernel.batch_shape) + 2 - X.dim())]
    alone = X.movedim(-2, 0).unsqueeze(-2)
    return kernel(alone, diag=True).squeeze(-1).movedim(0, -1)


def kernel_at(kernel: Kernel, index: tuple[int, ...]) -> Kernel:
    """The kernel of one element of a batch.

    GPyTorch's own indexing takes `active_dims` for a part of the batch, and expects
    that all kernels inside have the same batch shape.

    Args:
        kernel: A kernel, whose batch shape broadcasts with that of the batch.
        index: An index into the batch; the last ones are those of the kernel.

    Returns:
        A copy without batch dimensions; the kernel itself where it has none.

    Raises:
        UnsupportedError: If a kernel inside has more batch dimensions.
    """
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
        if name == "active_dims":
            continue
        for shape in (batch_shape, kernel._batch_shape):
            if tensor.shape[: len(shape)] == shape:
                tensor.data = tensor.data[_aligned(index, shape)]
                break
    kernel._batch_shape = torch.Size()


def _aligned(index: tuple[int, ...], batch_shape: torch.Size) -> tuple[int, ...]:
    """The index into a batch shape that is broadcast."""
    own = index[len(index) - len(batch_shape) :]
    return tuple(i if size > 1 else 0 for i, size in zip(own, batch_shape, strict=True))
