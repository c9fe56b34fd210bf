"""Tables whose kernel, noise, mean and scales are inferred from the feedback."""

import warnings
from itertools import pairwise
from typing import Any

import box_table
import dense_posteriors
import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError, ModelFittingError
from botorch.exceptions.warnings import InputDataWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from refusals import refused
from strategy_table import INFERRED, equal, make_candidates, make_kernel, objective
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit import candidate_fits
from botorch_sparse.models.fit.candidate_fits import GAIN, loss_of
from botorch_sparse.models.fit.plain_likelihood import PlainLikelihood
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import BBKB, ThompsonSampling
from botorch_sparse.strategies.surrogates.prior_fitting import (
    PriorSource,
    set_hyperparameters,
)

some_strategies = pytest.mark.parametrize(
    "name", ["bbkb", "thompson", pytest.param("gpucb", marks=pytest.mark.slow)]
)
all_strategies = pytest.mark.parametrize("name", INFERRED)
SCALE, OFFSET = 50.0, 1000.0
NEVER_AGAIN = RefitSchedule(every=10_000)
OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0]], dtype=torch.float64)


def in_units(X: Tensor) -> Tensor:
    """Feedback in units of its own."""
    return OFFSET + SCALE * objective(X)


def table(num: int = 150) -> Tensor:
    """Columns of other ranges, exact in a few digits, and a constant one between."""
    X = (make_candidates(num) * 2**20).round() / 2**20
    return torch.stack([X[:, 0] * 1024 - 512, X[:, 0] * 0 + 3, X[:, 1]], -1)


def f_of(X: Tensor) -> Tensor:
    """The objective of the columns of `table` that vary."""
    return in_units(torch.stack([(X[:, 0] + 512) / 1024, X[:, 2]], -1))


def fitted_by_hand(X: Tensor, Y: Tensor, candidates: Tensor) -> SingleTaskGP:
    """The sparse model with all points inducing, of the columns that vary.

    Repeats come after all others.
    """
    low, high = candidates.aminmax(dim=0)
    varies = high > low
    bounds = torch.stack([low, high])[:, varies]
    model = SparseSingleTaskGP(
        X[:, varies],
        Y.unsqueeze(-1),
        inducing_points=X[: len(X.unique(dim=0)), varies],
        input_transform=Normalize(bounds.shape[-1], bounds=bounds, learn_bounds=False),
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


def build(name: str, **kwargs: Any) -> Any:
    """Of the table with a constant column."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputDataWarning)
        return INFERRED[name](**{"candidates": table()} | kwargs)


@pytest.mark.parametrize("name", ["bbkb", "gpucb"])
def test_hyperparameters_are_those_of_a_model(name: str) -> None:
    """Of the same points with all their evaluations, fitted by hand."""
    strategy = build(name)
    X = strategy.candidates[torch.arange(30).repeat(2)]
    Y = f_of(X) + torch.linspace(-1, 1, 60).double()  # repeats differ
    strategy.tell(X, Y)
    model = fitted_by_hand(X, Y, strategy.candidates)
    saved = strategy.state_dict()["surrogate"]["prior"]
    expected = dict(model.named_parameters())
    assert saved["hyperparameters"].keys() == expected.keys()
    # It ends where a step gains less than `GAIN` for each of 60 evaluations; a few more
    # may be left. So far from the optimum each parameter may be by a twentieth.
    for key, value in saved["hyperparameters"].items():
        torch.testing.assert_close(value, expected[key].detach(), rtol=5e-2, atol=5e-2)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    least = loss_of(mll).item()
    set_hyperparameters(model, saved["hyperparameters"])
    assert -1e-8 < loss_of(mll).item() - least < 3 * GAIN
    assert saved["last_fit"] == 60
    assert saved["scale"] == pytest.approx(float(Y.std()), rel=1e-12)
    lam = strategy.surrogate.view.prior.lam
    assert lam == pytest.approx(model.likelihood.noise.item(), rel=1e-12)


def test_a_fit_ends_where_steps_gain_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """It evaluates the objective more often where smaller gains count."""
    evaluate, num = PlainLikelihood.loss_and_gradient, [0]

    def counted(likelihood: PlainLikelihood) -> Any:
        num[-1] += 1
        return evaluate(likelihood)

    monkeypatch.setattr(PlainLikelihood, "loss_and_gradient", counted)
    for gain in (GAIN, 1e-3 * GAIN):
        monkeypatch.setattr(candidate_fits, "GAIN", gain)
        strategy = build("bbkb")
        strategy.tell(strategy.candidates[:40], f_of(strategy.candidates[:40]))
        strategy.learn()
        num.append(0)
    assert 0 < num[0] < num[1]


def test_features_in_the_unit_cube_are_inputs_as_they_are() -> None:
    """Their fit is that of the same features in other units, to the last bit."""
    X = (make_candidates(60) * 2**20).round() / 2**20
    X[0], X[1] = 0.0, 1.0
    found = []
    for candidates in (X, 4 * X - 2):
        strategy = BBKB(candidates, seed=0)
        strategy.tell(candidates[:30], objective(X)[:30])
        found.append(strategy.state_dict()["surrogate"]["prior"]["hyperparameters"])
    assert len(found[0]) > 2 and equal(*found)


def dense_moments(strategy: Any, Z: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation at `Z` in units of the feedback, from the raw parameters.

    Inputs are scaled by the table's ranges, feedback by its deviation at the last fit;
    a constant by generalized least squares, data as they came, DTC where the inducing
    points are not all.
    """
    saved = strategy.state_dict()["surrogate"]
    prior, history = saved["prior"], strategy.history
    raw = prior["hyperparameters"]  # BoTorch's priors leave them untransformed
    lengthscale = raw["covar_module.raw_lengthscale"]
    noise = float(raw["likelihood.noise_covar.raw_noise"])
    low, high = strategy.candidates.aminmax(dim=0)

    def scaled(points: Tensor) -> Tensor:
        return ((points - low) / (high - low))[:, high > low]

    S = None
    if "inducing" in saved:
        S = scaled(history.points(torch.tensor(saved["inducing"])))
    X, Y = scaled(history.X), history.Y / prior["scale"]
    mean, variance = dense_posteriors.dense_moments(
        X, Y, S, scaled(Z), lengthscale, noise, rtol=1e-13
    )
    return prior["scale"] * mean, prior["scale"] * np.sqrt(variance)


@pytest.mark.parametrize("minimize", [False, True])
@some_strategies
def test_predictions_are_dense(name: str, minimize: bool) -> None:
    """In the user's units and sign, at rows of the table, new points, and data."""
    strategy = build(name, minimize=minimize, refit=NEVER_AGAIN)
    assert strategy.predict(strategy.candidates) is None
    X = torch.cat([strategy.candidates[:30], strategy.candidates[:5]])
    beside = strategy.candidates[:2] + torch.tensor([0.5, 0.0, 0.25]).double()
    strategy.tell(X, f_of(X))
    strategy.run(f_of, 45, progress=False)
    strategy.tell(beside, f_of(beside))
    strategy.run(f_of, 55, progress=False)
    strategy.ask()  # learns what is left
    Z = torch.cat([strategy.candidates, beside, beside + 0.125])
    mean, sd = strategy.predict(Z)
    expected, deviation = dense_moments(strategy, Z)
    # Units of 50, and a condition number of n / noise at most.
    np.testing.assert_allclose(mean.numpy(), expected, atol=1e-6 * SCALE)
    np.testing.assert_allclose(sd.numpy(), deviation, rtol=1e-5, atol=1e-7 * SCALE)
    assert abs(float(mean.mean()) - OFFSET) < SCALE
    # What batches are chosen with is the same, in units of the surrogate.
    sign = -1.0 if minimize else 1.0
    pool, saved = strategy.surrogate.view.pool, strategy.state_dict()["surrogate"]
    if name != "thompson":
        ours = sign * saved["prior"]["scale"] * pool.all_moments().mean
        np.testing.assert_allclose(ours, expected[: len(pool)], atol=1e-6 * SCALE)


def test_more_points_than_inducing_points() -> None:
    """From a hundred points on some of them are inducing points, by their variances."""
    strategy = build("bbkb", refit=NEVER_AGAIN)
    X = strategy.candidates[:40]
    strategy.tell(X, f_of(X))
    assert strategy.surrogate.view.num_inducing() == 40
    X = strategy.candidates[40:140]
    strategy.tell(X, f_of(X))
    assert strategy.surrogate.view.num_inducing() < 140
    mean, sd = strategy.predict(strategy.candidates)
    expected, deviation = dense_moments(strategy, strategy.candidates)
    np.testing.assert_allclose(mean.numpy(), expected, atol=1e-6 * SCALE)
    np.testing.assert_allclose(sd.numpy(), deviation, rtol=1e-5, atol=1e-7 * SCALE)


@pytest.mark.one_in(6)
@all_strategies
def test_units_of_the_inputs_do_not_matter(name: str) -> None:
    """Powers of two, and shifts without rounding: the same rows, to the bit."""
    plain = table()[:, [0, 2]]
    other = plain * torch.tensor([2.0**10, 2.0**-7]).double()
    other = other + torch.tensor([2.0**20, -3.0]).double()
    histories = []
    for X in (plain, other):
        strategy = INFERRED[name](candidates=X, refit=RefitSchedule(growth=2.0))
        Y = objective(make_candidates())
        run = strategy.run(lambda i, Y=Y: Y[i], 25, progress=False, by_index=True)
        histories.append(run.indices.tolist())
    assert histories[0] == histories[1]


@pytest.mark.one_in(2)
@some_strategies
def test_constant_columns_are_left_out(name: str) -> None:
    """With one notice, and the choices of a table without them."""
    X = make_candidates()
    wide = torch.stack([X[:, 0], X[:, 0] * 0 + 7, X[:, 1], X[:, 1] * 0], -1)
    with pytest.warns(InputDataWarning, match="1, .*3.* constant and left out") as said:
        strategy = INFERRED[name](candidates=wide, num_initial=5)
    assert len(said) == 1
    other = INFERRED[name](candidates=X, num_initial=5)
    Y = objective(X)
    runs = [
        s.run(lambda i: Y[i], 12, progress=False, by_index=True).indices
        for s in (strategy, other)
    ]
    assert torch.equal(*runs)
    mean, sd = strategy.predict(wide)
    expected = other.predict(X)
    assert torch.equal(mean, expected[0]) and torch.equal(sd, expected[1])


def test_a_table_of_one_point() -> None:
    X = torch.ones(4, 3, dtype=torch.float64)
    refused("all the same, or a single one", BBKB, X)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["bbkb", "gpucb", "thompson", "box"])
def test_fits_are_on_schedule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When data grew by a fifth; between fits the hyperparameters stay."""
    fits, fit = list[int](), PriorSource.fitted_anew

    def spy(source: Any, prior: Any, history: Any, *args: Any) -> Any:
        fits.append(len(history))
        return fit(source, prior, history, *args)

    monkeypatch.setattr(PriorSource, "fitted_anew", spy)
    build = box_table.TABLE["bkb-inferred"] if name == "box" else INFERRED[name]
    f = box_table.objective if name == "box" else objective
    strategy = build()
    seen = []
    for _ in range(10):  # one by one, whatever the batches
        batch = strategy.ask(1)
        strategy.tell(batch, f(batch.X))
        prior = strategy.state_dict()["surrogate"]["prior"]
        seen.append((len(fits), prior["hyperparameters"], prior["scale"]))
    assert fits == [3, 4, 5, 6, 8, 10]  # fewer points say nothing of a kernel
    for (a, *before), (b, *after) in pairwise(seen[1:]):  # from where a unit is known
        assert equal(before, after) is (a == b)
    fits.clear()
    schedule = RefitSchedule(every=6)
    other = build(refit=schedule)
    X = other.box.sample(5, 0) if name == "box" else other.candidates[:5]
    other.tell(X, f(X))
    for _ in range(9):
        batch = other.ask(1)
        other.tell(batch, f(batch.X))
    assert fits == [5, 11] and schedule.last_fit is None


def test_initial_points() -> None:
    """Twice the columns, at least five and at most twenty, all of them different."""
    for d, num in ((1, 5), (2, 5), (4, 8), (30, 20)):
        X = torch.rand(40, d, generator=torch.Generator().manual_seed(0)).double()
        batch = BBKB(X, seed=3).ask()
        assert len(batch) == len(set(batch.indices.tolist())) == num
        assert set(batch.indices.tolist()) != set(range(num))
    strategy = BBKB(make_candidates(), num_initial=12)
    X = strategy.candidates[:9]
    strategy.tell(X, objective(X))  # a warm start counts
    assert len(strategy.ask()) == 3


@some_strategies
def test_a_given_kernel_may_be_fitted_too(name: str) -> None:
    """Its own copy, on the schedule; the data stay in their units."""
    kernel = make_kernel(0.7).requires_grad_(True)
    strategy = INFERRED[name](
        covar_module=kernel, lam=0.1, refit=RefitSchedule(every=20), num_initial=4
    )
    assert strategy.unique is False
    X = strategy.candidates[:30]
    strategy.tell(X, objective(X))
    surrogate = strategy.surrogate
    assert kernel.lengthscale.item() == pytest.approx(0.7)
    fitted = float(surrogate.view.prior.covar_module.lengthscale)
    assert surrogate.view.prior.scale == 1.0 and 0.1 < fitted < 0.6
    assert 1e-4 <= surrogate.view.prior.lam < 0.05
    prior = strategy.state_dict()["surrogate"]["prior"]
    assert prior["last_fit"] == 30
    mean, _ = strategy.predict(strategy.candidates)
    saved = strategy.state_dict()["surrogate"].get("inducing")
    S = None if saved is None else strategy.history.points(torch.tensor(saved))
    data = X, strategy.history.Y, S, strategy.candidates
    expected, _ = dense_posteriors.dense_moments(
        *data, fitted, surrogate.view.prior.lam
    )
    np.testing.assert_allclose(mean.numpy(), expected, atol=1e-5)


@all_strategies
def test_what_is_inferred_is_not_given(name: str) -> None:
    refused(r"lam=0\.01 without covar_module", INFERRED[name], lam=0.01)
    refused("mean_module without covar_module", INFERRED[name], mean_module=ZeroMean())
    with pytest.raises(InputDataError, match=r"mean_module=0\.0; need a GPyTorch mean"):
        INFERRED[name](covar_module=make_kernel(), mean_module=0.0)
    with pytest.raises(InputDataError, match=r"lam=0\.0; need a positive"):
        INFERRED[name](covar_module=make_kernel(), lam=0.0)


def test_a_fit_that_fails_keeps_hyperparameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a warning; the strategy goes on, and tries again when a fit is due."""
    strategy = INFERRED["bbkb"](refit=RefitSchedule(every=5))
    strategy.run(objective, 5, progress=False)
    before = strategy.state_dict()["surrogate"]["prior"]

    def fail(mll: Any, **kwargs: Any) -> None:
        raise ModelFittingError("no")

    with monkeypatch.context() as patch:
        patch.setattr("botorch.fit.fit_gpytorch_mll", fail)
        with pytest.warns(RuntimeWarning, match="Hyperparameters stay as they were"):
            strategy.run(objective, 12, progress=False)
    after = strategy.state_dict()["surrogate"]["prior"]
    assert equal(before["hyperparameters"], after["hyperparameters"])
    assert after["last_fit"] >= 10
    strategy.run(objective, 20, progress=False)
    fitted = strategy.state_dict()["surrogate"]["prior"]
    assert not equal(before["hyperparameters"], fitted["hyperparameters"])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", [BBKB, ThompsonSampling])
def test_points_drawn_at_first_fill_whole_batches(kind: Any) -> None:
    """Of the six features 12 points at least; what is asked for one by one is not."""
    X = torch.rand(80, 6, generator=torch.Generator().manual_seed(0)).double()
    strategy = kind(X, batch_size=10)
    sizes = []
    for _ in range(3):
        batch = strategy.ask()
        strategy.tell(batch, batch.X.sum(-1))
        sizes.append(len(batch))
    assert sizes == [10] * 3
    alone = kind(X, batch_size=10, num_initial=12)
    for _ in range(12):
        batch = alone.ask(1)
        alone.tell(batch, batch.X.sum(-1))
    assert alone._num_initial_missing() == 0
