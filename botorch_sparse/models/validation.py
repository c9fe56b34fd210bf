"""What a sparse model checks at its doors, beyond the values of its data."""

from numbers import Integral

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from botorch_sparse.doors import check_kind, check_tensors, said
from botorch_sparse.inducing.base import validate_sampler
from botorch_sparse.kernels.mixed import check_columns
from botorch_sparse.private_names import GaussianLikelihoodBase

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
                f"Got {name}={said(module)}; need an instance of a {words}, or None "
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
