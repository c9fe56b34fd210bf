"""What the data of a model may be: finite, not too large, scaled as BoTorch wants."""

import math
from typing import NamedTuple

import torch
from botorch import settings
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from botorch.models import SingleTaskGP
from botorch.models.utils import validate_input_scaling
from torch import Tensor

DTYPES = (torch.float64, torch.float32)
# How far from the unit cube and from standardized BoTorch lets data be.
AS_SCALED = 1e-2


def validate_training_data(
    train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None, is_scaled: bool
) -> None:
    """Check what `SingleTaskGP` lets through, or fails at without a reason.

    What it explains itself (numbers of dimensions, unequal dtypes, the shape of
    `train_Yvar`) is left to it. Values are not looked at where
    `botorch.settings.validate_input_scaling` is off.

    Args:
        train_X: `batch_shape x n x d` training inputs.
        train_Y: `batch_shape x n x m` observations.
        train_Yvar: `batch_shape x n x m` noise variances, or None.
        is_scaled: Whether an input transform will scale the inputs.

    Raises:
        InputDataError: For anything but tensors in float32 or float64 on one device, no
            data, values that are not finite or too large, or noise variances that
            are negative, or known for some observations only.
        BotorchTensorDimensionError: If inputs and observations differ in `n`.
    """
    data = {"train_X": train_X, "train_Y": train_Y}
    if train_Yvar is not None:
        data["train_Yvar"] = train_Yvar
    _validate_tensors(data)
    _validate_shapes(train_X, train_Y)
    has_one_dtype = len({values.dtype for values in data.values()}) == 1
    if settings.validate_input_scaling.off() or not has_one_dtype:
        return
    ranges = ranges_of(data)
    if train_Yvar is not None:
        _validate_noise(train_Yvar, ranges["train_Yvar"])
    for name, values in data.items():
        validate_finite(name, values, ranges[name])
    remedy = "train_Y / train_Y.abs().max()"
    _validate_magnitude("train_Y", train_Y, ranges["train_Y"], remedy)
    if not is_scaled:
        remedy = "input_transform=Normalize(d)"
        _validate_magnitude("train_X", train_X, ranges["train_X"], remedy)


def validate_scaling(
    model: SingleTaskGP, train_X: Tensor, *, check_nans_only: bool
) -> None:
    """BoTorch's checks of the transformed data, made where one look finds cause.

    Each of them makes the host wait for an accelerator; the look is a single copy. To
    be called after the constructor of `SingleTaskGP` has run without them.

    Args:
        model: A model in train mode.
        train_X: `batch_shape x n x d` raw training inputs.
        check_nans_only: As in `botorch.models.utils.validate_input_scaling`.
    """
    if settings.validate_input_scaling.off():
        return
    with torch.no_grad():
        X, Y = model.transform_inputs(train_X), model.train_targets
        ends = torch.stack([*X.aminmax(), *Y.aminmax()])
        if not check_nans_only:
            off = torch.stack([_distance_from_standard(Y), -ends[0], ends[1] - 1.0])
            ends = torch.cat([ends, off])
        values = ends.tolist()
    if all(map(math.isfinite, values)) and all(v <= AS_SCALED for v in values[4:]):
        return
    validate_input_scaling(
        train_X=X,
        train_Y=Y.mT if model.num_outputs > 1 else Y.unsqueeze(-1),
        ignore_X_dims=getattr(model, "_ignore_X_dims_scaling_check", None),
        check_nans_only=check_nans_only,
    )


def _distance_from_standard(Y: Tensor) -> Tensor:
    """How far means are from 0 and standard deviations from 1; `Y` is `... x n`."""
    distance = Y.mean(-1).abs().max()
    if Y.shape[-1] == 1:
        return distance
    return torch.maximum(distance, (Y.std(-1) - 1.0).abs().max())


class Range(NamedTuple):
    """The smallest and the largest value of a tensor, NaN where it has one."""

    low: float
    high: float

    @property
    def is_finite(self) -> bool:
        """Whether all values are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def ranges_of(data: dict[str, Tensor]) -> dict[str, Range]:
    """The ranges of several tensors of one dtype on one device, read together."""
    ends = torch.stack([end for T in data.values() for end in T.detach().aminmax()])
    values = iter(ends.tolist())
    return {name: Range(next(values), next(values)) for name in data}


def _validate_tensors(data: dict[str, Tensor]) -> None:
    for name, values in data.items():
        if not isinstance(values, Tensor):
            raise InputDataError(
                f"Got {name} of type {type(values).__name__}; need a torch.Tensor. Try "
                f"torch.as_tensor({name}, dtype=torch.float64)."
            )
    if len({values.device for values in data.values()}) > 1:
        found = ", ".join(f"{name} on {T.device}" for name, T in data.items())
        raise InputDataError(f"Got {found}; all must be on one device. Try .to(...).")
    dtypes = {values.dtype for values in data.values()}
    if len(dtypes) == 1 and not dtypes <= set(DTYPES):
        raise InputDataError(
            f"Got data in {dtypes.pop()}; need float64 (or float32). Try .double()."
        )


def _validate_shapes(train_X: Tensor, train_Y: Tensor) -> None:
    came = f"Got train_X of shape {tuple(train_X.shape)} and train_Y of shape "
    came += f"{tuple(train_Y.shape)}"
    if train_X.dim() != train_Y.dim():
        return  # BoTorch says it
    if train_X.dim() < 2:
        raise BotorchTensorDimensionError(
            f"{came}; need `n x d` and `n x 1`. Try unsqueeze(-1)."
        )
    if 0 in (*train_X.shape, *train_Y.shape):
        raise InputDataError(
            f"{came}; need at least one point, one input dimension and one output."
        )
    if train_X.shape[-2] != train_Y.shape[-2]:
        raise BotorchTensorDimensionError(f"{came}; they need the same n.")


def _validate_noise(train_Yvar: Tensor, values: Range) -> None:
    unknown = int(train_Yvar.isnan().sum()) if math.isnan(values.low) else 0
    if unknown == train_Yvar.numel():
        raise InputDataError(
            "Got train_Yvar that is NaN everywhere; pass train_Yvar=None to infer the "
            "noise variance."
        )
    if unknown:
        raise InputDataError(
            f"Got train_Yvar with NaN in {unknown} of {train_Yvar.numel()} entries; "
            "noise variances must be known for all observations or for none. Pass "
            "train_Yvar=None to infer one variance, or fill in an estimate, such as "
            "train_Yvar.nan_to_num(nan=train_Yvar.nanmedian().item())."
        )
    if values.low < 0:
        raise InputDataError(
            f"Got train_Yvar as small as {values.low:.3g}; variances must not be "
            "negative. Pass squares of standard errors."
        )


def validate_finite(name: str, values: Tensor, ends: Range) -> None:
    """Check that a tensor with this range is finite.

    Raises:
        InputDataError: If it is not.
    """
    if not ends.is_finite:
        bad = int((~values.isfinite()).sum())
        raise InputDataError(
            f"Got {name} with NaN or infinity in {bad} of {values.numel()} entries; "
            "all must be finite. Leave out the rows concerned, or impute them."
        )


def _validate_magnitude(name: str, values: Tensor, ends: Range, remedy: str) -> None:
    """Squares summed over all entries must not overflow."""
    largest = max(-ends.low, ends.high)
    if largest > (torch.finfo(values.dtype).max / values.numel()) ** 0.5:
        raise InputDataError(
            f"Got {name} as large as {largest:.3g}, whose squares overflow in "
            f"{values.dtype}; rescale it, for example by {remedy}."
        )
