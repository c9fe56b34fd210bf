"""The rows of a table that several processes share."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from botorch_sparse.distributed.sharded_pool import ShardedPool
from botorch_sparse.pools.compact_rows import CompactRows, Rows
from botorch_sparse.pools.shard import HOST, Ranks, Shard
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.columns import open_array
from botorch_sparse.strategies.data.domain import (
    TableDomain,
    names_checksum,
    rows_checksum,
)


@dataclass(frozen=True, eq=False)
class ShardedDomain(TableDomain):
    """A table of numbers of which each rank holds the rows that it owns.

    A row's coordinates are sent by its owner when they are first asked for, by all
    ranks together, and kept by all from then on. States are as of a strategy that has
    the whole table: they go from any number of ranks to any other.

    Attributes:
        X: `a x d` rows of this rank.
        shard: Which rows they are.
        feature_names: Names of the `d` features.
        beside: `a x k` further columns of this rank's rows, such as targets: they are
            sent with the coordinates.
    """

    X: Rows
    shard: Shard
    feature_names: tuple[str, ...] = ()
    beside: Tensor | None = None
    _known: dict[int, Tensor] = field(default_factory=dict, repr=False)
    _once: dict[str, Any] = field(default_factory=dict, repr=False)
    table: None = field(default=None, init=False)  # type: ignore[assignment]

    @property
    def ranks(self) -> Ranks:
        """Who shares the table."""
        return self.shard.ranks

    @property
    @override
    def own_rows(self) -> Rows:
        return self.X

    @property
    def num_rows(self) -> int:
        """Rows `A` of the whole table."""
        return self.shard.num_rows

    @classmethod
    def of(cls, candidates: Any, ranks: Ranks) -> "ShardedDomain":
        """A table of numbers, or a file of which each rank reads its part.

        Where ranks compute on accelerators, each has its rows on its own.

        Args:
            candidates: `A x d` tensor or array, the same on all ranks; or a
                `numpy.memmap`, or the path of an `.npy` file.
            ranks: Who shares it; see `joined_ranks`.

        Raises:
            InputDataError: See `CandidateTable.of`; if there are too many ranks.
        """
        is_path = isinstance(candidates, str | os.PathLike)
        cells = open_array(candidates) if is_path else candidates
        num_rows = cells.shape[0] if hasattr(cells, "tocsr") else len(cells)
        shard = Shard(num_rows, ranks)
        own = CandidateTable.of(cells, rows=slice(shard.start, shard.stop))
        X = own.X if ranks.device == HOST else own.X.to(ranks.device)
        return cls(X, shard, own.feature_names)

    def __post_init__(self) -> None:
        low, high = self.X.aminmax(dim=0)
        ends = [self.ranks.min(low), self.ranks.max(high)]
        self._once["ranges"] = torch.stack(ends).double()

    @property
    @override
    def fingerprints(self) -> tuple[slice, ...]:
        return (slice(0, self.dim),) if isinstance(self.X, CompactRows) else ()

    @property
    @override
    def ranges(self) -> Tensor:
        ranges: Tensor = self._once["ranges"]
        return ranges

    @property
    def checksum(self) -> int:
        """The whole table's, see `TableDomain`. Cost: O(A d), once."""
        if "checksum" not in self._once:
            self._once["checksum"] = self._checksum()
        checksum: int = self._once["checksum"]
        return checksum

    def _checksum(self) -> int:
        """Each rank goes on from the one before it."""
        crc = torch.zeros(1, dtype=torch.long)
        for owner in range(self.ranks.size):
            if owner == self.ranks.rank:
                crc.fill_(rows_checksum(self.X, int(crc)))
            crc = self.ranks.from_owner(crc, owner)
        return int(crc)

    @override
    def rows(self, number: Tensor) -> Tensor:
        """A row that nobody has asked for yet is sent by its owner."""
        wanted = number.tolist()
        if missing := [row for row in dict.fromkeys(wanted) if row not in self._known]:
            index = torch.tensor(missing)
            parts = [self.X] if self.beside is None else [self.X, self.beside]
            found = torch.cat([self.shard.at(part, index) for part in parts], dim=-1)
            self._known.update(zip(missing, found, strict=True))
        return self._kept(wanted)[:, : self.dim]

    def beside_of(self, number: Tensor) -> Tensor:
        """`beside` at `k` rows whose coordinates were asked for, `k x ...`."""
        return self._kept(number.tolist())[:, self.dim :]

    def _kept(self, rows: list[int]) -> Tensor:
        if not rows:
            return self.X[:0]
        return torch.stack([self._known[row] for row in rows])

    @override
    def pool(self, inputs: Callable[[Any], Any], max_memory: int) -> ShardedPool:
        return ShardedPool(inputs(self.X), shard=self.shard, max_memory=max_memory)

    def example_rows(self) -> Tensor:
        """At most four rows, spread over all."""
        step = -(-self.num_rows // 4)
        return self.rows(torch.arange(0, self.num_rows, step))

    @property
    @override
    def names(self) -> int:
        """Of columns alone: rows have numbers, no names."""
        return names_checksum((), None, [(f"x{i}", None) for i in range(self.dim)])
