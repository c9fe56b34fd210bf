"""The diagonal of kernel matrices, against the matrices."""

from typing import Any

import pytest
import torch
from botorch.models.kernels import CategoricalKernel
from gpytorch.kernels import HammingIMQKernel, Kernel, MaternKernel, ScaleKernel

from botorch_sparse.kernels import prior_variance

PAIR = torch.Size([2])


def one_hot(*batch_shape: int, **tkwargs: Any) -> torch.Tensor:
    """Sequences of four tokens of three kinds."""
    g = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 3, (*batch_shape, 5, 4), generator=g)
    return torch.nn.functional.one_hot(tokens, 3).flatten(-2).to(**tkwargs)


KERNELS = {
    "broadcasts its diagonal": lambda: HammingIMQKernel(vocab_size=3),
    "the same, scaled": lambda: ScaleKernel(HammingIMQKernel(vocab_size=3)),
    "the same, scaled in a batch": lambda: ScaleKernel(
        HammingIMQKernel(vocab_size=3), batch_shape=PAIR
    ),
    "forms the matrix": CategoricalKernel,
    "in a batch": lambda: ScaleKernel(MaternKernel(batch_shape=PAIR), batch_shape=PAIR),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("batch_shape", [(), (2,), (3, 2)])
def test_is_the_diagonal_of_the_matrix(name, batch_shape, double):
    kernel: Kernel = KERNELS[name]().to(**double)
    X = one_hot(*batch_shape, **double)
    expected = kernel(X).to_dense().diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(prior_variance(kernel, X), expected)
