"""The logarithmic scale, and the choice between it and the values themselves."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import Objective, TrustRegionBBKB
from botorch_sparse.strategies.data.run_record import OneOutcome, evaluations_at
from botorch_sparse.strategies.surrogates.log_warp import LogWarp
from botorch_sparse.strategies.surrogates.prior_fitting import log_density
from botorch_sparse.strategies.trust_region import trust_region

F64 = torch.float64
BOUNDS = torch.tensor([[0.0] * 4, [1.0] * 4], dtype=F64)
VALUES = torch.tensor([-1e6, -250.0, -20.0, 1.0, 3.0, -1.0, -5e3], dtype=F64)
WARP = LogWarp(best=3.0, unit=23.0)


def test_the_scale_of_some_values() -> None:
    """By hand: the best value, and the median distance from it."""
    assert LogWarp.of(VALUES) == WARP
    new = torch.tensor([3.0, -20.0, 5.0, -43.0], dtype=F64)  # 0, s, beyond, 2 s
    by_hand = [0.0, -23 * math.log(2), 2.0, -23 * math.log(3)]
    assert torch.allclose(WARP(new), torch.tensor(by_hand, dtype=F64))


def test_slopes_are_those_of_autograd() -> None:
    """On both sides of the best value, and of the way back."""
    Y = torch.cat([VALUES, torch.tensor([4.0, 2.9], dtype=F64)]).requires_grad_()
    W = WARP(Y)
    (slope,) = torch.autograd.grad(W.sum(), Y)
    assert torch.allclose(WARP.log_slope(Y.detach()), slope.log())
    there = W.detach().requires_grad_()
    (back,) = torch.autograd.grad(WARP.inverse(there).sum(), there)
    assert torch.allclose(WARP.inverse_slope(W.detach()), back)
    assert torch.allclose(WARP.inverse(W.detach()), Y.detach())


def test_other_units() -> None:
    other = LogWarp.of(1e3 * VALUES - 7.0)
    assert other is not None
    assert torch.allclose(other(1e3 * VALUES - 7.0), 1e3 * WARP(VALUES))


def test_near_values_far_from_zero_keep_their_digits() -> None:
    """But for those that a number of this size has, 1e-10."""
    Y = 1e6 - torch.tensor([0.0, 1e-7, 5e-8, 1.0, 30.0], dtype=F64)
    warp = LogWarp.of(Y)
    assert warp is not None
    assert (warp.inverse(warp(Y)) - Y).abs().max() < 3e-10


@pytest.mark.parametrize("values", [[1.0, 2.0, 2.0, 2.0], [0.0], [-1e150, 0, -1.0]])
def test_no_scale(values: list[float]) -> None:
    """Half of the values are the best one, or one is too far away."""
    assert LogWarp.of(torch.tensor(values, dtype=F64)) is None


def steep(X: Tensor) -> Tensor:
    """From -e^12 to 0: a quadratic function's exponential."""
    return 1.0 - (12 * (X - 0.3).square().mean(-1) / 0.2).exp()


def wave(X: Tensor) -> Tensor:
    return (4 * X).sin().sum(-1)


def muddy(X: Tensor) -> Tensor:
    """From -e^2 to 0, and noise."""
    g = torch.Generator().manual_seed(1)
    Y = 1.0 - (2 * (X - 0.3).square().mean(-1) / 0.2).exp()
    return Y + 0.3 * Y.median().abs() * torch.randn(len(X), generator=g, dtype=F64)


def made(**options: Any) -> TrustRegionBBKB:
    return TrustRegionBBKB(bounds=BOUNDS, batch_size=5, **options)


def is_log(strategy: TrustRegionBBKB) -> bool:
    strategy.learn()
    return strategy.surrogate.priors[0].warp is not None


def run(f: Any, num: int = 45, **options: Any) -> TrustRegionBBKB:
    strategy = made(**options)
    strategy.run(f, num, progress=False)
    strategy.learn()
    return strategy


def test_the_density_is_that_of_the_values() -> None:
    """A dense Gaussian of the warped values, times the slope; on both scales."""
    strategy = run(steep)
    surrogate, one = strategy.surrogate, OneOutcome(strategy.record, 0)
    (prior,), source = surrogate.priors, surrogate.source
    data = evaluations_at(one, one.folded())
    assert prior.warp is not None
    for each in (prior, replace(prior, warp=None)):
        Y = data.Y.clone().requires_grad_()
        Z = (Y if each.warp is None else each.warp(Y)) / each.scale
        K = each.covar_module(source.inputs(data.X)).to_dense()
        K = K + each.lam * torch.eye(len(Y), dtype=F64)
        one_s = torch.ones_like(Y)
        c = (one_s @ K.inverse() @ Z / (one_s @ K.inverse() @ one_s)).detach()
        density = MultivariateNormal(c * one_s, K).log_prob(Z)
        (slope,) = torch.autograd.grad(Z.sum(), Y)
        expected = float(density.detach() + slope.log().sum())
        assert math.isclose(log_density(source, each, data), expected, rel_tol=1e-6)


# Log likelihoods of 80 points are larger by 550, -9 and 20 with logarithms. Of the last
# ones the noise would decide what is best: a tenth, where a hundredth is taken.
@pytest.mark.parametrize("f, is_warped", [(steep, True), (wave, False), (muddy, False)])
def test_the_data_decide(f: Any, is_warped: bool, device: torch.device) -> None:
    X = made().box.sample(80, 0)
    strategy = TrustRegionBBKB(bounds=BOUNDS.to(device), batch_size=5)
    strategy.tell(X.to(device), f(X).to(device))
    assert is_log(strategy) == is_warped


def test_a_kernel_that_is_given_is_of_the_values() -> None:
    assert not is_log(run(steep, covar_module=MaternKernel(ard_num_dims=4), lam=0.01))


def test_several_outcomes_keep_their_scales() -> None:
    def two(X: Tensor) -> Tensor:
        return torch.stack([steep(X), X[:, 0]], dim=-1)

    several = run(two, outcomes=[Objective("a"), Objective("b")])
    assert all(prior.warp is None for prior in several.surrogate.priors)


@pytest.mark.parametrize(
    "options",
    [
        {"acquisition": "ucb"},
        {"acquisition": "ucb", "rule": "product"},
        {"num_regions": 2, "num_initial": 8},
        {"cat_dims": {3: (0, 1)}},
    ],
)
def test_batches_beside_pending_points(options: dict[str, Any]) -> None:
    """And the smallest value, which is the largest with the other sign."""
    losses = run(lambda X: -steep(X), minimize=True, **options)
    gains = run(steep, **options)
    for strategy in (losses, gains):
        assert is_log(strategy)
        both = torch.cat([strategy.ask().X, strategy.ask().X])
        assert len(both.unique(dim=0)) == len(both)
    assert torch.equal(losses.history.X, gains.history.X)


def test_the_scale_is_chosen_anew() -> None:
    """Each time that there are twice as many points, eight at first."""
    strategy, warps = made(refit=RefitSchedule(every=1)), list[bool]()
    X = strategy.box.sample(33, 0)
    for count, x in enumerate(X.split(1)):
        strategy.tell(x, (wave if count < 20 else steep)(x))
        warps.append(is_log(strategy))
    assert warps == [False] * 31 + [True] * 2


def test_a_better_value_counts_before_the_next_fit() -> None:
    """The scale is of what is known, the kernel of the last fit."""
    strategy = made(refit=RefitSchedule(every=1000))
    X = strategy.box.sample(40, 0)
    strategy.tell(X, steep(X) - 50.0)
    assert is_log(strategy)
    (before,) = strategy.surrogate.priors
    near = 0.3 + 0.01 * strategy.box.sample(3, 1)
    strategy.tell(near, steep(near))
    strategy.learn()
    (prior,) = strategy.surrogate.priors
    assert prior.warp is not None and prior.last_fit == before.last_fit
    assert prior.warp.best == float(strategy.history.values.max()) > -50.0


def test_a_run_that_begins_anew_predicts_its_best_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before it has points: with a spread that is finite, however far zero is."""
    monkeypatch.setattr(trust_region, "SMALLEST_LENGTH", 0.3)
    strategy = made()
    while strategy.regions[0].run == 0:
        batch = strategy.ask()
        strategy.tell(batch, 1e4 + steep(batch.X))
    assert is_log(strategy)
    predicted = strategy.predict(BOUNDS)
    assert predicted is not None
    assert all(part.isfinite().all() for part in predicted)


def test_predictions_are_in_units_of_the_values() -> None:
    """At points that are known, and to first order in deviations."""
    strategy = run(steep)
    (prior,) = strategy.surrogate.priors
    assert prior.warp is not None
    X, Y = strategy.history.X, strategy.history.values
    predicted = strategy.predict(X)
    assert predicted is not None
    mean, sd = predicted
    assert ((mean - Y).abs() <= 0.1 * Y.abs() + 5 * sd).all() and (sd > 0).all()
    assert (sd < 0.2 * Y.abs() + 3.0).all()
    inputs = strategy.surrogate.source.inputs(X)
    (posterior,) = strategy.surrogate.posteriors_of(strategy.record)
    moments = posterior.moments(inputs)
    W, step = prior.scale * moments.mean, 1e-6 * prior.scale
    slope = (prior.warp.inverse(W + step) - prior.warp.inverse(W - step)) / (2 * step)
    expected = prior.scale * moments.variance.sqrt() * slope
    assert torch.allclose(sd, expected, rtol=1e-4)


def test_a_warped_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    strategy, saved = run(steep), made()
    assert is_log(strategy)
    strategy.save(tmp_path / "state.pt")
    saved.resume(tmp_path / "state.pt")
    for _ in range(3):
        batch, other = strategy.ask(), saved.ask()
        assert torch.equal(batch.X, other.X)
        strategy.tell(batch, steep(batch.X))
        saved.tell(other, steep(other.X))
    assert saved.surrogate.priors[0].warp == strategy.surrogate.priors[0].warp


@pytest.mark.slow
def test_it_finds_the_bottom_of_a_steep_valley(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearer than without logarithms, by the medians of five runs."""
    best = list[float]()
    for is_warped in (True, False):
        with monkeypatch.context() as patch:
            if not is_warped:
                patch.setattr(LogWarp, "of", lambda Y: None)
            found = [run(steep, 100, seed=s).history.values.max() for s in range(5)]
        best.append(float(torch.stack(found).median()))
    assert best[0] > best[1]
