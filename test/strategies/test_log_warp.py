"""The logarithmic scale, and the choice between it and the values themselves."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import Objective, TrustRegionBBKB
from botorch_sparse.strategies.data.run_record import OneOutcome, evaluations_at
from botorch_sparse.strategies.surrogates.log_warp import LogWarp
from botorch_sparse.strategies.trust_region.local_surrogate import log_density

F64 = torch.float64
BOUNDS = torch.tensor([[0.0] * 4, [1.0] * 4], dtype=F64)
VALUES = torch.tensor([-1e6, -250.0, -20.0, 1.0, 3.0, -1.0, -5e3], dtype=F64)
WARP = LogWarp(best=3.0, unit=23.0)


def test_the_scale_of_some_values() -> None:
    """By hand: the best value, and the median distance from it."""
    assert LogWarp.of(VALUES) == WARP
    new = torch.tensor([3.0, -20.0, 5.0, -43.0], dtype=F64)  # 0, s, beyond, 2 s
    by_hand = [3.0, 3.0 - 23 * math.log(2), 5.0, 3.0 - 23 * math.log(3)]
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


def test_the_scale_moves_with_the_values() -> None:
    other = LogWarp.of(1e3 * VALUES - 7.0)
    assert other is not None
    assert torch.allclose(other(1e3 * VALUES - 7.0), 1e3 * WARP(VALUES) - 7.0)


@pytest.mark.parametrize(
    "values", [[1.0, 2.0, 2.0, 2.0], [0.0], [-1e150, 0.0, -1e-160]]
)
def test_no_scale(values: list[float]) -> None:
    """Half of the values are the best one, or distances have no ratio."""
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


# Log likelihoods of 80 points are larger by 550, -9 and 25 with logarithms. Of the last
# ones the noise would decide what is best.
@pytest.mark.parametrize("f, is_warped", [(steep, True), (wave, False), (muddy, False)])
@pytest.mark.parametrize("acquisition", ["thompson", "ucb"])
def test_the_data_decide(f: Any, is_warped: bool, acquisition: Any) -> None:
    strategy = made(acquisition=acquisition)
    assert strategy.box is not None
    X = strategy.box.sample(80, 0)
    strategy.tell(X, f(X))
    (prior,) = strategy.surrogate.priors
    assert (prior.warp is not None) == is_warped


def test_the_scale_is_chosen_anew() -> None:
    """Each time that there are twice as many points, eight at first."""
    strategy, warps = made(refit=RefitSchedule(every=1)), list[bool]()
    assert strategy.box is not None
    X = strategy.box.sample(33, 0)
    for count, x in enumerate(X.split(1)):
        f = wave if count < 20 else steep
        strategy.tell(x, f(x))
        strategy.learn()
        warps.append(strategy.surrogate.priors[0].warp is not None)
    assert warps == [False] * 31 + [True] * 2


def test_only_one_inferred_outcome_has_another_scale() -> None:
    def two(X: Tensor) -> Tensor:
        return torch.stack([steep(X), X[:, 0]], dim=-1)

    several = run(two, outcomes=[Objective("a"), Objective("b")])
    assert all(prior.warp is None for prior in several.surrogate.priors)


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
    assert strategy.surrogate.priors[0].warp is not None
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
