r"""The regions of a run: whose a trial is, the middles, and what a success is.

With one objective the middle of a region is the best point of its own run, and a
success a better one, by the order of [Eriksson2021]_: feasible points by their value,
then the others by their total violation. Points that nobody asked for belong to all
runs, and are the middle of one region at most as long as there are others.

With several objectives regions share all points ([Daulton2022]_), the first ones too,
so that one that begins anew draws none. The middle is the point of the front with the
largest hypervolume contribution that is no other region's middle. A success adds a
thousandth to the volume that all points dominate above `Preference.low`. Before there
is a feasible point above that, the order of violations, and then of `Preference.value`
with equal weights, says what is better.

**Where a run begins.** Optima of functions with many of them often lie together. So of
the runs that follow the first, with one objective, every second one begins in the part
of the domain around where the better half of the earlier ones ended, with a region in
proportion to it, and the others begin anywhere, as CMA-ES takes turns between small and
large first steps [Hansen2009]_.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.data.outcomes import Outcomes
from botorch_sparse.strategies.data.preference import Preference, feasible_front
from botorch_sparse.strategies.data.run_record import (
    FoldedEvaluations,
    OneOutcome,
    RunRecord,
)
from botorch_sparse.strategies.trust_region.trust_region import (
    MARGIN,
    Region,
    is_better,
    part_around,
)

# From numbers of `n` points and the `n x k` means of their reports to the values that
# they are judged by, NaN where a point may not be a middle.
Judge: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Of the runs that are over, around whose ends another begins: the better half, and of
# few of them so many.
FEWEST_ENDS = 3
# Scalarizations that contributions to a hypervolume are averaged over.
NUM_DIRECTIONS = 4096


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions, and the run of each trial; a value.

    Evaluations of points that nobody asked for belong to all runs that went on when
    they came.

    Attributes:
        regions: The regions.
        of_trial: Runs of all trials by their ids, on the host; -1 for points that
            nobody asked for.
        num_initial: Points of a run before its region is used.
        smallest: Length below which a region is too small to go on.
    """

    regions: tuple[Region, ...]
    of_trial: Tensor
    num_initial: int
    smallest: float

    @classmethod
    def begun(cls, num_regions: int, num_initial: int, smallest: float) -> "Regions":
        """Those before any trial."""
        regions = tuple(Region(run) for run in range(num_regions))
        return cls(regions, torch.empty(0, dtype=torch.long), num_initial, smallest)

    def with_trials(self, runs: Sequence[int]) -> "Regions":
        """The same after new trials, O(n)."""
        new = torch.tensor(runs, dtype=torch.long)
        return replace(self, of_trial=torch.cat([self.of_trial, new]))

    def owns(self, region: Region, trial: Tensor) -> Tensor:
        """Which reports belong to a run, by the trials of the first `n` ones."""
        is_trial = trial >= 0
        run = torch.full_like(trial, -1)
        run[is_trial] = self.of_trial[trial[is_trial]]
        since = torch.arange(len(trial)) >= region.start
        return torch.where(run >= 0, run == region.run, since)

    def knows(self, region: Region, record: RunRecord) -> Tensor:
        """Which reports a region goes by: all where regions share their points."""
        if shares(record):
            return torch.ones(len(record), dtype=torch.bool)
        return self.owns(region, record.trial)

    def values(self, record: RunRecord, num: int, outcome: int) -> FoldedEvaluations:
        """What the regions know of an outcome from the first reports."""
        known = torch.stack([self.knows(r, record) for r in self.regions]).any(0)
        places = known[:num].nonzero().squeeze(-1)
        return FoldedEvaluations.of(record.point[places], record.Y[places, outcome])

    def num_missing(self, region: Region, record: RunRecord, pending: Tensor) -> int:
        """Points to draw before a region is used."""
        is_out = (self.of_trial[pending] == region.run) | shares(record)
        is_told = self.knows(region, record) & _is_first(record.trial)
        return max(0, self.num_initial - int(is_told.sum()) - int(is_out.sum()))

    def have_begun(self, one: OneOutcome, num_before: int) -> bool:
        """Whether a region has its first points, and had not at `num_before`.

        Both by the reports of one outcome.
        """
        before, now = self._multiples(one, num_before), self._multiples(one)
        return any(b == 0 < n for b, n in zip(before, now, strict=True))

    def have_doubled(self, one: OneOutcome, num_before: int) -> bool:
        """Whether one has 1, 2, 4, ... times its first points, and had not before."""
        before, now = self._multiples(one, num_before), self._multiples(one)
        pairs = zip(before, now, strict=True)
        return any(b.bit_length() < n.bit_length() for b, n in pairs)

    def _multiples(self, one: OneOutcome, num: int | None = None) -> list[int]:
        """How many times its first points each region has, by the first reports."""
        known = (self.knows(r, one.record)[one.places] for r in self.regions)
        return [int(each[:num].sum() // self.num_initial) for each in known]

    def after(
        self,
        record: RunRecord,
        num_before: int,
        tolerance: int,
        judge: Judge,
        *,
        may_turn: bool = False,
        box: Box | None = None,
    ) -> "Regions":
        """The same after feedback; regions that are too small begin anew.

        Args:
            record: All reports.
            num_before: How many were learned before.
            tolerance: Evaluations without success after which a region is halved.
            judge: What middles and successes go by.
            may_turn: Whether a region that is too small is turned first, once.
            box: The domain, where a region may begin in a part of it; else None.
        """
        regions, last = list[Region](), max(region.run for region in self.regions)
        standing, taken = None, set[int | None]()
        for region in self.regions:
            is_known, after = self.knows(region, record), region
            if standing is None or not shares(record):
                standing = Standing.of(record, num_before, judge, is_known)
            if bool(is_known[num_before:].any()):
                is_own = self.owns(region, record.trial)
                after = self._after(region, standing, is_own, taken, tolerance)
            taken.add(after.center)
            is_small = after.length < self.smallest * after.width
            if is_small and may_turn and not after.is_turned:
                after = after.turned()
            elif is_small:
                last += 1
                after = self._next(after, last, record, box)
            regions.append(after)
        return replace(self, regions=tuple(regions))

    def _next(
        self, region: Region, run: int, record: RunRecord, box: Box | None
    ) -> Region:
        """The region that follows on one that is too small."""
        start = len(record)
        if shares(record):
            return Region(run, start, center=region.center)
        if box is not None and run % 2 == 0:
            going = {each.run for each in self.regions} - {region.run}
            ends = self._ends({*range(run)} - going, record, box)
            part = part_around(box, record.points(ends)) if len(ends) > 1 else None
            if part is not None:
                return Region.begun_in(part, run, start)
        return Region(run, start)

    def _ends(self, runs: Iterable[int], record: RunRecord, box: Box) -> Tensor:
        """Numbers of the best points of those runs that ended best. O(n) for a run.

        By what was observed, and inside of the domain.
        """

        def judge(point: Tensor, Y: Tensor) -> Tensor:
            is_inside = box.is_feasible(record.points(point)).cpu()
            return Y.where(is_inside.unsqueeze(-1), torch.nan)

        def seen(is_known: Tensor) -> Standing:
            return Standing.of(record, len(record), judge, is_known)

        run_of = torch.full_like(record.trial, -1)
        run_of[record.trial >= 0] = self.of_trial[record.trial[record.trial >= 0]]
        known = {*run_of.tolist()}.intersection(runs)
        best = [seen(run_of == run).center(()) for run in sorted(known)]
        numbers = torch.tensor([point for point in best if point is not None])
        ends = seen(torch.isin(record.point, numbers.long()))
        order = ends.scores.argsort(descending=True, stable=True)
        order = order[ends.scores[order] > -torch.inf]
        return ends.point[order[: max(FEWEST_ENDS, (len(order) + 1) // 2)]]

    def _after(
        self,
        region: Region,
        standing: "Standing",
        is_own: Tensor,
        taken: Collection[int | None],
        tolerance: int,
    ) -> Region:
        """A region after feedback; `is_own` says which reports belong to its run."""
        center = standing.center(taken)
        if center is None:
            return region
        moved = replace(region, center=center)
        num = standing.num_new(is_own)
        if standing.num_known < self.num_initial or num == 0:
            return moved
        is_success = standing.is_success(is_own, is_turned=region.is_turned)
        return moved.after(num, is_success=is_success, tolerance=tolerance)

    def state_dict(self) -> dict[str, Any]:
        """Plain values, and the trials' as a tensor."""
        regions = [asdict(region) for region in self.regions]
        return {"regions": regions, "of_trial": self.of_trial.clone()}

    def of_state(self, state: dict[str, Any]) -> "Regions":
        """Those that a state came from."""
        regions = tuple(Region(**region) for region in state["regions"])
        return replace(self, regions=regions, of_trial=state["of_trial"].cpu())


@dataclass(frozen=True, eq=False)
class Standing:
    """What is known of some points after a round of feedback, and what was before it.

    A point is ranked once its constraints are all measured, and its objectives too
    unless it violates a constraint. Only then do its evaluations count.

    Attributes:
        record: All reports.
        num_before: How many there were before the round.
        num_known: Evaluations of these points before the round.
        point: `n` numbers of points.
        Y: `n x k` values that they are judged by, NaN where it may be no middle.
        is_ranked: Which are ranked.
        was_ranked: Which were before.
    """

    record: RunRecord
    num_before: int
    num_known: int
    point: Tensor
    Y: Tensor
    is_ranked: Tensor
    was_ranked: Tensor

    @classmethod
    def of(
        cls, record: RunRecord, num_before: int, judge: Judge, is_known: Tensor
    ) -> "Standing":
        """What some reports say. O(n log n)."""
        places = is_known.nonzero().squeeze(-1)
        point, Y = _means_by_point(record, places)
        earlier = places[places < num_before]
        before, Y_before = _means_by_point(record, earlier)
        were_ranked = before[_are_ranked(record.outcomes, Y_before)]
        return cls(
            record,
            num_before,
            int(_is_first(record.trial)[earlier].sum()),
            point,
            judge(point, Y),
            _are_ranked(record.outcomes, Y),
            torch.isin(point, were_ranked),
        )

    def num_new(self, is_own: Tensor) -> int:
        """Evaluations of a run that are ranked, and were not before the round."""
        is_first = is_own & _is_first(self.record.trial)
        point = self.record.point
        now = is_first & torch.isin(point, self.point[self.is_ranked])
        before = is_first & torch.isin(point, self.point[self.was_ranked])
        return int(now.sum()) - int(before[: self.num_before].sum())

    @cached_property
    def preference(self) -> Preference:
        """What is better."""
        return Preference.of(self.record)

    @cached_property
    def levels(self) -> list[Tensor]:
        """What is compared, `n`: of feasible points, and then of others.

        Minus infinity for points of the other kind, and for those that do not count.
        """
        outcomes = self.record.outcomes
        F = self.Y[:, list(outcomes.objectives)]
        value = F[:, 0]
        if F.shape[-1] > 1:
            value = self.preference.value(self.Y, torch.ones(F.shape[-1]).to(F))
        violation = self.preference.violation(self.Y)
        counts, is_feasible = _are_ranked(outcomes, self.Y), violation <= 0
        return [
            value.where(counts & is_feasible, -torch.inf),
            (-violation).where(counts & ~is_feasible, -torch.inf),
        ]

    def center(self, taken: Collection[int | None]) -> int | None:
        """The best point that is not taken, or where all are taken the best of all."""
        scores = self.scores
        numbers = [number for number in taken if number is not None]
        is_taken = torch.isin(self.point, torch.tensor(numbers, dtype=torch.long))
        free = scores.masked_fill(is_taken, -torch.inf)
        scores = scores if free.max() == -torch.inf else free
        return None if scores.max() == -torch.inf else int(self.point[scores.argmax()])

    @cached_property
    def scores(self) -> Tensor:
        """What middles are chosen by, `n`; minus infinity where they may not be."""
        inside, outside = self.levels
        if bool((inside == -torch.inf).all()):
            return outside
        if not shares(self.record):
            return inside
        front = feasible_front(self.record.outcomes, self.Y)
        parts = hypervolume_contributions(self.preference, self.Y[front])
        if not bool(parts.any()):
            return inside
        return torch.full_like(inside, -torch.inf).index_copy(0, front, parts)

    def is_success(self, is_own: Tensor, *, is_turned: bool) -> bool:
        """Whether what a run brought to the round is better than all before it.

        By how much is decided by `is_turned`; see `is_better`.
        """
        own = torch.isin(self.point, self.record.point[is_own])
        is_new = self.is_ranked & ~self.was_ranked & own
        if shares(self.record):
            volume = self._volume(is_new | self.was_ranked)
            if volume > 0:
                return volume > (1 + MARGIN) * self._volume_before
        for level in self.levels:
            new, before = level[is_new], level[self.was_ranked]
            if bool((torch.cat([new, before]) > -torch.inf).any()):
                return is_better(new, before, is_turned=is_turned)
        return False

    @cached_property
    def _volume_before(self) -> float:
        return self._volume(self.was_ranked)

    def _volume(self, is_there: Tensor) -> float:
        """The hypervolume of some points, up to a constant."""
        Y = self.Y[is_there]
        best = scalarized(self.preference, Y[feasible_front(self.record.outcomes, Y)])
        return float(best.amax(-1).mean())


def shares(record: RunRecord) -> bool:
    """Whether regions share all points: there are several objectives."""
    return len(record.outcomes.objectives) > 1


def hypervolume_contributions(preference: Preference, Y: Tensor) -> Tensor:
    r"""What each of `f x k` values adds to the hypervolume of all, up to a constant.

    By the scalarizations whose best values make the volume ([ZhangGolovin2020]_):
    where a point is the best one, how far it is above the second best,

    .. math:: c_i \propto E_\lambda \big[\max_j s_\lambda(y_j) -
        \max_{j \ne i} s_\lambda(y_j) \big].

    Cost: O(4096 f o).
    """
    best, place = scalarized(preference, Y).topk(2)
    sums = best.new_zeros(len(Y) + 1)
    sums.index_add_(0, place[:, 0], best[:, 0] - best[:, 1])
    return sums[:-1] / NUM_DIRECTIONS


def scalarized(preference: Preference, Y: Tensor) -> Tensor:
    """Scalarizations to the power `o` of `f x k` values, and of nothing: zero.

    `4096 x (f + 1)`; the mean of the largest in each direction is the hypervolume, up
    to a constant. Directions are always the same ones. An exact volume would take
    seconds for four objectives and a front of 200 points.
    """
    num = len(preference.outcomes.objectives)
    always = torch.Generator().manual_seed(0)
    weights = preference.draw_weights(NUM_DIRECTIONS, always)
    s = preference.value(Y, weights.unsqueeze(1)).clamp_min(0.0).pow(num)
    return torch.cat([s, s.new_zeros(NUM_DIRECTIONS, 1)], dim=-1)


def _means_by_point(record: RunRecord, places: Tensor) -> tuple[Tensor, Tensor]:
    """Different points of some reports, in their order, and means of their outcomes.

    `n` numbers, and `n x k` values, NaN where an outcome was not measured.
    """
    point, Y = record.point[places], record.Y[places]
    number = FoldedEvaluations.of(point, torch.zeros(len(point)).double()).point
    means = Y.new_full((len(number), Y.shape[-1]), torch.nan)
    for column, values in enumerate(Y.unbind(-1)):
        folded = FoldedEvaluations.of(point, values)
        means[torch.isin(number, folded.point), column] = folded.Y.to(means)
    return number, means


def _are_ranked(outcomes: Outcomes, Y: Tensor) -> Tensor:
    """Which of `n x k` values the order knows; see `Standing`."""
    unknown = Y.isnan()
    is_violated = outcomes.violations(Y) > 0
    lacks_objective = unknown[:, list(outcomes.objectives)].any(-1)
    lacks_constraint = unknown[:, list(outcomes.constraints)].any(-1)
    return ~lacks_constraint & (is_violated | ~lacks_objective)


def _is_first(trial: Tensor) -> Tensor:
    """Which reports are the first of their trial; all that are of none."""
    first = torch.from_numpy(np.unique(trial.numpy(), return_index=True)[1])
    return (trial < 0).index_fill(0, first, True)
