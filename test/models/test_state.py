"""State dicts, copies, files and moves of models of other sizes."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize
from botorch.optim.core import OptimizationResult, OptimizationStatus
from gpytorch.mlls import ExactMarginalLogLikelihood
from sparse_model_cases import make_model, make_transform, random_data

from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP

close = torch.testing.assert_close
SHAPES = [((), 1), ((), 2), ((2,), 1), ((2,), 2)]


@pytest.mark.parametrize(("batch", "num_outputs"), SHAPES)
@pytest.mark.parametrize("fixed_noise", [False, True])
def test_state_dict_of_other_sizes(
    batch: tuple[int, ...],
    num_outputs: int,
    fixed_noise: bool,
    double: dict[str, Any],
) -> None:
    """A state holds nothing of the size of the data or of the inducing points."""
    args = batch, num_outputs, fixed_noise, True, True
    source = make_model(*args, n=14, m=6, **double)
    for n, m in ((9, 4), (14, 9), (20, 6)):
        target = make_model(*args, n=n, m=m, **double)
        target.covar_module.lengthscale = 1.0
        points = target.inducing_points
        target.load_state_dict(source.state_dict())
        assert torch.equal(target.inducing_points, points)
        close(target.covar_module.lengthscale, source.covar_module.lengthscale)
        X = random_data(batch, 1, n=3, seed=2, **double)[0]
        assert target.posterior(X).mean.shape == (*batch, 3, num_outputs)
    same = make_model(*args, n=14, m=6, **double)
    same.covar_module.lengthscale = 1.0
    same.load_state_dict(source.state_dict())
    close(same.posterior(X).variance, source.posterior(X).variance)


@pytest.mark.parametrize(("batch", "num_outputs"), SHAPES)
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_copies_keep_the_inducing_points(
    batch: tuple[int, ...],
    num_outputs: int,
    given: bool,
    training: bool,
    double: dict[str, Any],
) -> None:
    X, Y, _ = random_data(batch, num_outputs, n=60, **double)
    options: dict[str, Any] = {"inducing_points": X[..., :7, :]}
    if not given:
        options = {"inducing_sampler": RecursiveRLSSampler(0.05)}
    model = SparseSingleTaskGP(X, Y, input_transform=Normalize(2), **options)
    points = model.inducing_points
    expected = model.posterior(X[..., :3, :])
    model.train(training)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ]
    for copied in copies:
        assert torch.equal(copied.inducing_points, points)
        assert copied.training == training
        close(copied.posterior(X[..., :3, :]).mean, expected.mean)
        close(copied.posterior(X[..., :3, :]).variance, expected.variance)


def test_loading_draws_points_under_the_loaded_hyperparameters(
    double: dict[str, Any],
) -> None:
    """Whether or not points had been drawn before."""
    X, Y, _ = random_data((), 1, n=80, **double)

    def make(lengthscale: float) -> SparseSingleTaskGP:
        model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(0.1))
        model.covar_module.lengthscale = lengthscale
        return model

    source, fresh, used = make(0.1), make(3.0), make(3.0)
    before = used.eval().inducing_points
    used.posterior(X[:2])
    for target in (fresh, used):
        target.load_state_dict(source.state_dict())
        assert torch.equal(target.inducing_points, source.inducing_points)
        close(target.posterior(X[:3]).mean, source.posterior(X[:3]).mean)
    assert before.shape[-2] < source.num_inducing


def test_a_copy_made_during_a_fit_is_not_being_fitted(double: dict[str, Any]) -> None:
    X, Y, _ = random_data((), 1, n=80, **double)
    model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(0.1))
    copies = []

    def optimizer(mll: Any, **kwargs: Any) -> OptimizationResult:
        assert model._is_fitting
        copies.append(copy.deepcopy(model))
        return OptimizationResult(fval=0.0, status=OptimizationStatus.SUCCESS, step=1)

    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, optimizer=optimizer)
    assert copies and not any(each._is_fitting for each in (model, *copies))


def test_type_leaves_indices_alone(double: dict[str, Any]) -> None:
    X, Y, _ = random_data((), 1, n=80, **double)
    X[70:] = X[:10]
    model = SparseSingleTaskGP(X, Y, inducing_points=X[:9]).eval()
    expected = model.posterior(X[:4]).mean
    model.train().type(torch.float32).type(torch.float64)
    close(model.posterior(X[:4]).mean, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("batch", "num_outputs"), SHAPES)
@pytest.mark.parametrize("training", [True, False])
def test_moves(
    batch: tuple[int, ...], num_outputs: int, training: bool, double: dict[str, Any]
) -> None:
    model = make_model(batch, num_outputs, normalize=True, n=30, **double)
    X = random_data(batch, 1, n=3, seed=2, **double)[0]
    expected = model.posterior(X)
    model.train(training)
    model.to(dtype=torch.float32)
    assert model.inducing_points.dtype == torch.float32
    posterior = model.posterior(X.float())
    close(posterior.mean, expected.mean.float(), rtol=1e-3, atol=1e-3)
    close(posterior.variance, expected.variance.float(), rtol=1e-2, atol=1e-4)
    model.double()
    close(model.posterior(X).mean, expected.mean, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["normalize", "warp"])
def test_learned_transforms_through_flips(name: str, double: dict[str, Any]) -> None:
    """Raw inputs and inducing points stay; what the kernel sees follows."""
    X, Y, _ = random_data((2,), 2, n=30, **double)
    transform = make_transform(name, double)
    model = SparseSingleTaskGP(
        X, Y, input_transform=transform, inducing_points=X[:, :6]
    )
    for _ in range(3):
        model.train()
        assert torch.equal(model.train_inputs[0][:, 0], X)
        model(*model.train_inputs)
        model.eval()
        assert torch.equal(model.inducing_points, X[:, :6])
        seen = model.transform_inputs(X).unsqueeze(-3).expand(2, 2, 30, 2)
        close(model.train_inputs[0], seen)
        assert model.posterior(X).mean.shape == (2, 30, 2)
