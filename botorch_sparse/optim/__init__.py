"""Deprecated: these names are in `batching`, `pools` and `distributed`."""

import importlib
import warnings
from typing import Any

_BATCHING = (
    "MAX_BOX_BATCH AdaptiveBatch BatchView BoxBatch FixedSize Global Local Product "
    "Rule Single UntilHalved optimize_adaptive_batch rule_of"
)
_NEW = {
    **dict.fromkeys(_BATCHING.split(), "batching"),
    **dict.fromkeys(("ExactPool", "NystromPool", "Points", "TableBatch"), "pools"),
    **dict.fromkeys(("RankError", "Ranks", "joined_ranks"), "distributed"),
}
_RENAMED = {"BatchState": "TableBatch"}


def __getattr__(name: str) -> Any:
    """The name from its new place, with a warning."""
    new = _RENAMED.get(name, name)
    if new not in _NEW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"botorch_sparse.{_NEW[new]}"
    warnings.warn(
        f"botorch_sparse.optim.{name} is now {module}.{new}; this alias goes with the "
        "next release.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(importlib.import_module(module), new)
