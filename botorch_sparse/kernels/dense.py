"""Covariances as a matrix, at once."""

from gpytorch import Module
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from botorch_sparse.doors import check_kind, check_tensors


def dense_covariance(kernel: Kernel, X: Tensor, X2: Tensor | None = None) -> Tensor:
    """`k(X, X2)`, `batch_shape x n x n2`; of `X` with itself without `X2`.

    Of small matrices, a lazy one of GPyTorch takes twice the time. That there are none
    is a setting of GPyTorch's too, which threads would take from each other.
    """
    check_kind("kernel", kernel, Kernel, "a GPyTorch kernel, such as RBFKernel()")
    check_tensors(X=X)
    X2 = X if X2 is None else X2
    if kernel.active_dims is not None:
        X, X2 = (points.index_select(-1, kernel.active_dims) for points in (X, X2))
    return to_dense(Module.__call__(kernel, X, X2))
