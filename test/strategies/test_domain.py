"""Tables and boxes: what strategies ask of either, and what they are made of."""

import zlib
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
from botorch_sparse.strategies import BBKB, BKB, GPBUCB, CandidateTable
from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.data.domain import (
    BoxDomain,
    TableDomain,
    domain_of,
)
from botorch_sparse.strategies.surrogates.table_posterior import NystromTablePosterior
from botorch_sparse.strategies.ucb import UCBStrategy

BOUNDS = torch.tensor([[0.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
RADIUS = BKBRadius(1.0, 1e-3, 0.1)


def table(num: int = 30) -> TableDomain:
    return TableDomain(CandidateTable.of(make_candidates(num)))


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


def numbered() -> tuple[list[Tensor], Any]:
    """Points that were given numbers, and what gives them."""
    points: list[Tensor] = []

    def add(x: Tensor) -> int:
        points.append(x)
        return len(points) - 1

    return points, add


def test_a_table_is_its_rows() -> None:
    domain, X = table(), make_candidates(30)
    assert (domain.num_rows, domain.dim, domain.dtype) == (30, 2, torch.float64)
    assert torch.equal(domain.rows(torch.tensor([4, 4, 2])), X[[4, 4, 2]])
    assert torch.equal(domain.ranges, torch.stack([X.amin(0), X.amax(0)]))
    assert domain.checksum == zlib.crc32(X.numpy().tobytes())
    assert domain_of(domain, {}) is domain and domain.box is None
    other = TableDomain(CandidateTable.of(X.flip(0)))
    assert other.config() != domain.config() == table().config()


def test_a_box_has_no_rows() -> None:
    domain = domain_of(None, {"bounds": BOUNDS})
    assert isinstance(domain, BoxDomain) and domain.table is None
    assert domain.num_rows == 0 and domain.dim == 2
    assert domain.rows(torch.tensor([], dtype=torch.long)).shape == (0, 2)
    assert torch.equal(domain.ranges, BOUNDS)
    assert domain.config() == Box(BOUNDS).config()


@pytest.mark.parametrize("unique", [True, False])
def test_rows_are_drawn_without_those_excluded(unique: bool) -> None:
    domain, (_, add) = table(20), numbered()
    g, excluded = torch.Generator().manual_seed(0), set(range(0, 20, 2))
    for num in (1, 4, 50):
        rows = domain.sample(num, g, add, excluded)
        assert len(set(rows)) == len(rows) == min(num, 10)
        assert not excluded & set(rows)
        rows = domain.uniform(num, g, add, excluded, unique=unique)
        assert not excluded & set(rows)
        assert len(rows) == (min(num, 10) if unique else num)
        assert len(set(rows)) == len(rows) or not unique
    assert domain.uniform(3, g, add, set(range(20)), unique=unique) == []
    assert domain.sample(3, g, add, set(range(20))) == []
    seen = {row for _ in range(60) for row in domain.sample(1, g, add)}
    assert seen > set(range(5))


def test_points_of_a_box_get_numbers() -> None:
    points, add = numbered()
    domain = domain_of(None, {"bounds": BOUNDS})
    numbers = domain.sample(6, torch.Generator().manual_seed(3), add)
    assert numbers == list(range(6)) and len(points) == 6
    g = torch.Generator().manual_seed(3)
    assert domain.uniform(6, g, add, unique=False) == list(range(6, 12))
    assert torch.equal(torch.stack(points[:6]), torch.stack(points[6:]))
    assert bool(Box(BOUNDS).is_feasible(torch.stack(points)).all())


@pytest.mark.one_in(2)
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


def test_what_is_known_is_a_value() -> None:
    """A step that fails after it learned leaves the old one, which is as it was."""
    X = make_candidates(60)
    for strategy in (BBKB(X, make_kernel(), 1e-2), GPBUCB(X, make_kernel(), 1e-2)):
        strategy.run(objective, 20, progress=False)
        before = strategy.surrogate
        mean, variance = (part.clone() for part in before.view.pool.all_moments())
        after = before.learn(strategy.record, torch.Generator())
        strategy.tell(X[:9], objective(X[:9]))
        assert strategy.surrogate is not before is not after
        assert torch.equal(before.view.pool.all_moments().mean, mean)
        assert torch.equal(before.view.pool.all_moments().variance, variance)
        with pytest.raises(AttributeError):
            before.inducing = ()  # type: ignore[misc]
