"""A batch whose bounds are held by an accelerator.

Everything stays on the device: the state of a batch, and the numbers that its rule
needs. A step copies one small tensor to the host, with the choice, its variances and,
where there is one, the bound that decides whether the batch goes on.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from botorch_sparse.optim.batch import Appended, BatchState
from botorch_sparse.optim.choosable import Choosable
from botorch_sparse.optim.pace import GoesOn, always
from botorch_sparse.optim.points import Moments, Points
from botorch_sparse.optim.rules import Rule
from botorch_sparse.optim.transfers import read
from botorch_sparse.posteriors.pending import PendingRows


class EmbeddedPoints(Points, Protocol):
    """All rows embedded under a Nystrom posterior.

    Attributes:
        chunk_size: Rows looked at together where all are.
    """

    chunk_size: int

    @property
    def whitening(self) -> Tensor:
        """The matrix that turns `k_S(x)` into `w(x)`, `m x m`."""
        ...

    def cross_covariance(self, index: Tensor | slice) -> Tensor:
        """`k_S(x)` of some rows, `m x k`."""
        ...


def eager_is_cheaper(num_candidates: int, num_features: int) -> bool:
    """Whether updating all candidates at every step beats refreshing a block of them.

    A model of the cost on an accelerator, so that a resumed run takes the same path: an
    eager step streams all features once; the other one makes about ten passes over the
    bounds alone, to find the largest, and launches ten kernels more.

    Args:
        num_candidates: Number of candidates `A`.
        num_features: Number of features `m`.
    """
    bytes_per_second, launch, passes = 2e12, 5e-6, 10
    one_pass = 8 * num_candidates / bytes_per_second
    return num_features * one_pass < passes * (one_pass + launch)


class Choice(NamedTuple):
    """Tensors of one element, not read yet."""

    row: Tensor
    variance: Tensor  # with the pending points
    is_certain: Tensor | None = None  # None where it always is

    @classmethod
    def among_all(cls, bounds: Tensor, variance: Tensor) -> "Choice":
        """The largest of all bounds (`A`), none of them stale; O(A)."""
        index = bounds.argmax()
        return cls(index, variance.index_select(0, index.view(1)))


class DeviceBatch(BatchState):
    """An argmax whose answer is read together with what else a step needs to know.

    Args:
        points: The points to choose from.
        moments: Those of all of them at the batch's start.
        rule: What ends the batch; None for no rule.
        choosable: Which of them may be chosen.
    """

    def __init__(
        self, points: Points, moments: Moments, rule: Rule | None, choosable: Choosable
    ) -> None:
        super().__init__(points, rule, reads_late=True)
        self._initial = moments.variance
        self._mean = choosable.mean(moments.mean)
        self._once = choosable.once
        self._chosen: tuple[int, Appended] | None = None  # the last argmax

    @abstractmethod
    def _choose(self) -> Choice:
        """The candidate of largest bound; the lowest index among equals."""

    @abstractmethod
    def _make_pending(self, row: int) -> Tensor:
        """Make a candidate pending; its variance just before, a scalar."""

    def _refresh_all(self) -> None:
        """Make the next choice certain."""

    def argmax(self) -> int:
        """See `BatchState`; one copy from the device."""
        return self._argmax_and()[0]

    def _argmax_and(self, *unread: Tensor) -> tuple[int, list[float]]:
        """The argmax, and the values of some scalars, in one copy from the device.

        Args:
            *unread: Tensors of one element.
        """
        choice = self._choose()
        first = self._initial.index_select(0, choice.row.view(1))
        certain = [] if choice.is_certain is None else [choice.is_certain]
        index, now, initial, *values = read(
            choice.row, choice.variance, first, *unread, *certain
        )
        if certain and not values.pop():
            self._refresh_all()
            return self._argmax_and(*unread)
        self._chosen = int(index), Appended(initial, now)
        self.initial[int(index)] = initial
        return int(index), values

    def _append(self, row: int) -> Appended:
        chosen, self._chosen = self._chosen, None
        if self._once:
            self._mean[row] = -torch.inf
        before = self._make_pending(row)
        if chosen is not None and chosen[0] == row:
            return chosen[1]
        return Appended(*read(self._initial[row], before))

    def choose(self, limit: int, goes_on: GoesOn = always) -> list[int]:
        """See `Batch.choose`.

        A bound that a pass over the pool has left on the device is read together with
        the next maximizer, which is looked for before it is known to be needed.
        """
        chosen: list[int] = []
        if self.is_over():
            return chosen
        following: int | None = self.argmax()
        while following is not None:
            chosen.append(following)
            if not goes_on(len(chosen)) or len(chosen) == limit:
                break
            self.append(following)
            following = self._following()
        return chosen

    def _following(self) -> int | None:
        """The next maximizer; None where the batch is over."""
        if self.rule is None:
            return self.argmax()
        bound = self.rule.bound(self)
        if not isinstance(bound, Tensor):
            return self.argmax() if bound <= self.rule.ratio_threshold else None
        row, (value,) = self._argmax_and(bound)
        for covariance, (known, total) in self._last_local.items():
            if known is bound:
                self._last_local[covariance] = value, total
        return row if value <= self.rule.ratio_threshold else None


class _RankOneBatch(DeviceBatch):
    """A bound that the rows `u_j` of the pending points lower.

    Args:
        pool: An embedded pool.
        multiplier: What multiplies the Bayesian standard deviation.
        rule: What ends the batch.
        choosable: What may be chosen.
    """

    def __init__(
        self,
        pool: EmbeddedPoints,
        multiplier: float,
        rule: Rule | None,
        choosable: Choosable,
    ) -> None:
        super().__init__(pool, pool.all_moments(), rule, choosable)
        self._pool = pool
        self._multiplier = multiplier
        self._variance = self._initial.clone()
        self._rows = PendingRows(pool.whitening[:0])

    def _bound(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean + self._multiplier * variance.clamp_min(0.0).sqrt()

    def _new_row(self, k: Tensor) -> Tensor:
        """`u_j` times `L_B^-1 L^-1`, from the point's `k_S(x)`, `m x 1`; O(j m)."""
        row = self._rows.row((self._pool.whitening @ k).squeeze(-1))
        u = row.u(self.noise)
        self._rows = self._rows.append(u)
        return u @ self._pool.whitening


class EagerBatch(_RankOneBatch):
    """One matrix-vector product over all candidates for each pending point.

    The pool keeps `k_S(x)` of all.
    """

    def values(self) -> Tensor:
        """See `BatchState`."""
        return self._bound(self._mean, self._variance)

    def _choose(self) -> Choice:
        return Choice.among_all(self.values(), self._variance)

    def _make_pending(self, row: int) -> Tensor:
        before = self._variance[row]
        p = self._new_row(self._pool.cross_covariance(slice(row, row + 1)))
        drop = p @ self._pool.cross_covariance(slice(None))  # w(x)'u for all x, O(A m)
        self._variance = self._variance - drop.square()
        return before


class BlockBatch(_RankOneBatch):
    """Refreshes the candidates of largest stale bounds, a block of them at a step.

    For pools that are streamed, or so large that a pass over their features takes
    longer. A stale bound is an upper bound, so the choice is certain where the best of
    the block is above all bounds outside. Where it is not, which the same copy tells,
    a pass over all is made, and blocks double: a second copy at that step.

    Attributes:
        first_block: Candidates refreshed at a step, at first.
    """

    first_block: ClassVar[int] = 1024

    def __init__(
        self,
        pool: EmbeddedPoints,
        multiplier: float,
        rule: Rule | None,
        choosable: Choosable,
    ) -> None:
        super().__init__(pool, multiplier, rule, choosable)
        self._ucb = self._bound(self._mean, self._variance)
        self._P = pool.whitening[:0]  # rows that `_variance` does not know of
        self._size = self.first_block

    def values(self) -> Tensor:
        """See `BatchState`."""
        self._absorb()
        return self._ucb.clone()

    def _choose(self) -> Choice:
        num = len(self._ucb)
        if self._size >= num:
            self._absorb()
        if not len(self._P):
            return Choice.among_all(self._ucb, self._variance)
        bounds, block = self._ucb.topk(self._size + 1)
        variance = self._variance_of(block)
        fresh = self._bound(self._mean[block], variance)[:-1]
        self._ucb[block[:-1]] = fresh
        best = fresh.max()
        place = torch.where(fresh == best, block[:-1], num).argmin().view(1)
        index = block.index_select(0, place)
        is_certain = best > bounds[-1]
        return Choice(index, variance.index_select(0, place), is_certain)

    def _make_pending(self, row: int) -> Tensor:
        k = self._pool.cross_covariance(slice(row, row + 1))
        before = self._variance[row] - (self._P @ k).square().sum()
        if self._once:
            self._ucb[row] = -torch.inf
        self._P = torch.cat([self._P, self._new_row(k).unsqueeze(0)])
        return before.clamp_min(0.0)

    def _variance_of(self, index: Tensor | slice) -> Tensor:
        """Fresh variances of some candidates, `k`. Cost: O(k m) for each row."""
        drop = self._P @ self._pool.cross_covariance(index)
        return (self._variance[index] - drop.square().sum(0)).clamp_min(0.0)

    def _refresh_all(self) -> None:
        self._absorb()
        self._size *= 2

    def _absorb(self) -> None:
        """Fresh bounds for all candidates, which from now on start from these rows."""
        if len(self._P):
            starts = range(0, len(self._ucb), self._pool.chunk_size)
            chunks = (slice(s, s + self._pool.chunk_size) for s in starts)
            self._variance = torch.cat([self._variance_of(rows) for rows in chunks])
            self._ucb = self._bound(self._mean, self._variance)
            self._P = self._P[:0]
