"""Tables of candidates under a posterior: exact argmax of a bound, sample paths."""

from botorch_sparse.pools.exact_pool import ExactPool
from botorch_sparse.pools.nystrom_pool import NystromPool
from botorch_sparse.pools.pool_protocol import Points
from botorch_sparse.pools.table_batch import TableBatch

__all__ = [
    "ExactPool",
    "NystromPool",
    "Points",
    "TableBatch",
]
