"""The smallest subset by the 5% rule, against eigenvalues of dense matrices."""

import pytest
import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import ScaleKernel
from oracles import make_kernel
from torch import Tensor

from botorch_sparse.inducing import smallest_subset_size


def share(K: Tensor, S: Tensor) -> float:
    """The norm of K - K-hat over that of K."""
    left = K - K[:, S] @ torch.linalg.solve(K[S][:, S], K[S])
    return float(torch.linalg.eigvalsh(left)[-1] / torch.linalg.eigvalsh(K)[-1])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_it_is_the_smallest_up_to_the_bounds(scale, double):
    """No unit matters, and half of the tolerance needs no fewer points."""
    torch.manual_seed(0)
    X, kernel = torch.rand(80, 2, **double), make_kernel("matern52", **double)
    order = torch.randperm(80).to(X.device)
    kernel = ScaleKernel(kernel).to(X)
    kernel.outputscale = scale
    K = kernel(X).to_dense().detach()
    found = [smallest_subset_size(kernel, X, order, tolerance=t) for t in (0.05, 0.3)]
    assert found[0] > found[1] >= 1
    for size, tolerance in zip(found, (0.05, 0.3), strict=True):
        assert share(K, order[:size]) <= tolerance
        exact = [share(K, order[:m]) <= tolerance / 2 for m in range(1, 80)]
        assert size <= exact.index(True) + 1


def test_an_order_that_is_too_short(double):
    X = torch.tensor([[0.0], [0.1], [0.2], [9.0], [9.1]], **double)
    kernel = make_kernel("matern52", **double)
    assert smallest_subset_size(kernel, X, torch.tensor([1, 4])) == 2
    with pytest.raises(InputDataError, match="Give a longer one"):
        smallest_subset_size(kernel, X, torch.tensor([0]))
