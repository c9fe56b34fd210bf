"""Registration of this package's classes for Ax's JSON and SQL storage."""

from typing import Any

from ax.storage.botorch_modular_registry import (
    CLASS_TO_REGISTRY,
    CLASS_TO_REVERSE_REGISTRY,
    register_acquisition,
    register_acquisition_function,
    register_kernel,
    register_model,
)
from ax.storage.json_store.encoders import transition_criterion_to_dict
from ax.storage.json_store.registry import (
    CORE_DECODER_REGISTRY,
    CORE_ENCODER_REGISTRY,
)
from ax.storage.transform_registry import register_transform
from botorch.acquisition import UpperConfidenceBound
from gpytorch.kernels import LinearKernel, MaternKernel, PolynomialKernel, RBFKernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    Likelihood,
)

from botorch_sparse import inducing
from botorch_sparse.acquisition import (
    BatchUpperConfidenceBound,
    qBatchUpperConfidenceBound,
)
from botorch_sparse.ax.adaptive_batch_acquisition import AdaptiveBatchAcquisition
from botorch_sparse.ax.arm_table import ArmTable
from botorch_sparse.ax.initialization import MinArms
from botorch_sparse.ax.nearest_candidate import NearestCandidate
from botorch_sparse.ax.registry import SparseGenerators
from botorch_sparse.ax.sparse_acquisition import SparseAcquisition
from botorch_sparse.ax.thompson_acquisition import ThompsonAcquisition
from botorch_sparse.ax.transforms import (
    AsStored,
    OneSidedBilogY,
    ScheduledStandardizeY,
    ScheduledWinsorize,
)
from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP

MODELS = [SparseSingleTaskGP, SubsetSingleTaskGP]
ACQUISITION_FUNCTIONS = [
    BatchUpperConfidenceBound,
    qBatchUpperConfidenceBound,
    UpperConfidenceBound,
]
ACQUISITIONS = [SparseAcquisition, AdaptiveBatchAcquisition, ThompsonAcquisition]
TRANSFORMS = [
    AsStored,
    NearestCandidate,
    OneSidedBilogY,
    ScheduledStandardizeY,
    ScheduledWinsorize,
]
# What users of these models may name in a `ModelConfig`, and Ax may not know.
KERNELS = [LinearKernel, MaternKernel, PolynomialKernel, RBFKernel]
LIKELIHOODS = [FixedNoiseGaussianLikelihood, GaussianLikelihood]
# Options of the model that are objects of their own.
SAMPLERS = [
    inducing.BLESSSampler,
    inducing.CertifiedSampler,
    inducing.PosteriorVarianceSampler,
    inducing.RecursiveRLSSampler,
]


def register_for_storage() -> None:
    """Make strategies of this package known to Ax's encoders and decoders.

    They look classes up by name. Importing `botorch_sparse.ax` calls this.
    """
    for model in MODELS:
        register_model(model)
    for function in ACQUISITION_FUNCTIONS:
        register_acquisition_function(function)
    for acquisition in ACQUISITIONS:
        register_acquisition(acquisition)
    for transform in TRANSFORMS:
        register_transform(transform)
    for kernel in KERNELS:
        register_kernel(kernel)
    for likelihood in LIKELIHOODS:
        CLASS_TO_REGISTRY[Likelihood].setdefault(likelihood, likelihood.__name__)
        CLASS_TO_REVERSE_REGISTRY[Likelihood].setdefault(
            likelihood.__name__, likelihood
        )
    CORE_ENCODER_REGISTRY[MinArms] = transition_criterion_to_dict
    instances: list[type[Any]] = [ArmTable, MinArms, SparseGenerators, *SAMPLERS]
    for instance in instances:
        CORE_DECODER_REGISTRY[instance.__name__] = instance
