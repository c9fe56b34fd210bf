"""Exact maximization over finite sets, and batches whose size the posterior decides."""

from botorch_sparse.optim.adaptive_batch import (
    AdaptiveBatch,
    optimize_adaptive_batch,
)
from botorch_sparse.optim.batch import BatchState
from botorch_sparse.optim.box_batch import MAX_BOX_BATCH, BoxBatch
from botorch_sparse.optim.exact_pool import ExactPool
from botorch_sparse.optim.points import Points
from botorch_sparse.optim.pool import NystromPool
from botorch_sparse.optim.ranks import RankError, Ranks, joined_ranks
from botorch_sparse.optim.rules import (
    BatchView,
    FixedSize,
    Global,
    Local,
    Product,
    Rule,
    Single,
    UntilHalved,
    rule_of,
)

__all__ = [
    "MAX_BOX_BATCH",
    "AdaptiveBatch",
    "BatchState",
    "BatchView",
    "BoxBatch",
    "ExactPool",
    "FixedSize",
    "Global",
    "Local",
    "NystromPool",
    "Points",
    "Product",
    "RankError",
    "Ranks",
    "Rule",
    "Single",
    "UntilHalved",
    "joined_ranks",
    "optimize_adaptive_batch",
    "rule_of",
]
