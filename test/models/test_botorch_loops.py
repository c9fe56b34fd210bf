"""Loops of BoTorch's tutorials on `SparseSingleTaskGP`."""

from typing import Any

import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models.transforms import Normalize
from botorch.optim import (
    optimize_acqf,
    optimize_acqf_discrete,
    optimize_acqf_discrete_local_search,
    optimize_acqf_mixed,
)
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Size, Tensor

from botorch_sparse.models import SparseSingleTaskGP

pytestmark = pytest.mark.filterwarnings("ignore")  # BoTorch's, of caps and few steps

BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
QUICK: dict[str, Any] = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 5}}


def uniform(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.double, generator=generator)


def observations(X: Tensor) -> Tensor:
    return (2 * X).sin().sum(-1, keepdim=True)


def improvement() -> qLogExpectedImprovement:
    X = uniform(300, 2)
    model = SparseSingleTaskGP(X, observations(X), max_inducing_points=60)
    sampler = SobolQMCNormalSampler(Size([4]), seed=0)
    return qLogExpectedImprovement(model.eval(), 1.5, sampler)


def test_spaces_of_numbers_and_choices():
    """Mixed, listed, on a grid, with starting points and a constraint."""
    acquisition = improvement()
    fixed = [{0: 0.0}, {0: 1.0}]
    X, _ = optimize_acqf_mixed(acquisition, BOX, 2, fixed_features_list=fixed, **QUICK)
    assert torch.isin(X[:, 0], BOX[:, 0]).all()
    points = uniform(100, 2, seed=1)
    X, values = optimize_acqf_discrete(acquisition, q=1, choices=points)
    best = acquisition(points.unsqueeze(-2)).max()
    torch.testing.assert_close(values.reshape(()), best.detach())
    grid = torch.linspace(0, 1, 5, dtype=torch.double)
    X, _ = optimize_acqf_discrete_local_search(
        acquisition, [grid, grid], q=2, num_restarts=2, raw_samples=8
    )
    assert torch.isin(X, grid).all()
    starts = uniform(2, 3, 2, seed=8)
    X, value = optimize_acqf(
        acquisition, BOX, q=3, batch_initial_conditions=starts, **QUICK
    )
    assert X.shape == (3, 2) and value >= acquisition(starts).max() - 1e-9
    at_least = [(torch.tensor([0, 1]), BOX[1], 0.5)]
    X, _ = optimize_acqf(
        acquisition, BOX, q=2, sequential=True, inequality_constraints=at_least, **QUICK
    )
    assert (X.sum(-1) >= 0.5 - 1e-6).all()


def test_a_loop_with_trust_region_and_warm_starts():
    """Each round samples around the best point, and fits from the last state."""
    X, state = uniform(300, 3), None
    for _ in range(2):
        Y = observations(X)
        model = SparseSingleTaskGP(
            X, Y, input_transform=Normalize(d=3), max_inducing_points=60
        )
        if state is not None:
            model.load_state_dict(state)
            lengthscale = model.covar_module.raw_lengthscale
            assert lengthscale.equal(state["covar_module.raw_lengthscale"])
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 10}})
        state = model.state_dict()
        best = X[Y.argmax()]
        region = (best + 0.4 * (uniform(200, 3, seed=len(X)) - 0.5)).clamp(0, 1)
        with torch.no_grad():
            chosen = MaxPosteriorSampling(model, replacement=False)(region, 4)
        assert len(chosen.unique(dim=0)) == 4
        assert observations(chosen).mean() > observations(region).mean()
        X = torch.cat([X, chosen])
