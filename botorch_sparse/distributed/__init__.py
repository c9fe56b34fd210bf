"""Tables that several processes share.

For whoever makes a domain: strategies know the interface of `Ranks` alone.
"""

from botorch_sparse.distributed.process_ranks import RankError, joined_ranks, own_device
from botorch_sparse.distributed.sharded_domain import ShardedDomain
from botorch_sparse.distributed.sharded_npy import read_shard
from botorch_sparse.pools.shard import ALONE, RANK_TILE, Ranks, Shard

__all__ = [
    "ALONE",
    "RANK_TILE",
    "RankError",
    "Ranks",
    "Shard",
    "ShardedDomain",
    "joined_ranks",
    "own_device",
    "read_shard",
]
