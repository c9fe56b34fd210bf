"""The diagonal of a kernel matrix."""

import numpy as np
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.doors import check_kind, check_tensors


def prior_variance(kernel: Kernel, X: Tensor) -> Tensor:
    """`k(x, x)`, `batch_shape x n`, for `batch_shape x n x d` points.

    Each point is an element of a batch, so that it costs O(n) also with kernels that
    form the matrix to take its diagonal, as BoTorch's `CategoricalKernel` does. What a
    kernel leaves to broadcasting, as GPyTorch's `HammingIMQKernel` does, is expanded.
    """
    check_kind("kernel", kernel, Kernel, "a GPyTorch kernel, such as RBFKernel()")
    check_tensors(X=X)
    X = X[(None,) * max(0, len(kernel.batch_shape) + 2 - X.dim())]
    alone = X.movedim(-2, 0).unsqueeze(-2)
    k_diag = kernel(alone, diag=True)
    # torch.broadcast_shapes imports sympy when it is first called, for 0.3 s.
    shape = np.broadcast_shapes(k_diag.shape, alone.shape[:-1])
    return k_diag.expand(shape).squeeze(-1).movedim(0, -1)
