"""Which rows of a table a rank owns."""

from dataclasses import dataclass, replace

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_sparse.distributed.ranks import ALONE, Ranks
from botorch_sparse.pools.pool_protocol import SelectableRows

# Ranks own whole tiles: no product over candidates reaches into two of them.
RANK_TILE = 1024


@dataclass(frozen=True)
class Shard:
    """The rows of this rank: a contiguous range of whole tiles.

    Attributes:
        num_rows: Rows `A` of the whole table.
        ranks: Who has the others.

    Raises:
        InputDataError: If there are fewer tiles than ranks.
    """

    num_rows: int
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        if self.num_tiles < self.ranks.size > 1:
            raise InputDataError(
                f"Got a table of {self.num_rows} rows for {self.ranks.size} ranks; "
                f"each needs a tile of {RANK_TILE} rows. Start fewer ranks: so small a "
                "table is quick on one."
            )

    @property
    def num_tiles(self) -> int:
        """Tiles of the whole table; the last one may be shorter."""
        return -(-self.num_rows // RANK_TILE)

    @property
    def start(self) -> int:
        """The first row of this rank."""
        return self._edge(self.ranks.rank)

    @property
    def stop(self) -> int:
        """The row after the last one of this rank."""
        return self._edge(self.ranks.rank + 1)

    def __len__(self) -> int:
        return self.stop - self.start

    def _edge(self, rank: int) -> int:
        return min(self.num_rows, self.num_tiles * rank // self.ranks.size * RANK_TILE)

    def owner(self, rows: Tensor) -> Tensor:
        """The ranks that own some rows."""
        edges = [self._edge(rank) for rank in range(1, self.ranks.size)]
        return torch.bucketize(rows, rows.new_tensor(edges), right=True)

    def choosable(self, choosable: SelectableRows) -> SelectableRows:
        """The same of this rank's rows, by their places among these."""
        if choosable.excluded is None or self.ranks.size == 1:
            return choosable
        place = choosable.excluded - self.start
        own = (place >= 0) & (place < len(self))
        return replace(choosable, excluded=place[own])

    def at(self, values: Tensor, rows: Tensor) -> Tensor:
        """Values at some rows, from their owners.

        Args:
            values: This rank's, one for each of its rows.
            rows: `k` rows of the whole table, the same on all ranks.

        Returns:
            `k` values, on all ranks.
        """
        if self.ranks.size == 1:
            return values[rows.to(values.device)]
        return self.gathered(values[self.places(rows).to(values.device)], rows)

    def places(self, rows: Tensor) -> Tensor:
        """Which of this rank's rows are among some, in their order; on the host."""
        rows = rows.cpu()
        return rows[self.owner(rows) == self.ranks.rank] - self.start

    def gathered(self, values: Tensor, rows: Tensor) -> Tensor:
        """Values at `k` rows, on all ranks, from each one's at its `places`."""
        owner = self.owner(rows.cpu())
        own = (owner == self.ranks.rank).nonzero().squeeze(-1).to(values.device)
        found = values.new_zeros(len(rows), *values.shape[1:])
        every = torch.arange(len(rows), device=values.device)
        found.index_copy_(0, own, values)
        return self.ranks.stack(found)[owner.to(values.device), every]
