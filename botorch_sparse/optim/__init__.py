"""Exact maximization over finite sets, and batches whose size the posterior decides."""

from botorch_sparse.optim.adaptive_batch import (
    AdaptiveBatch,
    optimize_adaptive_batch,
)
from botorch_sparse.optim.batch import BatchState
from botorch_sparse.optim.exact_pool import ExactPool
from botorch_sparse.optim.points import Points
from botorch_sparse.optim.pool import NystromPool
from botorch_sparse.optim.rules import Global, Local, Product, Rule

__all__ = [
    "AdaptiveBatch",
    "BatchState",
    "ExactPool",
    "Global",
    "Local",
    "NystromPool",
    "Points",
    "Product",
    "Rule",
    "optimize_adaptive_batch",
]
