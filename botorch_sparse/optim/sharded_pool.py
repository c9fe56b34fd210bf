"""The points of a table that ranks share, each with a pool of its own rows.

A step of a batch is one exchange of (value, row), and one of what a chosen point brings
where it begins a run: all ranks make it pending alike, by the same arithmetic as one
process would. Whatever is compared has the same bits on any number of ranks.
"""

from copy import copy

import torch
from botorch.exceptions import UnsupportedError
from torch import Tensor

from botorch_sparse.optim.batch import Appended, BatchState
from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.optim.host_batch import HostBatch, Look
from botorch_sparse.optim.points import Moments
from botorch_sparse.optim.pool import MAX_MEMORY, NystromPool
from botorch_sparse.optim.rules import Rule
from botorch_sparse.optim.shards import Shard


class ShardedPool(NystromPool):
    """This rank's rows of a table, for what all ranks choose; see `NystromPool`.

    Args:
        X: This rank's rows.
        noise: See `NystromPool`.
        shard: Which rows they are.
        max_memory: Bytes for covariances, those of all ranks together.

    Attributes:
        passed: Points of a batch, which are rows of any rank: coordinates and `k_S(x)`
            by row. A batch has its own, in a copy of the pool.
    """

    def __init__(
        self,
        X: Tensor,
        noise: float = 1.0,
        *,
        shard: Shard,
        max_memory: int = MAX_MEMORY,
    ) -> None:
        super().__init__(X, noise, max_memory=max_memory, table_size=shard.num_rows)
        self._shard = shard
        self.passed: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def shard(self) -> Shard:
        """Which rows are here."""
        return self._shard

    def moments(self, rows: Tensor) -> Moments:
        """See `Points`, of rows of the whole table; on all ranks."""
        both = torch.stack(super().moments(self.shard.places(rows)), dim=-1)
        return Moments(*self.shard.gathered(both, rows).unbind(-1))

    def largest(self, values: Tensor) -> Tensor:
        """See `Points`, of the values of this rank's rows."""
        return self.shard.ranks.max(values.max())

    def squared_covariances(self, rows: Tensor) -> Tensor:
        """See `NystromPool`: of this rank's rows with points that were passed."""
        X, K = zip(*(self.passed[row] for row in rows.tolist()), strict=True)
        return self.squares_with(torch.stack(X), torch.stack(K, dim=-1))

    def batch(
        self,
        multiplier: float,
        rule: Rule | None = None,
        choosable: Choosable = ALL,
    ) -> BatchState:
        """See `Points`."""
        own = super().batch(multiplier, None, self.shard.choosable(choosable))
        if not isinstance(own, HostBatch):
            raise UnsupportedError(
                "Ranks share tables on the host alone. Leave --device out, or run one "
                "process on the accelerator."
            )
        return ShardedBatch(self, own, rule)


class ShardedBatch(BatchState):
    """A batch of all ranks; each looks after the bounds of its own rows.

    Args:
        pool: This rank's rows.
        own: The batch of these, without a rule.
        rule: What ends the batch; None for no rule.
    """

    def __init__(self, pool: ShardedPool, own: HostBatch, rule: Rule | None) -> None:
        self._pool = copy(pool)
        self._pool.passed = {}
        super().__init__(self._pool, rule)
        self._shard, self._own = pool.shard, own

    def argmax(self) -> int:
        """See `BatchState`."""
        place = self._own.argmax()
        ranks = self._shard.ranks
        return ranks.best(self._own.best(), self._shard.start + place).row

    def values(self) -> Tensor:
        """Those of this rank's rows."""
        return self._own.values()

    def _append(self, row: int) -> Appended:
        place = row - self._shard.start
        if not 0 <= place < len(self._shard):
            place = -1 - row
        if not self._own.continues(place):
            look, x = self._seen(row)
            self._pool.passed[row] = x, look.cross
            self._own.start(look._replace(row=place))
        return self._own.repeat()

    def _seen(self, row: int) -> tuple[Look, Tensor]:
        """What the owner of a row knows of it, and its coordinates."""
        X, m = self._pool.X, len(self._pool.whitening)
        packed = X.new_zeros(X.shape[-1] + m + 2)
        owner = int(self._shard.owner(torch.tensor(row)))
        if owner == self._shard.ranks.rank:
            place = row - self._shard.start
            look = self._own.look(place)
            numbers = X.new_tensor([look.initial, look.before])
            packed = torch.cat([X[place], look.cross, numbers])
        packed = self._shard.ranks.from_owner(packed, owner)
        x, cross, (initial, before) = packed.split([X.shape[-1], m, 2])
        return Look(row, cross, initial.numpy()[()], before.numpy()[()]), x
