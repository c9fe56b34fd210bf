"""Batches that grow point by point, and the rules that end them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "AdaptiveBatch": "adaptive_batch",
    "optimize_adaptive_batch": "adaptive_batch",
    "MAX_BOX_BATCH": "box_batch",
    "BoxBatch": "box_batch",
    "BatchView": "rules",
    "FixedSize": "rules",
    "Global": "rules",
    "Local": "rules",
    "Product": "rules",
    "Rule": "rules",
    "Single": "rules",
    "UntilHalved": "rules",
    "rule_of": "rules",
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
    """The name from its module, which is loaded when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
