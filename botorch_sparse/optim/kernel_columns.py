"""Kernel columns of a table on the host, looked up by point.

A kernel is evaluated for a tile of rows and a group of points at a time, of which the
last is repeated where some are missing: one shape, and a centre of distances that is
the tile's. So a column's bits depend on its point and on the table alone.

Points that are likely to be asked for next take the places that others leave
in a group. Their columns are spare until they are asked for.
"""

from collections.abc import Set
from itertools import islice
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.kernels import dense_covariance
from botorch_sparse.optim.embedding import padded
from botorch_sparse.optim.shards import TILE
from botorch_sparse.optim.threads import one_thread

# Points of a group, which cost little more than one of them.
POINTS = 8
# Spare columns that are kept.
MOST_SPARE = 64
# Tiles that a kernel is evaluated for at a time: its temporaries stay in the cache.
TILES = 32


class KernelColumns:
    """Kernel columns by point; spare ones, then the least recently used, are replaced.

    All are dropped when the kernel or one of its parameters is another than before.
    Its bits do not depend on what was kept before; a run that was saved and loaded
    rounds alike.

    Attributes:
        values: `slots x A` columns.
        version: It changes when a slot gets another column.
    """

    def __init__(self) -> None:
        self.values = torch.empty(0, 0)
        self.version = 0
        self._slot: dict[bytes, int] = {}  # in the order of the last use
        self._spare: dict[bytes, None] = {}  # those that nobody has asked for
        self._kernel: tuple[Any, ...] = ()

    def clear(self) -> None:
        """Forget all columns, such as those of a kernel that failed."""
        self._slot, self._spare, self.version = {}, {}, self.version + 1

    @property
    def num_used(self) -> int:
        """The slots that hold columns are the first of them."""
        return len(self._slot)

    def at(self, slots: Tensor, rows: Tensor | slice) -> Tensor:
        """Entries of columns, `k x r`."""
        if isinstance(rows, slice):
            return self.values[:, rows].index_select(0, slots)
        place = slots.unsqueeze(-1) * self.values.shape[1] + rows
        return self.values.take(place)

    def find(
        self,
        covar_module: Kernel,
        X: Tensor,
        points: Tensor,
        capacity: int,
        likely: Tensor,
    ) -> Tensor:
        """The slots of `points`; columns not kept are computed.

        Args:
            covar_module: The kernel.
            X: `A x d`, the table.
            points: `k x d`.
            capacity: How many columns may be kept.
            likely: `l x d` points that may be asked for next, the likeliest first; none
                where spare columns are to go.
        """
        kernel = (covar_module, *(p.tolist() for p in covar_module.parameters()))
        if kernel != self._kernel:
            self._kernel = kernel
            self.clear()
        keys = [point.tobytes() for point in points.cpu().numpy()]
        missing = {k: i for i, k in enumerate(keys) if k not in self._slot}
        slot, needed = dict(self._slot), set(keys)
        spare = {key: None for key in self._spare if key not in needed}
        if missing:
            self.clear()  # what is interrupted has kept nothing
            wanted = {key: points[i] for key, i in missing.items()}
            room = capacity - (len(slot) - len(spare)) - len(wanted)
            places = min(-len(wanted) % POINTS, max(room, 0))
            others = _others(likely, wanted.keys() | slot.keys(), places)
            free = _FreeSlots(
                slot, spare, needed, capacity, MOST_SPARE if len(likely) else 0
            )
            self._compute(covar_module, X, wanted | others, capacity, free)
            spare |= dict.fromkeys(others)
        last = {key: slot.pop(key) for key in dict.fromkeys(keys)}
        self._slot, self._spare = slot | last, spare
        return torch.tensor([last[key] for key in keys])

    def _compute(
        self,
        covar_module: Kernel,
        X: Tensor,
        wanted: dict[bytes, Tensor],
        capacity: int,
        free: "_FreeSlots",
    ) -> None:
        """Compute the columns of points, and note their slots."""
        new = list(wanted)
        self._reserve(X, min(capacity, len(free.slot) + len(new)), capacity)
        for start in range(0, len(new), POINTS):
            group = new[start : start + POINTS]
            with one_thread():
                points = torch.stack([wanted[key] for key in group])
                columns = kernel_columns(covar_module, X, points)
            for key, column in zip(group, columns, strict=True):
                free.slot[key] = place = free.take()
                self.values[place] = column

    def _reserve(self, X: Tensor, size: int, capacity: int) -> None:
        """Room for so many columns, and for more later on."""
        kept = len(self.values)
        if size > kept:
            size = min(capacity, max(size, 2 * kept, 16))
            values = X.new_empty(size, len(X))
            if kept:
                values[:kept] = self.values
            self.values = values


def _others(likely: Tensor, known: Set[bytes], most: int) -> dict[bytes, Tensor]:
    """The first of some points, by their bytes, that are none of those known."""
    if not most:
        return {}
    place = {point.tobytes(): i for i, point in enumerate(likely.numpy())}
    new = ((key, likely[i]) for key, i in place.items() if key not in known)
    return dict(islice(new, most))


class _FreeSlots(NamedTuple):
    """Where new columns go.

    Attributes:
        slot: The slots in use, in the order of the last use.
        spare: Those that nobody has asked for, the oldest first.
        needed: Those that have to stay.
        capacity: How many there may be.
        most_spare: From how many spare ones on the oldest makes room.
    """

    slot: dict[bytes, int]
    spare: dict[bytes, None]
    needed: set[bytes]
    capacity: int
    most_spare: int

    def take(self) -> int:
        """A slot that is free, or made free."""
        slot, spare, is_full = self.slot, self.spare, len(self.slot) >= self.capacity
        if spare and (is_full or len(spare) >= self.most_spare):
            oldest = next(iter(spare))
            del spare[oldest]
            return slot.pop(oldest)
        if not is_full:
            return len(slot)
        return slot.pop(next(key for key in slot if key not in self.needed))


@torch.no_grad()
def kernel_columns(covar_module: Kernel, X: Tensor, points: Tensor) -> Tensor:
    """Covariances of at most `POINTS` points (`k x d`) with a table, `k x A`."""
    k, num = len(points), len(X)
    missing = POINTS - k
    points = torch.cat([points, points[-1:].expand(missing, -1)])
    columns = X.new_empty(POINTS, padded(num, TILE))
    for start in range(0, num, TILES * TILE):
        part = X[start : start + TILES * TILE]
        part = torch.cat([part, part[-1:].expand(-len(part) % TILE, -1)])
        tiles = part.view(-1, TILE, X.shape[-1])
        K = dense_covariance(covar_module, tiles, points.expand(len(tiles), -1, -1))
        columns[:, start : start + len(part)] = K.flatten(0, 1).mT
    return columns[:k, :num]
