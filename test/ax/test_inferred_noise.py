"""Standard errors: for all trials, for none, for some."""

import random

import pytest
import torch
from botorch.utils.datasets import SupervisedDataset
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood

from botorch_sparse.ax import (
    bbkb_generation_strategy,
    gssbo_generation_strategy,
    sparse_generation_strategy,
)
from botorch_sparse.ax.inferred_noise import inferred_noise, with_noise

BOUNDS = torch.tensor([[0.0, 0.0], [2.0, 4.0]], dtype=torch.double)


def dataset(n: int, noise: float, known: torch.Tensor) -> SupervisedDataset:
    generator = torch.Generator().manual_seed(0)
    X = BOUNDS[1] * torch.rand(n, 2, generator=generator, dtype=torch.double)
    error = torch.randn(n, 1, generator=generator, dtype=torch.double)
    Y = 10 * (X.sum(-1, keepdim=True)).sin() + noise * error
    Yvar = torch.full_like(Y, 1e-4).where(known.unsqueeze(-1), torch.nan)
    return SupervisedDataset(
        X, Y, Yvar=Yvar, feature_names=["a", "b"], outcome_names=["f"]
    )


def test_noise_is_that_of_the_observations_without_an_error():
    """A chi-square of about 50 degrees of freedom: within a factor 2."""
    known = torch.arange(120) % 2 == 0
    data = dataset(120, noise=2.0, known=known)
    data.Y[known] = 10 * data.X[known].sum(-1, keepdim=True).sin()
    (noise,) = inferred_noise(data, BOUNDS)
    assert 2.0 < float(noise) < 8.0  # the variance is 4
    filled = with_noise(data, noise)
    assert torch.equal(filled.Yvar[known], data.Yvar[known])
    assert (filled.Yvar[~known] == noise).all()


def test_few_unknown_errors_are_inferred_from_all():
    data = dataset(60, noise=2.0, known=torch.arange(60) > 2)
    assert 1.0 < float(inferred_noise(data, BOUNDS)) < 16.0


def test_outcomes_of_which_all_are_known_need_none():
    data = dataset(12, noise=1.0, known=torch.ones(12, dtype=torch.bool))
    assert inferred_noise(data, BOUNDS).isnan().all()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("factory", "which"),
    [
        (sparse_generation_strategy, "all"),
        (sparse_generation_strategy, "none"),
        (sparse_generation_strategy, "first"),
        (bbkb_generation_strategy, "last"),
        (gssbo_generation_strategy, "first"),
    ],
)
def test_experiments(factory, which, make_client, attach, fast):
    """Also where the schedule has another model than that of all data."""
    strategy = factory(num_initial=4, seed=0, optimizer_options=fast)
    client = make_client(strategy)
    sems = {
        "all": [0.5] * 54,
        "none": [None] * 54,
        "first": [0.5] * 12 + [None] * 42,
        "last": [None] * 20 + [0.5] * 34,
    }[which]
    rng, trials = random.Random(0), []
    for t, sem in enumerate(sems):
        point = {"x1": rng.uniform(-5, 10), "x2": rng.uniform(0, 15)}
        feedback = -(point["x1"] ** 2) + rng.gauss(0.0, 1.0)
        outcome = feedback if sem is None else (feedback, sem + 0.01 * t)
        trials.append((point, {"f": outcome}))
    attach(client, trials)
    assert len(client.get_next_trials(1)) == 1
    surrogate = client._generation_strategy.adapter.generator.surrogate
    likelihood = surrogate.model.likelihood
    if which == "none":
        assert type(likelihood) is GaussianLikelihood
        return
    assert isinstance(likelihood, FixedNoiseGaussianLikelihood)
    if factory is gssbo_generation_strategy:
        noise = surrogate.model.all_train_Yvar.squeeze(-1)
    else:
        noise = likelihood.noise
    assert noise.shape[-1] == 54 and noise.isfinite().all() and (noise > 0).all()
    unknown = torch.tensor([sem is None for sem in sems])
    assert len(noise[unknown].unique()) <= 1
    assert len(noise[~unknown].unique()) == int((~unknown).sum())
