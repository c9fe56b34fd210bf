"""The Nystrom (DTC) posterior and the folding of repeated points."""

from botorch_sparse.posteriors.factorization import factorize_inducing_covariance
from botorch_sparse.posteriors.features import NystromFeatures
from botorch_sparse.posteriors.folding import FoldedData, RepeatedRows, fold_repeats
from botorch_sparse.posteriors.joint_covariance import PosteriorCovarianceLinearOperator
from botorch_sparse.posteriors.known_features import KnownFeatures
from botorch_sparse.posteriors.leave_one_out import leave_one_out
from botorch_sparse.posteriors.nystrom import Moments, NystromPosterior

__all__ = [
    "FoldedData",
    "KnownFeatures",
    "Moments",
    "NystromFeatures",
    "NystromPosterior",
    "PosteriorCovarianceLinearOperator",
    "RepeatedRows",
    "factorize_inducing_covariance",
    "fold_repeats",
    "leave_one_out",
]
