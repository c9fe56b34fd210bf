"""Trust regions around a sparse posterior."""

from botorch_sparse.strategies.trust_region.region import Region
from botorch_sparse.strategies.trust_region.strategy import TrustRegionBBKB

__all__ = ["Region", "TrustRegionBBKB"]
