"""`k_S(x)` on the host: kept by inducing point, kept by candidate, or streamed.

Streamed ones are evaluated with a block of inducing points as the kernel's first
argument, kept columns with one: what shares a first argument shares its rounding.
"""

from threading import Lock

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.optim.embedding import TILE, Embedding, padded
from botorch_sparse.optim.kernel_columns import KernelColumns


class CrossCovariance:
    """`k_S(x)` in the order of an embedding, in tiles.

    Args:
        X: `A x d` candidates.
        embedding: The embedding.
        columns: Kernel columns by inducing point; None where these do not fit.
        capacity: How many columns may be kept.
        max_memory: Bytes for what is kept by candidate where columns are not.
    """

    def __init__(
        self,
        X: Tensor,
        embedding: Embedding,
        columns: KernelColumns | None,
        capacity: int,
        max_memory: int,
    ) -> None:
        self.X = X
        self.embedding = embedding
        self.columns = columns
        self._capacity = capacity
        S = embedding.posterior.inducing_points[embedding.order]
        self._points = S
        missing = embedding.num_rows - len(S)
        self._padded_points = torch.cat([S, S[-1:].expand(missing, -1)])
        self._slots = (-1, torch.empty(0, dtype=torch.long))
        self._whole: Tensor | None = None  # num_rows x A
        height = max(embedding.num_rows, 1) * X.element_size()
        self._room = 0 if columns is not None else max_memory // height
        self._place = torch.full((len(X) if self._room else 0,), -1)
        self._kept = X.new_empty(0, embedding.num_rows)
        self._num_kept = 0
        self._lock = Lock()

    @property
    def in_memory(self) -> bool:
        """Whether those of all candidates are at hand."""
        return self.columns is not None or self._whole is not None

    def block(self, level: int, rows: Tensor) -> Tensor:
        """The rows of a block, `rows x k`, for `k` candidates (full tiles)."""
        block = self.embedding.blocks[level].rows
        if self._whole is not None:
            return self._whole[block][:, rows]
        if self.columns is None:
            S, m = self._padded_points[block], len(self._points)
            K = self.embedding.posterior.covar_module(S, self.X[rows]).to_dense()
            K[max(m - block.start, 0) :] = 0.0
            return K
        K = self.X.new_zeros(block.stop - block.start, len(rows))
        slots, values = self.slots()[block], self.columns.values
        first, last = int(rows[0]), int(rows[-1]) + 1
        steps = torch.diff(rows)
        if last - first == len(rows) and bool((steps == 1).all()):
            torch.index_select(values[:, first:last], 0, slots, out=K[: len(slots)])
        else:
            place = slots.unsqueeze(-1) * values.shape[1] + rows
            torch.take(values, place, out=K[: len(slots)])
        return K

    def prepare(self) -> None:
        """Compute what threads share."""
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
        return self.columns.find(kernel, self.X, points, self._capacity)

    def find_beside(self, points: Tensor) -> Tensor | None:
        """The slots of other points; None where there is no room for them."""
        both = torch.cat([self._points, points])
        if self.columns is None or len(both) > self._capacity:
            return None
        return self.find(both)[len(self._points) :]

    def fill(self, index: np.ndarray | slice, out: np.ndarray) -> None:
        """Write `k_S(x)` of `k` candidates into the first columns of `out`."""
        m = self._points.shape[0]
        if self.columns is not None:
            slots = self.slots().numpy()
            values: np.ndarray = self.columns.values.numpy()
            if isinstance(index, slice):
                out[:m, : index.stop - index.start] = values[slots, index]
                return
            place = slots[:, None] * values.shape[1] + index
            out[:m, : len(index)] = values.reshape(-1).take(place)
            return
        if isinstance(index, slice):
            index = np.arange(index.start, index.stop)
        k = len(index)
        rows = torch.from_numpy(index)
        if self._whole is not None:
            out[:, :k] = self._whole.numpy()[:, index]
        elif self._room and bool((self._place[rows] >= 0).all()):
            out[:, :k] = self._kept[self._place[rows]].numpy().T
        else:
            out[:, :k] = self.of(rows).numpy()

    def of(self, rows: Tensor) -> Tensor:
        """`k_S(x)` of candidates, `num_rows x k`."""
        full = full_tiles(rows)
        levels = range(len(self.embedding.blocks))
        parts = [self.block(level, full)[:, : len(rows)] for level in levels]
        return torch.cat(parts) if parts else self.X.new_empty(0, len(rows))

    def keep(self, rows: Tensor, K: Tensor) -> None:
        """Keep `k_S(x)` of candidates (`num_rows x k`) as far as there is room."""
        with self._lock:
            self._keep(rows, K)

    def _keep(self, rows: Tensor, K: Tensor) -> None:
        start, stop = self._num_kept, self._num_kept + len(rows)
        if stop > self._room or self._whole is not None:
            return
        if stop > len(self._kept):
            size = min(self._room, max(2 * len(self._kept), stop, TILE))
            grown = self._kept.new_empty(size, self._kept.shape[1])
            grown[:start] = self._kept[:start]
            self._kept = grown
        self._kept[start:stop] = K.mT
        self._place[rows] = torch.arange(start, stop)
        self._num_kept = stop

    def store_all(self, chunk_size: int) -> None:
        """Keep those of all candidates. Cost: O(A m), and the kernel's."""
        whole = self.X.new_empty(self.embedding.num_rows, len(self.X))
        for rows in torch.arange(len(self.X)).split(chunk_size):
            whole[:, int(rows[0]) : int(rows[-1]) + 1] = self.of(rows)
        self._whole = whole
        self._room, self._kept = 0, self._kept[:0]


def full_tiles(rows: Tensor) -> Tensor:
    """Candidates padded to full tiles by the last one."""
    missing = padded(len(rows), TILE) - len(rows)
    return torch.cat([rows, rows[-1:].expand(missing)]) if missing else rows
