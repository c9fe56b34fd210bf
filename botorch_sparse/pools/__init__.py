"""Tables of candidates under a posterior: exact argmax of a bound, sample paths."""

from typing import TYPE_CHECKING

from botorch_sparse.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from botorch_sparse.pools.compact_rows import CompactRows
    from botorch_sparse.pools.exact_pool import ExactPool
    from botorch_sparse.pools.nystrom_pool import NystromPool
    from botorch_sparse.pools.table_batch import Points, TableBatch

__all__ = ["CompactRows", "ExactPool", "NystromPool", "Points", "TableBatch"]

__getattr__, __dir__ = lazy_exports(__name__, __file__)
