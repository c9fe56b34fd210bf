"""What a history holds: evaluations, batches, and points beside the table."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.strategies.core.batch import BatchRecord
from botorch_sparse.strategies.core.batch_records import Batches
from botorch_sparse.strategies.core.persistent import AppendOnlyList, AppendOnlyTensor
from botorch_sparse.strategies.core.trials import Trial
from botorch_sparse.strategies.data.domain import Domain


@dataclass(frozen=True)
class FoldedValues:
    """Unique points in the order of their first evaluation, all on the host.

    Attributes:
        point: `n_u` numbers of the points.
        Y: `n_u` mean observations, in float64 as `counts`.
        counts: `n_u` numbers of evaluations.
    """

    point: Tensor
    Y: Tensor
    counts: Tensor

    @classmethod
    def of(cls, point: Tensor, values: Tensor) -> "FoldedValues":
        """Fold `n` observations by the numbers of their points.

        Sums are taken in the order of the feedback, so that a prefix of a history
        always gives the same bits. Cost: O(n log n).
        """
        number, first, inverse, counts = np.unique(
            point.numpy(),
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        total = np.bincount(inverse, weights=values.numpy(), minlength=len(number))
        order = np.argsort(first)
        return cls(
            point=torch.from_numpy(number[order]),
            Y=torch.from_numpy((total / counts)[order]),
            counts=torch.from_numpy(counts[order]).double(),
        )

    def __len__(self) -> int:
        return len(self.point)

    def places(self, numbers: Sequence[int]) -> Tensor:
        """Where some points stand, by their numbers."""
        place = {number: row for row, number in enumerate(self.point.tolist())}
        return torch.tensor([place[number] for number in numbers], dtype=torch.long)


@dataclass(frozen=True)
class FoldedEvaluations:
    """`FoldedValues` where the points of a history are, but for `point`.

    Attributes:
        point: `n_u` point numbers (see `History.point`), on the host.
        X: `n_u x d` coordinates, in float64 as `Y` and `counts`.
        Y: `n_u` mean observations.
        counts: `n_u` numbers of evaluations.
        number: `point` again.
        chosen: `m` places among the points.
    """

    point: Tensor
    X: Tensor
    Y: Tensor
    counts: Tensor
    number: Tensor
    chosen: Tensor

    def __len__(self) -> int:
        return len(self.point)


@dataclass(frozen=True)
class PointSums:
    """Sums of the first evaluations by point; a value.

    Attributes:
        num_evaluations: How many evaluations.
        total: `n_u` sums of their values, by different points.
        count: `n_u` numbers of their evaluations.
    """

    num_evaluations: int
    total: Tensor
    count: Tensor

    def extended(
        self, places: Tensor, values: Tensor, num_different: int
    ) -> "PointSums":
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
        return PointSums(self.num_evaluations + len(places), total, count)


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
        self.point, self.value = AppendOnlyTensor(whole), AppendOnlyTensor(real)
        self.batch, self.trial = AppendOnlyTensor(whole), AppendOnlyTensor(whole)
        self.place, self.different = AppendOnlyTensor(whole), AppendOnlyTensor(whole)
        self._told: dict[int, int] = {}  # the place of a trial's feedback
        self._index: dict[int, int] = {}  # the place of a point
        self._sums = PointSums(0, real, real)

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

    def _present_sums(self) -> PointSums:
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


class RunRecord:
    """Evaluations, batches, and the points beside a table; see `History`.

    Forks share an index of the points: what it says is true where their keys agree.

    Args:
        domain: The table, or the box. Rows of a table have the first numbers.

    Attributes:
        domain: The same.
        evaluations: All feedback.
        batches: One record for each `ask`.
        extra: Points told or proposed that are not candidates.
    """

    batch_type: ClassVar[type[BatchRecord]] = BatchRecord

    def __init__(self, domain: Domain) -> None:
        shape, place = (0, domain.dim), domain.device
        extra = torch.empty(shape, dtype=domain.dtype, device=place)
        self.domain = domain
        self.evaluations = Evaluations()
        self.batches = Batches(self.batch_type)
        self.extra = AppendOnlyTensor(extra)
        self._num_rows = domain.num_rows
        self._keys = AppendOnlyList[bytes]()  # of the points beside the table
        self._place: dict[bytes, int] = {}  # of each among them

    @classmethod
    def of(cls, domain: Domain) -> Self:
        """Nothing yet of a run on a domain."""
        return cls(domain)

    def fork(self) -> Self:
        """A record to add to; this one stays as it is. O(1)."""
        other = copy(self)
        other.evaluations, other.batches = self.evaluations.fork(), self.batches.fork()
        other.extra, other._keys = self.extra.fork(), self._keys.fork()
        return other

    def number_of(self, x: Tensor) -> int | None:
        """See `History.number_of`."""
        return self._number_of(row_bytes(x))

    def _number_of(self, key: bytes) -> int | None:
        place = self._place.get(key, len(self._keys))
        if place >= len(self._keys) or self._keys[place] != key:
            return None
        return self._num_rows + place

    def add_point(self, x: Tensor) -> int:
        """See `History.add_point`."""
        key = row_bytes(x)
        if (known := self._number_of(key)) is not None:
            return known
        place = self._place[key] = len(self._keys)
        self.extra.extend(x.detach().unsqueeze(0))
        self._keys.append(key)
        return self._num_rows + place


class Owner(Protocol):
    """Who has a record."""

    record: RunRecord


def row_bytes(x: Tensor) -> bytes:
    """A hashable key of a point; equal points, negative zeros too, have equal keys."""
    return (x.detach() + 0.0).cpu().numpy().tobytes()
