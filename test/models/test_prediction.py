"""Predictions at many points: lazy, equal to the dense ones, and never q x q."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from forbid_large import ForbidLarge
from sparse_model_cases import make_model
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.posteriors import PosteriorCovarianceLinearOperator
from botorch_sparse.posteriors.nystrom import LARGE_Q


def points(*shape: int, **tkwargs: Any) -> Tensor:
    X = torch.rand(*shape, 2, generator=torch.Generator().manual_seed(1))
    return X.to(**tkwargs)


def make(**tkwargs: Any) -> SparseSingleTaskGP:
    return make_model(n=600, m=30, **tkwargs)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_batches_of_one_point_need_no_features_of_all(num_outputs, double):
    """`LogExpectedImprovement` asks for a pool in this shape."""
    sparse = make(num_outputs=num_outputs, **double)
    X = points(3 * 2048 + 5, 1, **double)
    with ForbidLarge(2 * 2048 * 30), torch.no_grad():
        alone = sparse.posterior(X)
        mean, variance = alone.mean, alone.variance
    with torch.no_grad():
        together = sparse.posterior(X.squeeze(1))
    torch.testing.assert_close(mean.squeeze(1), together.mean)
    torch.testing.assert_close(variance.squeeze(1), together.variance)


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("batch_shape", [(), (2,)])
@pytest.mark.parametrize("q", [LARGE_Q + 44, 2048 + 30])
@pytest.mark.filterwarnings("ignore:The joint covariance of 2078 points is formed")
def test_many_points_are_lazy(q, batch_shape, double):
    """Features are computed for what is asked, in either order, with gradients."""
    sparse = make(**double)
    X = points(*batch_shape, q, **double).requires_grad_(True)
    lazy = sparse(X)
    operator = lazy.lazy_covariance_matrix
    assert isinstance(operator, PosteriorCovarianceLinearOperator)
    few = torch.cat([X[..., :5, :], X[..., -20:, :]], dim=-2)
    expected = sparse(few)
    close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
    with ForbidLarge(2 * 2048 * 30):
        wide, high = operator[..., :5, :].to_dense(), operator[..., :, -20:].to_dense()
        corner = lazy[..., :5].covariance_matrix
    close(wide[..., -20:], expected.covariance_matrix[..., :5, 5:])
    close(high[..., :5, :], expected.covariance_matrix[..., :5, 5:])
    close(corner, expected.covariance_matrix[..., :5, :5])
    close(lazy.mean[..., -20:], expected.mean[..., 5:])
    whole = lazy.covariance_matrix
    close(whole[..., -20:, -20:], expected.covariance_matrix[..., 5:, 5:])
    close(whole.diagonal(dim1=-2, dim2=-1), lazy.variance)
    for of in ("variance", "mean"):
        total = getattr(lazy, of)[..., -20:].sum() + getattr(lazy, of)[..., :5].sum()
        close(
            torch.autograd.grad(total, X, retain_graph=True),
            torch.autograd.grad(getattr(expected, of).sum(), X, retain_graph=True),
        )


@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_many_points_are_as_precise_as_few(device):
    """Float32 data: what nearly cancels is subtracted in float64 for any q."""
    single = make(dtype=torch.float32, device=device)
    single.likelihood.noise = 1e-3
    reference = copy.deepcopy(single).double()
    X = points(LARGE_Q + 1, device=device)
    with torch.no_grad():
        lazy, expected = single(X), reference(X.double())
        for actual, exact in (
            (lazy.covariance_matrix, expected.covariance_matrix),
            (lazy.variance, expected.variance),
            (lazy[:5].covariance_matrix, expected[:5].covariance_matrix),
        ):
            assert actual.dtype == torch.float32
            difference = (actual.double() - exact).abs().max()
            assert difference < 1e-6 * exact.abs().max()
        operator = lazy.lazy_covariance_matrix
        again = operator.double()
        assert again.dtype == again.to_dense().dtype == torch.float64
        torch.testing.assert_close(again.to_dense(), expected.covariance_matrix)
        assert operator.to(dtype=torch.float64).to_dense().dtype == torch.float64
        assert operator.to(X.double()).dtype == torch.float64
