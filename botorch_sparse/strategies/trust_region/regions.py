"""The regions of a strategy, and the evaluations that belong to them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from botorch_sparse.strategies.data.evaluations import FoldedValues
from botorch_sparse.strategies.data.history import History
from botorch_sparse.strategies.trust_region.trust_region import (
    Region,
    is_better,
)

# From numbers of points and their mean observations to what is compared, minus infinity
# where a point may not be a middle; all of `k`, on the host.
Score = Callable[[FoldedValues], Tensor]


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions, and the run of each trial; a value.

    Evaluations of points that nobody asked for belong to all runs that went on when
    they came.

    Attributes:
        regions: The regions.
        of_trial: Runs of all trials by their ids, on the host.
        num_initial: Points of a run before its region is used.
    """

    regions: tuple[Region, ...]
    of_trial: Tensor
    num_initial: int

    @classmethod
    def begun(cls, num_regions: int, num_initial: int) -> "Regions":
        """Those before any trial."""
        regions = tuple(Region(run) for run in range(num_regions))
        return cls(regions, torch.empty(0, dtype=torch.long), num_initial)

    def with_trials(self, runs: Sequence[int]) -> "Regions":
        """The same after new trials, O(n)."""
        new = torch.tensor(runs, dtype=torch.long)
        return replace(self, of_trial=torch.cat([self.of_trial, new]))

    def owns(self, region: Region, trial: Tensor) -> Tensor:
        """Which evaluations belong to a run, by the trials of the first `n` ones."""
        is_trial = trial >= 0
        run = torch.full_like(trial, -1)
        run[is_trial] = self.of_trial[trial[is_trial]]
        since = torch.arange(len(trial)) >= region.start
        return torch.where(is_trial, run == region.run, since)

    def values(self, trial: Tensor, history: History) -> FoldedValues:
        """What the runs that go on know of the first evaluations."""
        is_live = torch.stack([self.owns(r, trial) for r in self.regions]).any(0)
        places = is_live.nonzero().squeeze(-1)
        return FoldedValues.of(history.point[places], history.values[places])

    def num_missing(self, region: Region, trial: Tensor, pending: Tensor) -> int:
        """Points to draw before a region is used.

        Args:
            region: The region.
            trial: Trials of all evaluations.
            pending: Ids of those that are out.
        """
        out = int((self.of_trial[pending] == region.run).sum())
        told = int(self.owns(region, trial).sum())
        return max(0, self.num_initial - told - out)

    def have_begun(self, trial: Tensor, num_before: int) -> bool:
        """Whether a region has its first points, and had not some time ago.

        Args:
            trial: Trials of all evaluations.
            num_before: How many evaluations there were then.
        """
        for region in self.regions:
            is_own = self.owns(region, trial)
            if int(is_own[:num_before].sum()) < self.num_initial <= int(is_own.sum()):
                return True
        return False

    def after(
        self, history: History, num_before: int, tolerance: int, score: Score
    ) -> "Regions":
        """The same after feedback; regions that are too small begin anew.

        Args:
            history: All evaluations.
            num_before: How many of them were there before.
            tolerance: See `Region.after`.
            score: Of the points of a run.
        """
        regions, last = list[Region](), max(region.run for region in self.regions)
        for region in self.regions:
            after = self._after(region, history, num_before, tolerance, score)
            if after.is_over:
                last += 1
                after = Region(last, start=len(history))
            regions.append(after)
        return replace(self, regions=tuple(regions))

    def _after(
        self,
        region: Region,
        history: History,
        num_before: int,
        tolerance: int,
        score: Score,
    ) -> Region:
        """A region after feedback."""
        own = self.owns(region, history.trial).nonzero().squeeze(-1)
        num_known = int((own < num_before).sum())
        if len(own) == num_known:
            return region
        values = FoldedValues.of(history.point[own], history.values[own])
        scores = score(values)
        if scores.max() == -torch.inf:
            return region
        center = int(values.point[scores.argmax()])
        if num_known < self.num_initial:
            return replace(region, center=center)
        is_old = torch.isin(values.point, history.point[own[:num_known]])
        is_success = is_better(scores[~is_old], scores[is_old])
        num = len(own) - num_known
        after = region.after(num, is_success=is_success, tolerance=tolerance)
        return replace(after, center=center)

    def state_dict(self) -> dict[str, Any]:
        """Plain values, and the trials' as a tensor."""
        regions = [asdict(region) for region in self.regions]
        return {"regions": regions, "of_trial": self.of_trial.clone()}

    def restored(self, state: dict[str, Any]) -> "Regions":
        """Those that a state came from."""
        regions = tuple(Region(**region) for region in state["regions"])
        return replace(self, regions=regions, of_trial=state["of_trial"].cpu())
