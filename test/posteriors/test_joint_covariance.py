"""The lazy joint covariance where nothing is asked of it."""

from dataclasses import replace

import pytest
import torch
from gpytorch.kernels import MaternKernel

from botorch_sparse.posteriors import (
    NystromPosterior,
    PosteriorCovarianceLinearOperator,
)

EMPTY, ALL = slice(0, 0), slice(None)


@pytest.mark.parametrize("batch_shape", [(), (2,), (0,)])
@pytest.mark.parametrize("rows, columns", [(EMPTY, ALL), (ALL, EMPTY), (EMPTY, EMPTY)])
def test_empty_slices(batch_shape, rows, columns, double):
    kernel = MaternKernel().to(**double)
    X = torch.rand(7, 2, generator=torch.Generator().manual_seed(0)).to(**double)
    posterior = NystromPosterior.prior(kernel, X[:3])
    Z = X.expand(*batch_shape, 7, 2)
    posterior = replace(
        posterior, feature_map=replace(posterior.feature_map, chunk_size=6)
    )
    operator = posterior.predict(Z).lazy_covariance_matrix
    assert isinstance(operator, PosteriorCovarianceLinearOperator)
    expected = torch.empty(*batch_shape, 7, 7, **double)[..., rows, columns]
    assert operator[..., rows, columns].shape == expected.shape
    assert operator[..., rows, columns].to_dense().shape == expected.shape
