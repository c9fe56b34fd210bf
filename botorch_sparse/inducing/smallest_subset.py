"""How many points, in a given order, explain a kernel matrix.

References:
    [Wei2025]_ appendix A.1 (see `botorch_sparse.inducing.gradient_diversity`).
"""

from bisect import bisect_left

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_finite,
    check_kind,
    check_number,
    check_tensors,
)
from botorch_sparse.inducing.certificate import BLOCK_ROWS, accuracy_certificate
from botorch_sparse.inducing.gradient_diversity import validate_forced
from botorch_sparse.kernels import in_double
from botorch_sparse.posteriors import NystromFeatures

# Products with K that bound its norm from below.
NUM_POWERS = 10


@torch.no_grad()
def smallest_subset_size(
    covar_module: Kernel, X: Tensor, order: Tensor, *, tolerance: float = 0.05
) -> int:
    r"""The smallest M of [Wei2025]_ A.1, for points that are taken in an order.

    .. math::
        \|K - \hat K_M\| \le \mathrm{tolerance} \cdot \|K\|

    with the spectral norm and the Nystrom matrix of the first M points. The paper
    bounds the left side by an eigenvalue and an unknown constant. Here it is the
    `lambda_max` of an accuracy certificate, an upper bound; :math:`\|K\|` is bounded
    from below by powers. So the M that is returned does what is asked, and may be
    larger than the smallest by what the bounds lose.

    Args:
        covar_module: The kernel.
        X: `n x d` points.
        order: Indices of different points, such as those that
            `select_by_gradient_diversity` or `SubsetSingleTaskGP.rows_by_leverage`
            return.
        tolerance: The share of the norm, in (0, 1); the paper's is 0.05.

    Returns:
        The size. Cost: O(log M) certificates of at most 2 M points.

    Raises:
        InputDataError: If an argument is out of its range, or all points of the order
            explain too little.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> X = torch.linspace(0, 1, 50, dtype=torch.double).unsqueeze(-1)
        >>> kernel = RBFKernel().double()
        >>> smallest_subset_size(kernel, X, torch.tensor([0, 49, 25, 12, 37]))
        3
    """
    check_kind("covar_module", covar_module, Kernel, "a GPyTorch kernel")
    check_finite(X=X)
    check_tensors(order=order)
    check_number("tolerance", tolerance, "(0, 1)", "need a share, such as 0.05.")
    order = validate_forced(order, len(X), len(X), X.device)
    kernel, X = in_double(covar_module, X.dtype), X.double()
    scale = torch.full_like(X[:, 0], tolerance * _norm_from_below(kernel, X))

    def is_enough(size: int) -> bool:
        features = NystromFeatures.of(kernel, X[order[:size]])
        return accuracy_certificate(features, X, scale).lambda_max <= 1

    size = 1
    while size < len(order) and not is_enough(size):
        size *= 2
    sizes = range(size // 2 + 1, min(size, len(order)) + 1)
    place = bisect_left(sizes, True, key=is_enough)
    if place == len(sizes):
        raise InputDataError(
            f"Got an order of {len(order)} of {len(X)} points, which leaves more than "
            f"tolerance={tolerance} of the norm. Give a longer one."
        )
    return sizes[place]


def _norm_from_below(kernel: Kernel, X: Tensor) -> float:
    """At most the largest eigenvalue of the kernel matrix; O(n^2 d)."""
    v = torch.ones_like(X[:, 0])
    for _ in range(NUM_POWERS):
        v = v / v.norm()
        v = torch.cat([kernel(x, X).to_dense() @ v for x in X.split(BLOCK_ROWS)])
    return float(v.norm())
