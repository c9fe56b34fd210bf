"""Columns of categories: the kernel of MixedSingleTaskGP."""

import warnings
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.fit import fit_gpytorch_mll
from botorch.models import MixedSingleTaskGP
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP

close = torch.testing.assert_close


def mixed_data(n: int, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    """Two continuous columns, and two of three categories, the first and the last."""
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, 4, generator=generator, dtype=torch.float64)
    X[:, [0, 3]] = torch.randint(3, (n, 2), generator=generator).double()
    Y = (5 * X[:, 1:2]).sin() + (X[:, :1] == 1).double() * X[:, 2:3] - X[:, 3:]
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


@pytest.mark.parametrize("cat_dims", [[0, 3], [0, -1], [0, 1, 2, 3]])
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_is_the_model_of_botorch(cat_dims, num_outputs, double):
    X, Y = mixed_data(30, **double)
    Y = Y * torch.arange(1.0, 1 + num_outputs, **double)
    test_X = mixed_data(7, **double)[0]
    expected = MixedSingleTaskGP(X, Y, cat_dims)
    model = SparseSingleTaskGP(X, Y, cat_dims=cat_dims)
    forced = SparseSingleTaskGP(X, Y, cat_dims=cat_dims, inducing_points=X[:20])
    assert model.is_exact and not forced.is_exact
    for each in (model, forced):
        each.load_state_dict(expected.state_dict())
    assert [type(m) for m in model.covar_module.modules()] == [
        type(m) for m in expected.covar_module.modules()
    ]
    close(model.posterior(test_X).mean, expected.posterior(test_X).mean)
    close(model.posterior(test_X).variance, expected.posterior(test_X).variance)
    assert forced.posterior(test_X).mean.shape == (7, num_outputs)


@pytest.mark.slow_sim
def test_fit_of_many_points(double):
    """It predicts what category and column do together; few points would not."""
    X, Y = mixed_data(560, **double)
    model = SparseSingleTaskGP(X, Y, cat_dims=[0, 3], max_inducing_points=60)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 20}}, rounds=1)
    test_X, test_Y = mixed_data(200, **double)
    error = (model.posterior(test_X).mean - test_Y).square().mean().sqrt()
    assert error < 0.3  # the noise is 0.1, the standard deviation 1.2


def test_learned_points_keep_their_categories(double):
    """To the last bit: the kernel sees another category otherwise."""
    X, Y = mixed_data(560, **double)
    X[:, [0, 3]] = (X[:, [0, 3]] + (3 * X[:, 1:3]).floor() + 1) / 7  # units round
    model = SparseSingleTaskGP(
        X, Y, cat_dims=[0, 3], max_inducing_points=20, learn_inducing_points=True
    )
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = model.resparsify().inducing_points
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 8}})
    after = model.inducing_points
    assert (after[:, 1:3] - before[:, 1:3]).abs().max() > 1e-3
    assert torch.isin(after[:, [0, 3]], X[:, [0, 3]].unique()).all()


def test_columns_and_a_kernel():
    X, Y = mixed_data(10)
    with pytest.raises(InputDataError, match="Got both cat_dims and a covar_module"):
        SparseSingleTaskGP(X, Y, covar_module=RBFKernel(), cat_dims=[0])
    plain = SparseSingleTaskGP(X[:, 1:3], Y, cat_dims=[])
    assert isinstance(plain.covar_module, RBFKernel)
