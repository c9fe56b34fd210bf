"""Tables that several processes share.

For whoever makes a domain: strategies know the interface of `Ranks` alone.
"""

from botorch_sparse.distributed.process_ranks import RankError, joined_ranks, own_device
from botorch_sparse.distributed.sharded_domain import ShardedDomain
from botorch_sparse.distributed.sharded_npy import (
    column_ranges,
    npy_header,
    read_shard,
    tiled_moments,
)
from botorch_sparse.pools.shard import ALONE, Ranks, Shard

__all__ = [
    "ALONE",
    "RankError",
    "Ranks",
    "Shard",
    "ShardedDomain",
    "column_ranges",
    "joined_ranks",
    "npy_header",
    "own_device",
    "read_shard",
    "tiled_moments",
]
