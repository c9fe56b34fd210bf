"""Samplers of inducing points; all return indices, none builds an `n x n` matrix."""

from botorch_sparse.inducing.base import InducingPointSampler
from botorch_sparse.inducing.posterior_variance import PosteriorVarianceSampler
from botorch_sparse.inducing.recursive_rls import RecursiveRLSSampler

__all__ = ["InducingPointSampler", "PosteriorVarianceSampler", "RecursiveRLSSampler"]
