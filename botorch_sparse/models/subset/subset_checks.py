"""What a subset model refuses."""

from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from torch import Tensor

from botorch_sparse.argument_checks import (
    as_seed,
    check_choice,
    check_number,
    check_whole,
)
from botorch_sparse.inducing.gp_gradients import validate_reading
from botorch_sparse.models.subset.full_data import FullData
from botorch_sparse.models.training_data import (
    ranges_of,
    validate_finite,
)

GRADIENTS = ("pilot", "exact")


def validate_counts(
    subset_size: int | None, num_initial: int, num_newest: int, seed: object
) -> None:
    """Check the integers among the options; forced rows must not fill the subset."""
    validate_subset_size(subset_size, num_initial)
    as_seed(seed)
    check_whole("num_newest", num_newest, 0, "need an integer of at least 0.")


def validate_gradients(reading: str, gradients: str, noise_scale: object) -> None:
    """Check what a model selects its rows by."""
    validate_reading(reading)
    check_choice("gradients", gradients, GRADIENTS)
    need = "need a standard deviation of at least 0, such as the paper's 0.1."
    check_number("noise_scale", noise_scale, "[0, inf)", need)


def validate_subset_size(subset_size: int | None, num_initial: int) -> None:
    """Check the size of the subset against the rows that are forced into it."""
    check_whole("num_initial", num_initial, 0, "need an integer of at least 0.")
    if subset_size is None:
        return
    need = "need an integer of at least 1, or None for all data."
    check_whole("subset_size", subset_size, 1, need)
    if num_initial >= subset_size:
        raise InputDataError(
            f"Got subset_size={subset_size} and num_initial={num_initial}; the initial "
            "rows are always in the subset and must leave room for at least one more. "
            "Try a larger subset_size."
        )


def validate_observations(
    X: Tensor, Y: Tensor, Yvar: Tensor | None, full: FullData
) -> None:
    """Check new rows against those that are there: shapes, dtypes, devices, values.

    Noise variances must be known for new and old observations, or for none. They may
    not be held by a likelihood.
    """
    like_X, like_Y = full.X, full.Y
    tensors = {"X": X, "Y": Y} if Yvar is None else {"X": X, "Y": Y, "Yvar": Yvar}
    for name, values in tensors.items():
        _validate_kind(name, values, like_X)
    filled = {name: values for name, values in tensors.items() if values.numel() > 0}
    if filled:
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
    _validate_known_noise(Yvar, full)


def _validate_known_noise(Yvar: Tensor | None, full: FullData) -> None:
    if full.Yvar is None and full.noise is not None:
        raise UnsupportedError(
            "The noise variances of the data are part of a likelihood that was given, "
            "so that new ones have no place. Build the model with "
            "train_Yvar instead."
        )
    if (Yvar is None) != (full.Yvar is None):
        raise InputDataError(
            f"Got Yvar={'None' if Yvar is None else 'noise variances'}, but the "
            f"data's are {'known' if Yvar is None else 'inferred'}; they must be "
            "known for all observations or for none."
        )


def _validate_kind(name: str, values: object, like: Tensor) -> None:
    if not isinstance(values, Tensor):
        raise InputDataError(
            f"Got {name} of type {type(values).__name__}; need a torch.Tensor."
        )
    if (values.dtype, values.device) != (like.dtype, like.device):
        raise InputDataError(
            f"Got {name} in {values.dtype} on {values.device} for data in {like.dtype} "
            f"on {like.device}; they must agree. Try {name}.to(model.all_train_X)."
        )
