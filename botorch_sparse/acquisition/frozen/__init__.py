"""The posterior at the last feedback, shared by acquisition functions and rules."""

from botorch.models.model import Model

from botorch_sparse.acquisition.frozen.frozen_exact import FrozenExactPosterior
from botorch_sparse.acquisition.frozen.frozen_nystrom import FrozenNystromPosterior
from botorch_sparse.acquisition.frozen.frozen_posterior import Features, FrozenPosterior

__all__ = ["Features", "FrozenPosterior", "freeze"]


def freeze(model: Model | FrozenPosterior) -> FrozenPosterior:
    """The posterior of a fitted model as it is now, with no pending points.

    Args:
        model: `SparseSingleTaskGP`, or any exact GP of BoTorch without batches; a
            posterior that is frozen already comes back as it is.

    Returns:
        The view by rank-one updates for a Nystrom posterior, else the exact one.

    Raises:
        UnsupportedError: If pending points cannot be taken into account; see
            `validate_model`.
    """
    if isinstance(model, FrozenPosterior):
        return model
    if getattr(model, "is_exact", True):
        return FrozenExactPosterior(model)
    return FrozenNystromPosterior(model)
