"""Kernel columns of a table on the host, looked up by point.

A kernel is evaluated for a tile of rows and a group of points at a time, of which the
last are repeated where some are missing: one shape, and a centre of distances that is
the tile's. So a column's bits depend on its point and on the table alone.
"""

from collections.abc import Set
from itertools import islice
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.kernels import dense_covariance
from botorch_sparse.optim.embedding import padded
from botorch_sparse.optim.shards import TILE
from botorch_sparse.optim.threads import one_thread

# Points of a group, which cost little more than one of them.
POINTS = 8
# Tiles that a kernel is evaluated for at a time: its temporaries stay in the cache.
TILES = 32


class KernelColumns:
    """Kernel columns by point, the least recently used ones replaced first.

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
        self._kernel: tuple[Any, ...] = ()

    def clear(self) -> None:
        """Forget all columns, such as those of a kernel that failed."""
        self._slot, self.version = {}, self.version + 1

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
            likely: `l x d` points that may be asked for next, the likeliest first: they
                take the places that others leave in a group, while there is room.
        """
        kernel = (covar_module, *(p.tolist() for p in covar_module.parameters()))
        if kernel != self._kernel:
            self._kernel = kernel
            self.clear()
        keys = [point.tobytes() for point in points.cpu().numpy()]
        missing = {k: i for i, k in enumerate(keys) if k not in self._slot}
        slot = dict(self._slot)
        if missing:
            self.clear()  # what is interrupted has kept nothing
            wanted = {key: points[i] for key, i in missing.items()}
            room = capacity - len(slot) - len(wanted)
            places = min(-len(wanted) % POINTS, max(room, 0))
            wanted |= _others(likely, wanted.keys() | slot.keys(), places)
            self._compute(covar_module, X, wanted, capacity, set(keys), slot)
        last = {key: slot.pop(key) for key in dict.fromkeys(keys)}
        self._slot = slot | last
        return torch.tensor([last[key] for key in keys])

    def _compute(
        self,
        covar_module: Kernel,
        X: Tensor,
        wanted: dict[bytes, Tensor],
        capacity: int,
        needed: set[bytes],
        slot: dict[bytes, int],
    ) -> None:
        """Compute the columns of points, and note their slots in `slot`."""
        new = list(wanted)
        self._reserve(X, min(capacity, len(slot) + len(new)), capacity)
        for start in range(0, len(new), POINTS):
            group = new[start : start + POINTS]
            with one_thread():
                points = torch.stack([wanted[key] for key in group])
                columns = kernel_columns(covar_module, X, points)
            for key, column in zip(group, columns, strict=True):
                slot[key] = free = _free_slot(slot, capacity, needed)
                self.values[free] = column

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
    pairs = ((point.numpy().tobytes(), point) for point in likely)
    return dict(islice((pair for pair in pairs if pair[0] not in known), most))


def _free_slot(slot: dict[bytes, int], capacity: int, needed: set[bytes]) -> int:
    """A new slot up to the capacity, else the stalest that is not needed."""
    if len(slot) < capacity:
        return len(slot)
    return slot.pop(next(key for key in slot if key not in needed))


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
