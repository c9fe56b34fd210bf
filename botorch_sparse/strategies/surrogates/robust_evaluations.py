r"""Evaluations some of whose values lie far from all others.

One wrong value of 6740 among others up to 80 takes all attention, and one of a million
makes all others the same. A value lies apart if a gap of ten times the range of the
others is between it and them. It is neither taken as it is nor left out:

- Hyperparameters and units are those of the other values.
- It is moved to one standard deviation beyond the others. So it is still the best or
  the worst of them, and a true peak is looked at again.
- Where the others contradict it even so, it has extra noise, see `outlier_noise`.

Beyond a fifth of the values none lies apart: they are no exceptions any more. So a
region of failures that are told as a very low value, and not as failed, costs at most a
fifth of the evaluations.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from botorch_sparse.strategies.data.run_record import Evaluations, FoldedEvaluations

# In fewer values nothing lies apart.
FEWEST = 10
# At most this share of the values lies apart at either end.
SHARE = 0.2
# The gap, in ranges of the others. At their other end the same share is set aside.
GAP = 10.0


def lie_apart(values: Tensor) -> Tensor:
    """Which of `n` values lie apart from the others, on the host. O(n log n)."""
    is_apart = torch.zeros(len(values), dtype=torch.bool)
    if len(values) < FEWEST:
        return is_apart
    for sign in (1.0, -1.0):
        ordered, order = (sign * values).sort(stable=True)
        most = int(SHARE * len(values))
        cut = torch.arange(len(values) - most, len(values))  # the first one apart
        range_below = ordered[cut - 1] - ordered[most]
        gap = ordered[cut] - ordered[cut - 1]
        found = cut[(gap > GAP * range_below) & (range_below > 0)]
        if len(found):
            is_apart[order[int(found[0]) :]] = True
    return is_apart


def moved_to_others(values: Tensor, is_apart: Tensor) -> Tensor:
    """Those of `n` values that lie apart, at one standard deviation from the others."""
    others = values[~is_apart]
    margin = others.std()
    moved = values.clamp(others.min() - margin, others.max() + margin)
    return values.where(~is_apart, moved)


@dataclass(frozen=True, eq=False)
class RobustEvaluations:
    """The first reports of a record, with values that lie apart moved to the others.

    Attributes:
        record: The record.
        point: `n` numbers of points.
        values: `n` values of what is maximized.
        is_apart: Which of them lay apart.
        weight: `n` precisions, in units of the precision of an evaluation.
    """

    record: Evaluations
    point: Tensor
    values: Tensor
    is_apart: Tensor
    weight: Tensor

    @classmethod
    def of(cls, record: Evaluations, size: int | None = None) -> Evaluations:
        """The first reports of a record; itself where no value lies apart."""
        num = len(record) if size is None else size
        point, values = record.point[:num], record.values[:num]
        if not bool((is_apart := lie_apart(values)).any()):
            return record
        values = moved_to_others(values, is_apart)
        return cls(record, point, values, is_apart, torch.ones_like(values))

    def weighted(self, weight: Tensor) -> Self:
        """The same with other precisions of those that lay apart."""
        return replace(self, weight=self.weight.masked_scatter(self.is_apart, weight))

    def others(self) -> Self:
        """The evaluations that do not lie apart."""
        kept = ~self.is_apart
        columns = (self.point, self.values, self.is_apart, self.weight)
        return type(self)(self.record, *(column[kept] for column in columns))

    def __len__(self) -> int:
        return len(self.point)

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self.record.device

    @property
    def outcome_text(self) -> str:
        """Which outcome it is, for messages."""
        return self.record.outcome_text

    @property
    def is_objective(self) -> bool:
        """Whether more of it is better."""
        return self.record.is_objective

    def folded(self, size: int | None = None) -> FoldedEvaluations:
        """The first reports by point, weighted by their precisions."""
        columns = (self.point, self.values, self.weight)
        return FoldedEvaluations.of(*(column[:size] for column in columns))

    def count(self, size: int) -> int:
        """How many of the first reports of the record are its own."""
        return self.record.count(size)

    def evaluation_numbers(self, places: Tensor) -> list[int]:
        """Numbers of evaluations in the history, of `k` places among these."""
        return self.record.evaluation_numbers(places)

    def points(self, number: Tensor, there: Tensor | None = None) -> Tensor:
        """Coordinates of point numbers."""
        return self.record.points(number, there)

    def add_point(self, x: Tensor) -> int:
        """The number of a point."""
        return self.record.add_point(x)
