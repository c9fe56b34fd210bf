"""What a history holds: columns that grow, and what they say of each point."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.strategies.folded import FoldedValues
from botorch_sparse.strategies.trials import Trial


class GrowingColumn:
    """A tensor that grows at its end, in O(1) for each entry over many.

    Args:
        like: An empty tensor of the type, the place and the width of the entries.
    """

    def __init__(self, like: Tensor) -> None:
        self._room = like
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> Tensor:
        """The entries, a view. O(1)."""
        return self._room[: self._size]

    def extend(self, entries: Sequence[Any] | Tensor) -> None:
        """Put entries at the end."""
        size = self._size + len(entries)
        if size > len(self._room):
            more = max(16, len(self._room), size - len(self._room))
            room = self._room.new_empty(more, *self._room.shape[1:])
            self._room = torch.cat([self._room, room])
        new = torch.as_tensor(entries, dtype=self._room.dtype)
        self._room[self._size : size] = new
        self._size = size

    def truncate(self, size: int) -> None:
        """Keep the first entries."""
        self._size = size


class Evaluations:
    """All feedback in its order, and its sums by point.

    Adding takes O(1) for each evaluation, whatever was added before.

    Attributes:
        point: Numbers of the points, as all columns on the host.
        value: What is maximized, float64.
        batch: Which `ask` proposed it, -1 for none.
        trial: Ids of trials, -1 for points that nobody waited for.
    """

    def __init__(self) -> None:
        whole, real = torch.empty(0, dtype=torch.long), torch.empty(0).double()
        self.point, self.value = GrowingColumn(whole), GrowingColumn(real)
        self.batch, self.trial = GrowingColumn(whole), GrowingColumn(whole)
        self._told: set[int] = set()
        self._forget_sums()

    def _forget_sums(self) -> None:
        whole, real = torch.empty(0, dtype=torch.long), torch.empty(0).double()
        self._place: dict[int, int] = {}  # of a point among the different ones
        self._different = GrowingColumn(whole)
        self._total, self._count = GrowingColumn(real), GrowingColumn(real)

    def __len__(self) -> int:
        return len(self.point)

    @property
    def num_different(self) -> int:
        """Number of different points."""
        return len(self._place)

    def was_told(self, trial: int) -> bool:
        """Whether a trial was told. O(1)."""
        return trial in self._told

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
        self._add(points, values)
        self._told.update(trial for trial in trials if trial >= 0)
        self.point.extend(points)
        self.value.extend(values)
        self.batch.extend(batches)
        self.trial.extend(trials)

    def _add(self, points: Sequence[int], values: Sequence[float]) -> None:
        """Add to the sums, in the order of the feedback."""
        known, place = len(self._place), self._place
        places = np.array([place.setdefault(p, len(place)) for p in points], dtype=int)
        new = list(islice(reversed(place), len(place) - known))[::-1]
        if new:
            self._different.extend(new)
            for column in (self._total, self._count):
                column.extend([0.0] * len(new))
        np.add.at(self._total.values.numpy(), places, np.asarray(values))
        np.add.at(self._count.values.numpy(), places, 1.0)

    def truncate(self, size: int) -> None:
        """Keep the first evaluations; undoes what failed. O(n)."""
        self._told.difference_update(self.trial.values[size:].tolist())
        for column in (self.point, self.value, self.batch, self.trial):
            column.truncate(size)
        self._forget_sums()
        self._add(self.point.values.tolist(), self.value.values.tolist())

    def folded(self, size: int | None = None) -> FoldedValues:
        """The first evaluations by point; all of them in O(n_u), for `n_u` points."""
        if size is not None and size < len(self):
            return FoldedValues.of(self.point.values[:size], self.value.values[:size])
        total, count = self._total.values, self._count.values
        return FoldedValues(self._different.values, total / count, count.clone())
