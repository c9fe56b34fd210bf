"""Tables of candidates under a posterior: exact argmax of a bound, sample paths."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botorch_sparse.pools.exact_pool import ExactPool
    from botorch_sparse.pools.nystrom_pool import NystromPool
    from botorch_sparse.pools.table_batch import Points, TableBatch

_MODULES = {
    "ExactPool": "exact_pool",
    "NystromPool": "nystrom_pool",
    "Points": "table_batch",
    "TableBatch": "table_batch",
}

__all__ = ["ExactPool", "NystromPool", "Points", "TableBatch"]


def __getattr__(name: str) -> Any:
    """The name from its module, which is loaded when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
