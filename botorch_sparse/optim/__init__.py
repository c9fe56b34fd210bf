"""Exact maximization over finite candidate sets."""

from botorch_sparse.optim.candidate_pool import CandidatePool
from botorch_sparse.optim.exact_pool import ExactCandidatePool
from botorch_sparse.optim.termination import (
    GlobalLocalRule,
    GlobalRule,
    ProductRule,
    TerminationRule,
)
from botorch_sparse.optim.ucb import EagerUCB, LazyUCB, eager_is_cheaper

__all__ = [
    "CandidatePool",
    "EagerUCB",
    "ExactCandidatePool",
    "GlobalLocalRule",
    "GlobalRule",
    "LazyUCB",
    "ProductRule",
    "TerminationRule",
    "eager_is_cheaper",
]
