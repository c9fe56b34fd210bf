"""A batch on the host: bounds are looked at only where they could matter.

A stale bound is an upper bound, so that a candidate whose stale bound is below the best
fresh one needs no look, and the argmax is exact. The bookkeeping is NumPy's, whose
calls take a fraction of a microsecond.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.ratios import LocalBound, local_ratio, local_sum
from botorch_sparse.batching.rules import Rule
from botorch_sparse.kernels import dense_covariance
from botorch_sparse.pools.branch_and_bound import CandidateMoments
from botorch_sparse.pools.embedding import Embedding
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.pools.table_batch import Points, TableBatch
from botorch_sparse.posteriors.pending_points import PendingRow, PendingRows
from botorch_sparse.threads import one_thread

# Products have one shape: the candidates of a tile times a block of pending rows, zeros
# where there are none yet.
BLOCK, TILE = 32, 64


class _Run:
    """Pending evaluations of one candidate in a row: one row of `U`.

    `product` is its `w'a`, as a tile has it, and `scale` multiplies `a`. Variances are
    at the start of the batch, before the run and after it.
    """

    def __init__(
        self,
        index: int,
        initial: np.floating,
        before: np.floating,
        row: PendingRow,
        product: np.floating,
    ) -> None:
        self.index = index
        self.initial = initial
        self.row = row
        self.scale = 0 * before
        self.variance = before
        self._count = 0
        self._before = before
        self._gain = float(row.gain)
        self._product = product

    def add(self, noise: float) -> None:
        """One more evaluation; the variance has the bits that a tile gives."""
        self._count = c = self._count + 1
        scale = math.sqrt(c / (noise + c * self._gain))
        self.scale = self._before.dtype.type(scale)
        root = self._product * self.scale
        self.variance = max(self._before - root * root, 0 * root)

    def u(self) -> Tensor:
        """The row, `m`."""
        return self.row.a * float(self.scale)


class HostBatch(TableBatch):
    """Refreshes only the candidates whose stale bound beats the best fresh one.

    When so many candidates are within reach that looking them up would cost more than a
    pass over all, the pass is made instead. Of a streamed pool `first_block` are
    refreshed first when many are within reach; later blocks double.

    A candidate's variance is the variance at the start less one square after the other:
    those from closed runs and, on top, one from the open run. It has the same bits
    whenever it is computed.
    """

    first_block: ClassVar[int] = 256

    def __init__(
        self,
        points: Points,
        known: CandidateMoments,
        multiplier: float,
        rule: Rule | None,
        selectable: SelectableRows,
    ) -> None:
        super().__init__(points, rule)
        self._known = known
        self._cross, self._whitening = known.cross, known.embedding.whitening
        self._once = selectable.once
        self._own: dict[int, tuple[Tensor, Tensor]] = {}  # x and k_S(x), by row
        # Squared covariances among the batch's different points, and their variances.
        self._among: tuple[Tensor, Tensor] | None = None
        self._is_open: np.ndarray = selectable.mean(0 * known.mean).numpy()
        self._mean: np.ndarray = known.mean.numpy()
        self._initial: np.ndarray = known.variance.numpy()
        self._multiplier = self._initial.dtype.type(multiplier)
        self._base = self._initial  # variances under the first `_absorbed` rows
        self._ucb: np.ndarray = known.bounds(multiplier).numpy() + self._is_open
        m, dtype = known.embedding.num_rows, known.mean.dtype
        self._pending = PendingRows(self._whitening[:0])  # of closed runs
        # `a L_B^-1 L^-1` of each run (`BLOCK x m`), and what multiplies it: zero where
        # candidates' variances know of it.
        self._blocks: list[tuple[Tensor, np.ndarray]] = []
        self._tile = torch.zeros(TILE, m, dtype=dtype)  # k_S(x), a line each
        self._tile_host: np.ndarray = self._tile.numpy()
        self._product = torch.zeros(TILE, BLOCK, dtype=dtype)
        self._product_host: np.ndarray = self._product.numpy()
        self._num_rows = 0
        self._absorbed = 0  # closed rows that `_base` knows of
        self._run: _Run | None = None
        # Rows that were looked at together, and their variances, which still hold.
        self._looked: tuple[np.ndarray, np.ndarray] | None = None
        self._chosen = -1
        self._best = self._ucb.max()  # of all bounds at the start
        self._runner_up = np.inf  # no other bound than `_chosen`'s is above this

    @override
    def argmax(self) -> int:
        run, fresh = self._run, -np.inf
        if run is not None:
            fresh = self._ucb[run.index] if run.index >= 0 else -np.inf
            if run.index == self._chosen and fresh > self._runner_up:
                return self._chosen
        if run is not None or not self._known.is_whole:
            with one_thread():
                self._refresh_within_reach(fresh)
        self._chosen = int(self._ucb.argmax())
        best = self._ucb[self._chosen]
        self._ucb[self._chosen] = -np.inf
        self._runner_up = self._ucb.max()
        self._ucb[self._chosen] = best
        return self._chosen

    def best(self) -> float:
        """The largest bound, of `argmax`."""
        return float(self._ucb[self._chosen])

    @override
    def _likely(self) -> Callable[[int], list[int]]:
        return self._largest

    def _largest(self, num: int) -> list[int]:
        """The rows of the largest bounds, stale ones included, in their order."""
        best: list[int] = _top(self._ucb, num).tolist()
        return best

    def promising(self, num: int) -> Tensor:
        """Rows of the largest bounds, of those that are exact and may be chosen."""
        exact = self._known.is_exact.numpy()
        bounds = np.where(exact, self._ucb, -np.inf)
        rows = _top(bounds, num)
        return torch.from_numpy(rows[bounds[rows] > -np.inf])

    @override
    def values(self) -> Tensor:
        self._refresh_all()
        return torch.from_numpy(self._ucb.copy())

    @override
    def stale_values(self) -> Tensor:
        if not self._known.is_whole:
            self._refresh_all()
        return torch.from_numpy(self._ucb.copy())

    @override
    def refresh(self, rows: Tensor) -> Tensor:
        index = rows.numpy()
        with one_thread():
            self._refresh(index)
        return torch.from_numpy(self._ucb[index])

    @override
    def local_at_own(self, covariance: LocalBound) -> float:
        """The largest local bound at its points. O(j m^2) for a new one, else O(j^2).

        One where the squares of new points are known: all rows cost little more then.
        """
        new = self.rows[self._num_summed :]
        if self._sums is not None and self._sums.knows(new):
            return 1.0
        counts = Counter(self.rows)
        if self._among is None or len(self._among[1]) != len(counts):
            X, K = zip(*(self._own[row] for row in counts), strict=True)
            stacked = torch.stack(X), torch.stack(K, dim=1)
            self._among = _squares_among(self._known.embedding, *stacked)
        squares, variances = self._among
        full, embedded = squares @ variances.new_tensor(list(counts.values()))
        least = torch.finfo(full.dtype).tiny
        sums = local_sum(full, embedded, covariance)
        scale = self.noise * variances.clamp_min(least)
        return float(local_ratio(sums, scale).max())

    @override
    def _append(self, row: int) -> tuple[float, float]:
        if not self.continues(row):
            self.start(row, *self.look(row))
        return self.repeat()

    def continues(self, row: int) -> bool:
        """Whether a row is the one of the open run."""
        return self._run is not None and self._run.index == row

    def look(self, row: int) -> tuple[Tensor, np.floating, np.floating]:
        """A row's `k_S(x)` (`m`), and its variance at the start and now; O(j m)."""
        with one_thread():
            self._close()
            if not self._known.is_whole:
                self._known.resolve(torch.tensor([row]))
            before = self._variance_of(row)
            line = torch.from_numpy(self._cross.lines(np.array([row]))[0])
            cross = line[: len(self._whitening)]
        return cross, self._initial[row], before

    def _variance_of(self, row: int) -> np.floating:
        """A fresh variance, often of a candidate that was just looked at."""
        if self._looked is not None:
            rows, variance = self._looked
            (place,) = np.nonzero(rows == row)
            if len(place):
                return variance[place[0]]
        return self._variances(np.array([row]))[0]

    def start(
        self, row: int, cross: Tensor, initial: np.floating, before: np.floating
    ) -> None:
        """Begin a run, and with it a row of `U`; O(m^2 + j m).

        The row is negative where it is elsewhere. `cross` is its `k_S(x)`, `m`;
        variances are at the start of the batch and now.
        """
        whitening, m = self._whitening, len(self._whitening)
        with one_thread():
            self._close()
            self._tile[0, :m] = cross
            pending = self._pending.row(whitening @ cross)
            if row >= 0:
                self._own[row] = self._cross.X[row], cross
            block, place = divmod(self._num_rows, BLOCK)
            if place == 0:
                P = self._tile.new_zeros(BLOCK, self._tile.shape[1])
                self._blocks.append((P, np.zeros(BLOCK, dtype=self._initial.dtype)))
            self._blocks[block][0][place, :m] = pending.a @ whitening
            self._num_rows += 1
            product = self._products(block)[0, place]
            self._run = _Run(row, initial, before, pending, product)

    def repeat(self) -> tuple[float, float]:
        """One more evaluation of the open run; variances as `_append` gives them."""
        run = self._run
        assert run is not None
        before = run.variance
        run.add(self.noise)
        block, place = divmod(self._num_rows - 1, BLOCK)
        self._blocks[block][1][place] = run.scale
        self._looked = None
        if run.index >= 0:
            if self._once:
                self._is_open[run.index] = -np.inf
            self._set_bounds(run.index, run.variance)
        return float(run.initial), float(before)

    def _close(self) -> None:
        """The open run is over: its row does not change any more."""
        if self._run is not None:
            last, self._run = self._run, None
            self._pending = self._pending.append(last.u())

    @property
    def _num_closed(self) -> int:
        return self._num_rows - (self._run is not None)

    def _refresh_within_reach(self, fresh: np.floating | float) -> None:
        """Refresh every candidate whose bound may not be below the best fresh one."""
        if fresh == -np.inf and len(self._ucb) > self.first_block:
            block = np.argpartition(-self._ucb, self.first_block)[: self.first_block]
            self._refresh(block)
            fresh = self._ucb[block].max()
        reach = self._settle(np.flatnonzero(self._ucb >= fresh), float(fresh))
        rows = self._num_rows - self._absorbed
        # Looking up a row costs about as much as three products with it.
        lookup, passing = len(reach) * (3 + rows), len(self._ucb) * (1 + rows)
        if self._cross.in_memory and lookup > passing:
            self._refresh_all()
            return
        if len(reach) <= self.first_block:
            self._refresh(reach)
            return
        reach = reach[np.argsort(-self._ucb[reach], kind="stable")]
        start, size = 0, self.first_block
        while start < len(reach) and self._ucb[reach[start]] >= fresh:
            block = reach[start : start + size]
            self._refresh(block)
            fresh = max(fresh, self._ucb[block].max())
            start, size = start + size, 2 * size

    def _settle(self, reach: np.ndarray, fresh: float) -> np.ndarray:
        """The candidates that stay within reach by better bounds, all embedded.

        What would be within reach if the best bound fell once more as far as since the
        start is embedded as well, so that this does not happen at each step.
        """
        known = self._known
        if known.is_whole or fresh == -np.inf:
            return reach
        rows = torch.from_numpy(reach)
        rows = rows[known.level[rows] < known.num_levels]
        if not len(rows):
            return reach
        multiplier = float(self._multiplier)
        goal = fresh - max(self._best - fresh, 0.0)
        known.screen(multiplier, rows, goal, grows=False)
        index = rows.numpy()
        self._ucb[index] = known.bounds(multiplier, rows).numpy() + self._is_open[index]
        return reach[self._ucb[reach] >= fresh]

    def _refresh(self, index: np.ndarray) -> None:
        """Fresh bounds for some candidates."""
        if not self._known.is_whole:
            self._known.resolve(torch.from_numpy(index))
        variance = np.empty(len(index), dtype=self._base.dtype)
        for start in range(0, len(index), TILE):
            part = slice(start, start + TILE)
            variance[part] = self._variances(index[part])
        self._set_bounds(index, variance)
        self._looked = index, variance

    def _set_bounds(
        self, index: np.ndarray | slice | int, variance: np.ndarray | np.floating
    ) -> None:
        """Take fresh variances of candidates."""
        bounds = self._mean[index] + self._multiplier * np.sqrt(variance)
        self._ucb[index] = bounds + self._is_open[index]

    def _refresh_all(self) -> None:
        """Fresh bounds for all candidates, which later ones start from."""
        self._known.resolve_all()
        base = self._base.copy()
        for start in range(0, len(base), TILE):
            index = slice(start, min(start + TILE, len(base)))
            closed, fresh = self._after_rows(index)
            base[index] = closed
            self._set_bounds(index, fresh.clip(min=0.0))
        self._base, self._absorbed = base, self._num_closed
        for i, (_, scales) in enumerate(self._blocks):
            scales[: max(self._absorbed - i * BLOCK, 0)] = 0.0

    def _variances(self, index: np.ndarray) -> np.ndarray:
        """Fresh variances of at most `TILE` candidates."""
        return self._after_rows(index)[1].clip(min=0.0)

    def _after_rows(self, index: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """Unclamped variances of at most `TILE` candidates: closed rows, and all."""
        self._fill_tile(index)
        closed = fresh = self._base[index]
        num_closed = self._num_closed
        steps = np.empty((len(fresh), 1 + BLOCK), dtype=fresh.dtype)
        drops = steps[:, 1:]
        for i in range(self._absorbed // BLOCK, len(self._blocks)):
            steps[:, 0] = fresh
            products = self._products(i)[: len(fresh)]
            np.multiply(products, self._blocks[i][1], out=drops)
            np.square(drops, out=drops)
            after = np.subtract.accumulate(steps, axis=1)  # one row after the other
            if num_closed >= i * BLOCK:
                closed = after[:, min(num_closed - i * BLOCK, BLOCK)]
            fresh = after[:, -1]
        return closed, fresh

    def _products(self, block: int) -> np.ndarray:
        """Products of the tile with a block of rows, `TILE x BLOCK`; a buffer."""
        torch.mm(self._tile, self._blocks[block][0].mT, out=self._product)
        return self._product_host

    def _fill_tile(self, index: np.ndarray | slice) -> None:
        if isinstance(index, slice):
            m, k = len(self._whitening), index.stop - index.start
            self._tile[:k, :m] = self._cross.of(index).mT
        else:
            self._tile_host[: len(index)] = self._cross.lines(index)


def _top(bounds: np.ndarray, num: int) -> np.ndarray:
    """The rows of the largest bounds, in their order."""
    num = min(num, len(bounds))
    rows = np.argpartition(-bounds, num - 1)[:num]
    return rows[np.argsort(-bounds[rows], kind="stable")]


@torch.no_grad()
def _squares_among(embedding: Embedding, X: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    """Squares among points, full and embedded (`2 x k x k`), and their variances."""
    with one_thread():
        w, residual = embedding.features(K)
        full = dense_covariance(embedding.posterior.covar_module, X) + w.mT @ residual
        squares = torch.stack([full, w.mT @ w]).square_()
    return squares, full.diagonal()
