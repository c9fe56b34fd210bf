"""Bayesian optimization past a thousand evaluations, on BoTorch.

The names below are imported when they are first used, so `import botorch_sparse` is
quick. All other names are in the sub-packages.
"""

from typing import TYPE_CHECKING, Any

from botorch_sparse.lazy_exports import lazy_exports

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
_export, __dir__ = lazy_exports(__name__, __file__)


def __getattr__(name: str) -> Any:
    """An exported name, or `__version__`: that of the installed distribution."""
    if name != "__version__":
        return _export(name)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("botorch_sparse")
    except PackageNotFoundError:  # a copy on the path that is not installed
        return "0+unknown"
