"""Whole algorithms with ask and tell, on tables of candidates and on boxes.

Each is imported when it is asked for.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from botorch_sparse.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from botorch_sparse.strategies.bbkb import BBKB
    from botorch_sparse.strategies.bkb import BKB
    from botorch_sparse.strategies.core.stopping import (
        StopAfter,
        StopAtHypervolume,
        StopAtTarget,
        StopOnConfidenceGap,
        StopOnNoImprovement,
    )
    from botorch_sparse.strategies.core.strategy import Strategy
    from botorch_sparse.strategies.data.candidate_table import CandidateTable
    from botorch_sparse.strategies.data.history import Batch, Best, History, Pareto
    from botorch_sparse.strategies.data.outcomes import Constraint, Objective
    from botorch_sparse.strategies.data.row_matching import RowIndex
    from botorch_sparse.strategies.data.run_record import BatchRecord
    from botorch_sparse.strategies.expected_improvement import ExpectedImprovement
    from botorch_sparse.strategies.gpbucb import GPBUCB
    from botorch_sparse.strategies.gpucb import GPUCB
    from botorch_sparse.strategies.gssbo import GSSBO, RSSBO
    from botorch_sparse.strategies.random_search import RandomSearch
    from botorch_sparse.strategies.sbpe import SBPE, UncertaintyReduction
    from botorch_sparse.strategies.thompson_sampling import ThompsonSampling
    from botorch_sparse.strategies.trust_region import TrustRegionBBKB

__all__ = [
    "BBKB",
    "BKB",
    "GPBUCB",
    "GPUCB",
    "GSSBO",
    "RSSBO",
    "SBPE",
    "Batch",
    "BatchRecord",
    "Best",
    "CandidateTable",
    "Constraint",
    "ExpectedImprovement",
    "History",
    "Objective",
    "Pareto",
    "RandomSearch",
    "RowIndex",
    "StopAfter",
    "StopAtHypervolume",
    "StopAtTarget",
    "StopOnConfidenceGap",
    "StopOnNoImprovement",
    "Strategy",
    "ThompsonSampling",
    "TrustRegionBBKB",
    "UncertaintyReduction",
]

_exported, __dir__ = lazy_exports(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name != "ShardedDomain":
        return _exported(name)
    warnings.warn(
        "ShardedDomain is in botorch_sparse.distributed; its name in "
        "botorch_sparse.strategies will go.",
        DeprecationWarning,
        stacklevel=2,
    )
    return import_module("botorch_sparse.distributed").ShardedDomain
