"""Posteriors that know some points give what the plain ones give."""

from typing import Any
from unittest import mock

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize

from botorch_sparse.ax import sparse_generation_strategy
from botorch_sparse.ax.known_rows import KnownRowsPosterior, know_rows
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.posteriors import NystromPosterior


def points(n: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.rand(n, 2, generator=generator, dtype=torch.double)


def sparse_model(m: int) -> SparseSingleTaskGP:
    X = points(40, seed=0)
    Y = torch.stack([(X[:, 0] + j * X[:, 1]).sin() for j in range(m)], dim=-1)
    return SparseSingleTaskGP(
        X,
        Y,
        input_transform=Normalize(2),
        outcome_transform=None,
        inducing_points=X[:12],
    ).eval()


def moments(model: Any, X: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Mean and joint covariance, and their gradient with respect to X."""
    X = X.clone().requires_grad_(True)
    posterior = model.posterior(X)
    covariance = posterior.distribution.covariance_matrix
    total = posterior.mean.sin().sum() + covariance.cos().sum()
    return posterior.mean, covariance, *torch.autograd.grad(total, X)


@pytest.mark.parametrize("m", [1, 2])
def test_posteriors_are_the_same_and_known_points_cost_nothing(m):
    model, known = sparse_model(m), points(5, seed=1)
    free = points(21, seed=2).reshape(7, 3, 2)
    X = torch.cat([known.expand(7, -1, -1), free], dim=-2)
    cases = {"known": X, "others": X.flip(-2), "alone": free, "single": X[0]}
    expected = {name: moments(model, x) for name, x in cases.items()}
    know_rows(model, known)
    assert isinstance(model.nystrom_posterior(), KnownRowsPosterior)
    rows = []
    plain = NystromPosterior.features

    def counted(self: Any, Z: torch.Tensor) -> torch.Tensor:
        rows.append(Z.shape[-2])
        return plain(self, Z)

    with mock.patch.object(NystromPosterior, "features", counted):
        found = {name: moments(model, x) for name, x in cases.items()}
    assert rows == [3, 8, 3, 3]
    for name in cases:
        for one, other in zip(expected[name], found[name], strict=True):
            if name == "known" and one.shape == X.shape:  # known points stay
                one, other = one[:, 5:], other[:, 5:]
            elif name == "single" and one.shape == X[0].shape:
                one, other = one[5:], other[5:]
            assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)


def test_what_is_known_ends_with_the_posterior_it_is_of():
    """Conditioned posteriors compute all anew."""
    model, known = sparse_model(1), points(5, seed=1)
    X = torch.cat([known, points(2, seed=2)])
    new_X, new_Y = points(3, seed=3), torch.ones(3, 1, dtype=torch.double)
    expected = model.condition_on_observations(new_X, new_Y).posterior(X)
    fantasies = torch.stack([new_X, new_X + 0.1])
    many = model.condition_on_observations(fantasies, new_Y.expand(2, 3, 1))
    expected_many = many.posterior(X)
    know_rows(model, known)
    found = model.condition_on_observations(new_X, new_Y).posterior(X)
    many = model.condition_on_observations(fantasies, new_Y.expand(2, 3, 1))
    for one, other in ((expected, found), (expected_many, many.posterior(X))):
        assert torch.allclose(one.mean, other.mean, rtol=1e-8)
        assert torch.allclose(one.variance, other.variance, rtol=1e-6)
    # Known again, of a posterior that knows others.
    know_rows(model, X[:2])
    assert len(model.nystrom_posterior().known.X) == 2


def test_models_without_inducing_points_are_left_alone():
    X = points(10, seed=0)
    exact = SparseSingleTaskGP(X, X.sum(-1, keepdim=True), outcome_transform=None)
    know_rows(ModelListGP(exact, sparse_model(1)), X[:2])
    assert exact._cached_posterior is None


def test_acquisition_functions_know_their_baseline(make_client, attach, fast):
    options = {"max_inducing_points": 15}
    strategy = sparse_generation_strategy(
        5, seed=0, optimizer_options=fast, model_options=options
    )
    client = make_client(strategy)
    attach(client, 40)
    client.get_next_trials(1)
    acqf = strategy.adapter.generator._acquisition.acqf
    assert isinstance(acqf, qLogNoisyExpectedImprovement)
    assert not acqf.model.is_exact
    known = acqf.model.nystrom_posterior().known
    assert torch.equal(known.X, acqf.model.transform_inputs(acqf.X_baseline))
    X = torch.cat([acqf.X_baseline, points(1, seed=0)])
    with mock.patch.object(
        NystromPosterior,
        "features",
        autospec=True,
        side_effect=NystromPosterior.features,
    ) as features:
        acqf(X[-1:].unsqueeze(0))
    assert {call.args[1].shape[-2] for call in features.call_args_list} == {1}
