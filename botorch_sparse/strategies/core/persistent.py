"""Collections whose forks share what was there before, for steps computed aside.

A fork is a collection of its own that takes O(1) to make. What is added to it leaves
the one that it came from as it was. Of two forks of one collection, which write into
the same room behind their own ends, only one may be kept, as of a step that failed and
the next.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Self, TypeVar, overload

import torch
from torch import Tensor

V = TypeVar("V")


class AppendOnlyTensor:
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

    def fork(self) -> Self:
        """See the module. O(1)."""
        return copy(self)


class ListView(Sequence[V]):
    """A sequence that equals a list of the same, and is shown as one."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class AppendOnlyList(ListView[V]):
    """A list that grows at its end, and is read as any other.

    Args:
        items: What is in it.
    """

    def __init__(self, items: Iterable[V] = ()) -> None:
        self._room = list(items)
        self._size = len(self._room)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> V: ...
    @overload
    def __getitem__(self, place: slice) -> list[V]: ...
    def __getitem__(self, place: int | slice) -> V | list[V]:
        if isinstance(place, slice):
            return [self._room[i] for i in range(*place.indices(self._size))]
        return self._room[range(self._size)[place]]

    def __iter__(self) -> Iterator[V]:
        return iter(self._room[: self._size])

    def append(self, item: V) -> None:
        """Put something at the end."""
        del self._room[self._size :]  # of a fork that was not kept
        self._room.append(item)
        self._size += 1

    def fork(self) -> Self:
        """See the module. O(1)."""
        return copy(self)
