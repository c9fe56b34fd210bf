"""Ax's cross-validation predicts with this package's models, and others as before."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from ax.adapter.cross_validation import compute_diagnostics, cross_validate
from ax.adapter.registry import Generators
from botorch.models import SingleTaskGP

from botorch_sparse import models
from botorch_sparse.ax import (
    cross_validation,
    gssbo_generation_strategy,
    sparse_generation_strategy,
)
from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP


def fitted(client: Any) -> Any:
    return client._generation_strategy.fit(client._experiment)


def predictions(adapter: Any, **options: Any) -> np.ndarray:
    results = cross_validate(adapter, untransform=False, **options)
    results.sort(key=lambda r: int(r.observed.arm_name.split("_")[0]))
    moments = [(r.predicted.means[0], r.predicted.covariance[0, 0]) for r in results]
    return np.array(moments)


def test_sparse_models(make_client, attach):
    """Leave-one-out and four folds, against conditioning on the others by hand."""
    options = {"max_inducing_points": 15}
    client = make_client(sparse_generation_strategy(5, model_options=options))
    attach(client, 45)
    adapter = fitted(client)
    model = adapter.generator.surrogate.model
    assert not model.is_exact
    with mock.patch("torch.linalg.cholesky_ex", side_effect=_small(40)):
        found = predictions(adapter)
    X, Y = adapter.generator.surrogate.Xs[0], model.train_targets
    for i in (0, 20, 44):
        others = torch.arange(45) != i
        left = SparseSingleTaskGP(
            X[others],
            Y[others].unsqueeze(-1),
            input_transform=model.input_transform,
            outcome_transform=None,
            inducing_points=model.inducing_points,
        )
        left.load_state_dict(model.state_dict())
        posterior = left.eval().posterior(X[i : i + 1])
        expected = [posterior.mean.item(), posterior.variance.item()]
        assert found[i] == pytest.approx(expected, rel=1e-5)
    folds = predictions(adapter, folds=4)
    assert folds.shape == found.shape
    assert np.corrcoef(folds[:, 0], found[:, 0])[0, 1] > 0.9
    assert len(compute_diagnostics(cross_validate(adapter))["Rank correlation"]) == 1


def _small(limit: int) -> Any:
    original = torch.linalg.cholesky_ex

    def checked(A: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        assert A.shape[-1] <= limit
        return original(A, *args, **kwargs)

    return checked


def test_subset_models(make_client, attach):
    """All rows have predictions; those that are not in use are left out as it is."""
    client = make_client(gssbo_generation_strategy(5, subset_size=20, seed=0))
    attach(client, 55)
    adapter = fitted(client)
    model = adapter.generator.surrogate.model
    assert isinstance(model, SubsetSingleTaskGP)
    found = torch.from_numpy(predictions(adapter))
    used = model.subset_indices
    rest = [i for i in range(55) if i not in used.tolist()]
    assert len(rest) == 35
    X = model.all_train_X
    with torch.no_grad():
        posterior = model.posterior(X[rest].unsqueeze(-2))
    assert torch.allclose(found[rest, 0], posterior.mean.flatten())
    assert torch.allclose(found[rest, 1], posterior.variance.flatten())
    i, others = used[3], torch.arange(20) != 3
    left = SingleTaskGP(
        X[used[others]],
        model.train_targets[others].unsqueeze(-1),
        input_transform=model.input_transform,
        outcome_transform=None,
        likelihood=model.likelihood,
        covar_module=model.covar_module,
        mean_module=model.mean_module,
    ).eval()
    moments = left.posterior(X[i : i + 1])
    expected = [moments.mean.item(), moments.variance.item()]
    assert found[i].tolist() == pytest.approx(expected, rel=1e-4)


def test_subset_models_of_several_outputs():
    X = torch.linspace(0, 1, 12, dtype=torch.double).unsqueeze(-1)
    Y = torch.cat([X.sin(), X.cos()], dim=-1)
    model = SubsetSingleTaskGP(X, Y, subset_size=6).eval()
    results = cross_validation.loo_cv(model)
    assert results.posterior.mean.shape == (12, 1, 2)
    assert torch.equal(results.observed_Y.squeeze(-2), Y)


def test_models_of_others_go_to_botorch(make_client, attach):
    client = make_client(sparse_generation_strategy(5))
    attach(client, 12)
    adapter = Generators.BOTORCH_MODULAR(
        experiment=client._experiment, data=client._experiment.lookup_data()
    )
    model = adapter.generator.surrogate.model
    assert type(model) is SingleTaskGP
    original = models.cross_validation.botorch_loo_cv
    name = "botorch_sparse.models.cross_validation.botorch_loo_cv"
    with mock.patch(name, side_effect=original) as botorch_loo_cv:
        assert len(cross_validate(adapter)) == 12
    assert botorch_loo_cv.call_args.args[0] is model
    expected = original(model, observation_noise=False)
    found = predictions(adapter)
    mean = expected.posterior.mean.detach().flatten().numpy()
    assert found[:, 0] == pytest.approx(mean)
