"""Samplers of inducing points, which return indices, and what the points are worth."""

from botorch_sparse.inducing.allocator import SamplerInducingPointAllocator
from botorch_sparse.inducing.base import InducingPointSampler
from botorch_sparse.inducing.bless import BLESSSampler
from botorch_sparse.inducing.certificate import (
    AccuracyCertificate,
    accuracy_certificate,
    accuracy_certificates,
    variance_inflation,
)
from botorch_sparse.inducing.certified import CertifiedDraw, CertifiedSampler
from botorch_sparse.inducing.posterior_variance import PosteriorVarianceSampler
from botorch_sparse.inducing.recursive_rls import RecursiveRLSSampler

__all__ = [
    "AccuracyCertificate",
    "BLESSSampler",
    "CertifiedDraw",
    "CertifiedSampler",
    "InducingPointSampler",
    "PosteriorVarianceSampler",
    "RecursiveRLSSampler",
    "SamplerInducingPointAllocator",
    "accuracy_certificate",
    "accuracy_certificates",
    "variance_inflation",
]
