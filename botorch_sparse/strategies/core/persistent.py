"""Collections whose forks share what was there before, for steps computed aside.

A fork is a collection of its own that takes O(1) to make. What is added to it leaves
the one that it came from as it was. Of two forks of one collection, which write into
the same room behind their own ends, only one may be kept, as of a step that failed and
the next.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Generic, Self, TypeVar, overload

import torch
from torch import Tensor

V = TypeVar("V")
# Parts of a dictionary: a fork copies their list, and a change one of them.
NUM_PARTS = 256


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


class PersistentDict(Generic[V]):
    """Values by whole numbers from 0 on, in parts that forks share until they change.

    A fork takes O(1), and the first change of a part after it O(p / 256) for `p` keys.
    """

    def __init__(self) -> None:
        self._parts: list[dict[int, V]] = [{} for _ in range(NUM_PARTS)]
        self._own = set(range(NUM_PARTS))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: int) -> bool:
        return key in self._parts[key % NUM_PARTS]

    def __iter__(self) -> Iterator[int]:
        """The keys, from part to part."""
        return iter([key for part in self._parts for key in part])

    def __getitem__(self, key: int) -> V:
        return self._parts[key % NUM_PARTS][key]

    def get(self, key: int, default: V) -> V:
        """The value of a key; the default where there is none."""
        return self._parts[key % NUM_PARTS].get(key, default)

    def __setitem__(self, key: int, value: V) -> None:
        part = self._part(key)
        self._size += key not in part
        part[key] = value

    def update(self, items: Iterable[tuple[int, V]]) -> None:
        """Set the values of many keys."""
        for key, value in items:
            part = self._part(key)
            self._size += key not in part
            part[key] = value

    def discard(self, keys: Iterable[int]) -> None:
        """Remove keys, those that are there."""
        if self._size:
            for key in keys:
                if key in self._parts[key % NUM_PARTS]:
                    del self._part(key)[key]
                    self._size -= 1

    def _part(self, key: int) -> dict[int, V]:
        """The part of a key, to be changed."""
        place = key % NUM_PARTS
        if place not in self._own:
            self._parts[place] = dict(self._parts[place])
            self._own.add(place)
        return self._parts[place]

    def fork(self) -> Self:
        """See the module."""
        other = copy(self)
        other._parts, other._own = list(self._parts), set()
        self._own = set()
        return other
