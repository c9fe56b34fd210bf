"""Fits of a sparse model: hyperparameters, and inducing points drawn or moved."""

from botorch_sparse.models.fit.fit_rounds import fit

__all__ = ["fit"]
