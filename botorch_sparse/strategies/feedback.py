"""Feedback at the door."""

import math

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor


def validate_feedback(X: Tensor, Y: Tensor, dim: int, *, is_known: bool) -> list[float]:
    """The values of feedback on the host, if it is sound.

    Args:
        X: `b x d` points.
        Y: `b` or `b x 1` observations.
        dim: The number `d` of features that is expected.
        is_known: Whether the points are rows of a table, which has been looked at.

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
    values = Y.reshape(-1).double().tolist()
    num_bad_X = 0 if is_known else int((~X.isfinite()).sum())
    num_bad_Y = sum(not math.isfinite(value) for value in values)
    if num_bad_X or num_bad_Y:
        raise InputDataError(
            f"Got {num_bad_Y} values of Y and {num_bad_X} of X that are NaN or "
            "infinite. Tell the others alone, and withdraw(batch) points that can't be "
            "evaluated."
        )
    return values
