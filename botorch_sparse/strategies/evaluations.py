"""What a history holds: columns that grow, and what they say of each point."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.strategies.folded import FoldedValues
from botorch_sparse.strategies.forked import GrowingColumn
from botorch_sparse.strategies.trials import Trial


@dataclass(frozen=True)
class Sums:
    """Sums of the first evaluations by point; a value.

    Attributes:
        num_evaluations: How many evaluations.
        total: `n_u` sums of their values, by different points.
        count: `n_u` numbers of their evaluations.
    """

    num_evaluations: int
    total: Tensor
    count: Tensor

    def extended(self, places: Tensor, values: Tensor, num_different: int) -> "Sums":
        """With more evaluations, added in the order of the feedback. O(n_u + n).

        Args:
            places: `n` places among the different points.
            values: `n` values.
            num_different: How many different points there are.
        """
        new = self.total.new_zeros(num_different - len(self.total))
        total, count = torch.cat([self.total, new]), torch.cat([self.count, new])
        np.add.at(total.numpy(), places.numpy(), values.numpy())
        np.add.at(count.numpy(), places.numpy(), 1.0)
        return Sums(self.num_evaluations + len(places), total, count)


class Evaluations:
    """All feedback in its order, and its sums by point.

    Adding takes O(1) for each evaluation, whatever was added before. Forks share two
    indices, of points and of trials: what these say is true where the columns agree.

    Attributes:
        point: Numbers of the points, as all columns on the host.
        value: What is maximized, float64.
        batch: Which `ask` proposed it, -1 for none.
        trial: Ids of trials, -1 for points that nobody waited for.
        place: Places of the points among the different ones.
        different: Numbers of the different points, in the order of the first feedback.
    """

    def __init__(self) -> None:
        whole, real = torch.empty(0, dtype=torch.long), torch.empty(0).double()
        self.point, self.value = GrowingColumn(whole), GrowingColumn(real)
        self.batch, self.trial = GrowingColumn(whole), GrowingColumn(whole)
        self.place, self.different = GrowingColumn(whole), GrowingColumn(whole)
        self._told: dict[int, int] = {}  # the place of a trial's feedback
        self._index: dict[int, int] = {}  # the place of a point
        self._sums = Sums(0, real, real)

    def __len__(self) -> int:
        return len(self.point)

    def fork(self) -> Self:
        """Evaluations to add to; these stay as they are. O(1)."""
        other = copy(self)
        other.point, other.value = self.point.fork(), self.value.fork()
        other.batch, other.trial = self.batch.fork(), self.trial.fork()
        other.place, other.different = self.place.fork(), self.different.fork()
        return other

    @property
    def num_different(self) -> int:
        """Number of different points."""
        return len(self.different)

    def was_told(self, trial: int) -> bool:
        """Whether a trial was told. O(1)."""
        place = self._told.get(trial, len(self))
        return place < len(self) and int(self.trial.values[place]) == trial

    def append(self, trials: Sequence[Trial], values: Sequence[float]) -> None:
        """Add evaluations of trials."""
        points = [trial.point for trial in trials]
        self.extend(points, values, [t.batch for t in trials], [t.id for t in trials])

    def extend(
        self,
        points: Sequence[int],
        values: Sequence[float],
        batches: Sequence[int],
        trials: Sequence[int],
    ) -> None:
        """Add evaluations by column."""
        places = range(len(self), len(self) + len(trials))
        told = zip(trials, places, strict=True)
        self._told.update((id, place) for id, place in told if id >= 0)
        self.place.extend(self._placed(points))
        self.point.extend(points)
        self.value.extend(values)
        self.batch.extend(batches)
        self.trial.extend(trials)

    def _placed(self, points: Sequence[int]) -> list[int]:
        """The places of points, to which those that are new are added."""
        known, new, index = self.different.values.numpy(), list[int](), self._index
        number, places = len(known), list[int]()
        for point in points:
            at = index.get(point, -1)
            if 0 <= at < number:
                is_there = known.item(at) == point
            else:
                is_there = 0 <= at - number < len(new) and new[at - number] == point
            if not is_there:
                at = index[point] = number + len(new)
                new.append(point)
            places.append(at)
        self.different.extend(new)
        return places

    def _present_sums(self) -> Sums:
        """Those of all evaluations."""
        sums = self._sums
        start = sums.num_evaluations
        if start < len(self):
            new = self.place.values[start:], self.value.values[start:]
            sums = self._sums = sums.extended(*new, len(self.different))
        return sums

    def folded(self, size: int | None = None) -> FoldedValues:
        """The first evaluations by point; all of them in O(n_u), for `n_u` points."""
        if size is not None and size < len(self):
            return FoldedValues.of(self.point.values[:size], self.value.values[:size])
        sums = self._present_sums()
        return FoldedValues(self.different.values, sums.total / sums.count, sums.count)
