r"""Exact argmax of an upper confidence bound whose variances shrink within a batch.

With the mean frozen at the last feedback, and the pending points `x_s` of the batch,

.. math:: u_t(x) = \mu(x) + \beta^{1/2} \big(\mathrm{var}(x)
    - \textstyle\sum_j (w(x)^\top u_j)^2 \big)^{1/2}

where the rows `u_j` are those of `RankOneUpdatedLinearOperator`: the bounds never rise
inside a batch ([Calandriello2020]_, Appendix A.3).

A run of `c` pending evaluations of one candidate is one row,
`u = a (c / (lam + c w'a))^1/2` with `a = w - U'U w`.

Candidates that may not be chosen have a mean of minus infinity.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.optim.choosable import ALL, Choosable

if TYPE_CHECKING:
    from botorch_sparse.optim.candidate_pool import CandidatePool


@dataclass
class _Run:
    """`count` pending evaluations of one candidate in a row: one row of `U`."""

    index: int
    a: np.ndarray  # w - U'U w with the rows before this one
    p: np.ndarray  # a' L_B^-1 L^-1, so that w(x)'a = p k_S(x)
    embedded: float  # w'a, the embedded variance before this run
    residual: float  # r(x, x), which pending points leave alone
    count: int = 0

    def variance(self, noise: float) -> float:
        """The candidate's variance after the run."""
        return self.residual + self.embedded / (1 + self.count * self.embedded / noise)


class LazyUCB:
    """Refreshes only the candidates whose stale bound beats the best fresh one.

    A stale bound is an upper bound, so the argmax is exact. When so many candidates are
    within reach that looking them up would cost more than a pass over all, the pass is
    made instead. The bookkeeping is NumPy's, whose calls take a fraction of a
    microsecond: the choice for pools on the host. See `BlockUCB` for others.

    Args:
        pool: An embedded pool.
        multiplier: What multiplies the Bayesian standard deviation.
        noise: Noise variance of a pending evaluation (lambda).
        choosable: What may be chosen; all candidates by default.

    Attributes:
        first_block: Candidates of a streamed pool refreshed first when many are within
            reach; later blocks double.
    """

    first_block: ClassVar[int] = 256

    def __init__(
        self,
        pool: "CandidatePool",
        multiplier: float,
        noise: float,
        choosable: Choosable = ALL,
    ) -> None:
        self._pool = pool
        self._multiplier = multiplier
        self._noise = noise
        self._once = choosable.once
        self._mean: np.ndarray = choosable.mean(pool.mean).cpu().numpy()
        self._initial: np.ndarray = pool.variance.cpu().numpy()
        self._base = self._initial  # variances under the first `_absorbed` rows of U
        self._ucb = self._mean + multiplier * np.sqrt(self._initial)
        on_host = pool.in_memory and pool.X.device.type == "cpu"
        self._K = pool.cross_covariance(slice(None)).numpy() if on_host else None
        self._whitening: np.ndarray = pool.whitening.cpu().numpy()
        self._U = np.empty((8, len(self._whitening)), dtype=self._initial.dtype)
        self._P = np.empty_like(self._U)  # U L_B^-1 L^-1
        self._num_rows = 0
        self._absorbed = 0
        self._last: _Run | None = None
        self._chosen = -1
        self._runner_up = np.inf  # no bound but that of `_chosen` is above this

    def argmax(self) -> int:
        """The candidate of largest bound; ties go to the lowest index."""
        if self._last is not None:
            fresh = self._ucb[self._last.index]
            if self._last.index == self._chosen and fresh > self._runner_up:
                return self._chosen
            self._refresh_within_reach(fresh)
        self._chosen = int(self._ucb.argmax())
        best = self._ucb[self._chosen]
        self._ucb[self._chosen] = -np.inf
        self._runner_up = self._ucb.max()
        self._ucb[self._chosen] = best
        return self._chosen

    def values(self) -> Tensor:
        """The bounds of all candidates, `A`, all of them refreshed."""
        self._absorb()
        return torch.from_numpy(self._ucb.copy()).to(self._pool.mean)

    def initial(self, index: int) -> float:
        """A candidate's variance at the start of the batch."""
        return float(self._initial[index])

    def append(self, index: int) -> float:
        """Make a candidate pending; its variance just before.

        Cost: O(m) for the last candidate again, else O(j m).
        """
        run = self._last
        if run is None or run.index != index or self._absorbed == self._num_rows:
            self._last = run = self._start_run(index)
        before = run.variance(self._noise)
        run.count += 1
        scale = math.sqrt(run.count / (self._noise + run.count * run.embedded))
        self._U[self._num_rows - 1] = scale * run.a
        self._P[self._num_rows - 1] = scale * run.p
        if self._once:
            self._mean[index] = -np.inf
        sigma = math.sqrt(run.variance(self._noise))
        self._ucb[index] = self._mean[index] + self._multiplier * sigma
        return before

    def _start_run(self, index: int) -> _Run:
        """A new row of `U`."""
        if self._num_rows == len(self._U):
            self._U = np.concatenate([self._U, np.empty_like(self._U)])
            self._P = np.concatenate([self._P, np.empty_like(self._P)])
        U = self._U[: self._num_rows]
        w = _product(self._whitening, self._covariance(slice(index, index + 1))[:, 0])
        a = w - _product(_product(U, w), U)
        self._num_rows += 1
        residual = max(float(self._initial[index] - w @ w), 0.0)
        # w'Mw >= |Mw|^2 since M <= I; in float32 the first may round to less.
        embedded = max(float(w @ a), float(a @ a))
        return _Run(index, a, _product(a, self._whitening), embedded, residual)

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
        if self._K is not None and lookup > passing:
            self._absorb()
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
            start, size = start + size, min(2 * size, self._pool.chunk_size)

    def _refresh(self, index: np.ndarray) -> None:
        """Fresh bounds for some candidates."""
        P = self._P[self._absorbed : self._num_rows]
        drop = _product(P, self._covariance(index))
        variance = self._base[index] - np.square(drop).sum(0)
        sigma = np.sqrt(variance.clip(min=0.0))
        self._ucb[index] = self._mean[index] + self._multiplier * sigma

    def _absorb(self) -> None:
        """Fresh bounds for all candidates, which from now on start from these rows."""
        P = self._P[self._absorbed : self._num_rows]
        drop = np.empty_like(self._base)
        for start in range(0, len(drop), self._pool.chunk_size):
            chunk = slice(start, start + self._pool.chunk_size)
            drop[chunk] = np.square(_product(P, self._covariance(chunk))).sum(0)
        self._base = (self._base - drop).clip(min=0.0)
        self._absorbed = self._num_rows
        self._ucb = self._mean + self._multiplier * np.sqrt(self._base)

    def _covariance(self, index: np.ndarray | slice) -> np.ndarray:
        """`k_S(x)` of some candidates on the host, `m x k`."""
        if self._K is not None:
            return self._K[:, index]
        where = index if isinstance(index, slice) else torch.from_numpy(index)
        return self._pool.cross_covariance(where).cpu().numpy()


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A product by torch: NumPy has threads of its own, which would fight torch's."""
    return torch.matmul(torch.from_numpy(a), torch.from_numpy(b)).numpy()
