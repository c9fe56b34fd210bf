"""Acquisition functions that condition, fantasize or cache roots of a sparse model."""

from typing import Any

import pytest
import torch
from botorch.acquisition import PosteriorMean, qKnowledgeGradient
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import LinearMCObjective
from botorch.sampling import SobolQMCNormalSampler
from sparse_model_cases import (
    Observed,
    as_seen,
    dtc,
    make_model,
    observed,
    random_data,
    transformed,
)
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.posteriors import NystromPosterior

close = torch.testing.assert_close
pytestmark = pytest.mark.filterwarnings("ignore:Data:UserWarning")


def with_new_data(model: SparseSingleTaskGP, X: Tensor, Y: Tensor) -> Observed:
    """The data of a model and new ones, whose noise is learned or the mean noise."""
    noise = model.likelihood.noise.mean().expand(Y.shape)
    return observed(model) + transformed(model, X, Y, noise)


@pytest.mark.parametrize("fixed_noise", [False, True])
def test_integrated_variance_is_the_closed_form(fixed_noise, double):
    model = make_model((), 1, fixed_noise, transform="normalize", **double)
    points = random_data((), 1, n=20, seed=2, **double)[0]
    X = random_data((5,), 1, n=2, seed=3, **double)[0]
    acqf = qNegIntegratedPosteriorVariance(model, mc_points=points)
    data = with_new_data(model, X, torch.zeros(5, 2, 1, **double))
    _, covariance = dtc(model, data, as_seen(model, points))
    scale = model.outcome_transform.stdvs.square().squeeze()
    expected = -scale * covariance.diagonal(dim1=-1, dim2=-2).mean(-1)
    close(acqf(X), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("fixed_noise", [False, True])
def test_knowledge_gradient_is_the_closed_form(fixed_noise, double):
    model = make_model((), 1, fixed_noise, **double)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=1)
    acqf = qKnowledgeGradient(model, num_fantasies=4, sampler=sampler)
    X = random_data((5,), 1, n=6, seed=3, **double)[0]  # two points and four fantasies
    actual, fantasies = X[:, :2], X[:, 2:].movedim(1, 0).unsqueeze(-2)
    Y = sampler(model.posterior(actual, observation_noise=True))
    mean, _ = dtc(model, with_new_data(model, actual, Y), fantasies)
    stdvs, means = model.outcome_transform.stdvs, model.outcome_transform.means
    expected = (means + stdvs * mean).mean(0)[:, 0]
    close(acqf(X), expected, rtol=1e-6, atol=1e-6)
    X.requires_grad_()
    acqf(X).sum().backward()
    assert (X.grad.abs().sum(dim=(0, 2)) > 0).all()


@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("num_baseline", [8, 270])
@pytest.mark.filterwarnings("error::botorch.exceptions.BotorchWarning")
@pytest.mark.filterwarnings("ignore:A not p.d., added jitter")  # to draw samples
def test_cached_roots(num_outputs, num_baseline, double):
    """The samples by a cached root are those of the joint posterior, dense or lazy."""
    model = make_model((), num_outputs, n=300, **double)
    baseline = random_data((), 1, n=num_baseline, seed=2, **double)[0]
    X = random_data((3,), 1, n=2, seed=3, **double)[0]
    weights = torch.ones(num_outputs, **double)
    values = []
    for cache_root in (True, False):
        acqf = qLogNoisyExpectedImprovement(
            model,
            baseline,
            sampler=SobolQMCNormalSampler(torch.Size([8]), seed=1),
            objective=LinearMCObjective(weights),
            cache_root=cache_root,
            prune_baseline=False,
        )
        values.append(acqf(X))
        if not cache_root:
            continue
        joint = torch.cat([baseline.expand(3, -1, -1), X], dim=-2)
        posterior = model.posterior(joint)
        cached = acqf._get_f_X_samples(posterior=posterior, q_in=2)
        samples = acqf.sampler(posterior)[..., -2:, :]
        close(cached, samples, rtol=1e-2, atol=1e-3)
    assert all(value.isfinite().all() for value in values)


def test_analytic_functions_keep_the_caches(double, monkeypatch):
    """They call `.to(device)` before each evaluation, which moves nothing."""
    model = make_model(**double)
    X = random_data((5,), 1, n=1, seed=3, **double)[0]
    fantasies = model.fantasize(
        X.requires_grad_(), SobolQMCNormalSampler(torch.Size([3]), seed=1)
    )
    acqfs = [PosteriorMean(model), PosteriorMean(fantasies)]
    values = [acqf(X.detach()) for acqf in acqfs]

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("A warm posterior is not built again.")

    monkeypatch.setattr(NystromPosterior, "condition", refuse)
    for acqf, value in zip(acqfs, values, strict=True):
        close(acqf(X.detach()), value)
    assert torch.autograd.grad(values[1].sum(), X)[0].abs().min() > 0
