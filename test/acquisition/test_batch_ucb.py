"""Batch UCB: dense conditioning, transforms, optimizers, input constructor."""

import copy
import math
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

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
from botorch.acquisition import UpperConfidenceBound
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions import BotorchWarning, UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.transforms.input import InputPerturbation
from botorch.optim import (
    optimize_acqf,
    optimize_acqf_discrete,
    optimize_acqf_discrete_local_search,
    optimize_acqf_mixed,
)
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from botorch.utils.datasets import SupervisedDataset

from botorch_sparse.acquisition import BatchUpperConfidenceBound
from botorch_sparse.models import SparseSingleTaskGP

BETA = 3.0


def data(n: int = 30, **tkwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64).to(**tkwargs)
    noise = torch.randn(n, 1, generator=g, dtype=torch.float64).to(**tkwargs)
    return X, (5 * X).sin().sum(-1, keepdim=True) + 2 + 0.1 * noise


def build(kind: str, *args: Any, **kwargs: Any) -> SingleTaskGP:
    if kind == "exact":
        return SingleTaskGP(*args, **kwargs).eval()
    S = args[0][::3]
    return SparseSingleTaskGP(*args, **kwargs, inducing_points=S).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_pending_points_condition_the_covariance_only(kind, double):
    """Against dense conditioning, mean frozen."""
    for seed in fewer(range(60 if kind == "nystrom" else 20), double, 2):
        problem = sparse_problem(seed)
        dense = Dense(problem, kind)
        batch, _ = random_batch(problem, seed)
        X, X_pending, _ = tensors(problem, batch, np.ones(6), **double)
        model = problem.model(kind, **double)
        ucb = BatchUpperConfidenceBound(model, BETA, X_pending)
        noise = np.full(6, float(problem.noise.mean()))
        sigma = np.sqrt(dense.variance_after(batch, noise).clip(1e-12))
        assert_close(ucb(X), dense.mean + BETA**0.5 * sigma, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maximize", [True, False])
def test_without_pending_points_it_is_ucb(kind, maximize, tkwargs):
    X, Y = data(**tkwargs)
    model = build(kind, X, Y, input_transform=Normalize(2))
    args = (model, BETA)
    batch_ucb = BatchUpperConfidenceBound(*args, maximize=maximize)
    ucb = UpperConfidenceBound(*args, maximize=maximize)
    Z = X.unsqueeze(-2) * 0.97
    # BoTorch solves with K + D in the data's precision.
    with torch.no_grad():
        K = model.covar_module(model.train_inputs[0]).to_dense().cpu().double()
    C = K + model.likelihood.noise.item() * torch.eye(len(K))
    tolerance = float(torch.linalg.cond(C)) * torch.finfo(X.dtype).eps
    assert_close(batch_ucb(Z), ucb(Z), rtol=tolerance, atol=tolerance)
    assert batch_ucb(Z).dtype == tkwargs["dtype"]
    assert batch_ucb(Z.view(5, 6, 1, 2)).shape == (5, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_pending_points_come_and_go(kind, double):
    X, Y = data(**double)
    model, Z = build(kind, X, Y), X.unsqueeze(-2) * 0.97
    ucb = BatchUpperConfidenceBound(model, BETA)
    empty = ucb(Z)
    values = [empty]
    for j in range(1, 5):
        ucb.set_X_pending(0.9 * X[:j])  # one more: the others are not worked on again
        fresh = BatchUpperConfidenceBound(model, BETA, 0.9 * X[:j])
        assert_close(ucb(Z), fresh(Z), atol=1e-11)
        values.append(ucb(Z))
    for before, after in pairwise(values):
        assert (after <= before + 1e-12).all()  # bounds only fall
    ucb.set_X_pending(0.9 * X[1:3])
    fresh = BatchUpperConfidenceBound(model, BETA, 0.9 * X[1:3])
    assert torch.equal(ucb(Z), fresh(Z))
    ucb.set_X_pending(None)
    assert ucb.X_pending is None
    assert torch.equal(ucb(Z), empty)
    with pytest.warns(BotorchWarning, match="Pending points require a gradient"):
        ucb.set_X_pending(X[:2].clone().requires_grad_(True))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_means_of_sequential_bounds(kind, double):
    X, Y = data(**double)
    model, blocks = build(kind, X, Y), X[:6].view(2, 3, 2) * 0.97
    ucb = BatchUpperConfidenceBound(model, BETA, X[20:22] * 0.9)
    for block, value in zip(blocks, ucb(blocks), strict=True):
        bounds = []
        for j in range(3):
            pending = torch.cat([X[20:22] * 0.9, block[:j]])
            single = BatchUpperConfidenceBound(model, BETA, pending)
            bounds.append(single(block[j : j + 1].unsqueeze(0)))
        assert_close(value, torch.cat(bounds).mean(), rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind, double):
    X, Y = data(**double)
    ucb = BatchUpperConfidenceBound(build(kind, X, Y), BETA, 0.9 * X[:3])
    for shape in fewer([(1, 3, 2), (4, 1, 2)], double):
        blocks = (X[10:].ravel()[: math.prod(shape)].view(shape) * 0.97).detach()
        assert torch.autograd.gradcheck(ucb, (blocks.requires_grad_(),), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_outcome_and_posterior_transforms(kind, double):
    """Only the bound is untransformed; a sign turns it around, as Ax minimizes."""
    X, Y = data(**double)
    X_pending, Z = 0.9 * X[:3], X.unsqueeze(-2) * 0.97
    model = build(kind, X, Y, outcome_transform=Standardize(1))
    plain = build(kind, X, (Y - Y.mean()) / Y.std(), outcome_transform=None)
    for other in (model, plain):
        other.likelihood.noise = 0.05
    expected = BatchUpperConfidenceBound(plain, BETA, X_pending)(Z) * Y.std() + Y.mean()
    ucb = BatchUpperConfidenceBound(model, BETA, X_pending)
    assert_close(ucb(Z), expected, rtol=1e-8)
    sign = ScalarizedPosteriorTransform(torch.tensor([-1.0], **double))
    minus = BatchUpperConfidenceBound(model, BETA, X_pending, posterior_transform=sign)
    lowest = BatchUpperConfidenceBound(model, BETA, X_pending, maximize=False)
    assert_close(minus(Z), lowest(Z), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_stays_under_a_nonlinear_outcome_transform(kind, double):
    X, Y = data(**double)
    Y = Standardize(1)(Y)[0].exp()
    model, Z = build(kind, X, Y, outcome_transform=Log()), X.unsqueeze(-2) * 0.97
    ucb = BatchUpperConfidenceBound(model, 0.0, 0.9 * X[:3])
    assert_close(ucb(Z), model.posterior(Z).mean.view(-1), rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_several_outputs(kind, double):
    """The weighted sum of what two models of one output each say."""
    X, Y = data(**double)
    Y = torch.cat([Y, -(Y**2)], -1)
    weights = torch.tensor([0.3, -0.7], **double)
    Z, X_pending = X.unsqueeze(-2) * 0.97, 0.9 * X[:3]
    joint = build(kind, X, Y)
    joint.likelihood.noise = torch.tensor([[0.05], [0.2]], **double)
    mean, variance = torch.zeros(2, len(X), **double)
    for i, weight in enumerate(weights):
        single = build(kind, X, Y[:, i : i + 1])
        single.likelihood.noise = joint.likelihood.noise[i]
        lower = BatchUpperConfidenceBound(single, 0.0, X_pending)(Z)
        sigma = BatchUpperConfidenceBound(single, 1.0, X_pending)(Z) - lower
        mean, variance = mean + weight * lower, variance + (weight * sigma) ** 2
    transform = ScalarizedPosteriorTransform(weights)
    ucb = BatchUpperConfidenceBound(joint, BETA, X_pending, transform)
    expected = mean + BETA**0.5 * variance.sqrt()
    assert_close(ucb(Z), expected, rtol=1e-8)
    with pytest.raises(UnsupportedError, match="posterior transform"):
        BatchUpperConfidenceBound(joint, BETA)
    with pytest.raises(UnsupportedError, match="Got a ModelListGP of 2 outputs"):
        BatchUpperConfidenceBound(ModelListGP(joint), BETA, None, transform)


def test_deepcopy_and_pickle(double):
    X, Y = data(**double)
    for kind in KINDS:
        ucb = BatchUpperConfidenceBound(build(kind, X, Y), BETA, 0.9 * X[:2])
        expected = ucb(X.unsqueeze(-2)).detach()
        for twin in (copy.deepcopy(ucb), pickle.loads(pickle.dumps(ucb))):
            assert_close(twin(X.unsqueeze(-2)), expected, rtol=1e-12)
            twin.set_X_pending(0.9 * X[:3])
        assert_close(ucb(X.unsqueeze(-2)), expected, rtol=1e-12)


BOX = [[0.0, 0.0], [1.0, 1.0]]
GRID = [i / 8 for i in range(9)]
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "continuous": lambda acqf, box, grid: optimize_acqf(
        acqf, box, q=3, num_restarts=2, raw_samples=16, sequential=True
    ),
    "joint": lambda acqf, box, grid: optimize_acqf(
        acqf, box, q=3, num_restarts=2, raw_samples=16
    ),
    "discrete": lambda acqf, box, grid: optimize_acqf_discrete(
        acqf, 3, torch.cartesian_prod(grid, grid)
    ),
    "mixed": lambda acqf, box, grid: optimize_acqf_mixed(
        acqf, box, 3, 2, [{0: 0.25}, {0: 0.75}], raw_samples=8
    ),
    "local search": lambda acqf, box, grid: optimize_acqf_discrete_local_search(
        acqf, [grid, grid], 3, num_restarts=2, raw_samples=16
    ),
    "alternating": lambda acqf, box, grid: optimize_acqf_mixed_alternating(
        acqf, box, discrete_dims={0: GRID}, q=3, raw_samples=16, num_restarts=2
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_optimizers(kind, double):
    """Three points each, far apart: pending ones have nothing left to explore."""
    X, Y = data(12, **double)
    S = torch.cartesian_prod(*[torch.linspace(0, 1, 6, **double)] * 2)
    model = (
        SingleTaskGP(0.3 * X, Y)
        if kind == "exact"
        else SparseSingleTaskGP(0.3 * X, Y, inducing_points=S)
    )
    # The inducing points explain the box: little variance is out of reach.
    model.covar_module.lengthscale, model.likelihood.noise = 0.3, 0.01
    pending = torch.full((1, 2), 0.5, **double)
    ucb = BatchUpperConfidenceBound(model, 400.0, pending)
    box, grid = torch.tensor(BOX, **double), torch.tensor(GRID, **double)
    for name in fewer(list(OPTIMIZERS), double):
        with torch.random.fork_rng(), np.errstate(all="ignore"):
            torch.manual_seed(0)
            candidates, _ = OPTIMIZERS[name](ucb, box, grid)
        assert candidates.shape == (3, 2), name
        assert torch.equal(ucb.X_pending, pending), name
        assert torch.pdist(torch.cat([candidates, pending])).min() > 0.1, name


@pytest.mark.parametrize("kind", KINDS)
def test_input_constructor(kind, double):
    """With what Ax passes on to any analytic acquisition function."""
    X, Y = data(**double)
    model = build(kind, X, Y)
    training_data = SupervisedDataset(
        X, Y, feature_names=["a", "b"], outcome_names=["y"]
    )
    sign = ScalarizedPosteriorTransform(torch.tensor([-1.0], **double))
    kwargs = get_acqf_input_constructor(BatchUpperConfidenceBound)(
        model=model,
        training_data={0: training_data},
        bounds=[(0.0, 1.0)] * 2,
        X_baseline=X,
        X_pending=0.9 * X[:2],
        posterior_transform=sign,
        beta=BETA,
    )
    ucb = BatchUpperConfidenceBound(**kwargs)
    other = BatchUpperConfidenceBound(model, BETA, 0.9 * X[:2], sign)
    assert torch.equal(ucb(X.unsqueeze(-2)), other(X.unsqueeze(-2)))
    defaults = get_acqf_input_constructor(BatchUpperConfidenceBound)(model=model)
    assert BatchUpperConfidenceBound(**defaults).beta == 0.2


def test_beta_for_each_batch_element(double):
    X, Y = data(**double)
    betas = torch.tensor([1.0, 4.0, 9.0], **double)
    model, Z = build("nystrom", X, Y), X[:3].unsqueeze(-2)
    values = BatchUpperConfidenceBound(model, betas)(Z)
    for i, beta in enumerate(betas.tolist()):
        single = BatchUpperConfidenceBound(model, beta)(Z[i : i + 1])
        assert_close(values[i], single[0], rtol=1e-12)


def test_input_transforms_of_many_points_are_refused(double):
    X, Y = data(**double)
    perturbed = InputPerturbation(torch.zeros(2, 2, **double))
    model = SingleTaskGP(X, Y, input_transform=perturbed)
    with pytest.raises(UnsupportedError, match="keep the number of points"):
        BatchUpperConfidenceBound(model, BETA)(X[:1].unsqueeze(0))
