"""Bayesian optimization past a thousand evaluations, on BoTorch.

The names below are imported when they are first used, so `import botorch_sparse` is
quick. All other names are in the sub-packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botorch_sparse.acquisition import BatchUpperConfidenceBound
    from botorch_sparse.batching import optimize_adaptive_batch
    from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP
    from botorch_sparse.strategies import (
        BBKB,
        BKB,
        GPBUCB,
        GPUCB,
        GSSBO,
        RSSBO,
        SBPE,
        CandidateTable,
        History,
        RandomSearch,
        ThompsonSampling,
        TrustRegionBBKB,
    )

__version__ = "0.1.0"
__all__ = [
    "BBKB",
    "BKB",
    "GPBUCB",
    "GPUCB",
    "GSSBO",
    "RSSBO",
    "SBPE",
    "BatchUpperConfidenceBound",
    "CandidateTable",
    "History",
    "RandomSearch",
    "SparseSingleTaskGP",
    "SubsetSingleTaskGP",
    "ThompsonSampling",
    "TrustRegionBBKB",
    "optimize_adaptive_batch",
]
# Sub-packages of the names that are not in `strategies`.
_PACKAGES = {
    "BatchUpperConfidenceBound": "acquisition",
    "SparseSingleTaskGP": "models",
    "SubsetSingleTaskGP": "models",
    "optimize_adaptive_batch": "batching",
}


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package = import_module(f"{__name__}.{_PACKAGES.get(name, 'strategies')}")
    globals()[name] = value = getattr(package, name)
    return value


def __dir__() -> list[str]:
    """All names, imported or not."""
    return sorted({*globals(), *__all__})
