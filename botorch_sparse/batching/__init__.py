"""Batches that grow point by point, and the rules that end them."""

from typing import TYPE_CHECKING

from botorch_sparse.batching.rules import (
    MAX_BOX_BATCH,
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
from botorch_sparse.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from botorch_sparse.batching.acquisition_batch import BoxBatch
    from botorch_sparse.batching.adaptive_batch import (
        AdaptiveBatch,
        optimize_adaptive_batch,
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

__getattr__, __dir__ = lazy_exports(__name__, __file__)
