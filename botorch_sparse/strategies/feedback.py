"""Feedback at the door."""

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor


def validate_feedback(X: Tensor, Y: Tensor, dim: int) -> list[float]:
    """The values of feedback on the host, if it is sound.

    Args:
        X: `b x d` points.
        Y: `b` or `b x 1` observations.
        dim: The number `d` of features that is expected.

    Raises:
        BotorchTensorDimensionError: If the shapes do not fit.
        InputDataError: If there are NaN or infinite values.
    """
    Y = torch.as_tensor(Y).detach()
    rows = X.shape[:1]
    if X.dim() != 2 or X.shape[-1] != dim or Y.shape not in {rows, (*rows, 1)}:
        raise BotorchTensorDimensionError(
            f"Got X of shape {tuple(X.shape)} and Y of shape {tuple(Y.shape)}; "
            f"need `b x {dim}` and `b` or `b x 1`."
        )
    if not Y.isfinite().all() or not X.isfinite().all():
        raise InputDataError(
            f"Got {int((~Y.isfinite()).sum())} values of Y and "
            f"{int((~X.isfinite()).sum())} of X that are NaN or infinite. Tell the "
            "others alone, and withdraw(batch) points that can't be evaluated."
        )
    return Y.reshape(-1).double().tolist()
