"""The factor of `B`, and what becomes of a matrix that has none."""

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.posteriors import NystromFeatures, NystromPosterior
from botorch_sparse.posteriors.inner_factor import inner_cholesky


def test_elements_without_a_factor(double: dict[str, Any]) -> None:
    """An error on the host; on a device NaN, in that element alone."""
    good = torch.tensor([[4.0, 2.0], [2.0, 5.0]], **double)
    both = torch.stack([good, torch.diag(good.new_tensor([1.0, -1.0]))])
    torch.testing.assert_close(inner_cholesky(good) @ inner_cholesky(good).mT, good)
    if good.is_cpu:
        match = r"shape \(2, 2, 2\).*from -1 to 5.*above 2e-16 of the signal's"
        with pytest.raises(torch.linalg.LinAlgError, match=match):
            inner_cholesky(both)
        return
    L = inner_cholesky(both)
    torch.testing.assert_close(L[0], inner_cholesky(good))
    assert L[1].isnan().all()


def test_all_doors_say_what_came() -> None:
    """Noise of the wrong sign, and noise whose inverse is infinite."""
    kernel = RBFKernel().double()
    X = torch.rand(6, 2, generator=torch.Generator().manual_seed(0)).double()
    negative = torch.full((6,), -0.1, dtype=torch.float64)
    tiny = torch.full((6,), 1e-309, dtype=torch.float64)
    prior = NystromPosterior.prior(kernel, X[:3])
    with pytest.raises(torch.linalg.LinAlgError, match="Try larger noise variances"):
        prior.condition(X, X[:, 0], negative)
    features = NystromFeatures.of(kernel, X[:3])
    with pytest.raises(torch.linalg.LinAlgError, match="Try larger noise variances"):
        accuracy_certificate(features, X, tiny)
