"""Trust regions on several outcomes: middles and successes by loops, and whole runs."""

import math
from collections.abc import Sequence
from statistics import fmean, median_low, stdev
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.test_functions import Ackley
from botorch.test_functions.multi_objective import DTLZ2
from box_table import BOUNDS, REGIONS, make_kernel, objective
from strategy_table import equal, without_times
from torch import Tensor

from botorch_sparse.strategies import (
    Constraint,
    Objective,
    RandomSearch,
    Strategy,
    TrustRegionBBKB,
)
from botorch_sparse.strategies.data.outcomes import Outcome, Outcomes
from botorch_sparse.strategies.data.preference import (
    Preference,
    dominated_hypervolume,
)
from botorch_sparse.strategies.trust_region import Region
from botorch_sparse.strategies.trust_region.regions import hypervolume_contributions

F64, NAN = torch.float64, float("nan")
GAIN, SPEED = Objective("gain"), Objective("speed")
HEAT, MASS = Constraint("heat", upper=0.5), Constraint("mass", lower=-0.5)
ONE, TWO = [GAIN, HEAT, MASS], [GAIN, HEAT, SPEED]
# Of which a region is quick to end, and does not count its evaluations by noise.
KNOWN = {"covar_module": make_kernel(), "lam": 1e-4}

Row = Sequence[float]
Reports = list[tuple[int, Row]]  # points and what was told of them


def build(outcomes: Sequence[Outcome], **options: Any) -> TrustRegionBBKB:
    made: TrustRegionBBKB = REGIONS["regions"](outcomes=outcomes, **options)
    return made


def measure(X: Tensor) -> Tensor:
    """`b x 3` smooth outcomes on the box: two of them are at odds."""
    first, second = (X - 0.2).square().sum(-1), (X - 0.9).square().sum(-1)
    return torch.stack([-first, X[:, 0] * X[:, 1], -second], dim=-1)


def means_of(reports: Reports) -> dict[int, list[float]]:
    """Means of each outcome by point, NaN without any."""
    told: dict[int, list[list[float]]] = {}
    for point, row in reports:
        columns = told.setdefault(point, [[] for _ in row])
        for column, y in zip(columns, row, strict=True):
            column.extend([y] if y == y else [])
    return {p: [fmean(c) if c else NAN for c in cs] for p, cs in told.items()}


def deviation(values: list[float]) -> float:
    """The standard deviation; 1 where there is none."""
    return (stdev(values) if len(values) > 1 else 0.0) or 1.0


def violation_of(row: Row, outcomes: Sequence[Outcome], spread: Row) -> float:
    """In standard deviations; NaN where a constraint was not measured."""
    total = 0.0
    for y, outcome, unit in zip(row, outcomes, spread, strict=True):
        if isinstance(outcome, Constraint):
            low, high = outcome.range
            total += max(0.0, low - y, y - high) / unit if y == y else NAN
    return total


def goals_of(row: Row, outcomes: Sequence[Outcome]) -> list[float]:
    return [y for y, o in zip(row, outcomes, strict=True) if isinstance(o, Objective)]


def volume_of(front: Sequence[Row], low: Row) -> float:
    """What two objectives dominate, strip by strip."""
    total, height = 0.0, low[1]
    for x, y in sorted(front, reverse=True):
        if x > low[0] and y > height:
            total, height = total + (x - low[0]) * (y - height), y
    return total


class Loop:
    """What regions should be after each round, from what was told."""

    def __init__(self, strategy: TrustRegionBBKB, num_initial: int) -> None:
        self.strategy, self.num_initial = strategy, num_initial
        self.outcomes = strategy.record.outcomes.parts
        self.shares = sum(isinstance(o, Objective) for o in self.outcomes) > 1
        self.num_before, self.regions = 0, strategy.regions
        self.successes: list[bool] = []

    def check(self) -> None:
        """After a round: compare, and go on from there."""
        found = self.strategy.regions
        taken: list[int] = []
        for before, after in zip(self.regions, found, strict=True):
            self._check_one(before, after, taken)
            taken += [after.center] if after.center is not None else []
        self.num_before, self.regions = len(self.strategy.record), found

    def _check_one(self, before: Region, after: Region, taken: list[int]) -> None:
        record, size = self.strategy.record, self.num_before
        run = self.strategy.surrogate.runs.of_trial.tolist()
        reports = list(zip(record.point.tolist(), record.Y.tolist(), strict=True))
        trials = record.trial.tolist()
        own = [i for i, trial in enumerate(trials) if run[trial] == before.run]
        places = range(len(reports)) if self.shares else own
        now = self._ranked([reports[i] for i in places])
        was = self._ranked([reports[i] for i in places if i < size])
        if not self.shares and not any(i >= size for i in own):
            assert after == before
            return
        self._check_center(after, now, taken)
        known = {trials[i] for i in places if i < size}
        counted = {trials[i] for i in own if reports[i][0] in now}
        counted -= {trials[i] for i in own if i < size and reports[i][0] in was}
        if len(known) < self.num_initial or not counted:
            assert (after.length, after.failures) == (before.length, before.failures)
            return
        new = {reports[i][0] for i in own} & now.keys() - was.keys()
        is_success = self._is_success(
            [now[p] for p in new], [now[p] for p in was if p in now]
        )
        self.successes.append(is_success)
        expected = before.after(len(counted), is_success=is_success, tolerance=6)
        assert (after.length, after.successes, after.failures) == (
            expected.length,
            expected.successes,
            expected.failures,
        )

    def _ranked(self, reports: Reports) -> dict[int, tuple[int, Any]]:
        """Points of the order: 1 and objectives, or 0 and minus the violation."""
        ranked: dict[int, tuple[int, Any]] = {}
        for point, row in means_of(reports).items():
            violation = violation_of(row, self.outcomes, self._spread())
            goals = goals_of(row, self.outcomes)
            if violation > 0:
                ranked[point] = (0, -violation)
            elif violation == 0 and not any(y != y for y in goals):
                ranked[point] = (1, goals)
        return ranked

    def _spread(self) -> list[float]:
        record = self.strategy.record
        rows = list(zip(record.point.tolist(), record.Y.tolist(), strict=True))
        columns = zip(*means_of(rows).values(), strict=True)
        return [deviation([y for y in column if y == y]) for column in columns]

    def _check_center(
        self, after: Region, now: dict[int, tuple[int, Any]], taken: list[int]
    ) -> None:
        if not now:
            assert after.center is None
            return
        feasible = [goals for is_feasible, goals in now.values() if is_feasible]
        if not (self.shares and volume_of(feasible, self._low()) > 0):
            level = max(at for at, _ in now.values())
            best = {p: rank for p, rank in now.items() if rank[0] == level}
            best = {p: rank for p, rank in best.items() if p not in taken} or best
            values = {p: self._number(rank) for p, rank in best.items()}
            assert values[after.center] == pytest.approx(max(values.values()))
            return
        front = {p: now[p][1] for p in now if self._is_on_front(p, now)}
        parts = {p: self._part(p, front) for p in front}
        free = {p: part for p, part in parts.items() if p not in taken} or parts
        # Contributions are averages over 4096 directions, see below.
        assert free[after.center] >= 0.7 * max(free.values())

    def _is_on_front(self, point: int, now: dict[int, tuple[int, Any]]) -> bool:
        """Whether no other feasible point is as good in both objectives."""
        is_feasible, goals = now[point]
        if not is_feasible:
            return False
        a, b = goals
        others = [goals for at, goals in now.values() if at and goals != [a, b]]
        return not any(x >= a and y >= b for x, y in others)

    def _part(self, point: int, front: dict[int, list[float]]) -> float:
        """The exact contribution of a point to the front's hypervolume."""
        rest = [goals for p, goals in front.items() if p != point]
        return volume_of([*front.values()], self._low()) - volume_of(rest, self._low())

    def _number(self, rank: tuple[int, Any]) -> float:
        """What is compared of points of one level, where nothing adds to a volume."""
        is_feasible, at = rank
        if not is_feasible:
            return float(at)
        if not self.shares:
            return float(at[0])
        pairs = zip(at, self._low(), self._units(), strict=True)
        return min((y - low) / unit for y, low, unit in pairs)

    def _units(self) -> list[float]:
        """How far the best value of each objective is above the reference point."""
        record = self.strategy.record
        means = means_of(
            list(zip(record.point.tolist(), record.Y.tolist(), strict=True))
        )
        columns = zip(
            *(goals_of(row, self.outcomes) for row in means.values()), strict=True
        )
        known = [[y for y in column if y == y] for column in columns]
        leads = [max(c) - low for c, low in zip(known, self._low(), strict=True)]
        return [
            lead if lead > 0 else deviation(c)
            for lead, c in zip(leads, known, strict=True)
        ]

    def _low(self) -> list[float]:
        low: list[float] = self.strategy.history.reference_point().tolist()
        return low

    def _is_success(self, new: list[Any], old: list[Any]) -> bool:
        """Better than all before by a part of the lead, or of the volume."""
        if not new:
            return False
        if self.shares:
            before, both = (
                volume_of([goals for level, goals in each if level], self._low())
                for each in (old, old + new)
            )
            if both > 0:
                return both > 1.001 * before
        level = max(level for level, _ in new + old)
        news, olds = (
            [self._number(rank) for rank in each if rank[0] == level]
            for each in (new, old)
        )
        if not news or not olds:
            return bool(news)
        lead, far = (max(olds) - median_low(x) for x in (sorted(olds)[-100:], olds))
        return bool(max(news) > max(olds) + 1e-3 * lead + 1e-5 * far)


def play(strategy: TrustRegionBBKB, loop: Loop, rounds: int, seed: int) -> None:
    """Rounds of made-up feedback, some of it missing, and told later or never."""
    g = torch.Generator().manual_seed(seed)
    missing: dict[int, list[float]] = {}
    for number in range(rounds):
        batch = strategy.ask()
        assert batch.ids is not None
        num, k = len(batch), len(loop.outcomes)
        Y = torch.randn(num, k, generator=g).double() + 0.03 * number
        gaps = torch.rand(num, k, generator=g) < 0.15
        gaps[gaps.all(-1)] = False
        told = Y.masked_fill(gaps, NAN)
        strategy.tell(batch.ids, told)
        loop.check()
        late = Y.masked_fill(~gaps, NAN)
        missing |= {
            id: row
            for id, row in zip(batch.ids.tolist(), late.tolist(), strict=True)
            if any(y == y for y in row)
        }
        if number % 2 and len(missing) > 1:
            id = next(iter(missing))
            strategy.tell([id], [missing.pop(id)])
            loop.check()


@pytest.mark.one_in(12)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("num_regions", [1, 2])
@pytest.mark.parametrize("outcomes", [ONE, TWO], ids=["constraints", "front"])
def test_middles_and_successes_are_a_loops(
    outcomes: list[Outcome], num_regions: int, seed: int
) -> None:
    strategy = build(outcomes, seed=seed, num_regions=num_regions, **KNOWN)
    loop = Loop(strategy, num_initial=4)
    play(strategy, loop, 14, seed)
    assert {*loop.successes} == {True, False}


def test_what_the_order_does_not_know_does_not_count() -> None:
    """An objective of an infeasible point is not needed; one of another point is."""
    strategy = build([GAIN, HEAT], num_initial=3, **KNOWN)
    batch = strategy.ask()
    strategy.tell(batch, [[NAN, 2.0], [NAN, 1.0], [NAN, 3.0]])
    first = int(strategy.record.point[1])
    assert strategy.regions[0].center == first
    more = strategy.ask()
    assert len(more) == 3 and len(strategy.posterior) == 2
    strategy.tell(more, [[NAN, 0.0], [NAN, 0.2], [4.0, NAN]])
    assert strategy.regions[0].center == first
    strategy.tell(more.ids[:1], [[1.0, NAN]])
    assert strategy.regions[0].center == int(strategy.record.point[3])
    before = strategy.regions[0]
    strategy.tell(more.ids[1:2], [[-5.0, NAN]])
    assert strategy.regions[0].failures == before.failures + 1
    strategy.tell(more.ids[2:], [[NAN, 0.3]])
    assert strategy.regions[0].center == int(strategy.record.point[5])
    assert strategy.regions[0].successes == 1


def test_regions_that_share_points_draw_none_of_their_own() -> None:
    """The first ones are for all, and one that ends begins anew around its middle."""
    strategy = build(TWO, num_regions=2, batch_size=12, **KNOWN)
    first = strategy.ask()
    assert len(first) == 4
    strategy.tell(first, [[1.0, 0.0, 2.0], [2.0, 0.0, 1.0], [0.0] * 3, [3.0, 1.0, 3.0]])
    assert len(strategy.ask()) == 12
    assert {region.center for region in strategy.regions} == {0, 1}
    while max(region.run for region in strategy.regions) < 2:
        batch = strategy.pending_batch()
        strategy.tell(batch, [[-9.0, 0.0, -9.0]] * len(batch))
        strategy.ask()
    new = max(strategy.regions, key=lambda region: region.run)
    assert (new.length, new.failures) == (0.8, 0) and new.center in {0, 1}
    assert len(strategy.pending) == 12


def test_before_a_point_is_above_the_threshold() -> None:
    """The middle is the point that is least below it, in units of the objectives."""
    outcomes = [Objective("gain", threshold=9.0), Objective("speed", threshold=9.0)]
    strategy = build(outcomes, num_initial=3, num_regions=1, **KNOWN)
    rows = [[0.0, 9.5], [5.0, 5.0], [9.5, 0.0]]
    strategy.tell(strategy.ask(), rows)
    assert strategy.regions[0].center == 1
    strategy.tell(strategy.ask(), [[6.0, 6.0], [2.0, 2.0], [8.0, 1.0]])
    assert strategy.regions[0].center == 3 and strategy.regions[0].successes == 1
    strategy.tell(strategy.ask(), [[6.0, 6.0], [9.6, 1.0], [8.0, 1.0]])
    assert strategy.regions[0].center == 3 and strategy.regions[0].failures == 3


@pytest.mark.parametrize("num", [2, 3])
def test_contributions_are_those_of_exact_volumes(num: int) -> None:
    """Shares of 4096 directions: 0.15 is five standard deviations of the largest.

    A point that is best in a share p of the directions has a relative error of about
    the root of (1 + v^2) / 4096 p, with the relative spread v of what it adds there:
    for p of at least 0.1 and v of at most 1.5 that is 0.09 at most, for the ratio of
    two of them 0.13.
    """
    g = torch.Generator().manual_seed(num)
    F = torch.rand(8, num, generator=g).double() + 0.2
    F = torch.cat([F / F.norm(dim=-1, keepdim=True), F[:1] / 9])  # the last is beaten
    low, one = torch.zeros(num, dtype=F64), torch.ones(num, dtype=F64)
    outcomes = Outcomes(tuple(Objective(i, threshold=0.0) for i in range(num)))
    found = hypervolume_contributions(Preference(outcomes, low, low, one, one[:0]), F)
    whole = dominated_hypervolume(F, low)
    rest = [F[torch.arange(len(F)) != i] for i in range(len(F))]
    exact = torch.tensor([whole - dominated_hypervolume(R, low) for R in rest])
    constant = math.pi ** (num / 2) / (2**num * math.gamma(num / 2 + 1))
    assert found[-1] == 0 and abs(float(exact[-1])) < 1e-12
    assert (constant * found - exact).abs().max() < 0.2 * exact.max()
    assert exact[found.argmax()] > 0.8 * exact.max()


def test_paths_are_in_the_units_of_the_feedback() -> None:
    """With outcomes in thousandths and thousands points are chosen alike."""
    chosen = []
    for a, b in ((1.0, 1.0), (1e-3, 1e3)):
        outcomes = [GAIN, Constraint("heat", upper=0.3 * b), SPEED]
        strategy = build(outcomes, batch_size=6, num_candidates=200)
        X = strategy.domain.box.sample(12, 0)
        strategy.tell(X, measure(X) * torch.tensor([a, b, a]))
        chosen.append(strategy.ask().X)
    assert torch.allclose(*chosen, atol=1e-6)


def test_one_outcome_with_a_name_is_one_without() -> None:
    runs = []
    for options in ({"minimize": True}, {"outcomes": [Objective("y", minimize=True)]}):
        strategy = REGIONS["regions"](**options)
        strategy.run(objective, 21, progress=False)
        runs.append(strategy)
    assert torch.equal(runs[0].history.X, runs[1].history.X)


def half_way(seed: int = 0) -> TrustRegionBBKB:
    """Some learned, and a batch told in part, with outcomes that are missing."""
    strategy = build(TWO, seed=seed, num_regions=2)
    for _ in range(5):
        batch = strategy.ask()
        strategy.tell(batch, measure(batch.X))
    strategy.fail(strategy.ask().ids[:1], retry=True)
    strategy.fail(strategy.pending_ids[:1])
    batch = strategy.ask()
    Y = measure(batch.X)
    Y[0, 1] = Y[1, 0] = NAN
    strategy.tell(batch.ids[:2], Y[:2])
    return strategy


def finish(strategy: Strategy) -> None:
    batch = strategy.pending_batch()
    strategy.tell(batch, measure(batch.X))
    last = int(strategy.history.trial[-1]) - 1
    for _ in range(3):
        batch = strategy.ask()
        strategy.tell(batch, measure(batch.X))
    assert last >= 0


@pytest.mark.slow
def test_resume_goes_on_to_the_same_bits() -> None:
    first, other = half_way(), build(TWO, seed=5, num_regions=2)
    other.load_state_dict(first.state_dict())
    for strategy in (first, other):
        finish(strategy)
    assert equal(without_times(first.state_dict()), without_times(other.state_dict()))
    assert first.regions == other.regions
    X = BOUNDS.mean(0, keepdim=True)
    mean, sd = first.predict(X)
    assert mean.shape == sd.shape == (1, 3)
    assert torch.equal(mean, other.predict(X)[0])


def test_each_outcome_has_its_own_kernel_and_noise() -> None:
    wide = make_kernel()
    wide.lengthscale = 4 * wide.lengthscale
    kernels, noise = [make_kernel(), wide], [1e-4, 1e-2]
    many = {"max_inducing_points": 30}
    strategy = build([GAIN, HEAT], covar_module=kernels, lam=noise, **many)
    X = strategy.domain.box.sample(9, 0)
    strategy.tell(X, measure(X)[:, :2])
    strategy.learn()
    for column, name in enumerate(("gain", "heat")):
        alone = build(
            [Objective(name)],
            covar_module=kernels[column],
            lam=noise[column],
            **many,
        )
        alone.tell(X, measure(X)[:, column])
        alone.learn()
        new = strategy.domain.box.sample(5, 1)
        both, one = strategy.predict(new), alone.predict(new)
        for several, single in zip(both, one, strict=True):
            assert torch.allclose(several[:, column], single, rtol=1e-6)


def test_bad_arguments() -> None:
    with pytest.raises(UnsupportedError, match="need acquisition='thompson'"):
        build(ONE, acquisition="ucb")
    with pytest.raises(InputDataError, match="2 values of covar_module for 3"):
        build(ONE, covar_module=[make_kernel()] * 2, lam=0.1)
    with pytest.raises(InputDataError, match="outcomes"):
        build(ONE).load_state_dict(build(TWO).state_dict())


def ackley(X: Tensor) -> Tensor:
    """With the constraints of SCBO: a ball of which one half is cut off."""
    value = Ackley(dim=6, negate=True, dtype=F64)(X)
    return torch.stack([value, X.sum(-1), X.norm(dim=-1)], dim=-1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_finds_a_feasible_optimum(seed: int) -> None:
    """In 0.35% of the box; the best of 2,000 random points is at -6.1 and -6.9."""
    bounds = torch.tensor([[-5.0] * 6, [10.0] * 6], dtype=F64)
    outcomes = [
        Objective("y"),
        Constraint("sum", upper=0.0),
        Constraint("norm", upper=5.0),
    ]
    strategy = TrustRegionBBKB(
        bounds=bounds, outcomes=outcomes, batch_size=10, num_candidates=500, seed=seed
    )
    best = strategy.run(ackley, 150, progress=False).best()
    assert best.is_feasible and best.value > -3.0
    Y = ackley(RandomSearch(bounds=bounds, batch_size=2000, seed=seed).ask().X)
    is_feasible = (Y[:, 1] <= 0) & (Y[:, 2] <= 5)
    assert best.value > float(Y[is_feasible, 0].max()) + 2.0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", [0, 1])
def test_finds_a_front(seed: int) -> None:
    """Of which random search has half the volume."""
    f = DTLZ2(dim=6, num_objectives=2, negate=True).double()
    outcomes = [Objective("a", threshold=-1.1), Objective("b", threshold=-1.1)]
    given = {"bounds": f.bounds, "outcomes": outcomes, "batch_size": 10, "seed": seed}
    strategy = TrustRegionBBKB(**given, num_candidates=500)
    found = strategy.run(f, 150, progress=False).hypervolume()
    other = RandomSearch(**given).run(f, 150, progress=False).hypervolume()
    assert found > 0.27 and found > 1.5 * other
