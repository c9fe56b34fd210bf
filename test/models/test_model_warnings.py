"""What a model says about requests whose cost grows with n^2 or n^3, and when not."""

import copy
import pickle
import warnings
from typing import Any

import gpytorch
import pytest
import torch
from botorch.acquisition.utils import prune_inferior_points
from botorch.cross_validation import loo_cv as botorch_loo_cv
from botorch.exceptions import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from sparse_model_cases import make_mll, make_model, random_data
from torch import Size, Tensor

from botorch_sparse.models import SparseSingleTaskGP, loo_cv, model_warnings
from botorch_sparse.models.inducing_points import EXACT_SIZE

LOO = "botorch_sparse.models.loo_cv"
MANY = EXACT_SIZE + 20
JOINT = "joint covariance of"


def sparse(num_outputs: int = 1, n: int = MANY, **tkwargs: Any) -> SparseSingleTaskGP:
    return make_model((), num_outputs, transform="normalize", n=n, m=20, **tkwargs)


def points(n: int = MANY, **tkwargs: Any) -> Tensor:
    """Those of the model, if it has as many."""
    return random_data((), 1, n=n, **tkwargs)[0]


def messages(call: Any) -> list[str]:
    """What BotorchWarnings `call` leads to."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if issubclass(w.category, BotorchWarning)]


def loo_messages(model: SparseSingleTaskGP, loo: Any = botorch_loo_cv) -> int:
    return sum(LOO in text for text in messages(lambda: loo(model)))


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_exact_leave_one_out_is_named_once(num_outputs, tkwargs):
    model = sparse(num_outputs, **tkwargs)
    assert [loo_messages(model) for _ in range(2)] == [1, 0]


def test_exact_leave_one_out_is_that_of_the_exact_model(double):
    """The warning tells the truth: not this model's predictions."""
    model, (X, Y, _) = sparse(**double), random_data((), 1, n=MANY, **double)
    exact = SingleTaskGP(X, Y, input_transform=copy.deepcopy(model.input_transform))
    exact.load_state_dict(model.state_dict())
    with pytest.warns(BotorchWarning, match=LOO):
        mean = botorch_loo_cv(model).posterior.mean
    torch.testing.assert_close(mean, botorch_loo_cv(exact.eval()).posterior.mean)
    assert (mean - loo_cv(model).posterior.mean).abs().max() > 1e-3


def test_nothing_else_is_taken_for_it(double):
    model = sparse(**double)
    X = model.train_inputs[0]
    sampler = SobolQMCNormalSampler(Size([2]))

    def use() -> None:
        loo_cv(model)
        _ = model.posterior(X[:3]).variance
        _ = model.posterior(X).variance
        model.forward(X[:30])
        model.forward(1 - X)
        with gpytorch.settings.prior_mode(True):
            model(X)
        _ = model.fantasize(X[:2], sampler=sampler).posterior(X[:3]).mean
        draw_matheron_paths(model, sample_shape=Size([2]))(X[:3])
        fit_gpytorch_mll(make_mll(model), optimizer_kwargs={"options": {"maxiter": 2}})
        model.train()
        model.forward(model.train_inputs[0])

    assert not any(LOO in text for text in messages(use))


def test_exact_models_say_nothing(double):
    """Points that are given to few data make a sparse model."""
    few, (X, Y, _) = random_data((), 1, **double), random_data((), 1, n=MANY, **double)
    exact = SparseSingleTaskGP(X, Y, inducing_points=X)
    for model in (SparseSingleTaskGP(*few[:2]), exact):
        assert loo_messages(model.eval(), loo_cv) == loo_messages(model) == 0
    assert loo_messages(sparse(n=40, **double)) == 1


@pytest.fixture
def more_than_300_are_many(monkeypatch):
    """As more than 2000 are, whose joint samples take seconds."""
    monkeypatch.setattr(model_warnings, "VERY_LARGE_Q", 300)


@pytest.mark.usefixtures("more_than_300_are_many")
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_joint_samples_at_many_points_are_named_once(num_outputs, tkwargs):
    model = sparse(num_outputs, **tkwargs)
    X = points(301, **tkwargs)
    few = messages(lambda: model.posterior(X[:300]).rsample())
    moments = messages(lambda: model.posterior(X).variance)
    assert not any(JOINT in text for text in few + moments)
    restored = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    for each in (model, restored):
        said = messages(lambda m=each: m.posterior(X).rsample())
        assert sum(f"{JOINT} 301 points" in text for text in said) == 1
        again = messages(lambda m=each: m.posterior(X).rsample())
        assert not any(JOINT in text for text in again)


@pytest.mark.filterwarnings("ignore:A not p.d., added jitter")  # to draw samples
@pytest.mark.usefixtures("more_than_300_are_many")
def test_baseline_of_the_message(double):
    """It holds every point that pruning all data keeps, and is not warned about."""
    model = sparse(**double)
    X = points(**double)
    torch.manual_seed(0)
    with pytest.warns(BotorchWarning, match="X_baseline=X"):
        kept = prune_inferior_points(model, X, num_samples=256)
    best = X[model.posterior(X).mean.squeeze(-1).topk(300).indices]
    assert (kept.unsqueeze(-2) == best).all(-1).any(-1).all()
    assert not messages(lambda: prune_inferior_points(model, best, num_samples=256))
