"""Deprecated: `botorch_sparse.demo.datasets` has these names."""

import importlib
import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    """The name from its new place, with a warning."""
    module = importlib.import_module("botorch_sparse.demo.datasets")
    if name.startswith("_") or not hasattr(module, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"botorch_sparse.datasets.{name} is now {module.__name__}.{name}; this alias "
        "goes with the next release.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(module, name)
