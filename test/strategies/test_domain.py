"""Tables and boxes: what strategies ask of either, and what they are made of."""

from typing import Any

import pytest
import torch
from strategy_table import make_candidates, make_kernel, objective
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    BKBRadius,
    FixedBeta,
    GuessAndDouble,
    RandomizedRadius,
)
from botorch_sparse.batching.rules import Global, Local
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.strategies import BBKB, BKB, GPBUCB
from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.data.domain import (
    domain_of,
)
from botorch_sparse.strategies.surrogates.table_posterior import NystromTablePosterior
from botorch_sparse.strategies.ucb import UCBStrategy

BOUNDS = torch.tensor([[0.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
RADIUS = BKBRadius(1.0, 1e-3, 0.1)


def test_a_box_is_its_own() -> None:
    """What it was made of may be written to."""
    bounds, fixed = BOUNDS.clone(), {0: 0.5}
    places, ones = torch.tensor([0, 1]), torch.ones(2, dtype=torch.float64)
    box = Box(bounds, [(places, ones, 0.0)], None, fixed)
    before = box.config()
    for given in (bounds, places, ones):
        given.mul_(0)
    fixed[0] = 0.0
    assert box.config() == before
    strategy = BBKB(bounds=(bounds := BOUNDS.clone()), num_initial=3)
    bounds *= 100
    assert bool(strategy.box.is_feasible(strategy.ask().X).all())
    assert torch.equal(strategy.box.bounds, BOUNDS)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["table", "box"])
@pytest.mark.parametrize("is_exact", [False, True], ids=["nystrom", "exact"])
def test_strategies_are_their_parts(bounds: Tensor | None, is_exact: bool) -> None:
    """A strategy of one's own from the same parts chooses the same points."""
    kernel, X = make_kernel(), None if bounds is not None else make_candidates(60)
    options = {"bounds": bounds, "radius": FixedBeta(2.0)}
    rule = Global(1.5) if is_exact else Local(1.5, "embedded")
    ours = (
        GPBUCB(X, kernel, 1e-2, rule=rule, **options)
        if is_exact
        else BBKB(X, kernel, 1e-2, rule=rule, **options)
    )
    theirs = UCBStrategy(
        domain_of(X, {"bounds": bounds}),
        kernel,
        1e-2,
        rule=rule,
        sampler=None if is_exact else PosteriorVarianceSampler(2.0),
        radius=FixedBeta(2.0),
    )
    for strategy in (ours, theirs):
        strategy.run(objective, 12, progress=False)
    assert torch.equal(ours.history.X, theirs.history.X)


def test_leverage_is_summed_for_those_that_look_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Variances at the different points, each time that a strategy learns."""
    sizes, variance = list[int](), NystromTablePosterior.variance

    def spy(self: NystromTablePosterior, history: Any, point: Tensor) -> Tensor:
        sizes.append(len(point))
        return variance(self, history, point)

    monkeypatch.setattr(NystromTablePosterior, "variance", spy)
    X, kernel = make_candidates(60), make_kernel()
    # They are looked at once where inducing points are drawn.
    data = torch.cat([X[:20], X[:20]])
    for radius, is_summed in (
        (RADIUS, True),
        (RandomizedRadius(RADIUS), True),
        (GuessAndDouble(RADIUS), True),
        (FixedBeta(4.0), False),
        (RandomizedRadius(FixedBeta(4.0)), False),
    ):
        strategy = BKB(X, kernel, 1e-2, radius=radius)
        strategy.tell(data, objective(data))
        sizes.clear()
        strategy.tell(X[30:31], objective(X[30:31]))
        assert sizes.count(21) == 1 + is_summed and 41 not in sizes
        total = float(
            variance(
                strategy.surrogate.view, strategy.record, strategy.record.point
            ).sum()
        )
        expected = total / 1e-2 if is_summed else 0.0
        assert strategy.statistics.leverage_sum == pytest.approx(expected)
