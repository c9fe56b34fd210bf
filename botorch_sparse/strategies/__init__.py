"""Whole algorithms with ask and tell, on tables of candidates and on boxes."""

import importlib
import warnings
from typing import Any

from botorch_sparse.strategies.bbkb import BBKB
from botorch_sparse.strategies.bkb import BKB
from botorch_sparse.strategies.core.stopping import (
    StopAfter,
    StopAtTarget,
    StopOnConfidenceGap,
    StopOnNoImprovement,
)
from botorch_sparse.strategies.core.strategy import Strategy
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.evaluations import BatchRecord
from botorch_sparse.strategies.data.history import Batch, Best, History
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
    "History",
    "RandomSearch",
    "StopAfter",
    "StopAtTarget",
    "StopOnConfidenceGap",
    "StopOnNoImprovement",
    "Strategy",
    "ThompsonSampling",
    "TrustRegionBBKB",
    "UncertaintyReduction",
]


def __getattr__(name: str) -> Any:
    """`ShardedDomain` from its new place, with a warning."""
    if name != "ShardedDomain":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "botorch_sparse.strategies.ShardedDomain is now in botorch_sparse.distributed; "
        "this alias goes with the next release.",
        DeprecationWarning,
        stacklevel=2,
    )
    return importlib.import_module("botorch_sparse.distributed").ShardedDomain
