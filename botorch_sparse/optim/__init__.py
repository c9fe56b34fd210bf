"""Exact maximization over finite sets, and batches whose size the posterior decides."""

from botorch_sparse.optim.adaptive_batch import (
    AdaptiveBatch,
    optimize_adaptive_batch,
)
from botorch_sparse.optim.candidate_pool import CandidatePool
from botorch_sparse.optim.device_ucb import BlockUCB, EagerUCB, eager_is_cheaper
from botorch_sparse.optim.exact_pool import ExactCandidatePool
from botorch_sparse.optim.termination import (
    GlobalLocalRule,
    GlobalRule,
    ProductRule,
    TerminationRule,
)
from botorch_sparse.optim.ucb import LazyUCB

__all__ = [
    "AdaptiveBatch",
    "BlockUCB",
    "CandidatePool",
    "EagerUCB",
    "ExactCandidatePool",
    "GlobalLocalRule",
    "GlobalRule",
    "LazyUCB",
    "ProductRule",
    "TerminationRule",
    "eager_is_cheaper",
    "optimize_adaptive_batch",
]
