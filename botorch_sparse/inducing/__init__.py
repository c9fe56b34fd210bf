"""Samplers of inducing points, which return indices, and what the points are worth."""

from typing import TYPE_CHECKING

from botorch_sparse.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from botorch_sparse.inducing.allocator import SamplerInducingPointAllocator
    from botorch_sparse.inducing.bless import BLESSSampler
    from botorch_sparse.inducing.certificate import (
        AccuracyCertificate,
        accuracy_certificate,
        accuracy_certificates,
        variance_inflation,
    )
    from botorch_sparse.inducing.certified_sampler import (
        CertifiedDraw,
        CertifiedSampler,
    )
    from botorch_sparse.inducing.gp_gradients import exact_gradients, pilot_gradients
    from botorch_sparse.inducing.gradient_diversity import select_by_gradient_diversity
    from botorch_sparse.inducing.gradient_factors import GradientFactors
    from botorch_sparse.inducing.posterior_variance import PosteriorVarianceSampler
    from botorch_sparse.inducing.recursive_rls import RecursiveRLSSampler
    from botorch_sparse.inducing.sampler import InducingPointSampler
    from botorch_sparse.inducing.smallest_subset import smallest_subset_size

__all__ = [
    "AccuracyCertificate",
    "BLESSSampler",
    "CertifiedDraw",
    "CertifiedSampler",
    "GradientFactors",
    "InducingPointSampler",
    "PosteriorVarianceSampler",
    "RecursiveRLSSampler",
    "SamplerInducingPointAllocator",
    "accuracy_certificate",
    "accuracy_certificates",
    "exact_gradients",
    "pilot_gradients",
    "select_by_gradient_diversity",
    "smallest_subset_size",
    "variance_inflation",
]

__getattr__, __dir__ = lazy_exports(__name__, __file__)
