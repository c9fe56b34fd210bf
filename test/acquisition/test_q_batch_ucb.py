"""The Monte Carlo batch UCB: its joint posterior, its samples, its constructor."""

import math

import numpy as np
import pytest
import torch
from batch_oracles import (
    KINDS,
    Dense,
    assert_close,
    fewer,
    random_batch,
    sparse_problem,
    tensors,
)
from botorch.acquisition import qUpperConfidenceBound
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import GenericMCObjective
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from botorch_sparse.acquisition import (
    BatchUpperConfidenceBound,
    qBatchUpperConfidenceBound,
)
from botorch_sparse.acquisition.frozen import freeze

BETA = 3.0


def sampler(num: int = 64) -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(torch.Size([num]), seed=0)


@pytest.mark.parametrize("kind", KINDS)
def test_joint_posterior_is_conditioned(kind, double):
    """Mean frozen, joint covariance of a block with pending points taken off."""
    for seed in fewer(range(20), double, 2):
        problem = sparse_problem(seed)
        dense = Dense(problem, kind)
        batch, noise = random_batch(problem, seed)
        _, X_pending, d = tensors(problem, batch, noise, **double)
        blocks = np.random.default_rng(seed).integers(0, len(problem.X), (2, 2, 4))
        frozen = freeze(problem.model(kind, **double)).add(X_pending, d)
        posterior = frozen.posterior(problem.X.to(**double)[torch.from_numpy(blocks)])
        assert_close(posterior.mean.squeeze(-1), dense.mean[blocks], atol=1e-8)
        residual = dense.full - dense.embedded  # untouched by pending points
        covariance = residual + dense.covariance_after(batch, noise)
        expected = covariance[blocks[..., :, None], blocks[..., None, :]]
        actual = posterior.distribution.covariance_matrix
        assert_close(actual, expected, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_value_is_that_of_the_samples(kind, double):
    problem = sparse_problem(4)
    model = problem.model(kind, **double)
    X = problem.X.to(**double)
    args = {"sampler": sampler(), "X_pending": X[:3]}
    qucb = qBatchUpperConfidenceBound(model, BETA, **args)
    blocks = X[:12].view(3, 4, -1) * 0.97
    posterior = freeze(model).add(X[:3]).posterior(blocks)
    samples = sampler()(posterior).squeeze(-1)
    mean = samples.mean(0)
    values = mean + math.sqrt(BETA * math.pi / 2) * (samples - mean).abs()
    assert_close(qucb(blocks), values.amax(-1).mean(0), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_limits(kind, tkwargs):
    """Without pending points it is qUCB, and for one point the analytic bound."""
    problem = sparse_problem(4, lam=0.1)
    model = problem.model(kind, **tkwargs)
    X = problem.X.to(**tkwargs)
    blocks = X[:12].view(3, 4, -1) * 0.97
    qucb = qBatchUpperConfidenceBound(model, BETA, sampler())
    expected = qUpperConfidenceBound(model, BETA, sampler())(blocks)
    tolerance = 1e-7 if tkwargs["dtype"] == torch.float64 else 2e-2
    assert_close(qucb(blocks), expected, rtol=tolerance)
    assert qucb(blocks).dtype == tkwargs["dtype"]
    one = qBatchUpperConfidenceBound(model, BETA, sampler(4096), X_pending=X[:3])
    analytic = BatchUpperConfidenceBound(model, BETA, X[:3])
    points = X[:5].unsqueeze(-2) * 0.97
    assert_close(one(points), analytic(points), atol=1e-2)


def test_pending_points_lower_the_value(double):
    """In qUCB they would join the maximum, and here a pending best point does not."""
    problem = sparse_problem(4, lam=0.01)
    model = problem.model("exact", **double)
    X = problem.X.to(**double)
    block = X[:2].unsqueeze(0) * 0.97
    free = qBatchUpperConfidenceBound(model, BETA, sampler(512))
    pending = qBatchUpperConfidenceBound(
        model, BETA, sampler(512), X_pending=X.flip(0)[:5]
    )
    assert (pending(block) < free(block)).all()
    pending.set_X_pending(None)
    assert pending.X_pending is None
    assert_close(pending(block), free(block))


def test_objective_input_transform_and_optimizer(double):
    X = torch.rand(20, 2, generator=torch.Generator().manual_seed(0)).to(**double)
    Y = torch.cat([X.sum(-1, keepdim=True).sin(), X[:, :1]], -1)
    model = SingleTaskGP(X, Y, input_transform=Normalize(2))
    objective = GenericMCObjective(lambda Y, X: Y[..., 0] - Y[..., 1] ** 2)
    constructor = get_acqf_input_constructor(qBatchUpperConfidenceBound)
    kwargs = constructor(
        model=model, objective=objective, X_pending=X[:2], X_baseline=X, beta=BETA
    )
    qucb = qBatchUpperConfidenceBound(**kwargs)
    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **double)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        points, value = optimize_acqf(
            qucb, box, 2, num_restarts=1, raw_samples=4, options={"maxiter": 5}
        )
    assert points.shape == (2, 2)
    assert bool(value.isfinite())
    assert torch.equal(qucb.X_pending, X[:2])
