"""Confidence radii; each says for which posterior it is proved."""

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    BKBRadius,
    ConfidenceRadius,
    FixedBeta,
    RadiusStatistics,
)

__all__ = [
    "BBKBRadius",
    "BKBRadius",
    "ConfidenceRadius",
    "FixedBeta",
    "RadiusStatistics",
]
