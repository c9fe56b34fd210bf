"""What a sparse model checks at the door, beyond the checks of `SingleTaskGP`."""

from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from torch import Tensor

OBJECTIVES = ("elbo", "dtc")


def validate_options(
    train_X: Tensor, train_Y: Tensor, max_inducing_points: int | None, objective: str
) -> None:
    """Check the options of a sparse model.

    Raises:
        UnsupportedError: For several outputs or batches of training data.
        InputDataError: For an unknown objective or a cap below one.
    """
    if train_X.dim() != 2 or train_Y.shape[-1] != 1:
        raise UnsupportedError(
            f"Got train_X of shape {tuple(train_X.shape)} and train_Y of shape "
            f"{tuple(train_Y.shape)}; need `n x d` and `n x 1`. For several outputs "
            "use a ModelListGP of one SparseSingleTaskGP each."
        )
    if objective not in OBJECTIVES:
        raise InputDataError(f"Got objective={objective!r}; need one of {OBJECTIVES}.")
    if max_inducing_points is not None and max_inducing_points < 1:
        raise InputDataError(
            f"Got max_inducing_points={max_inducing_points}; need at least 1, or None "
            "for the cap of the sampler."
        )


def validate_inducing_points(inducing_points: Tensor, train_X: Tensor) -> None:
    """Check inducing points at the door.

    Raises:
        BotorchTensorDimensionError: If they are not `m x d`.
        InputDataError: If there are none, or they differ in dtype or device from
            `train_X`, or are not finite.
    """
    d = train_X.shape[-1]
    shape = tuple(inducing_points.shape)
    if inducing_points.dim() != 2 or shape[-1] != d:
        raise BotorchTensorDimensionError(
            f"Got inducing_points of shape {shape} for train_X of shape "
            f"{tuple(train_X.shape)}; need raw inputs of shape `m x {d}`."
        )
    if shape[0] == 0:
        raise InputDataError(
            "Got no inducing points; need at least one row. Pass None to have them "
            "sampled."
        )
    if (inducing_points.dtype, inducing_points.device) != (
        train_X.dtype,
        train_X.device,
    ):
        raise InputDataError(
            f"Got inducing_points in {inducing_points.dtype} on "
            f"{inducing_points.device} and train_X in {train_X.dtype} on "
            f"{train_X.device}; they must agree. Try inducing_points.to(train_X)."
        )
    if not inducing_points.isfinite().all():
        raise InputDataError(
            "Got inducing_points with NaN or infinity; all must be finite."
        )
