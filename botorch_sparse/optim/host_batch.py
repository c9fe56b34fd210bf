"""A batch on the host: bounds are looked at only where they could matter.

A stale bound is an upper bound, so that a candidate whose stale bound is below the best
fresh one needs no look, and the argmax is exact. The bookkeeping is NumPy's, whose
calls take a fraction of a microsecond.
"""

import math
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.optim.batch import Appended, BatchState
from botorch_sparse.optim.choosable import Choosable
from botorch_sparse.optim.embedding import ROWS
from botorch_sparse.optim.points import Points
from botorch_sparse.optim.rules import Rule
from botorch_sparse.optim.screening import Known
from botorch_sparse.optim.workers import one_thread
from botorch_sparse.posteriors.pending import PendingRow, PendingRows

# Columns of a tile of products with pending rows.
TILE = 64


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
        points: The points to choose from.
        known: What is known of them.
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
        points: Points,
        known: Known,
        multiplier: float,
        rule: Rule | None,
        choosable: Choosable,
    ) -> None:
        super().__init__(points, rule)
        self._known = known
        self._cross, self._whitening = known.cross, known.embedding.whitening
        self._once = choosable.once
        self._is_open: np.ndarray = choosable.mean(0 * known.mean).numpy()
        self._mean: np.ndarray = known.mean.numpy()
        self._initial: np.ndarray = known.variance.numpy()
        self._multiplier = self._initial.dtype.type(multiplier)
        self._base = self._initial  # variances under the first `_absorbed` rows
        self._ucb: np.ndarray = known.bounds(multiplier).numpy() + self._is_open
        m, dtype = known.embedding.num_rows, known.mean.dtype
        self._pending = PendingRows(self._whitening[:0])  # of closed runs
        self._P = torch.zeros(ROWS, m, dtype=dtype)  # a L_B^-1 L^-1 of each run
        self._scales = np.zeros(ROWS, dtype=self._base.dtype)
        self._K = torch.zeros(m, TILE, dtype=dtype)
        self._K_host: np.ndarray = self._K.numpy()
        self._num_rows = 0
        self._absorbed = 0  # closed rows that `_base` knows of
        self._run: _Run | None = None
        self._chosen = -1
        self._best = self._ucb.max()  # of all bounds at the start
        self._runner_up = np.inf  # no bound but that of `_chosen` is above this

    def argmax(self) -> int:
        """See `BatchState`."""
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
        with one_thread():
            self._close()
            self._known.resolve(torch.tensor([row]))
            (before,) = self._variances(np.array([row]))  # k_S(x) stays in the tile
            cross = self._K[: len(self._whitening), 0].clone()
        return Look(row, cross, self._initial[row], before)

    def start(self, look: Look) -> None:
        """Begin a run, and with it a row of `U`. Cost: O(m^2 + j m).

        Args:
            look: Of one of the rows, or of a row that is elsewhere: a negative number.
        """
        whitening = self._whitening
        with one_thread():
            self._close()
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
        before = run.variance(self.noise)
        run.count += 1
        self._scales[self._num_rows - 1] = run.scale(self.noise)
        if run.index >= 0:
            if self._once:
                self._is_open[run.index] = -np.inf
            self._set_bounds(run.index, run.variance(self.noise))
        return Appended(float(run.initial), float(before))

    def _close(self) -> None:
        """The open run is over: its row does not change any more."""
        if self._run is not None:
            last, self._run = self._run, None
            self._pending = self._pending.append(last.row.u(self.noise, last.count))

    @property
    def _num_closed(self) -> int:
        return self._num_rows - (self._run is not None)

    def _refresh_within_reach(self, fresh: np.floating | float) -> None:
        """Refresh every candidate whose bound may not be below the best fresh one.

        Where the last candidate may not be chosen again, that is the best of those
        that were best before.
        """
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
        """Those of some candidates that stay within reach by better bounds.

        All of them are embedded then. What would be within reach if the best bound fell
        once more as far as since the start is embedded as well, so that this does not
        happen at each step.
        """
        known = self._known
        rows = torch.from_numpy(reach)
        rows = rows[known.level[rows] < known.num_levels]
        if known.is_whole or not len(rows) or fresh == -np.inf:
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

    def _set_bounds(
        self, index: np.ndarray | int, variance: np.ndarray | np.floating
    ) -> None:
        """Take fresh variances of candidates."""
        bounds = self._mean[index] + self._multiplier * np.sqrt(variance)
        self._ucb[index] = bounds + self._is_open[index]

    def _refresh_all(self) -> None:
        """Fresh bounds for all candidates, which later ones start from."""
        self.points.all_variances()
        base = self._base.copy()
        for start in range(0, len(base), TILE):
            index = np.arange(start, min(start + TILE, len(base)))
            closed, fresh = self._after_rows(index)
            base[index] = closed
            self._set_bounds(index, fresh.clip(min=0.0))
        self._base, self._absorbed = base, self._num_closed

    def _variances(self, index: np.ndarray) -> np.ndarray:
        """Fresh variances of at most `TILE` candidates."""
        return self._after_rows(index)[1].clip(min=0.0)

    def _after_rows(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variances of at most `TILE` candidates under closed rows, and under all.

        Below zero where they round to that.
        """
        self._cross.fill(index, self._K_host)
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
