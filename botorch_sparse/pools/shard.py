"""The rows of a table that this process has, and what it asks of those with the others.

One process alone has all rows. `botorch_sparse.distributed` has the processes that
share a table; all of them run the same code with the same seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import check_whole, short_repr
from botorch_sparse.pools.compact_rows import Rows

T = TypeVar("T")
HOST = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """One process alone: what it has is what all have.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
        device: Where it computes: the host, or its own accelerator.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = HOST

    def __post_init__(self) -> None:
        check_whole("size", self.size)
        check_whole("rank", self.rank, 0)
        if self.rank >= self.size:
            raise InputDataError(
                f"Got rank={self.rank} of size={self.size}; need a smaller rank."
            )

    def gather(self, value: T) -> list[T]:
        """What each rank has, in their order; anything that can be pickled."""
        return [value]

    def stack(self, tensor: Tensor) -> Tensor:
        """Tensors of one shape and dtype, `size x ...`, in the order of the ranks."""
        return tensor.unsqueeze(0)

    def from_owner(self, tensor: Tensor, owner: int) -> Tensor:
        """The owner's tensor.

        Args:
            tensor: The owner's, and on the other ranks one of its shape and dtype.
            owner: The rank that has it.
        """
        return tensor

    def once(self, compute: Callable[[], T]) -> T:
        """What rank 0 computes; all others wait for it.

        Tensors in it come to the accelerator of whoever waited.

        Args:
            compute: Takes no part in what ranks do together.

        Raises:
            Exception: On all ranks what `compute` raised on rank 0.
        """
        return compute()

    def once_drawing(self, generator: torch.Generator, compute: Callable[[], T]) -> T:
        """The same for what draws random numbers; the generators stay equal."""
        value, state = self.once(lambda: (compute(), generator.get_state()))
        generator.set_state(state)
        return value

    def argmax(self, value: float, row: int) -> int:
        """The row of the largest value of all ranks; ties go to the lowest row.

        Args:
            value: The largest of this rank's; NaN counts as minus infinity.
            row: Its row in the whole table.
        """
        ours = torch.tensor([value, row], dtype=torch.float64)  # exact below 2^53
        pairs = self.stack(ours).tolist()
        return int(min((-v if v == v else torch.inf, row) for v, row in pairs)[1])

    def sum(self, tensor: Tensor) -> Tensor:
        """Sums over the ranks.

        They are exact for whole numbers, and where an entry is not zero on one rank
        only: such sums do not depend on who owns what.
        """
        return self.stack(tensor).sum(0)

    def min(self, tensor: Tensor) -> Tensor:
        """The least over the ranks, entry by entry."""
        return self.stack(tensor).amin(0)

    def max(self, tensor: Tensor) -> Tensor:
        """The largest over the ranks, entry by entry; NaN if one of them is NaN."""
        return self.stack(tensor).amax(0)

    def require_equal(self, what: str, value: Callable[[], Any]) -> None:
        """Refuse to go on with ranks that were given something else.

        Args:
            what: What the value is, for the message.
            value: Returns plain values that compare by `==`.

        Raises:
            InputDataError: On all ranks, if one has another value than rank 0.
        """
        if self.size == 1:
            return
        values = self.gather(value())
        others = [rank for rank, other in enumerate(values) if other != values[0]]
        if others:
            other, first = (short_repr(values[rank], 200) for rank in (others[0], 0))
            raise InputDataError(
                f"Ranks {others} have another {what} than rank 0: {other} and {first}. "
                "Start all with the same arguments and the same table."
            )


ALONE = Ranks()


@dataclass(frozen=True, eq=False)
class SelectableRows:
    """All candidates but the excluded, each any number of times or once."""

    excluded: Tensor | None = None  # `k` candidates, on the pool's device
    once: bool = False  # whether a candidate may be chosen only once within a batch

    def to(self, device: torch.device) -> "SelectableRows":
        """The same where the pool is."""
        if self.excluded is None:
            return self
        return replace(self, excluded=self.excluded.to(device))

    def without(self, rows: Sequence[int]) -> "SelectableRows":
        """With more candidates excluded."""
        if not rows:
            return self
        before = torch.empty(0) if self.excluded is None else self.excluded
        more = torch.tensor(rows, device=before.device)
        return replace(self, excluded=torch.cat([before.long(), more]))

    def mean(self, mean: Tensor) -> Tensor:
        """The means of all (`A`), minus infinity where excluded; a copy if need be."""
        if self.excluded is None:
            return mean.clone() if self.once else mean
        return mean.index_fill(0, self.excluded, -torch.inf)


ALL_ROWS = SelectableRows()

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

    def selectable(self, rows: SelectableRows) -> SelectableRows:
        """The same of this rank's rows, by their places among these."""
        if rows.excluded is None or self.ranks.size == 1:
            return rows
        place = rows.excluded - self.start
        own = (place >= 0) & (place < len(self))
        return replace(rows, excluded=place[own])

    def at(self, values: Rows, rows: Tensor) -> Tensor:
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
