"""Everything else that `SingleTaskGP` offers, on a subset."""

import copy
import pickle
from typing import Any

import pytest
import torch
from botorch.acquisition import (
    LogExpectedImprovement,
    UpperConfidenceBound,
    qLogNoisyExpectedImprovement,
)
from botorch.cross_validation import loo_cv
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms.input import InputPerturbation, Normalize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.utils.datasets import SupervisedDataset
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from refusals import refused
from subset_model_cases import (
    dense_posterior,
    every_kind,
    exact_on_subset,
    make_data,
    make_model,
    rows,
    same,
)

from botorch_sparse.models import SubsetSingleTaskGP

close = torch.testing.assert_close
pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


@every_kind
def test_conditioning_adds_and_chooses_again(m, fixed_noise, transform, double):
    data = make_data(50, m, fixed_noise, **double)
    model = make_model(rows(data, slice(40)), transform)
    X, Y, Yvar = rows(data, slice(40, 43))
    noise = None
    if fixed_noise:  # in transformed units, as in BoTorch
        _, noise = model.outcome_transform.eval()(Y, Yvar)
    new = model.condition_on_observations(X, Y, noise=noise)
    assert isinstance(new, SubsetSingleTaskGP)
    assert (model.num_observations, new.num_observations) == (40, 43)
    assert {0, 1, 40, 41, 42} <= set(new.subset_indices.tolist())
    assert len(new.subset_indices) == 12
    same(new.posterior(X), dense_posterior(new, rows(data, slice(43)), X))
    if fixed_noise:
        close(new.all_train_Yvar, data[2][:43])
    same(model.posterior(X), dense_posterior(model, rows(data, slice(40)), X))


@every_kind
def test_fantasies_join_the_rows_in_use(m, fixed_noise, transform, double):
    data = make_data(40, m, fixed_noise, **double)
    model = make_model(rows(data, slice(38)), transform)
    model.posterior(data[0][:1])
    model.add_observations(*rows(data, slice(38, 40)))
    exact = exact_on_subset(model, data)
    X, T = data[0][:3] + 0.1, data[0][5:9]
    sampler = [SobolQMCNormalSampler(torch.Size([5]), seed=0) for _ in range(2)]
    fantasy = model.fantasize(X, sampler[0])
    Z = model.transform_inputs(X)
    expected = exact.fantasize(Z, sampler[1]).posterior(model.transform_inputs(T))
    expected = model.outcome_transform.untransform_posterior(expected)
    same(fantasy.posterior(T), expected, rtol=1e-6, atol=1e-6)
    assert fantasy.posterior(T).mean.shape == (5, 4, m)
    assert fantasy.train_targets.shape[-1] == 15
    with pytest.raises(UnsupportedError, match="a fantasy model"):
        fantasy.all_train_X  # noqa: B018
    assert model.num_observations == 40  # as it was
    shape = (2, 3, m)
    noise = {"noise": torch.ones(shape, **double)} if fixed_noise else {}
    X, zeros = torch.stack([X, X + 0.1]), torch.zeros(shape, **double)
    batch = model.condition_on_observations(X, zeros, **noise)
    assert batch.posterior(T).mean.shape == (2, 4, m)


@every_kind
def test_copies_and_state(m, fixed_noise, transform, double):
    data = make_data(60, m, fixed_noise, **double)
    model = make_model(rows(data, slice(50)), transform)
    X = data[0][:6]
    model.covar_module.lengthscale = 0.8
    expected = model.posterior(X)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for each in copies:
        same(each.posterior(X), expected)
        assert torch.equal(each.subset_indices, model.subset_indices)
    assert copies[0].all_train_X is model.all_train_X  # which is never written to
    model.add_observations(*rows(data, slice(50, 51)))
    for each in copies:
        assert each.num_observations == 50
        each.add_observations(*rows(data, slice(50, 51)))
        assert torch.equal(each.subset_indices, model.subset_indices)
        same(each.posterior(X), model.posterior(X))
    # Into a model of other data, of another size.
    index = [*range(20, 60), 0]
    other = make_model(rows(data, index[:40]), transform, subset_size=25)
    other.load_state_dict(model.state_dict())
    close(other.covar_module.lengthscale, model.covar_module.lengthscale)
    close(other.outcome_transform.means, model.outcome_transform.means)
    for _ in range(2):
        same(other.posterior(X), dense_posterior(other, rows(data, index[:40]), X))
        other.reselect()  # rows that were not in use when the state was loaded
    other.add_observations(*rows(data, slice(0, 1)))
    same(other.posterior(X), dense_posterior(other, rows(data, index), X))


@pytest.mark.parametrize("transform", [False, True])
@pytest.mark.parametrize("fixed_noise", [False, True])
def test_subset_output(transform, fixed_noise, double):
    data = make_data(41, 3, fixed_noise, **double)
    model = make_model(rows(data, slice(40)), transform)
    X = data[0][:4]
    expected = model.posterior(X)
    for idcs in ([1], [2, 0], [0, 1, 2]):
        part = model.subset_output(idcs)
        posterior = part.posterior(X)
        close(posterior.mean, expected.mean[..., idcs])
        close(posterior.variance, expected.variance[..., idcs])
        fewer = (data[0], *(T if T is None else T[:, idcs] for T in data[1:]))
        part.add_observations(*rows(fewer, slice(40, 41)))
        assert part.all_train_Y.shape == (41, len(idcs))
        same(part.posterior(X), dense_posterior(part, fewer, X))


def test_set_train_data_replaces_all_data(double):
    X, Y, _ = data = make_data(60, **double)
    model = make_model(rows(data, slice(40)), transform=True)
    model.posterior(X[:6])
    targets = model.outcome_transform(Y)[0].squeeze(-1)
    with pytest.raises(RuntimeError, match=r"Use strict=False"):
        model.set_train_data(X, targets)
    with pytest.raises(BotorchTensorDimensionError, match="same n"):
        model.set_train_data(X, strict=False)
    model.set_train_data(X, targets, strict=False)
    close(model.all_train_Y, Y)
    assert len(model.subset_indices) == 12
    assert {0, 1, 59} <= set(model.subset_indices.tolist())
    same(model.posterior(X[:6]), dense_posterior(model, data, X[:6]))
    moved = X.clone()
    moved[model.subset_indices[4]] += 0.5  # a row that moves is another row
    fewer, flipped = X.flip(0)[:30], Y.flip(0)[:30]
    for given, Y_given in (
        ((moved, targets), Y),
        ((fewer, targets.flip(0)[:30], False), flipped),
        ((None, targets[:30]), Y[:30]),
    ):
        model.set_train_data(*given)
        X_given = fewer if given[0] is None else given[0]
        expected = dense_posterior(model, (X_given, Y_given, None), X[:6])
        same(model.posterior(X[:6]), expected)


@pytest.mark.parametrize("transform", [False, True])
def test_dtype_follows(transform, double):
    data = make_data(41, 1, True, **double)
    model = make_model(rows(data, slice(40)), transform)
    X = data[0][:4]
    expected = model.posterior(X)
    model.float()
    found = model.posterior(X.float())
    assert model.all_train_X.dtype == found.mean.dtype == torch.float32
    close(found.mean.double(), expected.mean, rtol=1e-3, atol=1e-3)
    model.add_observations(*(T.float() for T in rows(data, slice(40, 41))))
    model.double()
    model.posterior(X)
    subset, known = model.subset, model.prediction_strategy
    model.to(X)  # as acquisition functions do: nothing moves
    assert model.subset is subset and model.prediction_strategy is known


def test_batches_share_the_choice(double):
    parts = [make_data(n, 2, **double)[:2] for n in (42, 43)]
    X, Y = (torch.stack([T[:42] for T in pair]) for pair in zip(*parts, strict=True))
    model = SubsetSingleTaskGP(X[:, :40], Y[:, :40], subset_size=15, num_initial=3)
    model.add_observations(X[:, 40:], Y[:, 40:])
    index, T = model.subset_indices, X[..., :4, :]
    Z = model.outcome_transform.eval()(Y)[0]
    exact = SingleTaskGP(X[:, index], Z[:, index], outcome_transform=None)
    expected = model.outcome_transform.untransform_posterior(exact.posterior(T))
    same(model.posterior(T), expected)
    assert model.batch_shape == (2,)


def test_construct_inputs(double):
    X, Y, _ = make_data(40, **double)
    data = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
    options = {"subset_size": 9, "selection": "random", "seed": 3, "unused": 1}
    inputs = SubsetSingleTaskGP.construct_inputs(data, **options)
    assert "unused" not in inputs
    model = SubsetSingleTaskGP(**inputs)
    assert len(model.subset_indices) == 9
    assert (model.seed, model.selection) == (3, "random")
    assert SubsetSingleTaskGP.construct_inputs(data)["subset_size"] is None


def test_consumers_work_on_the_rows_in_use(double):
    data = make_data(60, **double)
    model = make_model(rows(data, slice(50)), transform=True)
    bounds = torch.tensor([[0.0, 0.0], [3.0, 3.0]], **double)
    options: Any = {"q": 1, "num_restarts": 2, "raw_samples": 8}
    sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)
    for make in (
        lambda: UpperConfidenceBound(ModelListGP(model), beta=2.0),
        lambda: LogExpectedImprovement(model, best_f=data[1].max()),
        lambda: qLogNoisyExpectedImprovement(model, data[0][:5], sampler=sampler),
    ):
        x, _ = optimize_acqf(make(), bounds, **options, options={"seed": 0})
        model.add_observations(x, torch.sin(x.sum(-1, keepdim=True)))
    assert model.num_observations == 53
    paths = draw_matheron_paths(model, sample_shape=torch.Size([2]))
    assert paths(data[0][:5]).shape[:2] == (2, 5)
    folds = loo_cv(make_model(data, outcome_transform=None))
    assert folds.observed_Y.shape[0] == 12


class Doubled(Normalize):
    """Each row twice, in training too."""

    def transform(self, X: torch.Tensor) -> torch.Tensor:
        return super().transform(X).repeat_interleave(2, dim=-2)


def test_a_transform_that_makes_rows(double):
    data = make_data(20, **double)
    perturbation = InputPerturbation(torch.tensor([[0.01, 0.0]], **double))
    perturbation.transform_on_train = False
    model = make_model(data, input_transform=perturbation)
    assert model.posterior(data[0][:3]).mean.shape == (3, 1)
    with pytest.raises(UnsupportedError, match="makes 40 rows of 20"):
        make_model(data, input_transform=Doubled(2))


NAN = float("nan")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"subset_size": 5, "num_initial": 5}, "must leave room"),
        ({"train_Y": torch.full((20, 1), NAN).double()}, "train_Y with NaN"),
        ({"selection": lambda *_: torch.arange(4)}, "a subset of 4 indices"),
        ({"selection": lambda *_: torch.arange(5)}, "without some of the rows"),
        ({"selection": lambda *_: torch.zeros(5).long()}, "different int64"),
        ({"selection": lambda *_: None}, "subset None"),
    ],
)
def test_errors_of_the_constructor(options, match):
    X, Y, _ = make_data(20)
    with pytest.raises(InputDataError, match=match):
        SubsetSingleTaskGP(**{"train_X": X, "train_Y": Y, "subset_size": 5, **options})


def test_errors_of_new_observations():
    data = make_data(20)
    model, known = make_model(data), make_model(make_data(20, 1, True))
    X, Y = torch.rand(2, 2).double(), torch.rand(2, 1).double()
    for bad, kind, match in [
        ((X[0], Y), BotorchTensorDimensionError, "need as many rows"),
        ((X, Y[:1]), BotorchTensorDimensionError, "need as many rows"),
        ((X, Y.squeeze(-1)), BotorchTensorDimensionError, "unsqueeze"),
        ((X[:, :1], Y), BotorchTensorDimensionError, "need as many rows"),
        ((X.float(), Y), InputDataError, "X in torch.float32"),
        ((X, Y * NAN), InputDataError, "Got Y with NaN or infinity in 2 of 2"),
        ((X, [1.0]), InputDataError, "Y of type list"),
        ((X, Y, Y.abs()), InputDataError, "are inferred"),
    ]:
        with pytest.raises(kind, match=match):
            model.add_observations(*bad)
    assert model.num_observations == 20
    refused("a subset of 1 indices", model.set_subset, torch.tensor([20]))
    refused("Leave out noise", model.condition_on_observations, X, Y, noise=Y)
    refused("are known", known.add_observations, X, Y)
    with pytest.raises(InputDataError, match="known noise variances"):
        known.set_train_data(X, Y.squeeze(-1), strict=False)
    given = FixedNoiseGaussianLikelihood(torch.full((20,), 0.1).double())
    model = make_model(data, likelihood=given)
    model.posterior(X)
    with pytest.raises(UnsupportedError, match="train_Yvar instead"):
        model.add_observations(X, Y)
