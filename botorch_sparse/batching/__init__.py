"""Batches that grow point by point, and the rules that end them."""

from botorch_sparse.batching.adaptive_batch import (
    AdaptiveBatch,
    optimize_adaptive_batch,
)
from botorch_sparse.batching.box_batch import MAX_BOX_BATCH, BoxBatch
from botorch_sparse.batching.rules import (
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
    "BatchView",
    "BoxBatch",
    "FixedSize",
    "Global",
    "Local",
    "Product",
    "Rule",
    "Single",
    "UntilHalved",
    "optimize_adaptive_batch",
    "rule_of",
]
