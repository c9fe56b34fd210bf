"""What a history shows: all that was recorded of a run."""

from copy import copy
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from botorch_sparse.strategies.batch import BatchRecord
from botorch_sparse.strategies.batches import Batches
from botorch_sparse.strategies.domain import Domain
from botorch_sparse.strategies.evaluations import Evaluations
from botorch_sparse.strategies.forked import GrowingColumn, GrowingList


class Record:
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
        self.extra = GrowingColumn(extra)
        self._num_rows = domain.num_rows
        self._keys = GrowingList[bytes]()  # of the points beside the table
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

    record: Record


def row_bytes(x: Tensor) -> bytes:
    """A hashable key of a point; equal points, negative zeros too, have equal keys."""
    return (x.detach() + 0.0).cpu().numpy().tobytes()
