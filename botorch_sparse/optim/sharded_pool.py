"""The points of a table that ranks share, each with a pool of its own rows.

A step of a batch is one exchange of (value, row), and one of what a chosen point brings
where it begins a run: all ranks make it pending alike, by the same arithmetic as one
process would. Whatever is compared has the same bits on any number of ranks.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from botorch.exceptions import UnsupportedError
from torch import Tensor

from botorch_sparse.optim.batch import Appended, BatchState
from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.optim.host_batch import HostBatch, Look
from botorch_sparse.optim.points import Moments
from botorch_sparse.optim.pool import NystromPool
from botorch_sparse.optim.rules import Rule
from botorch_sparse.optim.shards import Shard
from botorch_sparse.posteriors import NystromPosterior


class ShardedPool:
    """All rows of a table, of which this rank's are in a pool; see `NystromPool`.

    Args:
        own: The pool of this rank's rows; its `table_size` is that of the whole table.
        shard: Which rows they are.

    Attributes:
        chunk_size: See `NystromPool`.
        on_device: False: ranks share tables on the host alone.
    """

    on_device: ClassVar[bool] = False

    def __init__(self, own: NystromPool, shard: Shard) -> None:
        self.own = own
        self.shard = shard
        self.chunk_size = own.chunk_size

    def __copy__(self) -> "ShardedPool":
        return ShardedPool(copy(self.own), self.shard)

    def __len__(self) -> int:
        return self.shard.num_rows

    @property
    def X(self) -> Tensor:
        """This rank's rows."""
        return self.own.X

    @property
    def is_embedded(self) -> bool:
        """See `NystromPool`; of all ranks."""
        return all(self.shard.ranks.gather(self.own.is_embedded))

    @property
    def noise(self) -> float:
        """See `Points`."""
        return self.own.noise

    @property
    def posterior(self) -> NystromPosterior | None:
        """See `NystromPool`."""
        return self.own.posterior

    def reset(self, k_diag: Tensor | None = None) -> None:
        """See `NystromPool`; prior variances are those of this rank's rows."""
        self.own.reset(k_diag)

    def snapshot(self) -> Any:
        """See `NystromPool`."""
        return self.own.snapshot()

    def restore(self, snapshot: Any) -> None:
        """See `NystromPool`."""
        self.own.restore(snapshot)

    def update(
        self,
        posterior: NystromPosterior,
        k_diag: Tensor | None = None,
        *,
        noise: float | None = None,
        is_awaited: bool = True,
    ) -> None:
        """See `NystromPool`; prior variances are those of this rank's rows."""
        self.own.update(posterior, k_diag, noise=noise, is_awaited=is_awaited)

    def hold(self, posterior: NystromPosterior) -> None:
        """See `NystromPool`."""
        self.own.hold(posterior)

    def fits_in_memory(self, num_inducing: int) -> bool:
        """See `NystromPool`."""
        return self.own.fits_in_memory(num_inducing)

    def all_moments(self) -> Moments:
        """Those of this rank's rows."""
        return self.own.all_moments()

    def all_variances(self) -> Tensor:
        """Those of this rank's rows."""
        return self.own.all_variances()

    def moments(self, rows: Tensor) -> Moments:
        """See `Points`; on all ranks."""
        both = torch.stack(self.own.moments(self.shard.places(rows)), dim=-1)
        return Moments(*self.shard.gathered(both, rows).unbind(-1))

    def largest(self, values: Tensor) -> Tensor:
        """See `Points`, of the values of this rank's rows."""
        return self.shard.ranks.max(values.max())

    def batch(
        self,
        multiplier: float,
        rule: Rule | None = None,
        choosable: Choosable = ALL,
    ) -> BatchState:
        """See `Points`."""
        own = self.own.batch(multiplier, None, self.shard.choosable(choosable))
        if not isinstance(own, HostBatch):
            raise UnsupportedError(
                "Ranks share tables on the host alone. Leave --device out, or run one "
                "process on the accelerator."
            )
        return ShardedBatch(self, own, rule)


class ShardedBatch(BatchState):
    """A batch of all ranks; each looks after the bounds of its own rows.

    Args:
        points: All rows.
        own: The batch of this rank's rows, without a rule.
        rule: What ends the batch; None for no rule.
    """

    def __init__(self, points: ShardedPool, own: HostBatch, rule: Rule | None) -> None:
        self._passed = _Passed(points.own, points.shard, {})
        super().__init__(self._passed, rule)
        self._shard, self._own, self._pool = points.shard, own, points.own

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
            self._passed.points[row] = x, look.cross
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


@dataclass(frozen=True, eq=False)
class _Passed:
    """This rank's rows, and points of the batch on any rank, for the local rule.

    Attributes:
        pool: This rank's rows.
        shard: Which rows they are.
        points: Coordinates and `k_S(x)` of the batch's points, by row.
    """

    pool: NystromPool
    shard: Shard
    points: dict[int, tuple[Tensor, Tensor]]

    @property
    def noise(self) -> float:
        return self.pool.noise

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def square_memory(self) -> int:
        return self.pool.square_memory

    def all_variances(self) -> Tensor:
        return self.pool.all_variances()

    def largest(self, values: Tensor) -> Tensor:
        return self.shard.ranks.max(values.max())

    def squared_covariances(self, rows: Tensor) -> Tensor:
        X, K = zip(*(self.points[row] for row in rows.tolist()), strict=True)
        return self.pool.squares_with(torch.stack(X), torch.stack(K, dim=-1))
