"""Samplers as BoTorch's allocators."""

from itertools import product

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models import SingleTaskVariationalGP
from botorch.models.utils.inducing_point_allocators import InducingPointAllocator
from device_cases import sweep
from gpytorch.kernels import MaternKernel, RBFKernel
from oracles import RecordingKernel
from sampler_cases import clustered, rbf
from torch import Tensor

from botorch_sparse.inducing import (
    BLESSSampler,
    RecursiveRLSSampler,
    SamplerInducingPointAllocator,
)
from botorch_sparse.posteriors import NystromPosterior

NO_BATCH = torch.Size([])


def rows_of(points: Tensor, X: Tensor) -> bool:
    """Whether all points are different rows of `X`."""
    equal = (points.unsqueeze(-2) == X).all(-1)
    return bool((equal.sum(-1) >= 1).all()) and len(points.unique(dim=0)) == len(points)


@sweep(
    "sampler, m",
    product(
        [None, RecursiveRLSSampler(), BLESSSampler(), BLESSSampler(1e-3)], [1, 15, 90]
    ),
    [(None, 15), (BLESSSampler(1e-3), 90)],
)
def test_number_of_points(sampler, m, tkwargs):
    X = clustered(400, **tkwargs)
    allocator = SamplerInducingPointAllocator(sampler)
    assert isinstance(allocator, InducingPointAllocator)
    points = allocator.allocate_inducing_points(X, rbf(0.3, **tkwargs), m, NO_BATCH)
    assert points.shape == (m, 3) and points.dtype == X.dtype
    assert rows_of(points, X)


def test_better_than_the_first_points(double):
    X, kernel = clustered(600, **double), rbf(0.3, **double)
    points = SamplerInducingPointAllocator().allocate_inducing_points(
        X, kernel, 60, NO_BATCH
    )

    def left(S: Tensor) -> Tensor:
        prior = NystromPosterior.prior(kernel, S)
        return prior.residual(X, prior.features(X)).sum()

    assert left(points) < 0.5 * left(X[:60])


def test_same_seed_same_points(double):
    X, kernel = clustered(300, **double), rbf(0.3, **double)
    first, again, other = (
        SamplerInducingPointAllocator(seed=seed).allocate_inducing_points(
            X, kernel, 20, NO_BATCH
        )
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_batches_of_inputs(double):
    X = torch.rand(2, 3, 60, 2, **double)
    shape = torch.Size([2, 3])
    kernel = MaternKernel(batch_shape=shape, ard_num_dims=2).to(**double)
    kernel.lengthscale = 0.1 + torch.rand(2, 3, 1, 2, **double)
    allocator = SamplerInducingPointAllocator()
    points = allocator.allocate_inducing_points(X, kernel, 8, shape)
    assert points.shape == (2, 3, 8, 2)
    for i in range(2):
        for j in range(3):
            alone = allocator.allocate_inducing_points(
                X[i, j], kernel[i, j], 8, NO_BATCH
            )
            assert torch.equal(points[i, j], alone)
    outputs = RBFKernel(batch_shape=torch.Size([2, 3, 4])).to(**double)
    assert allocator.allocate_inducing_points(X, outputs, 8, shape).shape[-2] == 8


def test_few_different_inputs(double):
    X = torch.rand(5, 2, **double).repeat(20, 1)
    kernel, allocator = rbf(0.3, **double), SamplerInducingPointAllocator()
    assert allocator.allocate_inducing_points(X, kernel, 9, NO_BATCH).shape == (5, 2)
    batch = torch.stack([X, torch.rand(100, 2, **double)])
    points = allocator.allocate_inducing_points(batch, kernel, 9, torch.Size([2]))
    assert points.shape == (2, 9, 2)


@pytest.mark.filterwarnings("ignore:After all the effort:UserWarning")
@sweep("num_outputs, batch_shape", product([1, 2], [[], [3]]), [(1, [])])
def test_variational_model(num_outputs, batch_shape, double):
    n, kernel = 600, RecordingKernel().to(**double)
    X = torch.rand(*batch_shape, n, 2, **double)
    Y = X.sum(-1, keepdim=True).expand(*X.shape[:-1], num_outputs)
    model = SingleTaskVariationalGP(
        X,
        Y,
        num_outputs=num_outputs,
        inducing_points=20,
        covar_module=kernel,
        inducing_point_allocator=SamplerInducingPointAllocator(),
    )
    assert not any(list(shape).count(n) > 1 for shape in kernel.shapes)
    S = model.model.variational_strategy
    S = getattr(S, "base_variational_strategy", S).inducing_points
    assert S.shape[-2:] == (20, 2)
    if num_outputs == 1 or not batch_shape:  # the model itself cannot do both
        mean = model.posterior(X[..., :5, :]).mean
        assert mean.shape == (*batch_shape, 5, num_outputs)
    model.init_inducing_points(X)


def test_errors(double):
    X, kernel = clustered(20, **double), rbf(0.3, **double)
    allocator = SamplerInducingPointAllocator()
    with pytest.raises(InputDataError, match=r"Got num_inducing=0"):
        allocator.allocate_inducing_points(X, kernel, 0, NO_BATCH)
    with pytest.raises(InputDataError, match=r"and 0 inputs; need at least one"):
        allocator.allocate_inducing_points(X[:0], kernel, 3, NO_BATCH)
    with pytest.raises(UnsupportedError, match=r"no quality function"):
        allocator._get_quality_function()
