"""Fits of a sparse model: hyperparameters, and inducing points drawn or moved."""

from botorch_sparse.models.fit.alternating_fit import fit

__all__ = ["fit"]
