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
from sparse_model_cases import (
    as_seen,
    dtc,
    make_mll,
    make_model,
    make_transform,
    observed,
    random_data,
    rounding,
)

from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP

close = torch.testing.assert_close
SHAPES = [((), 1), ((), 2), ((2,), 1), ((2,), 2)]


@pytest.mark.parametrize(("batch", "num_outputs"), SHAPES)
@pytest.mark.parametrize("fixed_noise", [False, True])
def test_state_dict_of_other_sizes(batch, num_outputs, fixed_noise, double):
    """A state holds nothing of the size of the data or of the inducing points."""
    args = batch, num_outputs, fixed_noise, True, "normalize"
    source = make_model(*args, n=14, m=6, **double)
    X = random_data(batch, 1, n=3, seed=2, **double)[0]
    for n, m in ((9, 4), (14, 9), (20, 6), (14, 6)):
        target = make_model(*args, n=n, m=m, **double)
        target.covar_module.lengthscale = 1.0
        points = target.inducing_points
        target.load_state_dict(source.state_dict())
        assert torch.equal(target.inducing_points, points)
        close(target.covar_module.lengthscale, source.covar_module.lengthscale)
        assert target.posterior(X).mean.shape == (*batch, 3, num_outputs)
    close(target.posterior(X).variance, source.posterior(X).variance)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("batch", "num_outputs"), SHAPES)
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_copies_and_moves(batch, num_outputs, given, training, double):
    """They keep the inducing points and the mode, whether or not rows repeat."""
    X, Y, _ = random_data(batch, num_outputs, n=60, **double)
    X[..., 50:, :] = X[..., :10, :]
    options: dict[str, Any] = {"inducing_points": X[..., :7, :]}
    if not given:
        options = {"inducing_sampler": RecursiveRLSSampler(0.05)}
    model = SparseSingleTaskGP(X, Y, input_transform=Normalize(2), **options)
    if not given:
        model.resparsify(torch.Generator().manual_seed(5))
    X, points = X[..., :3, :], model.inducing_points
    expected = model.posterior(X)
    model.train(training)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for copied in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ):
        assert torch.equal(copied.inducing_points, points)
        assert copied.training == training
        close(copied.posterior(X).mean, expected.mean)
        close(copied.posterior(X).variance, expected.variance)
    model.type(torch.float32) if given else model.float()
    assert torch.equal(model.inducing_points, points.float())
    single = model.posterior(X.float())
    close(single.mean, expected.mean.float(), rtol=1e-3, atol=1e-3)
    close(single.variance, expected.variance.float(), rtol=1e-2, atol=1e-4)
    model.train()
    assert model(*model.train_inputs).mean.dtype == torch.float32
    model.double()
    close(model.posterior(X).mean, expected.mean, rtol=1e-3, atol=1e-3)


def test_loading_draws_points_under_the_loaded_hyperparameters(double):
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


def test_a_copy_made_during_a_fit_is_not_being_fitted(double):
    X, Y, _ = random_data((), 1, n=80, **double)
    model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(0.1))
    copies = []

    def optimizer(mll: Any, **kwargs: Any) -> OptimizationResult:
        assert model._is_fitting
        copies.append(copy.deepcopy(model))
        return OptimizationResult(fval=0.0, status=OptimizationStatus.SUCCESS, step=1)

    fit_gpytorch_mll(make_mll(model), optimizer=optimizer)
    assert copies and not any(each._is_fitting for each in (model, *copies))


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("name", ["normalize", "warp"])
def test_learned_transforms_through_flips(name, given, double):
    """Raw inputs and inducing points stay; what the kernel sees follows."""
    X, Y, _ = random_data((2,), 2, n=30, **double)
    options: dict[str, Any] = {"inducing_points": X[:, :6]}
    if not given:
        options = {"inducing_sampler": RecursiveRLSSampler(0.05)}
    transform = make_transform(name, double)
    model = SparseSingleTaskGP(X, Y, input_transform=transform, **options)
    points = model.inducing_points
    for step in range(3):
        model.posterior(X[:, :2])
        model.train()
        if name == "warp":
            concentration = torch.tensor([2.0, 0.5]) + step
            model.input_transform["warp"]._set_concentration(0, concentration)
        assert torch.equal(model.train_inputs[0][:, 0], X)
        model(*model.train_inputs)
        model.eval()
        assert torch.equal(model.inducing_points, points)
        seen = model.transform_inputs(X).unsqueeze(-3).expand(2, 2, 30, 2)
        close(model.train_inputs[0], seen)
        Z = as_seen(model, X[:, :3])
        mean, _ = dtc(model, observed(model), Z)
        close(model(Z).mean, mean, rtol=0.0, atol=500 * rounding(model))


def test_given_points_do_not_teach_normalize(double):
    X, Y, _ = random_data((), 1, **double)
    options = {"input_transform": Normalize(2), "inducing_points": 5 * X[:9]}
    model = SparseSingleTaskGP(X, Y, **options)
    bounds = model.input_transform.bounds.clone()
    model(*model.train_inputs)
    assert torch.equal(bounds, model.input_transform.bounds)
