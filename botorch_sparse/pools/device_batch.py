"""A batch whose bounds are held by an accelerator.

Everything stays on the device: the state of a batch, and the numbers that its rule
needs. A step copies one small tensor to the host, with the choice, its variances and,
where there is one, the bound that decides whether the batch goes on.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from botorch_sparse.batching.growing_batch import ContinueFunction, always_continue
from botorch_sparse.batching.rules import Rule
from botorch_sparse.pools.pool_protocol import (
    Moments,
    Points,
    SelectableRows,
    read_scalars,
)
from botorch_sparse.pools.table_batch import AppendedVariance, TableBatch
from botorch_sparse.posteriors.pending_points import PendingRows

# Pending rows in one product, zeros where there are none yet.
BLOCK = 32


class EmbeddedPoints(Points, Protocol):
    """All rows embedded under a Nystrom posterior.

    Attributes:
        table_size: Rows of the whole table, of which these may be a part.
    """

    table_size: int

    @property
    def whitening(self) -> Tensor:
        """The matrix that turns `k_S(x)` into `w(x)`, `m x m`."""
        ...

    def cross_covariance(self, index: Tensor | slice) -> Tensor:
        """`k_S(x)` of some rows, `m x k`."""
        ...

    def tiles(self) -> Iterator[Tensor]:
        """`k_S(x)` of all rows, in matrices of one shape; the last one is padded."""
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
    """The largest bound: tensors of one element, not read yet.

    Attributes:
        row: Whose it is.
        value: The bound.
        variance: With the pending points.
        initial: At the start of the batch.
        rest: No bound that was not looked at is above it; None where all were.
    """

    row: Tensor
    value: Tensor
    variance: Tensor
    initial: Tensor
    rest: Tensor | None = None

    @classmethod
    def among_all(cls, bounds: Tensor, variance: Tensor, initial: Tensor) -> "Choice":
        """The largest of all bounds (`A`), none of them stale; O(A)."""
        row = bounds.argmax().view(1)
        return cls(
            row, *(of.index_select(0, row) for of in (bounds, variance, initial))
        )

    def is_certain(self) -> list[Tensor]:
        """Whether no other bound can be larger; empty where that is so."""
        if self.rest is None:
            return []
        return [(self.value > self.rest) | (self.rest == -torch.inf)]


class DeviceBatch(TableBatch):
    """An argmax whose answer is read together with what else a step needs to know.

    Args:
        points: The points to choose from.
        moments: Those of all of them at the batch's start.
        rule: What ends the batch; None for no rule.
        choosable: Which of them may be chosen.
    """

    def __init__(
        self,
        points: Points,
        moments: Moments,
        rule: Rule | None,
        choosable: SelectableRows,
    ) -> None:
        super().__init__(points, rule, reads_late=True)
        self._initial = moments.variance
        self._mean = choosable.mean(moments.mean)
        self._once = choosable.once
        self._chosen: tuple[int, AppendedVariance] | None = None  # the last argmax

    @abstractmethod
    def choice(self) -> Choice:
        """The candidate of largest bound; the lowest index among equals."""

    @abstractmethod
    def _make_pending(self, row: int) -> Tensor:
        """Make a candidate pending; its variance just before, a scalar."""

    def close(self, row: int) -> None:
        """Choose a candidate no more, where each is chosen once."""
        if self._once:
            self._mean[row] = -torch.inf

    def settle(self) -> None:
        """Make the next choice certain."""

    def argmax(self) -> int:
        """See `TableBatch`; one copy from the device."""
        return self._argmax_and()[0]

    def _argmax_and(self, *unread: Tensor) -> tuple[int, list[float]]:
        """The argmax, and the values of some scalars, in one copy from the device.

        Args:
            *unread: Tensors of one element.
        """
        choice = self.choice()
        certain = choice.is_certain()
        numbers = choice.row, choice.variance, choice.initial
        index, now, initial, *values = read_scalars(*numbers, *unread, *certain)
        if certain and not values.pop():
            self.settle()
            return self._argmax_and(*unread)
        self._chosen = int(index), AppendedVariance(initial, now)
        self.initial[int(index)] = initial
        return int(index), values

    def _append(self, row: int) -> AppendedVariance:
        chosen, self._chosen = self._chosen, None
        self.close(row)
        before = self._make_pending(row)
        if chosen is not None and chosen[0] == row:
            return chosen[1]
        return AppendedVariance(*read_scalars(self._initial[row], before))

    def choose(
        self, limit: int, goes_on: ContinueFunction = always_continue
    ) -> list[int]:
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


class RankOneBatch(DeviceBatch):
    """A bound that the rows `u_j` of the pending points lower.

    All products have shapes that depend on the whole table alone, and what they give
    is taken off a variance in the order of the rows: its bits depend neither on when
    it is refreshed nor on which rows of the table are here.

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
        choosable: SelectableRows,
    ) -> None:
        super().__init__(pool, pool.all_moments(), rule, choosable)
        self._pool = pool
        self._multiplier = multiplier
        self._variance = self._initial
        self._rows = PendingRows(pool.whitening[:0])

    @abstractmethod
    def look(self, row: int) -> tuple[Tensor, Tensor]:
        """A candidate's variance with the pending points (`1`), its `k_S(x)` (`m`)."""

    @abstractmethod
    def pend(self, k: Tensor) -> None:
        """Make a point pending that may be elsewhere.

        Args:
            k: Its `k_S(x)`, `m`, in memory of its own: products may round by how their
                operands lie.
        """

    def _make_pending(self, row: int) -> Tensor:
        variance, k = self.look(row)
        self.pend(k)
        return variance

    def _bound(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean + self._multiplier * variance.clamp_min(0.0).sqrt()

    def _new_row(self, k: Tensor) -> Tensor:
        """`u_j` times `L_B^-1 L^-1`, from the point's `k_S(x)`, `m`; O(j m)."""
        u = self._rows.row(self._pool.whitening @ k).u(self.noise)
        self._rows = self._rows.append(u)
        return u @ self._pool.whitening


class EagerBatch(RankOneBatch):
    """One matrix-vector product over all candidates for each pending point.

    The pool keeps `k_S(x)` of all.
    """

    def values(self) -> Tensor:
        """See `TableBatch`."""
        return self._bound(self._mean, self._variance)

    def choice(self) -> Choice:
        """See `DeviceBatch`."""
        return Choice.among_all(self.values(), self._variance, self._initial)

    def look(self, row: int) -> tuple[Tensor, Tensor]:
        """See `RankOneBatch`."""
        place = slice(row, row + 1)
        k = self._pool.cross_covariance(place).flatten().contiguous()
        return self._variance[place], k

    def pend(self, k: Tensor) -> None:
        """See `RankOneBatch`."""
        p = self._new_row(k)
        drop = torch.cat([p @ K for K in self._pool.tiles()])  # w(x)'u, O(A m)
        self._variance = self._variance - drop[: len(self._variance)].square()


class BlockBatch(RankOneBatch):
    """Refreshes the candidates of largest stale bounds, a block of them at a step.

    For pools that are streamed, or so large that a pass over their features takes
    longer. A stale bound is an upper bound, so the choice is certain where the best of
    the block is above all bounds outside. Where it is not, which the same copy tells,
    a pass over all is made, and blocks double: a second copy at that step.

    Attributes:
        first_block: Candidates refreshed at a step, at first.
    """

    first_block: ClassVar[int] = 2**13

    def __init__(
        self,
        pool: EmbeddedPoints,
        multiplier: float,
        rule: Rule | None,
        choosable: SelectableRows,
    ) -> None:
        super().__init__(pool, multiplier, rule, choosable)
        self._base = self._initial
        self._ucb = self._bound(self._mean, self._variance)
        self._blocks: list[Tensor] = []  # `BLOCK x m` rows, and zeros
        self._num_rows = 0
        self._absorbed = 0  # blocks that `_base` knows of
        self._is_fresh = True  # whether `_ucb` and `_variance` know of all rows
        self._size = self._width = min(self.first_block, pool.table_size)

    def values(self) -> Tensor:
        """See `TableBatch`."""
        self._refresh()
        return self._ucb.clone()

    def choice(self) -> Choice:
        """See `DeviceBatch`."""
        num = len(self._ucb)
        if self._size >= num:
            self._refresh()
        if self._is_fresh:
            return Choice.among_all(self._ucb, self._variance, self._initial)
        bounds, block = self._ucb.topk(self._size + 1)
        block = block[:-1]
        variance = self._variances(block)[1]
        fresh = self._bound(self._mean[block], variance)
        self._ucb[block] = fresh
        best = fresh.max().view(1)
        place = torch.where(fresh == best, block, num).argmin().view(1)
        row = block.index_select(0, place)
        initial = self._initial.index_select(0, row)
        now = variance.index_select(0, place)
        return Choice(row, best, now, initial, bounds[-1:])

    def look(self, row: int) -> tuple[Tensor, Tensor]:
        """See `RankOneBatch`."""
        index = torch.full((1,), row, device=self._ucb.device)
        k = self._pool.cross_covariance(index).flatten()
        return self._variances(index)[1], k

    def close(self, row: int) -> None:
        """See `DeviceBatch`."""
        super().close(row)
        if self._once:
            self._ucb[row] = -torch.inf

    def pend(self, k: Tensor) -> None:
        """See `RankOneBatch`."""
        block, place = divmod(self._num_rows, BLOCK)
        if place == 0:
            self._blocks.append(k.new_zeros(BLOCK, len(k)))
        self._blocks[block][place] = self._new_row(k)
        self._num_rows += 1
        self._is_fresh = False

    def settle(self) -> None:
        """See `DeviceBatch`."""
        self._refresh()
        self._size *= 2

    def _refresh(self) -> None:
        """Fresh bounds for all candidates."""
        if not self._is_fresh:
            rows = torch.arange(len(self._ucb), device=self._ucb.device)
            self._base, self._variance = self._variances(rows)
            self._absorbed = len(self._blocks) - 1  # the last one may get more rows
            self._ucb = self._bound(self._mean, self._variance)
            self._is_fresh = True

    def _variances(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """What `_after_rows` gives for any candidates, a padded block at a time."""
        missing = -len(index) % self._width
        index = torch.cat([index, index[-1:].expand(missing)]) if missing else index
        both = [
            torch.stack(self._after_rows(part, self._pool.cross_covariance(part)))
            for part in index.split(self._width)
        ]
        closed, fresh = torch.cat(both, dim=1)[:, : len(index) - missing]
        return closed, fresh

    def _after_rows(self, index: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
        """Variances under all blocks of rows but the last one, and under all.

        Cost: O(k m) for each row.

        Args:
            index: `k` candidates.
            K: Their `k_S(x)`, `m x k`.
        """
        closed = fresh = self._base[index]
        for rows in self._blocks[self._absorbed :]:
            closed, fresh = fresh, fresh - (rows @ K).square().sum(0)
        return closed, fresh.clamp_min(0.0)
