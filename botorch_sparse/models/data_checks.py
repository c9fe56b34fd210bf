"""What the data of a sparse model may be, checked before it is built."""

import math
from numbers import Integral
from typing import NamedTuple

import torch
from botorch import settings
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils import validate_input_scaling
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from botorch_sparse.argument_checks import check_kind, check_tensors, short_repr
from botorch_sparse.inducing.sampler import validate_sampler
from botorch_sparse.kernels.mixed_kernel import check_columns
from botorch_sparse.private_names import GaussianLikelihoodBase

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


OBJECTIVES = ("elbo", "dtc")


def validate_options(
    max_inducing_points: int | None, objective: str, max_memory: int | None
) -> None:
    """Check the options of a sparse model.

    Raises:
        InputDataError: For an unknown objective, or a cap or budget below one.
    """
    if objective not in OBJECTIVES:
        raise InputDataError(f"Got objective={objective!r}; need one of {OBJECTIVES}.")
    if max_inducing_points is not None and not is_positive_int(max_inducing_points):
        raise InputDataError(
            f"Got max_inducing_points={max_inducing_points!r}; need an integer of at "
            "least 1, or None for the cap of the sampler."
        )
    if max_memory is not None and not is_positive_int(max_memory):
        raise InputDataError(
            f"Got max_memory={max_memory!r}; need an integer number of bytes of at "
            "least 1, or None for no such bound."
        )


def is_positive_int(value: object) -> bool:
    """Whether it is an integer of at least one, and not a boolean."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    return is_whole and int(value) >= 1  # type: ignore[call-overload]


def as_python(value: int | None) -> int | None:
    """A number that may be NumPy's as Python's; None is itself."""
    return None if value is None else int(value)


def validate_inducing_points(inducing_points: Tensor, train_X: Tensor) -> None:
    """Check inducing points at the door.

    Raises:
        BotorchTensorDimensionError: If they are not `m x d` or `batch_shape x m x d`.
        InputDataError: If there are none, or they differ in dtype or device from
            `train_X`, or are not finite.
    """
    if not isinstance(inducing_points, Tensor):
        raise InputDataError(
            f"Got inducing_points of type {type(inducing_points).__name__}; need a "
            "torch.Tensor. Try torch.as_tensor(inducing_points).to(train_X)."
        )
    d = train_X.shape[-1]
    shape = tuple(inducing_points.shape)
    batch_shape = tuple(train_X.shape[:-2])
    if len(shape) < 2 or shape[-1] != d or shape[:-2] not in ((), batch_shape):
        raise BotorchTensorDimensionError(
            f"Got inducing_points of shape {shape} for train_X of shape "
            f"{tuple(train_X.shape)}; need raw inputs of shape `m x {d}`, or as many "
            f"for each element of the batch: {(*batch_shape, 'm', d)}."
        )
    if shape[-2] == 0:
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


def validate_modules(
    likelihood: object,
    covar_module: object,
    mean_module: object,
    inducing_sampler: object,
) -> None:
    """Check the types of the parts that a model is given.

    Raises:
        InputDataError: If one is of the wrong type.
    """
    needed = {
        "likelihood": (likelihood, GaussianLikelihoodBase, "Gaussian likelihood"),
        "covar_module": (covar_module, Kernel, "gpytorch.kernels.Kernel"),
        "mean_module": (mean_module, Mean, "gpytorch.means.Mean"),
    }
    for name, (module, kind, words) in needed.items():
        if module is not None and not isinstance(module, kind):
            raise InputDataError(
                f"Got {name}={short_repr(module)}; need an instance of a {words}, or "
                "None "
                "for BoTorch's default."
            )
    validate_sampler("inducing_sampler", inducing_sampler)


def validate_transforms(input_transform: object, outcome_transform: object) -> None:
    """Check the types of the transforms that a model is given.

    Raises:
        InputDataError: If one is none, such as its name or its class.
    """
    if input_transform is not None:
        need = "a BoTorch InputTransform, such as Normalize(d), or None"
        check_kind("input_transform", input_transform, InputTransform, need)
    if outcome_transform not in (None, DEFAULT):
        need = "a BoTorch OutcomeTransform, such as Standardize(m=1), or None"
        check_kind("outcome_transform", outcome_transform, OutcomeTransform, need)


@torch.no_grad()
def validate_kernel(model: SingleTaskGP) -> None:
    """Evaluate a kernel that was given at two points, so that it fails here if ever.

    Raises:
        InputDataError: If it cannot be evaluated at inputs of this dimension, or is
            not finite.
    """
    X = model.train_inputs[0][..., :2, :]
    if hasattr(model, "input_transform"):
        X = model.input_transform.preprocess_transform(X)
    came = f"Got a {type(model.covar_module).__name__} which at inputs of shape "
    came += f"{tuple(X.shape)}"
    try:
        K = model.covar_module(X).to_dense()
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputDataError(
            f"{came} fails with {type(error).__name__}: {error} Check ard_num_dims, "
            "active_dims and batch_shape."
        ) from error
    if not K.isfinite().all():
        raise InputDataError(
            f"{came} is NaN or infinite. Check its hyperparameters: a lengthscale must "
            "be positive."
        )


def validate_categories(
    cat_dims: list[int] | None, d: int, covar_module: Kernel | None
) -> None:
    """Check the columns of categories.

    Raises:
        InputDataError: If they are not columns of the inputs, or come with a kernel.
    """
    if cat_dims is None:
        return
    if covar_module is not None:
        raise InputDataError(
            "Got both cat_dims and a covar_module; need one of them. Leave out "
            "covar_module for the kernel of MixedSingleTaskGP."
        )
    check_columns(cat_dims, d)


def validate_call(model: SingleTaskGP, *args: Tensor) -> None:
    """Check what the model is called with, transformed inputs.

    Only shapes are looked at: a look at values would wait for the device. NaN inputs
    give NaN at those points, as in `SingleTaskGP`, and NaN observations everywhere.

    Raises:
        BotorchTensorDimensionError: If the inputs have another dimension than the
            training inputs, or these another length than the training targets.
    """
    n, d = model.train_inputs[0].shape[-2:]
    num_targets = model.train_targets.shape[-1]
    if n != num_targets and not hasattr(model, "input_transform"):
        raise BotorchTensorDimensionError(
            f"The model has {n} training inputs and {num_targets} training targets;"
            " they must be as many. Pass both to set_train_data."
        )
    if args and not model.training:
        validate_dimension(args[0], d)


def validate_dimension(X: Tensor, d: int) -> None:
    """Check the dimension of transformed inputs.

    Raises:
        BotorchTensorDimensionError: If it is not `d`.
        InputDataError: If they are no tensor.
    """
    check_tensors(inputs=X)
    if X.dim() == 1 and d == 1:
        return  # GPyTorch reads it as n x 1
    if X.dim() < 2 or X.shape[-1] != d:
        raise BotorchTensorDimensionError(
            f"Got inputs of shape {tuple(X.shape)} for a model of inputs of dimension "
            f"{d} (after the input transform); need `batch_shape x q x {d}`."
        )


def validate_points(X: Tensor) -> None:
    """Check what `remember` gets.

    Raises:
        BotorchTensorDimensionError: If it is not a matrix.
        InputDataError: If it is no tensor.
    """
    check_tensors(X=X)
    if X.dim() != 2:
        raise BotorchTensorDimensionError(
            f"Got points of shape {tuple(X.shape)}; need `r x d`, without a batch."
        )
