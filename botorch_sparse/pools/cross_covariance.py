"""Covariances `k_S(x)` of candidates with inducing points, kept or streamed.

Streamed ones are evaluated with all inducing points as the kernel's first argument and
a full tile as its second, kept columns (`pools/kernel_columns.py`) with a tile and a
group of points: what shares a first argument shares its rounding.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.kernels import dense_covariance
from botorch_sparse.kernels.kernel_matrices import is_thread_safe
from botorch_sparse.pools.compact_rows import Rows, kernel_rows
from botorch_sparse.pools.embedding import TILE, Embedding, padded, size_of
from botorch_sparse.pools.kernel_columns import KernelColumns, group_size
from botorch_sparse.threads import KERNEL_ENTRY, CopyableLock, one_thread


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
        self._kernel = embedding.posterior.covar_module
        is_safe = is_thread_safe(self._kernel)
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
        return self.columns.find(self._kernel, points, self._capacity, self._likely)

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
            out = out[: len(self._points), : size_of(rows)]
            self.columns.write(self._kernel, self.slots(), rows, out)

    def _numbers(self, rows: Tensor | slice) -> Tensor:
        return rows if isinstance(rows, Tensor) else torch.arange(len(self.X))[rows]

    @torch.no_grad()
    def _streamed(self, rows: Tensor) -> Tensor:
        """`num_rows x TILE`, of at most so many candidates, the last one repeated."""
        full = torch.cat([rows, rows[-1:].expand(TILE - len(rows))])
        with self._kernel_lock, one_thread():
            Z = kernel_rows(self._kernel, self.X, full)
            K = dense_covariance(self._kernel, self._padded_points, Z)
        K[len(self._points) :] = 0.0
        return K

    def of(self, rows: Tensor | slice) -> Tensor:
        """`k_S(x)` of candidates, `m x k`."""
        if self.columns is not None:
            return self.columns.at(self._kernel, self.slots(), rows)
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
        slots, kernel = self.slots(), self._kernel
        mean = self.columns.weighted_sum(kernel, slots, weights, rows)
        return mean, self.columns.at(kernel, slots[points], rows)

    def at(self, points: Tensor, rows: Tensor) -> Tensor:
        """Rows of `k_S(x)`, `r x k`."""
        if self.columns is None:
            return self.of(rows)[points]
        return self.columns.at(self._kernel, self.slots()[points], rows)

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
        slots = torch.cat([self.slots(), beside])

        def start(most: int) -> Callable[[slice], tuple[Tensor, Tensor]]:
            buffer = points.new_zeros(len(slots), most)

            def tiles(rows: slice) -> tuple[Tensor, Tensor]:
                width = size_of(rows)
                columns.write(self._kernel, slots, rows, buffer[:, :width])
                part = buffer[:, : padded(width, TILE)]
                return part[:m], part[m:]

            return tiles

        return start

    def _computed_with(self, points: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        kernel = self._kernel
        index = torch.arange(rows.start, rows.stop)
        index = torch.cat([index, index[-1:].expand(-len(index) % TILE)])
        X = [kernel_rows(kernel, self.X, part) for part in index.split(TILE)]
        with self._kernel_lock, one_thread():
            groups = [
                torch.cat([dense_covariance(kernel, group, x) for x in X], dim=1)
                for group in points.split(group_size(kernel))
            ]
        return self.of(index), torch.cat(groups)
