"""All batches of a run: records when they are read, columns of numbers till then."""

from collections.abc import Iterator
from copy import copy
from dataclasses import fields
from typing import Any, Self, overload

import torch
from torch import Tensor

from botorch_sparse.strategies.core.batch import NAN, BatchRecord
from botorch_sparse.strategies.core.persistent import AppendOnlyTensor, ListView


class Batches(ListView[BatchRecord]):
    """One record for each `ask`, made anew when it is read: writing to it is lost.

    Args:
        kind: Their type, whose fields are whole numbers below 2^53 and floats.
    """

    def __init__(self, kind: type[BatchRecord]) -> None:
        self.kind = kind
        self._types = {field.name: field.type for field in fields(kind)}
        self._lines = AppendOnlyTensor(torch.empty(0, len(self._types)).double())

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, place: int) -> BatchRecord: ...
    @overload
    def __getitem__(self, place: slice) -> list[BatchRecord]: ...
    def __getitem__(self, place: int | slice) -> BatchRecord | list[BatchRecord]:
        if isinstance(place, slice):
            return self._records(self._lines.values[list(range(len(self))[place])])
        place = range(len(self))[place]
        return self._records(self._lines.values[place : place + 1])[0]

    def __iter__(self) -> Iterator[BatchRecord]:
        return iter(self._records(self._lines.values))

    def _records(self, lines: Tensor) -> list[BatchRecord]:
        kinds: list[Any] = list(self._types.values())

        def record(line: list[float]) -> BatchRecord:
            pairs = zip(kinds, line, strict=True)
            values: Any = (kind(x) if x == x else NAN for kind, x in pairs)
            return self.kind(*values)

        return [record(line) for line in lines.tolist()]

    def column(self, name: str) -> Tensor:
        """A field of all `n` of them, of type long or double. O(n)."""
        place = list(self._types).index(name)
        kind = torch.long if self._types[name] is int else torch.double
        return self._lines.values[:, place].to(kind, copy=True)

    def append(self, record: BatchRecord) -> None:
        """One more."""
        self._lines.extend([[getattr(record, name) for name in self._types]])

    def change(self, place: int, **values: float) -> None:
        """Other values of some fields of one of them; forks may see them or not."""
        names, line = list(self._types), self._lines.values[place]
        for name, value in values.items():
            line[names.index(name)] = value

    def fork(self) -> Self:
        """Batches to add to; these do not grow. O(1)."""
        other = copy(self)
        other._lines = self._lines.fork()
        return other

    def state_dict(self) -> dict[str, Tensor]:
        """All columns, by name."""
        return {name: self.column(name) for name in self._types}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become what `state_dict` came from, where there is nothing yet."""
        columns = [state[name].double().cpu() for name in self._types]
        self._lines.extend(torch.stack(columns, dim=-1))
