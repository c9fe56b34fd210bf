"""Batches that grow point by point, and the rules that end them."""

import importlib
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from botorch_sparse.batching.acquisition_batch import MAX_BOX_BATCH, BoxBatch
    from botorch_sparse.batching.adaptive_batch import (
        AdaptiveBatch,
        optimize_adaptive_batch,
    )

# What rules do without is loaded when it is first asked for.
_MODULES = {
    "MAX_BOX_BATCH": "acquisition_batch",
    "AdaptiveBatch": "adaptive_batch",
    "BoxBatch": "acquisition_batch",
    "optimize_adaptive_batch": "adaptive_batch",
}

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


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
