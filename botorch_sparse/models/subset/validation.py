"""What a subset model checks at the door."""

from typing import Any

from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_sparse.inducing.gp_gradients import validate_reading
from botorch_sparse.models.validation import (
    is_positive_int,
    ranges_of,
    validate_finite,
)

GRADIENTS = ("pilot", "exact")


def validate_subset_options(
    *,
    subset_size: Any,
    num_initial: Any,
    num_newest: Any,
    reading: str,
    gradients: str,
    noise_scale: Any,
    seed: Any,
) -> None:
    """Check the options of a subset model.

    Raises:
        InputDataError: For one that is of the wrong type or out of its range, and for
            forced rows that fill the subset.
    """
    validate_subset_size(subset_size, num_initial)
    counts = {"num_initial": num_initial, "num_newest": num_newest, "seed": seed}
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputDataError(
                f"Got {name}={value!r}; need an integer of at least 0."
            )
    validate_reading(reading)
    if gradients not in GRADIENTS:
        raise InputDataError(f"Got gradients={gradients!r}; need one of {GRADIENTS}.")
    if not isinstance(noise_scale, int | float) or not 0 <= noise_scale < float("inf"):
        raise InputDataError(
            f"Got noise_scale={noise_scale!r}; need a standard deviation of at least 0,"
            " such as the paper's 0.1."
        )


def validate_subset_size(subset_size: Any, num_initial: Any) -> None:
    """Check the size of the subset against the rows that are forced into it."""
    if subset_size is None:
        return
    if not is_positive_int(subset_size):
        raise InputDataError(
            f"Got subset_size={subset_size!r}; need an integer of at least 1, or None "
            "for all data."
        )
    if isinstance(num_initial, int) and num_initial >= subset_size:
        raise InputDataError(
            f"Got subset_size={subset_size} and num_initial={num_initial}; the initial "
            "rows are always in the subset and must leave room for at least one more. "
            "Try a larger subset_size."
        )


def validate_observations(
    X: Tensor, Y: Tensor, Yvar: Tensor | None, like_X: Tensor, like_Y: Tensor
) -> None:
    """Check new rows against those that are there.

    Args:
        X: `batch_shape x q x d` new inputs.
        Y: `batch_shape x q x m` new observations.
        Yvar: `batch_shape x q x m` noise variances, or None.
        like_X: The old inputs.
        like_Y: The old observations.

    Raises:
        BotorchTensorDimensionError: If shapes do not fit.
        InputDataError: If dtypes or devices differ, or a value is not finite.
    """
    tensors = {"X": X, "Y": Y} if Yvar is None else {"X": X, "Y": Y, "Yvar": Yvar}
    for name, values in tensors.items():
        _validate_kind(name, values, like_X)
    filled = {name: values for name, values in tensors.items() if values.numel() > 0}
    for name, ends in ranges_of(filled).items():
        validate_finite(name, filled[name], ends)
    q = X.shape[-2] if X.dim() > 1 else 0
    needed = (*like_X.shape[:-2], q, like_X.shape[-1])
    of_Y = (*like_Y.shape[:-2], q, like_Y.shape[-1])
    fits = X.dim() > 1 and X.shape == needed and Y.shape == of_Y
    if not fits or (Yvar is not None and Yvar.shape != of_Y):
        came = ", ".join(f"{name} {tuple(T.shape)}" for name, T in tensors.items())
        raise BotorchTensorDimensionError(
            f"Got new observations of shapes {came} for data of shapes "
            f"{tuple(like_X.shape)} and {tuple(like_Y.shape)}; need as many rows of "
            "both, `q x d` and `q x m`. Try unsqueeze(-1) for one output."
        )


def _validate_kind(name: str, values: Any, like: Tensor) -> None:
    if not isinstance(values, Tensor):
        raise InputDataError(
            f"Got {name} of type {type(values).__name__}; need a torch.Tensor."
        )
    if (values.dtype, values.device) != (like.dtype, like.device):
        raise InputDataError(
            f"Got {name} in {values.dtype} on {values.device} for data in {like.dtype} "
            f"on {like.device}; they must agree. Try {name}.to(model.all_train_X)."
        )
