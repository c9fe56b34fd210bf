"""Generation strategies for Ax; importing this package registers them for storage.

Nothing else of Ax changes: its functions and classes stay as they are.

A strategy that was saved can be loaded where `botorch_sparse.ax` is imported.
"""

try:
    import ax  # noqa: F401
except ImportError as error:
    raise ImportError(
        "botorch_sparse.ax needs Ax, which is not installed. Try: "
        "pip install 'botorch_sparse[ax]'"
    ) from error

from botorch_sparse.ax.adaptive_batch_acquisition import AdaptiveBatchAcquisition
from botorch_sparse.ax.arm_table import ArmTable
from botorch_sparse.ax.generation_strategies import (
    bbkb_generation_strategy,
    gssbo_generation_strategy,
    sparse_generation_strategy,
    thompson_generation_strategy,
    trust_region_generation_strategy,
)
from botorch_sparse.ax.initialization import recommended_batch_size
from botorch_sparse.ax.registry import SparseGenerators
from botorch_sparse.ax.sparse_acquisition import SparseAcquisition
from botorch_sparse.ax.sparse_adapter import SparseAdapter
from botorch_sparse.ax.sparse_generator import SparseGenerator
from botorch_sparse.ax.sparse_surrogate import SparseSurrogate
from botorch_sparse.ax.storage import register_for_storage
from botorch_sparse.ax.thompson_acquisition import ThompsonAcquisition
from botorch_sparse.ax.trust_region_generator import TrustRegionGenerator

register_for_storage()

__all__ = [
    "AdaptiveBatchAcquisition",
    "ArmTable",
    "SparseAcquisition",
    "SparseAdapter",
    "SparseGenerator",
    "SparseGenerators",
    "SparseSurrogate",
    "ThompsonAcquisition",
    "TrustRegionGenerator",
    "bbkb_generation_strategy",
    "gssbo_generation_strategy",
    "recommended_batch_size",
    "sparse_generation_strategy",
    "thompson_generation_strategy",
    "trust_region_generation_strategy",
]
