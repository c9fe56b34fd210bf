"""GSSBO: Bayesian optimization on a subset of the samples [Wei2025]_."""

from botorch_sparse.strategies.gssbo.rssbo import RSSBO
from botorch_sparse.strategies.gssbo.strategy import GSSBO

__all__ = ["GSSBO", "RSSBO"]
