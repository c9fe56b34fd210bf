"""Bayesian optimization past a thousand evaluations, on BoTorch.

The names below are imported when they are first used, so `import botorch_sparse` is
quick. All other names are in the sub-packages.
"""

from typing import TYPE_CHECKING

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
__getattr__, __dir__ = lazy_exports(__name__, __file__)
