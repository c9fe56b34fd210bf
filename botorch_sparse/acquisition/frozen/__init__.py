"""The posterior at the last feedback, shared by acquisition functions and rules."""

from botorch_sparse.acquisition.frozen.base import (
    Covariances,
    Features,
    FrozenPosterior,
)
from botorch_sparse.acquisition.frozen.freeze import freeze
from botorch_sparse.acquisition.frozen.points import FrozenPoints, FrozenTable

__all__ = [
    "Covariances",
    "Features",
    "FrozenPoints",
    "FrozenPosterior",
    "FrozenTable",
    "freeze",
]
