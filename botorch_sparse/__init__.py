"""Bayesian optimization past a thousand evaluations, on BoTorch."""

__version__ = "0.1.0"
