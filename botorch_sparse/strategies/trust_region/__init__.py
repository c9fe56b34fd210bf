"""Trust regions around a sparse posterior."""

from botorch_sparse.strategies.trust_region.trust_region import Region
from botorch_sparse.strategies.trust_region.trust_region_bbkb import TrustRegionBBKB

__all__ = ["Region", "TrustRegionBBKB"]
