"""The kernel's columns `k(X, x_s)` of points that have once been inducing points.

Of counts the columns may be kept as what a row and a point have in common
(`CountColumns`): a byte in place of eight, which no hyperparameter changes.

A kernel is evaluated for a tile of rows and a group of points at a time, of which the
last is repeated where some are missing: one shape, and a centre of distances that is
the tile's. So a column's bits depend on its point and on the table alone.

Points that are likely to be asked for next take the places that others leave in a
group. Their columns are spare until they are asked for.
"""

from collections.abc import Callable, Iterator, Set
from functools import partial
from itertools import islice
from typing import Any, TypeGuard

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from typing_extensions import override

from botorch_sparse.kernels import dense_covariance
from botorch_sparse.kernels.kernel_matrices import (
    compares_counts,
    count_covariance,
    is_thread_safe,
    unscaled,
)
from botorch_sparse.kernels.tanimoto import similarity_of_sums, sums_of_minima
from botorch_sparse.pools.compact_rows import (
    CompactRows,
    Rows,
    distinct_blocks,
    kernel_rows,
    kernel_with,
)
from botorch_sparse.pools.embedding import padded
from botorch_sparse.pools.shard import RANK_TILE
from botorch_sparse.threads import KERNEL_ENTRY, for_each

# Points of a group, which cost little more than one of them; where products are exact,
# and groups of any size round alike, reading the rows costs most.
POINTS, EXACT_POINTS = 8, 256
# Spare columns that are kept.
MOST_SPARE = 64
# Tiles that a kernel is evaluated for at a time, and most entries of them: its
# temporaries stay in the cache.
COLUMN_TILES, COLUMN_ENTRIES = 32, 2**21
# The most entries of kernel columns that are looked up from different rows at a time.
MOST_AT_A_TIME = 2**22
# Entries that are computed from counts at a time.
PART_ENTRIES = 2**16
# Where so many float64 columns have room they are kept; where fewer have, counts.
FLOAT_COLUMNS = 512
# Types that sums of counts are kept in.
COUNT_TYPES = (torch.uint8, torch.int16, torch.int32)


class KernelColumns:
    """Kernel columns by point; spare ones, then the least recently used, are replaced.

    All are dropped when the kernel or one of its parameters is another than before.
    Bits do not depend on what was kept before. `values` are `slots x A` columns, and
    `version` changes when a slot gets another column.
    """

    def __init__(self, X: Rows) -> None:
        self.X = X
        self.values = X.new_empty(0, len(X))
        self.version = 0
        self._slot: dict[bytes, int] = {}  # in the order of the last use
        self._spare: dict[bytes, None] = {}  # those that nobody has asked for
        self._kernel: tuple[Any, ...] = ()

    def clear(self) -> None:
        """Forget all columns, as after a kernel has failed."""
        self._slot, self._spare, self.version = {}, {}, self.version + 1

    @property
    def entry_size(self) -> int:
        """Bytes of an entry."""
        return self.values.element_size()

    def successor(self) -> "KernelColumns":
        """None yet, for another kernel; it takes over the memory of these."""
        other = KernelColumns(self.X)
        other.values, self.values = self.values, other.values
        self.clear()
        return other

    @property
    def num_used(self) -> int:
        """The slots that hold columns are the first of them."""
        return len(self._slot)

    def at(self, covar_module: Kernel, slots: Tensor, rows: Tensor | slice) -> Tensor:
        """Entries of columns, `k x r`; of the kernel that they were found for."""
        return self._looked_up(slots, rows)

    def write(
        self, covar_module: Kernel, slots: Tensor, rows: slice, out: Tensor
    ) -> None:
        """The same into a tensor."""
        part = self.values[:, rows]
        if out.is_contiguous():
            torch.index_select(part, 0, slots, out=out)
        else:
            out.copy_(part.index_select(0, slots))

    def weighted_sum(
        self, covar_module: Kernel, slots: Tensor, weights: Tensor, rows: slice
    ) -> Tensor:
        """The sum of `k` columns by `k` weights, `r`."""
        used = self.num_used
        spread = weights.new_zeros(used).index_copy_(0, slots, weights)
        return spread @ self.values[:used, rows]

    def _looked_up(self, slots: Tensor, rows: Tensor | slice) -> Tensor:
        if isinstance(rows, slice):
            return self.values[:, rows].index_select(0, slots)
        place = slots.unsqueeze(-1) * self.values.shape[1] + rows
        return self.values.take(place)

    def find(
        self,
        covar_module: Kernel,
        points: Tensor,
        capacity: int,
        likely: Tensor,
    ) -> Tensor:
        """The slots of `k x d` points; columns not kept are computed.

        At most `capacity` columns are kept. `likely` (`l x d`) may be asked for next,
        the likeliest first; it is empty where spare columns are to go.
        """
        kernel = self._identity(covar_module)
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
            most = MOST_SPARE if len(likely) else 0
            free = partial(_free_slot, slot, spare, needed, capacity, most)
            self._reserve(min(capacity, len(slot) + len(wanted | others)), capacity)
            self._compute(covar_module, wanted | others, slot, free)
            spare |= dict.fromkeys(others)
        last = {key: slot.pop(key) for key in dict.fromkeys(keys)}
        self._slot, self._spare = slot | last, spare
        return torch.tensor([last[key] for key in keys], dtype=torch.long)

    def _identity(self, covar_module: Kernel) -> tuple[Any, ...]:
        """What columns depend on, but for their points."""
        return (covar_module, *(p.tolist() for p in covar_module.parameters()))

    def _compute(
        self,
        covar_module: Kernel,
        wanted: dict[bytes, Tensor],
        slot: dict[bytes, int],
        free: Callable[[], int],
    ) -> None:
        """Compute the columns of points, and note their slots."""
        new = list(wanted)
        size = group_size(covar_module)
        for start in range(0, len(new), size):
            group = new[start : start + size]
            points = torch.stack([wanted[key] for key in group])
            columns = self._columns(covar_module, points)
            for key, column in zip(group, columns, strict=True):
                slot[key] = place = free()
                self._put(place, wanted[key], column)

    def _columns(self, covar_module: Kernel, points: Tensor) -> Tensor:
        """The columns of a group of points, `k x A`."""
        return kernel_columns(covar_module, self.X, points)

    def _put(self, place: int, point: Tensor, column: Tensor) -> None:
        """Keep a point's column in a slot."""
        self.values[place] = column

    def _reserve(self, size: int, capacity: int) -> None:
        """Room for so many columns, and for more later on."""
        kept = len(self.values)
        if size > kept:
            size = min(capacity, max(size, 2 * kept, 16))
            values = self.values.new_empty(size, len(self.X))
            values[:kept] = self.values
            self.values = values


class CountColumns(KernelColumns):
    """What rows and points have in common, for a kernel that compares counts.

    Entries of the kernel are computed from it when they are looked up, an addition and
    a division each. They have the bits that the kernel has.

    Args:
        X: The table.
        largest: The largest sum of a row's entries.
    """

    def __init__(self, X: CompactRows, largest: int) -> None:
        super().__init__(X)
        dtype = next(d for d in COUNT_TYPES if largest <= torch.iinfo(d).max)
        self.values = self.values.to(dtype)
        self._rows, self._total = X, X.totals.double()
        self._own = self._total[:0]  # sums of the entries of the slots' points

    @override
    def successor(self) -> "CountColumns":
        return self  # no kernel matters

    @override
    @torch.no_grad()
    def at(self, covar_module: Kernel, slots: Tensor, rows: Tensor | slice) -> Tensor:
        out = self._total.new_empty(len(slots), len(self._total[rows]))
        for part, K in self._parts(covar_module, slots, rows):
            out[part] = K
        return out

    @override
    @torch.no_grad()
    def write(
        self, covar_module: Kernel, slots: Tensor, rows: slice, out: Tensor
    ) -> None:
        for part, K in self._parts(covar_module, slots, rows):
            out[part] = K

    @override
    @torch.no_grad()
    def weighted_sum(
        self, covar_module: Kernel, slots: Tensor, weights: Tensor, rows: slice
    ) -> Tensor:
        parts = self._parts(covar_module, slots, rows)
        return sum((weights[part] @ K for part, K in parts), torch.zeros(()))

    def _parts(
        self, covar_module: Kernel, slots: Tensor, rows: Tensor | slice
    ) -> Iterator[tuple[slice, Tensor]]:
        """The kernel of some points at a time, which a cache holds."""
        counts, own = self._looked_up(slots, rows), self._own[slots].unsqueeze(-1)
        total = self._total[rows]
        size = max(1, PART_ENTRIES // max(len(total), 1))
        for start in range(0, len(slots), size):
            part = slice(start, start + size)
            both = counts[part].double()
            shares = similarity_of_sums(both, own[part], total)
            yield part, count_covariance(covar_module, [shares])

    @override
    def _identity(self, covar_module: Kernel) -> tuple[Any, ...]:
        return ()

    @override
    def _columns(self, covar_module: Kernel, points: Tensor) -> Tensor:
        counts = points.to(torch.uint8)
        columns = self.values.new_empty(len(points), len(self.X))

        def compute(start: int) -> None:
            part = self._rows.entries(slice(start, start + RANK_TILE))
            both = sums_of_minima(part, counts, torch.double)
            columns[:, start : start + len(part)] = both.mT

        work = len(self.X) * len(points) * KERNEL_ENTRY
        for_each(range(0, len(self.X), RANK_TILE), work, lambda: compute)
        return columns

    @override
    def _put(self, place: int, point: Tensor, column: Tensor) -> None:
        super()._put(place, point, column)
        self._own[place] = point.sum()

    @override
    def _reserve(self, size: int, capacity: int) -> None:
        super()._reserve(size, capacity)
        own = self._own.new_zeros(len(self.values))
        own[: len(self._own)] = self._own
        self._own = own


def keeps_counts(
    X: Rows, kernel: Kernel, points: Tensor, num_float: int
) -> TypeGuard[CompactRows]:
    """Whether columns of points are kept as counts.

    Args:
        X: The table.
        kernel: The kernel.
        points: `m x d`; where one is no counts, columns of the kernel are kept.
        num_float: How many float64 columns have room. They are read more quickly.
    """
    return (
        isinstance(X, CompactRows)
        and X.is_cpu
        and num_float < FLOAT_COLUMNS
        and compares_counts(kernel)
        and unscaled(kernel).blocks is None
        and kernel.active_dims is None
        and not kernel.batch_shape
        and bool(X.holds(points).all())
    )


def _others(likely: Tensor, known: Set[bytes], most: int) -> dict[bytes, Tensor]:
    """The first of some points, by their bytes, that are none of those known."""
    if not most:
        return {}
    place = {point.tobytes(): i for i, point in enumerate(likely.numpy())}
    new = ((key, likely[i]) for key, i in place.items() if key not in known)
    return dict(islice(new, most))


def _free_slot(
    slot: dict[bytes, int],
    spare: dict[bytes, None],
    needed: set[bytes],
    capacity: int,
    most_spare: int,
) -> int:
    """A free slot, or one made free: the oldest spare, or the least recently used."""
    is_full = len(slot) >= capacity
    if spare and (is_full or len(spare) >= most_spare):
        oldest = next(iter(spare))
        del spare[oldest]
        return slot.pop(oldest)
    if not is_full:
        return len(slot)
    return slot.pop(next(key for key in slot if key not in needed))


def group_size(covar_module: Kernel) -> int:
    """The most points of a group."""
    return EXACT_POINTS if compares_counts(covar_module) else POINTS


@torch.no_grad()
def kernel_columns(
    covar_module: Kernel, X: Rows, points: Tensor, out: Tensor | None = None
) -> Tensor:
    """Covariances of a group of points (`k x d`) with a table, `k x A`.

    Where products are exact, `out` is what they are written into, and a group may have
    any number of points.
    """
    k, num = len(points), len(X)
    any_shape_rounds_alike = compares_counts(covar_module)
    if any_shape_rounds_alike:
        columns = X.new_empty(k, num) if out is None else out
    else:
        points = torch.cat([points, points[-1:].expand(-k % POINTS, -1)])
        columns = X.new_empty(len(points), padded(num, RANK_TILE))
    if distinct_blocks(covar_module, X) is not None:
        parts = points.split(max(1, MOST_AT_A_TIME // num))
        for column, part in zip(columns.split(len(parts[0])), parts, strict=True):
            column.copy_(kernel_with(covar_module, X, slice(None), part).mT)
        return columns
    most = COLUMN_ENTRIES // (RANK_TILE * max(X.shape[1], len(points)))
    size = max(1, min(COLUMN_TILES, most)) * RANK_TILE

    def compute(start: int) -> None:
        part = kernel_rows(covar_module, X, slice(start, start + size))
        if any_shape_rounds_alike:
            K = dense_covariance(covar_module, part, points)
        else:
            part = torch.cat([part, part[-1:].expand(-len(part) % RANK_TILE, -1)])
            tiles = part.view(-1, RANK_TILE, X.shape[-1])
            groups = points.expand(len(tiles), -1, -1)
            K = dense_covariance(covar_module, tiles, groups).flatten(0, 1)
        columns[:, start : start + len(part)] = K.mT

    work = num * len(points) * KERNEL_ENTRY if is_thread_safe(covar_module) else 0
    for_each(range(0, num, size), work, lambda: compute)
    return columns[:k, :num]
