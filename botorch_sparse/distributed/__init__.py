"""Tables that several processes share."""

from botorch_sparse.distributed.ranks import RankError, Ranks, joined_ranks
from botorch_sparse.distributed.sharded_domain import ShardedDomain

__all__ = [
    "RankError",
    "Ranks",
    "ShardedDomain",
    "joined_ranks",
]
