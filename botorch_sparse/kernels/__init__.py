"""Kernels: other precision or lengthscales, one element of a batch, categories."""

from botorch_sparse.kernels.element import TRAILING_DIMS, kernel_at
from botorch_sparse.kernels.lengthscales import shrink_lengthscales
from botorch_sparse.kernels.mixed import mixed_kernel
from botorch_sparse.kernels.precision import in_double

__all__ = [
    "TRAILING_DIMS",
    "in_double",
    "kernel_at",
    "mixed_kernel",
    "shrink_lengthscales",
]
