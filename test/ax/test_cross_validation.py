"""Ax's cross-validation predicts with this package's models, and others as before."""

import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import ax.adapter.cross_validation as ax_cross_validation
import numpy as np
import pytest
import torch
from ax.adapter.cross_validation import CVData, compute_diagnostics, cross_validate
from ax.adapter.registry import Generators
from ax.core.data_utils import ExperimentData
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax_problems import CAPPED, NO_THRESHOLDS
from botorch.cross_validation import loo_cv
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize

from botorch_sparse.ax import (
    SparseGenerators,
    gssbo_generation_strategy,
    sparse_generation_strategy,
)
from botorch_sparse.ax.folds import DataByArm
from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP

# Without one of them the outcomes have another mean and scale.
NOT_STANDARDIZED = pytest.mark.filterwarnings(
    "ignore:Data .outcome observations. is not standardized:"
    "botorch.exceptions.warnings.InputDataWarning"
)
pytestmark = [CAPPED, NOT_STANDARDIZED]

FACTORIES = [sparse_generation_strategy, gssbo_generation_strategy]


def fitted(client: Any) -> Any:
    return client._generation_strategy.fit(client._experiment)


def predictions(adapter: Any, **options: Any) -> np.ndarray:
    results = cross_validate(adapter, untransform=False, **options)
    results.sort(key=lambda r: int(r.observed.arm_name.split("_")[0]))
    moments = [(r.predicted.means[0], r.predicted.covariance[0, 0]) for r in results]
    return np.array(moments)


def test_sparse_models(make_client, attach):
    """Leave-one-out and four folds, against conditioning on the others by hand."""
    torch.manual_seed(0)  # decides on inducing points
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
        expected = _without(model, X, Y, others, i)
        assert found[i] == pytest.approx(expected, rel=1e-5)
    # Ax shuffles names whose order is that of a set, which no seed decides.
    with mock.patch("numpy.random.shuffle", side_effect=np.ndarray.sort):
        folds = predictions(adapter, folds=4)
    assert folds.shape == found.shape
    assert np.corrcoef(folds[:, 0], found[:, 0])[0, 1] > 0.9
    assert len(compute_diagnostics(cross_validate(adapter))["Rank correlation"]) == 1


def _without(
    model: Any, X: torch.Tensor, Y: torch.Tensor, others: Any, i: int
) -> list[float]:
    """Mean and variance at row `i` of the same model on the other rows."""
    left = SparseSingleTaskGP(
        X[others],
        Y[others].unsqueeze(-1),
        input_transform=model.input_transform,
        outcome_transform=None,
        inducing_points=model.inducing_points,
    )
    left.load_state_dict(model.state_dict())
    posterior = left.eval().posterior(X[i : i + 1])
    return [posterior.mean.item(), posterior.variance.item()]


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


def test_all_observations_of_an_arm_are_left_out(make_client, attach):
    """By Ax's rule a fold is an arm, however many trials it has."""
    options = {"max_inducing_points": 15}
    client = make_client(sparse_generation_strategy(5, model_options=options))
    attach(client, 30)
    first = client._experiment.trials[0].arm.parameters
    attach(client, [(first, {"f": value}) for value in (-20.0, 3.0)])
    adapter = fitted(client)
    found = predictions(adapter)
    model = adapter.generator.surrogate.model
    same = [0, 30, 31]
    others = [i for i in range(32) if i not in same]
    X, Y = adapter.generator.surrogate.Xs[0], model.train_targets
    assert torch.equal(X[same], X[:1].expand(3, -1))
    expected = _without(model, X, Y, others, 0)
    assert found.shape == (32, 2)
    assert (found == found[0]).all(-1).sum() == 3
    assert found[0] == pytest.approx(expected, rel=1e-5)
    noisy = predictions(adapter, use_posterior_predictive=True)
    noise = model.likelihood.noise.item()
    assert noisy[:, 1] == pytest.approx(found[:, 1] + noise)


def test_arms_that_share_a_coordinate_are_told_apart(make_client, attach):
    client = make_client(sparse_generation_strategy(5))
    points = [{"x1": float(i % 4), "x2": float(i // 4)} for i in range(12)]
    outcomes = [{"f": abs(p["x1"] - 2) + p["x2"] ** 2} for p in points]
    attach(client, list(zip(points, outcomes, strict=True)))
    adapter = fitted(client)
    found = torch.from_numpy(predictions(adapter))
    model = adapter.generator.surrogate.model
    expected = loo_cv(model, observation_noise=False).posterior
    assert torch.allclose(found[:, 0], expected.mean.flatten(), rtol=1e-4, atol=1e-6)
    variance = expected.variance.flatten()
    assert torch.allclose(found[:, 1], variance, rtol=1e-3, atol=1e-6)


@NO_THRESHOLDS
@pytest.mark.parametrize("same_trials", [True, False])
@pytest.mark.parametrize("factory", FACTORIES)
def test_several_outcomes(factory, same_trials, make_client, attach):
    """In one model, or in a model each where some trials lack an outcome."""
    client = make_client(factory(5, seed=0), objective="f, -g")
    rng, trials = random.Random(0), []
    for t in range(12):
        point = {"x1": rng.uniform(-5, 10), "x2": rng.uniform(0, 15)}
        outcome = {"f": -abs(point["x1"]), "g": point["x2"] / 5}
        if t == 3 and not same_trials:
            del outcome["g"]
        trials.append((point, outcome))
    attach(client, trials)
    adapter = fitted(client)
    model = adapter.generator.surrogate.model
    assert isinstance(model, ModelListGP) is not same_trials
    results = cross_validate(adapter, untransform=False)
    found = {r.observed.arm_name: r.predicted for r in results}
    assert len(found) == 12
    models = model.models if isinstance(model, ModelListGP) else [model]
    expected = [loo_cv(each, observation_noise=False).posterior for each in models]
    mean = [m.flatten() for p in expected for m in p.mean.unbind(-1)]
    variance = [v.flatten() for p in expected for v in p.variance.unbind(-1)]
    for j, outcome in enumerate(adapter.outcomes):
        arms = [t for t in range(12) if same_trials or outcome == "f" or t != 3]
        left = torch.tensor([found[f"{t}_0"].means[j] for t in arms])
        uncertain = torch.tensor([found[f"{t}_0"].covariance[j, j] for t in arms])
        assert torch.allclose(left, mean[j].double(), rtol=1e-4, atol=1e-6)
        assert torch.allclose(uncertain, variance[j].double(), rtol=1e-3, atol=1e-6)
    if not same_trials:
        as_it_is = model.posterior(adapter.generator.surrogate.Xs[0][3:4]).mean[0, 1]
        assert found["3_0"].means[1] == pytest.approx(as_it_is.item())


def test_folds_of_several_arms_are_predicted_by_new_models(make_client, attach):
    client = make_client(sparse_generation_strategy(5))
    attach(client, 8)
    adapter = fitted(client)

    def first_half(data: ExperimentData) -> Iterator[CVData]:
        """Trained on the first four arms, tested on the last one."""
        names = [f"{i}_0" for i in range(8)]
        yield CVData(
            data.filter_by_arm_names(names[:4]), data.filter_by_arm_names(names[7:])
        )

    counts = []
    for options in ({}, {"folds": 8}, {"folds": 4}, {"fold_generator": first_half}):
        name = "construct_inputs"
        construct = SparseSingleTaskGP.construct_inputs
        with mock.patch.object(SparseSingleTaskGP, name, side_effect=construct) as new:
            cross_validate(adapter, **options)
        counts.append([len(c.kwargs["training_data"].X) for c in new.call_args_list])
    assert counts == [[], [], [6] * 4, [4]]


def test_refits_are_made_where_they_were_asked_for(make_client, attach):
    client = make_client(sparse_generation_strategy(5))
    attach(client, 7)
    data = client._experiment.lookup_data()
    counts = {}
    for refit in (True, False):
        adapter = SparseGenerators.BOTORCH_SPARSE(
            experiment=client._experiment, data=data, refit_on_cv=refit
        )
        with mock.patch(
            "ax.generators.torch.botorch_modular.surrogate.fit_botorch_model"
        ) as fit:
            assert len(cross_validate(adapter)) == 7
            assert len(cross_validate(adapter, folds=2)) == 7
        counts[refit] = fit.call_count
    assert counts == {True: 9, False: 0}


def test_models_of_others_are_left_to_botorch(make_client, attach):
    client = make_client(sparse_generation_strategy(5))
    attach(client, 12)
    adapter = Generators.BOTORCH_MODULAR(
        experiment=client._experiment, data=client._experiment.lookup_data()
    )
    model = adapter.generator.surrogate.model
    assert type(model) is SingleTaskGP
    assert ax_cross_validation.loo_cv is loo_cv
    expected = loo_cv(model, observation_noise=False)
    found = predictions(adapter)
    mean = expected.posterior.mean.detach().flatten().numpy()
    assert found[:, 0] == pytest.approx(mean)


def test_models_that_are_not_known_go_to_ax(make_client, attach):
    """An outcome transform of the user's own: new models for each fold."""
    config = ModelConfig(
        botorch_model_class=SparseSingleTaskGP, outcome_transform_classes=[Standardize]
    )
    client = make_client(sparse_generation_strategy(5))
    attach(client, 6)
    adapter = SparseGenerators.BOTORCH_SPARSE(
        experiment=client._experiment,
        data=client._experiment.lookup_data(),
        surrogate_spec=SurrogateSpec([config]),
    )
    assert adapter.generator.left_out_models() is None
    assert len(cross_validate(adapter)) == 6


def test_folds_of_one_arm_are_those_of_ax(make_client, fast):
    """With outcomes that some arms lack, and an arm that was evaluated twice."""
    strategy = sparse_generation_strategy(3, optimizer_options=fast)
    client = make_client(strategy, constraints=["g <= 3.0"])
    rows = [{"x1": float(i), "x2": (3.0 * i) % 7} for i in (*range(6), 2)]
    for i, parameters in enumerate(rows):
        index = client.attach_trial(parameters=parameters)
        outcome = {"f": (float(i), 0.5), "g": float(i % 4)}
        client.complete_trial(index, raw_data=outcome if i != 4 else {"f": 4.0})
    client.get_next_trials(1)
    data = strategy.adapter.get_training_data(filter_in_design=True)
    assert isinstance(data, DataByArm)
    plain = ExperimentData(data.arm_data, data.observation_data)
    assert len(data.rows) < len(rows)
    for name in data.rows:
        fold, expected = (each.filter_by_arm_names([name]) for each in (data, plain))
        lists = (each.convert_to_list_of_observations() for each in (fold, expected))
        for ours, theirs in zip(*lists, strict=True):
            assert ours.features == theirs.features
            assert ours.data.metric_signatures == theirs.data.metric_signatures
            assert np.array_equal(ours.data.means, theirs.data.means)
            assert np.array_equal(
                ours.data.covariance, theirs.data.covariance, equal_nan=True
            )
        assert fold == expected
        others = data.rows.keys() - {name}
        assert data.filter_by_arm_names(others) == plain.filter_by_arm_names(others)
