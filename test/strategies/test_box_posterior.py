"""What strategies promise on continuous domains."""

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import box_table
import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.fit import fit_gpytorch_mll
from box_table import BOUNDS, KNOWN, LAM, TABLE, THOROUGH, objective
from dense_posteriors import dense_moments
from gpytorch.means import Mean, ZeroMean
from strategy_table import make_kernel
from torch import Tensor

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies import (
    BBKB,
    ucb,
)

dense_posterior = partial(
    dense_moments, lengthscale=torch.tensor([0.8, 0.4]).double(), noise=LAM
)


def test_boxes_have_no_rows() -> None:
    strategy = TABLE["random"]()
    assert strategy.ask(2).indices is None
    assert strategy.run(objective, 6, progress=False).indices.tolist() == [-1] * 6
    with pytest.raises(InputDataError, match="by_index=True, but a continuous domain"):
        strategy.run(objective, 20, progress=False, by_index=True)


def test_initial_points() -> None:
    strategy = TABLE["bbkb-global"]()
    assert len(strategy.ask()) == 1  # Algorithm 1, line 1
    strategy = TABLE["bbkb-inferred"]()
    first, second = strategy.ask(3), strategy.ask()
    assert (len(first), len(second)) == (3, 2)  # five in all
    assert len(strategy.ask()) == 0  # nothing told yet
    strategy = TABLE["bbkb-inferred"](num_initial=12)
    assert len(strategy.ask()) == 12
    strategy = TABLE["bbkb-inferred"](num_initial=12)
    X = strategy.box.sample(10, 0)
    strategy.tell(X, objective(X))  # a warm start counts
    assert len(strategy.ask()) == 2
    bounds = torch.cat([BOUNDS, BOUNDS, BOUNDS], -1)
    assert len(BBKB(bounds=bounds).ask()) == 12


@pytest.mark.one_in(5)
@pytest.mark.parametrize("mean_module", [ZeroMean(), None], ids=repr)
@pytest.mark.parametrize("name", KNOWN)
def test_posterior_and_choice_are_dense(name: str, mean_module: Mean | None) -> None:
    """Model, statistics and the first point of a batch, all computed anew."""
    options = {"num_restarts": 8, "raw_samples": 512}
    strategy = TABLE[name](optimizer_options=options, mean_module=mean_module)
    has_constant = mean_module is None
    X = strategy.box.sample(12, 3)
    X = torch.cat([X, X[:4]])  # with repeats
    strategy.tell(X, objective(X))
    Z = strategy.box.sample(512, 1)
    for _ in range(3):
        history = strategy.history
        saved = strategy.surrogate.state_dict()["inducing"]
        S = history.points(torch.tensor(saved))
        data = history.X, history.Y, S
        mean, variance = dense_posterior(*data, Z, has_constant=has_constant)
        posterior = strategy.model.posterior(Z)
        found = posterior.mean.squeeze(-1).detach().numpy()
        np.testing.assert_allclose(found, mean, atol=1e-6)
        found = posterior.variance.squeeze(-1).detach().numpy()
        np.testing.assert_allclose(found, variance, rtol=1e-5, atol=1e-7)
        _, own = dense_posterior(*data, history.X)
        now = strategy.surrogate.view.variance(strategy.record, strategy.record.point)
        assert float(now.sum()) == pytest.approx(own.sum(), rel=1e-5)
        batch = strategy.ask()
        at, width = dense_posterior(*data, batch.X, has_constant=has_constant)
        best = (mean + 2 * np.sqrt(variance)).max()
        assert at[0] + 2 * np.sqrt(width[0]) >= best - 1e-3
        before = strategy.statistics.log_det_sum
        strategy.tell(batch, objective(batch.X))
        grown = before + np.log1p(width / LAM).sum()
        assert strategy.statistics.log_det_sum == pytest.approx(grown, rel=1e-6)
        if name.startswith("gp"):
            assert strategy.surrogate.view.num_inducing() == history.num_unique


@pytest.mark.parametrize("threshold", [1.0, 2.0, 4.0])
def test_the_sum_rule_ends_a_batch(threshold: float) -> None:
    strategy = TABLE["bbkb-global"](ratio_threshold=threshold)
    strategy.tell(X := strategy.box.sample(40, 3), objective(X))
    for _ in range(3):
        batch = strategy.ask()
        v = strategy.surrogate.view.variance(strategy.record, strategy.pending) / LAM
        total = 1 + v.cumsum(0)
        assert total[-1] > threshold
        assert len(batch) == 1 or total[-2] <= threshold
        strategy.tell(batch, objective(batch.X))


def test_pending_points_shrink_the_variance_alone() -> None:
    """Asked one by one or at once, the points differ no more than their starts."""
    strategy = TABLE["bbkb-global"](radius=FixedBeta(1e6), ratio_threshold=1e3)
    X = strategy.box.sample(30, 3)
    strategy.tell(X, objective(X))
    mean = strategy.model.posterior(X).mean
    chosen = torch.cat([strategy.ask(1).X for _ in range(4)])
    assert torch.equal(strategy.model.posterior(X).mean, mean)
    assert float(torch.pdist(chosen).min()) > 0.05
    told = strategy.history.points(strategy.pending[2:3])
    strategy.tell(told, objective(told))  # one of four, by its coordinates
    assert len(strategy.pending) == 3 and strategy.history.batch_number[-1] == 2


def test_a_kernel_that_is_given_is_fitted_on_request_alone() -> None:
    given, fitted = TABLE["bbkb-global"](), TABLE["bkb"](refit=RefitSchedule(every=5))
    for strategy in (given, fitted):
        strategy.run(objective, 7, progress=False)
        lengthscale = strategy.model.covar_module.lengthscale  # without gradients
        assert torch.equal(lengthscale, box_table.make_kernel().lengthscale)
        noise = strategy.model.likelihood.noise.item()
        assert (noise == pytest.approx(LAM)) is (strategy is given)


def test_points_after_a_refit_are_drawn_by_the_new_variances() -> None:
    """Those of the inducing points before, under the hyperparameters just fitted."""
    seen: list[Tensor] = []
    draw = PosteriorVarianceSampler(2.0)

    def spy(*args: Any, variance: Tensor, **kwargs: Any) -> Tensor:
        seen.append(variance)
        return draw(*args, variance=variance, **kwargs)

    strategy = TABLE["bbkb-global"](refit=RefitSchedule(every=12), sampler=spy)

    # no two of these points are equal, whatever the arithmetic
    first, X = strategy.box.sample(32, 0).split([20, 12])
    strategy.tell(first, objective(first))
    before = strategy.model.inducing_points
    told = torch.cat([X, X[:6].repeat(9, 1)])  # some of them ten times
    strategy.tell(told, objective(told))
    model = strategy.model
    Z, S = model.transform_inputs(strategy.history.X), model.transform_inputs(before)
    noise = model.likelihood.noise.detach().expand(len(Z))
    posterior = NystromPosterior.from_data(
        model.covar_module, Z, torch.zeros_like(noise), noise, S
    )
    assert not torch.equal(strategy.model.inducing_points, before)
    condition = torch.linalg.cond(model.covar_module(S).to_dense()).item()
    rounding = 10 * condition * torch.finfo(Z.dtype).eps
    assert rounding < 1e-2
    torch.testing.assert_close(
        seen[-1], posterior.variance(Z[:32]), rtol=rounding, atol=rounding
    )


def test_fits_see_few_points_with_all_their_evaluations(monkeypatch: Any) -> None:
    """The likelihood is the exact one of a random subset, repeats included."""
    seen: list[Any] = []
    fit = fit_gpytorch_mll

    def spy(mll: Any, **kwargs: Any) -> None:
        seen.append(mll.model)
        fit(mll, **kwargs)

    monkeypatch.setattr("botorch.fit.fit_gpytorch_mll", spy)
    strategy = TABLE["bbkb-inferred"]()
    X = strategy.box.sample(320, 0)
    X = torch.cat([X, X[:20], X[:20]])
    strategy.tell(X, objective(X))
    data = seen[0].train_inputs[0]
    unique, counts = data.unique(dim=0, return_counts=True)
    assert len(unique) == 300 and seen[0].num_inducing == 300 and seen[0].is_exact
    # The model's inputs are those of the unit square, up to a few roundings.
    unit = (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    distance = (unit - unique.unsqueeze(1)).abs().amax(-1)
    expected = (distance <= 4 * torch.finfo(unit.dtype).eps).sum(-1).tolist()
    assert counts.tolist() == expected and set(expected) == {1, 3}
    assert len(strategy.model.train_targets) == 360


# BoTorch hands all options to SciPy, those of its sampler too.
@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore:Unknown solver options")
@pytest.mark.parametrize(
    "name", ["bbkb-global-local", "bbkb-inferred", "thompson", "random"]
)
def test_constraints_and_fixed_features(name: str) -> None:
    bounds = torch.tensor([[0.0] * 4, [1.0] * 4], dtype=torch.float64)
    first, ones = torch.tensor([0, 1]), torch.ones(2, dtype=torch.float64)
    domain = {
        "bounds": bounds,
        "inequality_constraints": [(first, -ones, -0.7)],  # x0 + x1 <= 0.7
        "equality_constraints": [(torch.tensor([1, 2]), ones, 0.8)],
        "fixed_features": {3: 0.25},
    }
    change: dict[str, Any] = {}
    if name != "random":
        quick = {"n_burnin": 100, "n_thinning": 4, "maxiter": 20}
        change["optimizer_options"] = THOROUGH | {"options": quick}
    if name in ("bbkb-global-local", "thompson"):
        change["covar_module"] = make_kernel(0.4)
    strategy = TABLE[name](**domain, **change)
    total = 4 if name == "random" else 10
    X = strategy.run(lambda X: X.sum(-1), total, progress=False).X
    assert bool(strategy.box.is_feasible(X).all()) and len(X) == total
    assert (X[:, 0] + X[:, 1] <= 0.7 + 1e-6).all()
    torch.testing.assert_close(X[:, 1] + X[:, 2], torch.full_like(X[:, 1], 0.8))
    assert (X[:, 3] == 0.25).all()
    if name != "random":  # the optimum is at x0 = 0.7 - x1, x1 = 0
        slack = 0.2 if name == "thompson" else 0.1  # which does not try the best alone
        assert float(X.sum(-1).max()) > 0.7 + 0.8 + 0.25 - slack


def test_finds_the_maximum() -> None:
    """In units as they come: an objective with an offset and a scale."""
    strategy = TABLE["bbkb-inferred"](seed=1, optimizer_options=THOROUGH)
    history = strategy.run(lambda X: 1000 + 50 * objective(X), 20, progress=False)
    best = float(((history.Y - 1000) / 50).max())
    assert best > 0.95  # the smooth part has maximum one
    assert float((strategy.predict(history.X)[0] - history.Y).abs().max()) < 25
    noise = strategy.model.likelihood.noise.item()
    assert 1e-5 < noise < 0.1


def test_repeats() -> None:
    strategy = TABLE["bbkb-global"](repeat="until-uncertainty-halves", lam=2.0)
    strategy.run(objective, 20, progress=False)
    for _ in range(3):
        batch = strategy.ask()
        X, counts = batch.unique()
        v = float(
            strategy.surrogate.view.variance(strategy.record, strategy.pending[:1])
        )
        assert len(X) == 1 and counts.tolist() == [max(1, -(-2.0 // v))]
        strategy.tell(batch, objective(batch.X))
    assert strategy.history.num_unique < len(strategy.history)


def test_batches_of_one_point_by_a_model_at_its_cap_are_announced_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what to change; not where a batch is to have one point."""
    monkeypatch.setattr(ucb, "NUM_SINGLE", 5)
    g = torch.Generator().manual_seed(0)
    X = torch.rand(60, 6, generator=g, dtype=torch.float64)
    box = torch.tensor([[0.0], [1.0]]).double().expand(2, 6)
    options = {"num_restarts": 2, "raw_samples": 8}
    for most, times in ((5, 1), (1, 0)):
        strategy = BBKB(bounds=box, optimizer_options=options)
        small = replace(strategy.surrogate, exact_size=10, max_inducing=10)
        strategy.surrogate = small
        strategy.tell(X, (9 * X).sin().sum(-1))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(ucb.NUM_SINGLE + 2):
                batch = strategy.ask(most)
                strategy.tell(batch, (9 * batch.X).sin().sum(-1))
                if len(strategy.history.batches) == ucb.NUM_SINGLE - 1:
                    assert not caught
            assert strategy.state_dict()["is_single_said"] == bool(times)
        assert all(batch.size == 1 for batch in strategy.history.batches)
        said = [str(w.message) for w in caught]
        assert len(said) == times
        assert all("10 inducing points" in m and "give batch_size" in m for m in said)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"bounds": None}, "Got neither of candidates and bounds"),
    ({"candidates": BOUNDS}, "Got both of candidates and bounds"),
    ({"lam": 1.0}, "lam=1.0 without covar_module"),
    ({"min_batch_width": 3}, "needs the kernel"),
]


@pytest.mark.parametrize("change, match", BAD)
def test_bad_arguments(change: dict[str, Any], match: str) -> None:
    with pytest.raises(InputDataError, match=match):
        BBKB(**{"bounds": BOUNDS} | change)


def test_inferred_models_have_a_largest_size() -> None:
    """All points are inducing up to it, and no more than that many beyond."""
    X = torch.rand(
        25, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    Y = (9 * X).sin().sum(-1)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    for n in (8, 25):
        strategy = BBKB(bounds=bounds, oversampling=1e6)
        strategy.surrogate = replace(strategy.surrogate, exact_size=9, max_inducing=9)
        strategy.tell(X[:n], Y[:n])
        strategy.ask(1)
        assert strategy.surrogate.view.num_inducing() == min(n, 9)
