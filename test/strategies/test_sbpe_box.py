"""S-BPE on continuous domains."""

import math
import warnings
from dataclasses import replace
from typing import Any

import oracles
import pytest
import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    BotorchWarning,
    UnsupportedError,
)
from sbpe_problems import (
    LAM,
    UNIT_BOX,
    arguments,
    make_table,
    play,
    rkhs_function,
    with_noise,
)
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    FixedBeta,
    RadiusStatistics,
    SBPEContinuousRadius,
)
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies import SBPE
from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.sbpe.bounds import BatchBounds
from botorch_sparse.strategies.sbpe.surviving_region import SurvivingRegion
from botorch_sparse.strategies.surrogates.prior import Prior


def cut_of(function: Any, threshold: float) -> BatchBounds:
    """A cut whose upper bound is close to a function: many exact observations."""
    g = torch.linspace(0, 1, 9, dtype=torch.float64)
    X = torch.cartesian_prod(g, g)
    kernel = oracles.make_kernel("rbf", dtype=torch.float64)
    noise = torch.full((len(X),), 1e-6, dtype=torch.float64)
    posterior = NystromPosterior.from_data(kernel, X, function(X), noise, X)
    prior = Prior(kernel, 1e-6)
    return BatchBounds(posterior, prior, lambda X: X, 0.0, 0.0, 0.0, threshold)


def region_of(*cuts: BatchBounds, best: Tensor = UNIT_BOX[:0]) -> SurvivingRegion:
    """What cuts leave of the unit square."""
    return SurvivingRegion(Box(UNIT_BOX), cuts, best)


def disk(X: Tensor) -> Tensor:
    """Positive within 0.3 of the centre."""
    return 0.09 - (X - 0.5).square().sum(-1)


def test_contains_is_the_intersection() -> None:
    band = cut_of(lambda X: X[:, 0] - 0.5, 0.0)
    region = region_of(cut_of(disk, 0.0), band)
    X = make_table(2000) * 1.4 - 0.2
    inside = (disk(X) > 0) & (X[:, 0] > 0.5)
    close = (disk(X).abs() < 1e-2) | ((X[:, 0] - 0.5).abs() < 1e-2)
    assert torch.equal(region.contains(X)[~close], inside[~close])
    assert inside.any() and (~inside).any()
    with pytest.raises(BotorchTensorDimensionError, match="need `n x 2`"):
        region.contains(X[0])
    assert bool(region_of().contains(torch.rand(9, 2)).all())
    best = torch.tensor([[0.6, 0.6], [0.51, 0.5], [0.9, 0.9]], dtype=torch.float64)
    anchor = region_of(cut_of(disk, 0.0), best=best).anchor
    assert torch.equal(anchor, best[1:2])  # inside, and of the largest lower bound


def test_samples_are_uniform_on_the_region() -> None:
    """Rejection and walks alike: a quarter of the disk holds a quarter of them."""
    g = torch.Generator().manual_seed(0)
    region = region_of(cut_of(disk, 0.0))
    X = region.sample(1000, g)
    assert X.shape == (1000, 2) and bool(region.contains(X, 0.0).all())
    walked = region.walk(X, g)
    assert bool(region.contains(walked, 0.0).all())
    for sample in (X, walked):
        for corner in (sample > 0.5, sample < 0.5):
            share = float(corner.all(-1).double().mean())
            assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 1000)
    assert bool((walked != X).any(-1).all())
    one_step = region.walk(X, g, num_steps=1)  # even one moves every point
    assert bool((one_step != X).any(-1).all())
    start = X[:1].expand(1000, -1)  # from one point, walks spread over the disk
    spread = region.walk(start, g)
    share = float((spread > 0.5).all(-1).double().mean())
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 1000)


def test_a_small_region_is_reached_from_its_anchor() -> None:
    """Too small for rejection to find, not too small to walk in."""
    g = torch.Generator().manual_seed(0)
    center = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    small = region_of(cut_of(disk, 0.09 - 4e-5), best=center)  # radius 6e-3
    assert bool(small.contains(center, 0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = small.sample(50, g)
    assert bool(small.contains(X, 0.0).all())
    assert float((X - 0.5).abs().max()) < 0.02
    assert float(X.std(0).min()) > 1e-4


@pytest.mark.slow
def test_a_collapsed_region_is_its_anchor() -> None:
    g = torch.Generator().manual_seed(0)
    peak = cut_of(disk, 0.0)
    anchor = torch.tensor([[0.503, 0.501]], dtype=torch.float64)
    with torch.no_grad():  # the largest value that the anchor attains
        peak = replace(peak, threshold=float(peak.interval(anchor)[1]))
    other = cut_of(lambda X: -disk(X), 0.0)
    with torch.no_grad():
        other = replace(other, threshold=float(other.interval(anchor)[1]))
    region = region_of(peak, other, best=anchor)
    with pytest.warns(BotorchWarning, match="Nothing but its best known point"):
        X = region.sample(7, g)
    assert torch.equal(X, anchor.expand(7, -1))


@pytest.mark.slow
@pytest.mark.parametrize("rounding", [0.0, 1e-9])
def test_a_strategy_goes_on_in_a_collapsed_region(
    rounding: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A norm bound far too small: no exception, the best known point, a warning.

    So is it where rounding has left that point outside.
    """
    slack = SurvivingRegion.slack
    monkeypatch.setattr(
        SurvivingRegion, "slack", lambda self, X: slack(self, X) - rounding
    )
    strategy = SBPE(
        **arguments(
            bounds=UNIT_BOX,
            num_evaluations=12,
            radius=FixedBeta(0.0),
            raw_samples=16,
        )
    )
    f = with_noise(rkhs_function(1), 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = strategy.run(f, 12, progress=False)
    assert any("Nothing but its best known" in str(w.message) for w in caught)
    assert len(history) == 12
    last = history.X[history.batch_number == len(history.batches) - 1]
    assert bool((last == last[0]).all())
    assert bool(strategy.region.contains(last).all())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("exploration", ["variance", "random"])
def test_points_are_inside_and_the_region_shrinks(exploration: Any) -> None:
    strategy = SBPE(
        **arguments(
            bounds=UNIT_BOX,
            num_evaluations=32,
            exploration=exploration,
            radius=FixedBeta(6.0),
            raw_samples=32,
        )
    )
    f = with_noise(rkhs_function(0), 0)
    while len(strategy.history) < 32:
        batch = strategy.ask()
        assert batch.indices is None
        assert bool(strategy.region.contains(batch.X, 1e-6).all())
        strategy.tell(batch, f(batch.X))
    rounds = strategy.history.rounds
    assert [r.survivors for r in rounds] == [None] * len(rounds)
    assert min(r.fraction for r in rounds) < 0.8
    best, g = strategy.recommend(), torch.Generator().manual_seed(0)
    assert bool(strategy.region.contains(best.X.unsqueeze(0)).all())
    X = strategy.region.sample(20, g)
    assert bool(strategy.region.contains(X).all())
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 40).double()] * 2)
    top = float(rkhs_function(0)(grid).max())
    assert top - float(rkhs_function(0)(best.X.unsqueeze(0))) < 0.25
    with pytest.raises(UnsupportedError, match=r"region\.contains"):
        _ = strategy.survivors
    with pytest.raises(UnsupportedError, match="no confidence bounds"):
        strategy.confidence_gap()


def test_equation_15() -> None:
    """Theory constants: Corollary 3.7 with delta / (4 B), offset and all."""
    strategy = SBPE(**arguments(bounds=UNIT_BOX, num_evaluations=20, raw_samples=32))
    radius = strategy.radius
    assert isinstance(radius, SBPEContinuousRadius)
    assert radius.num_intervals == 4 * 4 and radius.dim == 2
    play(strategy, rkhs_function(0))
    record = strategy.history.rounds[0]
    statistics = RadiusStatistics(
        lam=LAM, num_evaluations=5, lambda_max=record.lambda_max
    )
    assert record.beta == pytest.approx(radius.botorch_beta(statistics), rel=1e-12)
    beta = math.sqrt(record.beta)
    assert record.offset == pytest.approx(2 / 5 + 2 * beta / math.sqrt(5), rel=1e-12)
    bounds = strategy.last_bounds
    assert bounds is not None
    X = strategy.history.X
    lower, upper = bounds.interval(X)
    variance = bounds.posterior.variance(X)
    width = 2 * (beta * variance.sqrt() + record.offset)
    torch.testing.assert_close(upper - lower, width, rtol=1e-10, atol=0)


def test_variance_is_climbed() -> None:
    """Each point of a batch has at least the variance of the best drawn one."""
    strategy = SBPE(**arguments(bounds=UNIT_BOX, num_evaluations=20, raw_samples=16))
    for _ in range(5):
        best, posterior = 0.0, None
        if strategy.progress.is_begun:
            growing = strategy.progress.exploration.posterior
            best, posterior = float(growing.variance[:16].max()), growing.posterior()
        batch = strategy.ask(1)
        if posterior is not None:
            assert float(posterior.variance(batch.X)) >= best - 1e-12
