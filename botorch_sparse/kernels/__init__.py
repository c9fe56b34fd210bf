"""Kernels: other precision, an element of a batch, categories, the diagonal."""

from botorch_sparse.kernels.dense import dense_covariance
from botorch_sparse.kernels.diagonal import prior_variance
from botorch_sparse.kernels.element import TRAILING_DIMS, kernel_at
from botorch_sparse.kernels.evaluation import for_fit
from botorch_sparse.kernels.lengthscales import shrink_lengthscales
from botorch_sparse.kernels.mixed import mixed_kernel
from botorch_sparse.kernels.precision import in_double

__all__ = [
    "TRAILING_DIMS",
    "dense_covariance",
    "for_fit",
    "in_double",
    "kernel_at",
    "mixed_kernel",
    "prior_variance",
    "shrink_lengthscales",
]
