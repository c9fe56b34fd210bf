"""The batch bounds, with the arguments that BoTorch and Ax build them from.

`botorch_sparse.acquisition` has the bounds from here. They are registered in a file of
their own: BoTorch's registry imports `scipy.stats`, half a second that a strategy has
no use for.
"""

from typing import Any

from botorch.acquisition.input_constructors import (
    acqf_input_constructor,
    construct_inputs_qUCB,
)
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.q_batch_ucb import qBatchUpperConfidenceBound

__all__ = ["BatchUpperConfidenceBound", "qBatchUpperConfidenceBound"]


@acqf_input_constructor(BatchUpperConfidenceBound)
def construct_inputs_batch_ucb(
    model: Model,
    posterior_transform: PosteriorTransform | None = None,
    X_pending: Tensor | None = None,
    beta: float | Tensor = 0.2,
    maximize: bool = True,
) -> dict[str, Any]:
    """Constructor arguments for Ax; the default of `beta` is BoTorch's."""
    return {
        "model": model,
        "beta": beta,
        "X_pending": X_pending,
        "posterior_transform": posterior_transform,
        "maximize": maximize,
    }


acqf_input_constructor(qBatchUpperConfidenceBound)(construct_inputs_qUCB)
