"""Covariances `k_S(x)` of candidates with inducing points, kept or streamed.

A kernel is evaluated for a tile of rows and a group of points at a time, of which the
last is repeated where some are missing: one shape, and a centre of distances that is
the tile's. So a column's bits depend on its point and on the table alone.

Points that are likely to be asked for next take the places that others leave in a
group. Their columns are spare until they are asked for.

Streamed ones are evaluated with all inducing points as the kernel's first argument and
a full tile as its second, kept columns with a tile and a group of points: what shares a
first argument shares its rounding.
"""

from collections.abc import Callable, Set
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.kernels import dense_covariance
from botorch_sparse.kernels.kernel_matrices import compares_counts, is_thread_safe
from botorch_sparse.pools.compact_rows import (
    Rows,
    distinct_blocks,
    kernel_rows,
    kernel_with,
)
from botorch_sparse.pools.embedding import TILE, Embedding, padded, size_of
from botorch_sparse.pools.shard import RANK_TILE
from botorch_sparse.threads import (
    KERNEL_ENTRY,
    CopyableLock,
    for_each,
    one_thread,
)

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


class KernelColumns:
    """Kernel columns by point; spare ones, then the least recently used, are replaced.

    All are dropped when the kernel or one of its parameters is another than before.
    Bits do not depend on what was kept before. `values` are `slots x A` columns, and
    `version` changes when a slot gets another column.
    """

    def __init__(self) -> None:
        self.values = torch.empty(0, 0)
        self.version = 0
        self._slot: dict[bytes, int] = {}  # in the order of the last use
        self._spare: dict[bytes, None] = {}  # those that nobody has asked for
        self._kernel: tuple[Any, ...] = ()

    def clear(self) -> None:
        """Forget all columns, as after a kernel has failed."""
        self._slot, self._spare, self.version = {}, {}, self.version + 1

    def successor(self) -> "KernelColumns":
        """None yet, for another kernel; it takes over the memory of these."""
        other = KernelColumns()
        other.values, self.values = self.values, other.values
        self.clear()
        return other

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
        X: Rows,
        points: Tensor,
        capacity: int,
        likely: Tensor,
    ) -> Tensor:
        """The slots of `k x d` points; columns not kept are computed.

        At most `capacity` columns are kept. `likely` (`l x d`) may be asked for next,
        the likeliest first; it is empty where spare columns are to go.
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
            most = MOST_SPARE if len(likely) else 0
            free = partial(_free_slot, slot, spare, needed, capacity, most)
            self._reserve(X, min(capacity, len(slot) + len(wanted | others)), capacity)
            self._compute(covar_module, X, wanted | others, slot, free)
            spare |= dict.fromkeys(others)
        last = {key: slot.pop(key) for key in dict.fromkeys(keys)}
        self._slot, self._spare = slot | last, spare
        return torch.tensor([last[key] for key in keys], dtype=torch.long)

    def _compute(
        self,
        covar_module: Kernel,
        X: Rows,
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
            columns = kernel_columns(covar_module, X, points)
            for key, column in zip(group, columns, strict=True):
                slot[key] = place = free()
                self.values[place] = column

    def _reserve(self, X: Rows, size: int, capacity: int) -> None:
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


class CrossCovariance:
    """`k_S(x)` of `A x d` candidates, in tiles.

    Without `columns` it is streamed. At most `capacity` columns are kept, and
    `max_memory` bytes of lines, one for each candidate that was asked for. For `likely`
    see `KernelColumns.find`.
    """

    def __init__(
        self,
        X: Rows,
        embedding: Embedding,
        columns: KernelColumns | None,
        likely: Tensor,
        capacity: int,
        max_memory: int,
    ) -> None:
        self.X = X
        self.embedding = embedding
        self.columns = columns
        self._likely, self._capacity = likely, capacity
        S = self._points = embedding.posterior.inducing_points
        missing = embedding.num_rows - len(S)
        self._padded_points = torch.cat([S, S[-1:].expand(missing, -1)])
        self._slots = (-1, torch.empty(0, dtype=torch.long))
        height = max(embedding.num_rows, 1) * X.element_size()
        self._room = max_memory // height
        self._place = np.full(len(X) if self._room else 0, -1)
        self._kept = X.new_empty(0, embedding.num_rows)
        self._num_kept = 0
        self._lines_lock = CopyableLock()
        is_safe = is_thread_safe(embedding.posterior.covar_module)
        self._kernel_lock: AbstractContextManager[Any] = (
            nullcontext() if is_safe else CopyableLock()
        )

    @property
    def in_memory(self) -> bool:
        """Whether all candidates' are at hand."""
        return self.columns is not None

    def work(self, own: float) -> float:
        """Operations for a candidate, `k_S(x)` among them, before threads share them.

        Args:
            own: Those without `k_S(x)`.
        """
        if self.columns is None:
            return own + len(self._points) * KERNEL_ENTRY
        return own

    def find_columns(self) -> None:
        """Find the kept columns once, before several threads ask for them."""
        if self.columns is not None:
            self.slots()

    def slots(self) -> Tensor:
        """Where the inducing points' columns are kept."""
        assert self.columns is not None
        version, slots = self._slots
        if version != self.columns.version:
            slots = self.find(self._points)
            self._slots = self.columns.version, slots
        return slots

    def find(self, points: Tensor) -> Tensor:
        """The slots of points, whose columns are computed where they are not kept."""
        assert self.columns is not None
        kernel = self.embedding.posterior.covar_module
        return self.columns.find(kernel, self.X, points, self._capacity, self._likely)

    def find_beside(self, points: Tensor) -> Tensor | None:
        """The slots of other points; None where there is no room for them."""
        both = torch.cat([self._points, points])
        if self.columns is None or len(both) > self._capacity:
            return None
        return self.find(both)[len(self._points) :]

    def lines(self, index: np.ndarray) -> np.ndarray:
        """`k_S(x)` of `k` candidates, `k x num_rows`; kept while there is room."""
        if not self._room:
            return self._lines(index)
        new = index[self._place[index] < 0]
        if len(new) and not self.keep(new, self._lines(new)):
            return self._lines(index)
        kept: np.ndarray = self._kept.numpy()
        return kept.take(self._place[index], axis=0)

    def _lines(self, index: np.ndarray) -> np.ndarray:
        lines = np.zeros((len(index), self.embedding.num_rows), self._dtype)
        lines[:, : len(self._points)] = self.of(torch.from_numpy(index)).numpy().T
        return lines

    @property
    def _dtype(self) -> np.dtype:
        return self._kept.numpy().dtype

    def tiles(self, rows: Tensor | slice, out: Tensor) -> None:
        """Write `k_S(x)` of `k` candidates into the first columns of tiles in `out`."""
        if self.columns is None:
            for tile, part in zip(
                out.split(TILE, dim=1), self._numbers(rows).split(TILE), strict=True
            ):
                tile.copy_(self._streamed(part))
        elif isinstance(rows, Tensor):
            out[: len(self._points), : len(rows)] = self.of(rows)
        else:
            slots = self.slots()  # finds columns first
            part = self.columns.values[:, rows]
            out = out[: len(self._points), : part.shape[1]]
            if out.is_contiguous():
                torch.index_select(part, 0, slots, out=out)
            else:
                out.copy_(part.index_select(0, slots))

    def _numbers(self, rows: Tensor | slice) -> Tensor:
        return rows if isinstance(rows, Tensor) else torch.arange(len(self.X))[rows]

    @torch.no_grad()
    def _streamed(self, rows: Tensor) -> Tensor:
        """`num_rows x TILE`, of at most so many candidates, the last one repeated."""
        full = torch.cat([rows, rows[-1:].expand(TILE - len(rows))])
        kernel = self.embedding.posterior.covar_module
        with self._kernel_lock, one_thread():
            Z = kernel_rows(kernel, self.X, full)
            K = dense_covariance(kernel, self._padded_points, Z)
        K[len(self._points) :] = 0.0
        return K

    def of(self, rows: Tensor | slice) -> Tensor:
        """`k_S(x)` of candidates, `m x k`."""
        if self.columns is not None:
            return self.columns.at(self.slots(), rows)
        rows, m = self._numbers(rows), len(self._points)
        tiles = [self._streamed(part)[:m, : len(part)] for part in rows.split(TILE)]
        return torch.cat(tiles, dim=1) if m else self.X.new_empty(0, len(rows))

    def parts(
        self, weights: Tensor, points: Tensor, rows: slice
    ) -> tuple[Tensor, Tensor]:
        """The sum of `k_S(x)` by `m` weights (`k`), and `r` points' rows (`r x k`)."""
        if self.columns is None:
            K = self.of(rows)
            return weights @ K, K[points]
        slots, used = self.slots(), self.columns.num_used
        spread = weights.new_zeros(used).index_copy_(0, slots, weights)
        mean = spread @ self.columns.values[:used, rows]
        return mean, self.columns.at(slots[points], rows)

    def at(self, points: Tensor, rows: Tensor) -> Tensor:
        """Rows of `k_S(x)`, `r x k`."""
        if self.columns is None:
            return self.of(rows)[points]
        return self.columns.at(self.slots()[points], rows)

    def keep(self, index: np.ndarray, lines: np.ndarray) -> bool:
        """Keep `k_S(x)` of candidates, a line each, if there is room."""
        with self._lines_lock:
            return self._keep(index, lines)

    def _keep(self, index: np.ndarray, lines: np.ndarray) -> bool:
        start, stop = self._num_kept, self._num_kept + len(index)
        if stop > self._room:
            return False
        if stop > len(self._kept):
            size = min(self._room, max(2 * len(self._kept), stop, TILE))
            grown = self._kept.new_empty(size, self._kept.shape[1])
            grown[:start] = self._kept[:start]
            self._kept = grown
        self._kept[start:stop] = torch.from_numpy(lines)
        self._place[index] = np.arange(start, stop)
        self._num_kept = stop
        return True

    def tiles_with(
        self, points: Tensor
    ) -> Callable[[int], Callable[[slice], tuple[Tensor, Tensor]]]:
        """A function of rows: `k_S(x)` of whole tiles, and covariances with points.

        These are full groups. It is made from the most columns that rows have, and has
        a buffer of its own.
        """
        beside, columns, m = self.find_beside(points), self.columns, len(self._points)
        self.find_columns()
        if beside is None or columns is None:
            return lambda most: partial(self._computed_with, points)
        slots, values = torch.cat([self.slots(), beside]), columns.values

        def start(most: int) -> Callable[[slice], tuple[Tensor, Tensor]]:
            buffer = points.new_zeros(len(slots), most)

            def tiles(rows: slice) -> tuple[Tensor, Tensor]:
                width = size_of(rows)
                if width == buffer.shape[1]:
                    torch.index_select(values[:, rows], 0, slots, out=buffer)
                else:
                    buffer[:, :width] = values[:, rows].index_select(0, slots)
                part = buffer[:, : padded(width, TILE)]
                return part[:m], part[m:]

            return tiles

        return start

    def _computed_with(self, points: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        kernel = self.embedding.posterior.covar_module
        index = torch.arange(rows.start, rows.stop)
        index = torch.cat([index, index[-1:].expand(-len(index) % TILE)])
        X = [kernel_rows(kernel, self.X, part) for part in index.split(TILE)]
        with self._kernel_lock, one_thread():
            groups = [
                torch.cat([dense_covariance(kernel, group, x) for x in X], dim=1)
                for group in points.split(group_size(kernel))
            ]
        return self.of(index), torch.cat(groups)
