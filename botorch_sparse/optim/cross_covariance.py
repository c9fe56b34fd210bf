"""`k_S(x)` on the host: kept by inducing point, or streamed and kept for a few.

Streamed ones are evaluated with all inducing points as the kernel's first argument and
a full tile as its second, kept columns with a tile and a group of points: what shares a
first argument shares its rounding.
"""

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.kernels import dense_covariance
from botorch_sparse.optim.embedding import TILE, Embedding
from botorch_sparse.optim.kernel_columns import KernelColumns
from botorch_sparse.optim.threads import one_thread


class CrossCovariance:
    """`k_S(x)` of candidates, in tiles.

    Args:
        X: `A x d` candidates.
        embedding: The embedding.
        columns: Kernel columns by inducing point; None where these do not fit.
        likely: `l x d` points that may be inducing points next; see `KernelColumns`.
        capacity: How many columns may be kept.
        max_memory: Bytes for what is kept by candidate.
    """

    def __init__(
        self,
        X: Tensor,
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

    @property
    def in_memory(self) -> bool:
        """Whether those of all candidates are at hand."""
        return self.columns is not None

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
        """`k_S(x)` of `k` candidates, a line each: `k x num_rows`.

        They are kept while there is room: the same ones are asked for again and again.
        """
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
        """Write `k_S(x)` of candidates into the first columns of whole tiles.

        Args:
            rows: `k` candidates.
            out: `num_rows x t TILE`, at least `k` columns.
        """
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
        with one_thread():
            K = dense_covariance(kernel, self._padded_points, self.X[full])
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
        """What bounds need of candidates in a row.

        Args:
            weights: `m` numbers.
            points: `r` of the inducing points.
            rows: `k` candidates.

        Returns:
            The sum of `k_S(x)` by the weights (`k`), and the points' rows of it
            (`r x k`).
        """
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
