"""A BoTorch loop with SparseSingleTaskGP in the place of SingleTaskGP."""

from typing import Any

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.acquisition.logei import (
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP

ACQUISITIONS = {
    "ucb": lambda model, X, Y: UpperConfidenceBound(model, beta=4.0),
    "qlogei": lambda model, X, Y: qLogExpectedImprovement(model, best_f=Y.max()),
    "qlognei": lambda model, X, Y: qLogNoisyExpectedImprovement(model, X[-6:]),
    "qlognei_no_root": lambda model, X, Y: qLogNoisyExpectedImprovement(
        model, X[-6:], cache_root=False
    ),
}


def objective(X: Tensor) -> Tensor:
    """A smooth function with its maximum 0 at (3, 3)."""
    return -((X - 3.0) / 5.0).square().sum(-1, keepdim=True)


@pytest.mark.parametrize("name", ACQUISITIONS)
@pytest.mark.parametrize("q", [1, 2])
def test_loop_finds_the_maximum(name: str, q: int, double: dict[str, Any]) -> None:
    if q > 1 and name == "ucb":
        pytest.skip("The analytic upper confidence bound proposes one point at a time.")
    torch.manual_seed(0)
    X = 10 * torch.rand(30, 2, **double)
    Y = objective(X) + 0.01 * torch.randn(30, 1, **double)
    bounds = torch.tensor([[0.0, 0.0], [10.0, 10.0]], **double)
    for _ in range(3):
        model = SparseSingleTaskGP(
            X, Y, input_transform=Normalize(2, bounds=bounds), inducing_points=X[:20]
        )
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 20}})
        acquisition = ACQUISITIONS[name](model, X, Y)
        candidates, _ = optimize_acqf(
            acquisition, bounds, q=q, num_restarts=2, raw_samples=32, sequential=True
        )
        X = torch.cat([X, candidates])
        Y = torch.cat([Y, objective(candidates)])
    assert objective(X[30:]).max() > -0.02
