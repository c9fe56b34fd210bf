"""Fits of a sparse model: hyperparameters, and inducing points drawn or moved."""

from botorch_sparse.models.fit.alternating_fit import fit
from botorch_sparse.models.fit.exact_fit import gap_from_here

__all__ = ["fit", "gap_from_here"]
