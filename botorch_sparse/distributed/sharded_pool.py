"""The points of a table that ranks share, each with a pool of its own rows.

A step of a batch is one exchange of (value, row), and one of what a chosen point brings
where it begins a run: all ranks make it pending alike, by the same arithmetic as one
process would. On accelerators both are one exchange, and the host waits once, for the
winner. Whatever is compared has the same bits on any number of ranks.
"""

from copy import copy
from typing import TypeAlias

import torch
from torch import Tensor
from typing_extensions import override

from botorch_sparse.batching.rules import Rule
from botorch_sparse.pools.device_batch import (
    Choice,
    DeviceBatch,
    RankOneBatch,
    read_scalars,
)
from botorch_sparse.pools.host_batch import HostBatch
from botorch_sparse.pools.nystrom_pool import MAX_MEMORY, NystromPool
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows, Shard
from botorch_sparse.pools.table_batch import TableBatch
from botorch_sparse.posteriors import Moments

# Packed in front of a candidate's coordinates.
NUMBERS = 5


# A point of a batch as all ranks know it: its number in the whole table (one element),
# its coordinates (`d`) and its `k_S(x)` (`m`).
Passed: TypeAlias = tuple[Tensor, Tensor, Tensor]


class ShardedPool(NystromPool):
    """This rank's rows of a table, for what all ranks choose; see `NystromPool`.

    `max_memory` is in bytes, for all ranks together. `passed` are the points of a batch
    by row, which are rows of any rank; a batch has its own, in a copy of the pool.
    """

    def __init__(
        self,
        X: Tensor,
        noise: float = 1.0,
        *,
        shard: Shard,
        max_memory: int = MAX_MEMORY,
        chunk_size: int | None = None,
    ) -> None:
        super().__init__(
            X, noise, max_memory=max_memory, chunk_size=chunk_size, shard=shard
        )
        self.passed: dict[int, Passed] = {}

    @override
    def moments(self, rows: Tensor) -> Moments:
        """Exact means and variances of `k` rows of the whole table, on all ranks."""
        places = self.shard.places(rows).to(self.X.device)
        both = torch.stack(super().moments(places), dim=-1)
        return Moments(*self.shard.gathered(both, rows).unbind(-1))

    @override
    def largest(self, values: Tensor) -> Tensor:
        return self.shard.ranks.max(values.max())

    @override
    def squared_covariances(self, rows: Tensor) -> Tensor:
        """Those of this rank's rows with points that were passed, `k x 2 x a`."""
        number, X, K = zip(*self.passed.values(), strict=True)
        is_it = torch.cat(number) == rows.unsqueeze(-1)  # the host can't see it there
        place = is_it.int().argmax(-1)
        points = torch.stack(X)[place], torch.stack(K, -1)[:, place]
        return self._embedded().squares_with(*points)

    @override
    def batch(
        self,
        multiplier: float,
        rule: Rule | None = None,
        selectable: SelectableRows = ALL_ROWS,
    ) -> TableBatch:
        own = super().batch(multiplier, None, self.shard.selectable(selectable))
        if isinstance(own, HostBatch):
            return ShardedBatch(self, own, rule)
        assert isinstance(own, RankOneBatch)
        return ShardedDeviceBatch(self, own, rule)

    def alike(self) -> "ShardedPool":
        """The same for a batch, of which no point has been passed."""
        pool = copy(self)
        pool.passed = {}
        return pool


class ShardedBatch(TableBatch):
    """A batch of all ranks; each looks after the bounds of its own rows."""

    def __init__(self, pool: ShardedPool, own: HostBatch, rule: Rule | None) -> None:
        self._pool = pool.alike()
        super().__init__(self._pool, rule)
        self._shard, self._own = pool.shard, own

    @override
    def argmax(self) -> int:
        place = self._own.argmax()
        ranks = self._shard.ranks
        return ranks.argmax(self._own.best(), self._shard.start + place)

    def values(self) -> Tensor:
        """Those of this rank's rows."""
        return self._own.values()

    @override
    def _append(self, row: int) -> tuple[float, float]:
        place = row - self._shard.start
        if not 0 <= place < len(self._shard):
            place = -1 - row
        if not self._own.continues(place):
            x, cross, (initial, before) = self._seen(row)
            self._pool.passed[row] = torch.tensor([row]), x, cross
            self._own.start(place, cross, initial.numpy()[()], before.numpy()[()])
        return self._own.repeat()

    def _seen(self, row: int) -> tuple[Tensor, ...]:
        """A row's coordinates, `k_S(x)`, and variances, as its owner knows them."""
        X, m = self._pool.X, self._pool.num_inducing
        packed = X.new_zeros(X.shape[-1] + m + 2)
        owner = int(self._shard.owner(torch.tensor(row)))
        if owner == self._shard.ranks.rank:
            place = row - self._shard.start
            cross, *variances = self._own.look(place)
            packed = torch.cat([X[place], cross, cross.new_tensor(variances)])
        packed = self._shard.ranks.from_owner(packed, owner)
        return packed.split([X.shape[-1], m, 2])


class ShardedDeviceBatch(DeviceBatch):
    """The same on accelerators: what a step exchanges stays there.

    Each rank packs its largest bound with all that the others need of its candidate,
    and all take the winner's: `5 + d + m` numbers from each rank, in one exchange.
    """

    def __init__(self, pool: ShardedPool, own: RankOneBatch, rule: Rule | None) -> None:
        self._pool = pool.alike()
        super().__init__(self._pool, pool.all_moments(), rule, ALL_ROWS)
        self._shard, self._own = pool.shard, own
        self._winner = self._none()

    @override
    def choice(self) -> Choice:
        own = self._own.choice()
        k = self._pool.cross_covariance(own.row).flatten()
        every = self._shard.ranks.stack(self._packed(own, k))
        first = every[:, 0].argmax().view(1)  # of equals the one of the lowest row
        self._winner = every.index_select(0, first).squeeze(0)
        value, row, variance, initial, _ = self._winner[:NUMBERS].split(1)
        return Choice(row, value, variance, initial, every[:, NUMBERS - 1].max())

    @override
    def settle(self) -> None:
        self._own.settle()

    def values(self) -> Tensor:
        """Those of this rank's rows."""
        return self._own.values()

    @override
    def _append(self, row: int) -> tuple[float, float]:
        chosen, self._chosen = self._chosen, None
        is_chosen = chosen is not None and chosen[0] == row
        if not is_chosen:
            self._winner = self._asked(row)
        before = self._make_pending(row)
        if chosen is not None and is_chosen:
            return chosen[1]
        initial, now = read_scalars(self._winner[3], before)
        return initial, now

    @override
    def _make_pending(self, row: int) -> Tensor:
        numbers, x, k = self._winner.split([NUMBERS, *self._sizes])
        x, k = (part.to(self._pool.X.dtype, copy=True) for part in (x, k))
        self._pool.passed[row] = numbers[1:2].long(), x, k
        place = row - self._shard.start
        if 0 <= place < len(self._shard):
            self._own.close(place)
        self._own.pend(k)
        return numbers[2]

    def _asked(self, row: int) -> Tensor:
        """What the owner of a row knows of it, packed."""
        shard = self._shard
        owner, packed = int(shard.owner(torch.tensor(row))), self._none()
        if owner == shard.ranks.rank:
            place = row - shard.start
            variance, k = self._own.look(place)
            index = torch.full((1,), place, device=variance.device)
            initial = self._initial[place : place + 1]
            packed = self._packed(Choice(index, variance, variance, initial), k)
        return shard.ranks.from_owner(packed, owner)

    def _packed(self, own: Choice, k: Tensor) -> Tensor:
        """Value, row (exact to 2^53), variances, rest, coordinates and `k_S(x)`."""
        rest = own.value.new_full((1,), -torch.inf) if own.rest is None else own.rest
        row, x = own.row + self._shard.start, self._pool.X[own.row]
        parts = own.value, row, own.variance, own.initial, rest, x.squeeze(0), k
        return torch.cat([part.double() for part in parts])

    @property
    def _sizes(self) -> tuple[int, int]:
        """Of coordinates and `k_S(x)`."""
        return self._pool.X.shape[-1], self._pool.num_inducing

    def _none(self) -> Tensor:
        """A packed candidate of another rank, before it comes."""
        size = NUMBERS + sum(self._sizes)
        return self._pool.X.new_zeros(size, dtype=torch.float64)
