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


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "q"), [("ucb", 1), ("qlogei", 2), ("qlognei", 2), ("qlognei_no_root", 2)]
)
def test_loop_finds_the_maximum(name, q):
    """The second point of a batch is chosen with the first one pending."""
    X, _ = run_loop(name, q, num_batches=2, dtype=torch.float64)
    assert objective(X[30:]).max() > -0.02


def test_loop_on_a_device(double):
    """The model, its fit, and acquisition functions of BoTorch stay where the data are.

    One batch, after few steps: what is learned is a matter of the test above.
    """
    X, Y = run_loop("qlognei", 2, num_batches=1, maxiter=4, **double)
    assert X.device.type == Y.device.type == double["device"].type
    assert len(X) == len(Y) == 32
    assert objective(X[30:]).max() > objective(X[:30]).median()


def run_loop(
    name: str, q: int, num_batches: int, maxiter: int = 20, **tkwargs: Any
) -> tuple[Tensor, Tensor]:
    """Thirty random points and batches of `q`; a fit before each."""
    torch.manual_seed(0)
    X = (10 * torch.rand(30, 2, dtype=torch.float64)).to(**tkwargs)
    Y = objective(X) + 0.01 * torch.randn(30, 1, dtype=torch.float64).to(**tkwargs)
    bounds = torch.tensor([[0.0, 0.0], [10.0, 10.0]], **tkwargs)
    for _ in range(num_batches):
        model = SparseSingleTaskGP(
            X, Y, input_transform=Normalize(2, bounds=bounds), inducing_points=X[:20]
        )
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": maxiter}})
        candidates, _ = optimize_acqf(
            ACQUISITIONS[name](model, X, Y),
            bounds,
            q=q,
            num_restarts=2,
            raw_samples=32,
            sequential=True,
            options={"maxiter": maxiter},
        )
        X = torch.cat([X, candidates])
        Y = torch.cat([Y, objective(candidates)])
    return X, Y
