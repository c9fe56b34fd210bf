"""Covariances as a matrix, at once."""

from gpytorch import settings
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from botorch_sparse.doors import check_kind, check_tensors


def dense_covariance(kernel: Kernel, X: Tensor, X2: Tensor | None = None) -> Tensor:
    """`k(X, X2)`, `batch_shape x n x n2`; of `X` with itself without `X2`.

    Of small matrices, a lazy one of GPyTorch takes twice the time.
    """
    check_kind("kernel", kernel, Kernel, "a GPyTorch kernel, such as RBFKernel()")
    check_tensors(X=X)
    with settings.lazily_evaluate_kernels(False):
        return to_dense(kernel(X, X2))
