"""Kernels: of bits and counts, of categories; matrices, precision, batches."""

import warnings
from typing import Any

from botorch_sparse.kernels.batch_element import TRAILING_DIMS, kernel_at
from botorch_sparse.kernels.fit_kernel import kernel_for_fit
from botorch_sparse.kernels.kernel_matrices import (
    dense_covariance,
    in_double,
    prior_variance,
)
from botorch_sparse.kernels.lengthscales import shrink_lengthscales
from botorch_sparse.kernels.mixed_kernel import mixed_kernel
from botorch_sparse.kernels.tanimoto import TanimotoKernel

__all__ = [
    "TRAILING_DIMS",
    "TanimotoKernel",
    "dense_covariance",
    "in_double",
    "kernel_at",
    "kernel_for_fit",
    "mixed_kernel",
    "prior_variance",
    "shrink_lengthscales",
]


def __getattr__(name: str) -> Any:
    """`for_fit` under its old name, until the next release."""
    if name != "for_fit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = f"{__name__}.kernel_for_fit"
    warnings.warn(f"for_fit is now {new}.", DeprecationWarning, stacklevel=2)
    return kernel_for_fit
