"""Acquisition functions of batch bandits, rules that end batches, confidence radii."""

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
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
from botorch_sparse.acquisition.exact_ratio import ExactRatio
from botorch_sparse.acquisition.gap_stopping import (
    ConfidenceGapStopping,
    LowerConfidenceBound,
    confidence_gap,
    model_confidence_gap,
)
from botorch_sparse.acquisition.global_local import GlobalLocal
from botorch_sparse.acquisition.global_ratio import GlobalRatioBound
from botorch_sparse.acquisition.local_ratio import LocalRatioBound
from botorch_sparse.acquisition.product_ratio import ProductRatioBound
from botorch_sparse.acquisition.q_batch_ucb import qBatchUpperConfidenceBound
from botorch_sparse.acquisition.ratio_bound import RatioBound

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
    "GlobalRatioBound",
    "GuessAndDouble",
    "LocalRatioBound",
    "LowerConfidenceBound",
    "NormBoundRadius",
    "ProductRatioBound",
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
]
