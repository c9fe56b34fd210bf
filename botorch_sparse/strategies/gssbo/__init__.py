"""GSSBO: Bayesian optimization on a subset of the samples [Wei2025]_."""

from botorch_sparse.strategies.gssbo.gssbo import GSSBO, RSSBO

__all__ = ["GSSBO", "RSSBO"]
