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
from botorch.models.transforms import Normalize
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Size, Tensor

from botorch_sparse.models import SparseSingleTaskGP, loo_cv, notices
from botorch_sparse.models.inducing_points import EXACT_SIZE

LOO = "botorch_sparse.models.loo_cv"
JOINT = "joint covariance of"


def data(n: int, num_outputs: int = 1, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    Y = (5 * X).sin().sum(-1, keepdim=True).expand(n, num_outputs)
    Y = Y + 0.1 * torch.randn(n, num_outputs, generator=g, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def sparse(n: int = EXACT_SIZE + 20, **kwargs: Any) -> SparseSingleTaskGP:
    tkwargs = kwargs.pop("tkwargs")
    X, Y = data(n, **kwargs, **tkwargs)
    transform = Normalize(2)
    return SparseSingleTaskGP(
        X, Y, inducing_points=X[:20], input_transform=transform
    ).eval()


def messages(call: Any) -> list[str]:
    """What BotorchWarnings `call` leads to."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if issubclass(w.category, BotorchWarning)]


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_exact_leave_one_out_is_named_once(
    num_outputs: int, tkwargs: dict[str, Any]
) -> None:
    model = sparse(num_outputs=num_outputs, tkwargs=tkwargs)
    first = messages(lambda: botorch_loo_cv(model))
    assert sum(LOO in text for text in first) == 1
    assert not any(LOO in text for text in messages(lambda: botorch_loo_cv(model)))


def test_exact_leave_one_out_is_that_of_the_exact_model(double: dict[str, Any]) -> None:
    """The warning tells the truth: not this model's predictions."""
    model = sparse(tkwargs=double)
    X, Y = data(EXACT_SIZE + 20, **double)
    exact = SingleTaskGP(X, Y, input_transform=Normalize(2)).eval()
    with pytest.warns(BotorchWarning, match=LOO):
        mean = botorch_loo_cv(model).posterior.mean
    torch.testing.assert_close(mean, botorch_loo_cv(exact).posterior.mean)
    assert (mean - loo_cv(model).posterior.mean).abs().max() > 1e-3


def test_nothing_else_is_taken_for_it(double: dict[str, Any]) -> None:
    model = sparse(tkwargs=double)
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
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 2}})
        model.train()
        model.forward(model.train_inputs[0])

    assert not any(LOO in text for text in messages(use))


def test_exact_models_say_nothing(double: dict[str, Any]) -> None:
    few = SparseSingleTaskGP(*data(40, **double)).eval()
    X, Y = data(EXACT_SIZE + 20, **double)
    exact = SparseSingleTaskGP(X, Y, inducing_points=X).eval()
    for model in (few, exact):
        assert not any(LOO in text for text in messages(lambda m=model: loo_cv(m)))
        assert not any(
            LOO in text for text in messages(lambda m=model: botorch_loo_cv(m))
        )


def test_points_given_to_few_data_make_a_sparse_model(double: dict[str, Any]) -> None:
    model = sparse(40, tkwargs=double)
    assert any(LOO in text for text in messages(lambda: botorch_loo_cv(model)))


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_joint_samples_at_many_points_are_named_once(
    num_outputs: int, tkwargs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "VERY_LARGE_Q", 299)
    model = sparse(num_outputs=num_outputs, tkwargs=tkwargs)
    X = data(300, **tkwargs)[0]
    few = messages(lambda: model.posterior(X[:280]).rsample())
    moments = messages(lambda: model.posterior(X).variance)
    assert not any(JOINT in text for text in few + moments)
    restored = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    for each in (model, restored):
        said = messages(lambda m=each: m.posterior(X).rsample())
        assert sum(f"{JOINT} 300 points" in text for text in said) == 1
        again = messages(lambda m=each: m.posterior(X).rsample())
        assert not any(JOINT in text for text in again)


@pytest.mark.filterwarnings("ignore:A not p.d., added jitter")  # to draw samples
def test_baseline_of_the_message(
    double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds every point that pruning all data keeps, and is not warned about."""
    monkeypatch.setattr(notices, "VERY_LARGE_Q", 400)
    model = sparse(tkwargs=double)
    X = data(EXACT_SIZE + 20, **double)[0]
    with pytest.warns(BotorchWarning, match="X_baseline=X"):
        kept = prune_inferior_points(model, X, num_samples=256)
    best = X[model.posterior(X).mean.squeeze(-1).topk(300).indices]
    assert (kept.unsqueeze(-2) == best).all(-1).any(-1).all()
    assert not messages(lambda: prune_inferior_points(model, best, num_samples=256))
