"""Exact maximization over finite sets, and batches whose size the posterior decides."""

from botorch_sparse.optim.adaptive_batch import (
    AdaptiveBatch,
    optimize_adaptive_batch,
)
from botorch_sparse.optim.box_batch import MAX_BOX_BATCH, BoxBatch
from botorch_sparse.optim.candidate_pool import CandidatePool
from botorch_sparse.optim.device_ucb import BlockUCB, EagerUCB, eager_is_cheaper
from botorch_sparse.optim.exact_pool import ExactCandidatePool
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
from botorch_sparse.optim.termination import (
    GlobalLocalRule,
    GlobalRule,
    ProductRule,
    TerminationRule,
)
from botorch_sparse.optim.ucb import LazyUCB

__all__ = [
    "MAX_BOX_BATCH",
    "AdaptiveBatch",
    "BatchView",
    "BlockUCB",
    "BoxBatch",
    "CandidatePool",
    "EagerUCB",
    "ExactCandidatePool",
    "FixedSize",
    "Global",
    "GlobalLocalRule",
    "GlobalRule",
    "LazyUCB",
    "Local",
    "Product",
    "ProductRule",
    "Rule",
    "Single",
    "TerminationRule",
    "UntilHalved",
    "eager_is_cheaper",
    "optimize_adaptive_batch",
    "rule_of",
]
