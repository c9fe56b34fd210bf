"""Acquisition functions of batch bandits, rules that end batches, confidence radii."""

from typing import TYPE_CHECKING

from botorch_sparse.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from botorch_sparse.acquisition.confidence import (
        BBKBRadius,
        BKBRadius,
        ChowdhuryGopalanRadius,
        ConfidenceRadius,
        Constants,
        FixedBeta,
        GSSBORadius,
        GuessAndDouble,
        NormBoundRadius,
        RadiusStatistics,
        RandomizedRadius,
        SBPEContinuousRadius,
        SBPERadius,
        ShiftedExponentialRadius,
        SrinivasAgnosticRadius,
        SrinivasCompactRadius,
        SrinivasFiniteRadius,
        SubsetStatistics,
        UnknownHyperparameters,
        discretization_constant,
        posterior_mean_norm,
    )
    from botorch_sparse.acquisition.gap_stopping import (
        ConfidenceGapStopping,
        LowerConfidenceBound,
        confidence_gap,
        model_confidence_gap,
    )
    from botorch_sparse.acquisition.input_constructors import (
        BatchUpperConfidenceBound,
        qBatchUpperConfidenceBound,
    )
    from botorch_sparse.acquisition.pointwise_ratio_bounds import (
        ExactRatio,
        GlobalLocal,
        LocalRatioBound,
    )
    from botorch_sparse.acquisition.ratio_bound import RatioBound
    from botorch_sparse.acquisition.ratios import validate_ratio_threshold

__all__ = [
    "BBKBRadius",
    "BKBRadius",
    "BatchUpperConfidenceBound",
    "ChowdhuryGopalanRadius",
    "ConfidenceGapStopping",
    "ConfidenceRadius",
    "Constants",
    "ExactRatio",
    "FixedBeta",
    "GSSBORadius",
    "GlobalLocal",
    "GuessAndDouble",
    "LocalRatioBound",
    "LowerConfidenceBound",
    "NormBoundRadius",
    "RadiusStatistics",
    "RandomizedRadius",
    "RatioBound",
    "SBPEContinuousRadius",
    "SBPERadius",
    "ShiftedExponentialRadius",
    "SrinivasAgnosticRadius",
    "SrinivasCompactRadius",
    "SrinivasFiniteRadius",
    "SubsetStatistics",
    "UnknownHyperparameters",
    "confidence_gap",
    "discretization_constant",
    "model_confidence_gap",
    "posterior_mean_norm",
    "qBatchUpperConfidenceBound",
    "validate_ratio_threshold",
]

__getattr__, __dir__ = lazy_exports(__name__, __file__)
