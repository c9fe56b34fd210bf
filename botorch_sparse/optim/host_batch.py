"""A batch on the host: bounds are looked at only where they could matter.

A stale bound is an upper bound, so that a candidate whose stale bound is below the best
fresh one needs no look, and the argmax is exact. The bookkeeping is NumPy's, whose
calls take a fraction of a microsecond.
"""

import math
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.optim.batch import Appended, BatchState
from botorch_sparse.optim.choosable import Choosable
from botorch_sparse.optim.embedding import ROWS
from botorch_sparse.optim.points import Points
from botorch_sparse.optim.rules import Rule
from botorch_sparse.posteriors.pending import PendingRow, PendingRows

# Columns of a tile of products with pending rows.
TILE = 64


class TiledPoints(Points, Protocol):
    """Rows whose `k_S(x)` are looked up in tiles.

    Attributes:
        num_rows: The number `m` of inducing points, padded.
    """

    @property
    def num_rows(self) -> int:
        """See the attributes."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether all `k_S(x)` are at hand."""
        ...

    @property
    def whitening(self) -> Tensor:
        """The matrix that turns `k_S(x)` into `w(x)`, `m x m`."""
        ...

    def fill(self, index: np.ndarray, out: np.ndarray) -> None:
        """Write `k_S(x)` of `k` rows into the first columns, `num_rows x TILE`."""
        ...


class Look(NamedTuple):
    """What there is to know of a candidate that becomes pending.

    Attributes:
        row: The candidate.
        cross: Its `k_S(x)`, `m`.
        initial: Its variance at the start of the batch.
        before: Its variance just before.
    """

    row: int
    cross: Tensor
    initial: np.floating
    before: np.floating


class _Run:
    """`count` pending evaluations of one candidate in a row: one row of `U`.

    Args:
        look: The candidate.
        row: What it brings.
    """

    def __init__(self, look: Look, row: PendingRow) -> None:
        self.index = look.row
        self.initial = look.initial
        self.row = row
        self.count = 0
        self._before = look.before
        self._gain = float(row.gain)
        self._product = look.before  # its w'a, as a tile has it

    def set_product(self, product: np.floating) -> None:
        """Take the value that a tile gives."""
        self._product = product

    def scale(self, noise: float) -> np.floating:
        """What multiplies `a`; zero without evaluations."""
        c = self.count
        scale = math.sqrt(c / (noise + c * self._gain))
        return self._before.dtype.type(scale)

    def variance(self, noise: float) -> np.floating:
        """The candidate's variance after the run: the bits that a tile gives."""
        drop = np.square(self._product * self.scale(noise))
        return max(self._before - drop, 0 * drop)


class HostBatch(BatchState):
    """Refreshes only the candidates whose stale bound beats the best fresh one.

    When so many candidates are within reach that looking them up would cost more than
    a pass over all, the pass is made instead.

    A candidate's variance is that at the start less one square after the other, those
    of closed runs and, on top, that of the open one; it has the same bits whenever it
    is computed.

    Args:
        pool: The points to choose from.
        multiplier: What multiplies the Bayesian standard deviation.
        rule: What ends the batch; None for no rule.
        choosable: What may be chosen.

    Attributes:
        first_block: Candidates of a streamed pool refreshed first when many are within
            reach; later blocks double.
    """

    first_block: ClassVar[int] = 256

    def __init__(
        self,
        pool: TiledPoints,
        multiplier: float,
        rule: Rule | None,
        choosable: Choosable,
    ) -> None:
        super().__init__(pool, rule)
        self._pool = pool
        self._once = choosable.once
        moments = pool.all_moments()
        self._mean: np.ndarray = choosable.mean(moments.mean).numpy()
        self._initial: np.ndarray = moments.variance.numpy()
        self._multiplier = self._initial.dtype.type(multiplier)
        self._base = self._initial  # variances under the first `_absorbed` rows
        self._ucb = self._mean + self._multiplier * np.sqrt(self._initial)
        m, dtype = pool.num_rows, moments.mean.dtype
        self._pending = PendingRows.none(pool.whitening[:, 0])  # of closed runs
        self._P = torch.zeros(ROWS, m, dtype=dtype)  # a L_B^-1 L^-1 of each run
        self._scales = np.zeros(ROWS, dtype=self._base.dtype)
        self._K = torch.zeros(m, TILE, dtype=dtype)
        self._K_host: np.ndarray = self._K.numpy()
        self._num_rows = 0
        self._absorbed = 0  # closed rows that `_base` knows of
        self._run: _Run | None = None
        self._chosen = -1
        self._runner_up = np.inf  # no bound but that of `_chosen` is above this

    def argmax(self) -> int:
        """See `BatchState`."""
        if self._run is not None:
            row = self._run.index
            fresh = self._ucb[row] if row >= 0 else -np.inf
            if row == self._chosen and fresh > self._runner_up:
                return self._chosen
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

    def values(self) -> Tensor:
        """See `BatchState`."""
        self._refresh_all()
        return torch.from_numpy(self._ucb.copy())

    def _append(self, row: int) -> Appended:
        if not self.continues(row):
            self.start(self.look(row))
        return self.repeat()

    def continues(self, row: int) -> bool:
        """Whether a row is that of the open run."""
        return self._run is not None and self._run.index == row

    def look(self, row: int) -> Look:
        """What there is to know of a row that becomes pending. Cost: O(j m)."""
        self._close()
        (before,) = self._variances(np.array([row]))  # this leaves k_S(x) in the tile
        cross = self._K[: len(self._pool.whitening), 0].clone()
        return Look(row, cross, self._initial[row], before)

    def start(self, look: Look) -> None:
        """Begin a run, and with it a row of `U`. Cost: O(m^2 + j m).

        Args:
            look: Of one of the rows, or of a row that is elsewhere: a negative number.
        """
        self._close()
        whitening = self._pool.whitening
        self._K[: len(whitening), 0] = look.cross
        run = self._run = _Run(look, self._pending.row(whitening @ look.cross))
        place = self._num_rows
        if place == len(self._P):
            self._P = torch.cat([self._P, torch.zeros_like(self._P)])
            self._scales = np.concatenate([self._scales, 0 * self._scales])
        self._P[place, : len(whitening)] = run.row.a @ whitening
        self._num_rows += 1
        run.set_product(self._products(place // ROWS * ROWS)[place % ROWS, 0])

    def repeat(self) -> Appended:
        """One more evaluation of the open run."""
        run = self._run
        assert run is not None
        row, before = run.index, run.variance(self.noise)
        run.count += 1
        self._scales[self._num_rows - 1] = run.scale(self.noise)
        if row >= 0:
            if self._once:
                self._mean[row] = -np.inf
            sigma = np.sqrt(run.variance(self.noise))
            self._ucb[row] = self._mean[row] + self._multiplier * sigma
        return Appended(float(run.initial), float(before))

    def _close(self) -> None:
        """The open run is over: its row does not change any more."""
        if self._run is not None:
            last, self._run = self._run, None
            self._pending = self._pending.append(last.row.u(self.noise, last.count))

    @property
    def _num_closed(self) -> int:
        return self._num_rows - (self._run is not None)

    def _refresh_within_reach(self, fresh: float) -> None:
        """Refresh every candidate whose bound may not be below the best fresh one.

        Where the last candidate may not be chosen again, that is the best of those
        that were best before.
        """
        if fresh == -np.inf and len(self._ucb) > self.first_block:
            block = np.argpartition(-self._ucb, self.first_block)[: self.first_block]
            self._refresh(block)
            fresh = self._ucb[block].max()
        reach = np.flatnonzero(self._ucb >= fresh)
        rows = self._num_rows - self._absorbed
        # Looking up a row costs about as much as three products with it.
        lookup, passing = len(reach) * (3 + rows), len(self._ucb) * (1 + rows)
        if self._pool.in_memory and lookup > passing:
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

    def _refresh(self, index: np.ndarray) -> None:
        """Fresh bounds for some candidates."""
        variance = np.empty(len(index), dtype=self._base.dtype)
        for start in range(0, len(index), TILE):
            part = slice(start, start + TILE)
            variance[part] = self._variances(index[part])
        sigma = np.sqrt(variance)
        self._ucb[index] = self._mean[index] + self._multiplier * sigma

    def _refresh_all(self) -> None:
        """Fresh bounds for all candidates, which later ones start from."""
        base = self._base.copy()
        for start in range(0, len(base), TILE):
            index = np.arange(start, min(start + TILE, len(base)))
            closed, fresh = self._after_rows(index)
            base[index] = closed
            sigma = np.sqrt(fresh.clip(min=0.0))
            self._ucb[index] = self._mean[index] + self._multiplier * sigma
        self._base, self._absorbed = base, self._num_closed

    def _variances(self, index: np.ndarray) -> np.ndarray:
        """Fresh variances of at most `TILE` candidates."""
        return self._after_rows(index)[1].clip(min=0.0)

    def _after_rows(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variances of at most `TILE` candidates under closed rows, and under all.

        Below zero where they round to that.
        """
        self._pool.fill(index, self._K_host)
        closed = fresh = self._base[index]
        for start in range(self._absorbed // ROWS * ROWS, self._num_rows, ROWS):
            drops = self._products(start)[:, : len(index)]
            drops *= self._scales[start : start + ROWS, None]
            np.square(drops, out=drops)
            for j in range(max(self._absorbed, start), self._num_rows)[:ROWS]:
                if j - start == ROWS:
                    break
                fresh = fresh - drops[j - start]
                closed = fresh if j < self._num_closed else closed
        return closed, fresh

    def _products(self, start: int) -> np.ndarray:
        """Products of a block of rows with the tile, `ROWS x TILE`."""
        product: np.ndarray = (self._P[start : start + ROWS] @ self._K).numpy()
        return product
