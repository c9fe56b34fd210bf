"""The frozen view that suits a model."""

from botorch.models.model import Model

from botorch_sparse.acquisition.frozen.base import FrozenPosterior
from botorch_sparse.acquisition.frozen.exact import FrozenExactPosterior
from botorch_sparse.acquisition.frozen.nystrom import (
    FrozenNystromPosterior,
    uses_nystrom,
)


def freeze(model: Model) -> FrozenPosterior:
    """The posterior of a fitted model as it is now, with no pending points.

    Args:
        model: `SparseSingleTaskGP`, or any exact GP of BoTorch without batches.

    Returns:
        The view by rank-one updates for a Nystrom posterior, else the exact one.

    Raises:
        UnsupportedError: If pending points cannot be taken into account; see
            `validate_model`.
    """
    if uses_nystrom(model):
        return FrozenNystromPosterior(model)
    return FrozenExactPosterior(model)
