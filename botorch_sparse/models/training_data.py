"""The data of a sparse model: what they may be, and how its kernel sees them."""

import copy
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models.gpytorch import GPyTorchModel, MultiTaskGPyTorchModel
from botorch.models.transforms.input import ChainedInputTransform, InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils import validate_input_scaling
from botorch.utils.types import DEFAULT
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.argument_checks import (
    DTYPES,
    check_choice,
    check_keywords,
    check_kind,
    check_tensors,
    check_whole,
)
from botorch_sparse.inducing.sampler import validate_sampler
from botorch_sparse.kernels import in_double
from botorch_sparse.kernels.mixed_kernel import check_columns
from botorch_sparse.posteriors import FoldedData, RepeatedRows, fold_repeats
from botorch_sparse.private_names import GaussianLikelihoodBase
from botorch_sparse.threads import checks_data


@contextmanager
def without_learning(transform: InputTransform) -> Iterator[None]:
    """Input transforms, those within others too, learn nothing from what they see.

    BoTorch's `preprocess_transform` sees to the outer one alone, and not to the bounds
    of a `Warp`.
    """
    learning = [
        module
        for module in transform.modules()
        if getattr(module, "learn_coefficients", False)
    ]
    for module in learning:
        module.learn_coefficients = False
    try:
        yield
    finally:
        for module in learning:
            module.learn_coefficients = True


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Observations, with the outputs as the last batch dimension."""

    raw_X: Tensor  # `batch_shape x n x d` inputs before the input transform
    rows: RepeatedRows  # their repeated rows
    X: Tensor  # `aug_batch x n x d` inputs after it
    Y: Tensor  # `aug_batch x n` observations after the outcome transform
    noise: Tensor  # `aug_batch x n` noise variances
    num_outputs: int

    @classmethod
    def of(cls, model: ExactGP, rows: RepeatedRows | None = None) -> Self:
        """The training data of a model, in train and in eval mode.

        Looking at them teaches the input transform nothing: in train mode a copy of it
        learns, except for the graph of its parameters, which is the model's own.
        """
        raw_X, X = raw_inputs(model), model.train_inputs[0]
        if model.training and hasattr(model, "input_transform"):
            transform = model.input_transform
            is_look = not torch.is_grad_enabled()
            X = (copy.deepcopy(transform) if is_look else transform)(X)
        if X.shape[:-1] != model.train_targets.shape:
            raise UnsupportedError(
                f"The training inputs have shape {tuple(X.shape)} after the input "
                f"transform and the targets {tuple(model.train_targets.shape)}; they "
                "must have the same number of rows. Use transform_on_train=False."
            )
        if rows is None:
            with torch.inference_mode(False):  # indices that autograd may keep
                rows = RepeatedRows.find(raw_X)
        noise = training_noise(model, X)
        outputs = outputs_in_batch(model)
        return cls(raw_X, rows, X, model.train_targets, noise, outputs)

    @property
    def points(self) -> Tensor:
        """The different points, `aug_batch x n_u x d`."""
        return self.X[..., self.rows.first, :]

    @cached_property
    def folded(self) -> FoldedData:
        """Their observations, repeats folded."""
        return fold_repeats(self.rows, self.Y, self.noise)


def raw_inputs(model: ExactGP) -> Tensor:
    """Training inputs before the input transform, `batch_shape x n x d`."""
    has_transformed = model._has_transformed_inputs
    X = model._original_train_inputs if has_transformed else model.train_inputs[0]
    return X[..., 0, :, :] if outputs_in_batch(model) > 1 else X


def outputs_in_batch(model: GPyTorchModel) -> int:
    """How many outputs are the last batch dimension of the data: tasks are a column."""
    is_column = isinstance(model, MultiTaskGPyTorchModel)
    return 1 if is_column else int(model.num_outputs)


def training_noise(model: ExactGP, X: Tensor | None = None) -> Tensor:
    """Noise variances of the targets of a model, as its likelihood has them.

    With what a robust model adds for outliers.

    Args:
        model: The model.
        X: Its `aug_batch x n x d` training inputs after the input transform, if they
            are at hand.

    Returns:
        `aug_batch x n`, in the units of `model.train_targets`.
    """
    check_kind("model", model, ExactGP, "a fitted model, such as SingleTaskGP(X, Y)")
    zeros = torch.zeros_like(model.train_targets)
    X = model.train_inputs[0] if X is None else X
    noise_covar: Any = getattr(model.likelihood, "noise_covar", None)
    if getattr(noise_covar, "convex_parameterization", False):
        # BoTorch's `SparseOutlierNoise` is in units of the prior variance.
        variances = model.covar_module(X, diag=True)
        noise = noise_covar(X, shape=zeros.shape, diag_K=variances)
        noise = noise.diagonal(dim1=-1, dim2=-2)
    else:
        noise = likelihood_noise(model.likelihood, X, zeros)
    extra = getattr(model, "_outlier_noise", None)
    return noise if extra is None else noise + extra


def likelihood_noise(
    likelihood: Likelihood, X: Tensor, zeros: Tensor, **given: Tensor
) -> Tensor:
    """Noise variances of observations at `X`, of the shape of `zeros` (`... x n`).

    `given` is the `noise` that is known, for likelihoods that take it.
    """
    noiseless = MultivariateNormal(zeros, DiagLinearOperator(zeros))
    covariance = likelihood(noiseless, X, **given).lazy_covariance_matrix
    return covariance.diagonal(dim1=-1, dim2=-2)


@torch.no_grad()
def before_transform(transform: InputTransform, X: Tensor) -> Tensor:
    """What an input transform makes the training inputs `X` of, if it can be undone."""
    transform = in_double(transform, X.dtype)
    try:
        raw = _undone(transform, X.double())
        again = transform.preprocess_transform(raw)
    except (RuntimeError, IndexError, BotorchTensorDimensionError):
        again = None
    if again is not None and again.shape == X.shape:
        if torch.allclose(again, X.double(), equal_nan=True):
            return raw.to(X)
    raise UnsupportedError(
        f"{type(transform).__name__} cannot be undone, and in eval mode "
        "set_train_data gets inputs that are transformed already. Call "
        "model.train() before it and pass raw inputs."
    )


def _undone(transform: InputTransform, X: Tensor) -> Tensor:
    """What a transform of training inputs made `X` of, if it can be undone at all."""
    if isinstance(transform, ChainedInputTransform):
        for part in reversed(list(transform.values())):
            X = _undone(part, X)
        return X
    if not transform.transform_on_train:
        return X
    try:
        return transform.untransform(X)
    except NotImplementedError:
        return X  # right where applying it again changes nothing, as in rounding


def same_tensor(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same values on the same device and in one dtype."""
    if first is second:
        return True
    kinds = [(t.shape, t.dtype, t.device) for t in (first, second)]
    if kinds[0] != kinds[1]:
        return False
    places = [(t.data_ptr(), t.stride()) for t in (first, second)]
    is_view = places[0] == places[1] and first.numel() > 0
    return is_view or torch.equal(first, second)


# How far from the unit cube and from standardized BoTorch lets data be.
AS_SCALED = 1e-2


def validate_training_data(
    train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None, is_scaled: bool
) -> None:
    """Check what `SingleTaskGP` lets through, or fails at without a reason.

    What it explains itself (numbers of dimensions, unequal dtypes, the shape of
    `train_Yvar`) is left to it. Values are not looked at where
    `botorch.settings.validate_input_scaling` is off.
    """
    data = {"train_X": train_X, "train_Y": train_Y}
    if train_Yvar is not None:
        data["train_Yvar"] = train_Yvar
    _validate_tensors(data)
    _validate_shapes(train_X, train_Y)
    has_one_dtype = len({values.dtype for values in data.values()}) == 1
    if not checks_data() or not has_one_dtype:
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


def validate_scaling(model: ExactGP, train_X: Tensor, *, check_nans_only: bool) -> None:
    """BoTorch's checks of the transformed data, made where one look finds cause.

    Each of them makes the host wait for an accelerator; the look is a single copy. To
    be called after the constructor of `SingleTaskGP` has run without them.
    """
    if not checks_data():
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
        train_Y=Y.mT if outputs_in_batch(model) > 1 else Y.unsqueeze(-1),
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
    check_tensors(**data)
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
    """Check that a tensor with this range is finite."""
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


# Arguments of BoTorch's other models, and the models.
OF_OTHER_MODELS = {
    **dict.fromkeys(
        ("task_feature", "output_tasks", "all_tasks", "rank", "task_covar_prior"),
        "botorch_sparse.models.SparseMultiTaskGP",
    ),
    **dict.fromkeys(
        ("data_fidelities", "iteration_fidelity"),
        "botorch.models.SingleTaskMultiFidelityGP",
    ),
}


def validate_keywords(given: Collection[str], cls: type) -> None:
    """Refuse arguments that the constructor does not have, as Python does."""
    for name in given:
        if name in OF_OTHER_MODELS:
            raise TypeError(
                f"Got an unexpected keyword argument {name!r}: a {cls.__name__} has "
                "one task at one fidelity. Take "
                f"{OF_OTHER_MODELS[name]}, or pass a kernel of that column too as "
                "covar_module."
            )
    check_keywords(given, (), cls)


OBJECTIVES = ("elbo", "dtc")


def validate_options(
    max_inducing_points: int | None, objective: str, max_memory: int | None
) -> None:
    """Check the options of a sparse model."""
    check_choice("objective", objective, OBJECTIVES)
    if max_inducing_points is not None:
        need = "need an integer of at least 1, or None for the cap of the sampler."
        check_whole("max_inducing_points", max_inducing_points, 1, need)
    if max_memory is not None:
        need = "need an integer number of bytes of at least 1, or None for no bound."
        check_whole("max_memory", max_memory, 1, need)


def validate_inducing_points(inducing_points: Tensor, train_X: Tensor) -> None:
    """Check shape, dtype, device and values of inducing points."""
    check_tensors(inducing_points=inducing_points)
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
    """Check the types of the parts that a model is given."""
    needed = {
        "likelihood": (likelihood, GaussianLikelihoodBase, "Gaussian likelihood"),
        "covar_module": (covar_module, Kernel, "gpytorch.kernels.Kernel"),
        "mean_module": (mean_module, Mean, "gpytorch.means.Mean"),
    }
    for name, (module, kind, words) in needed.items():
        if module is not None:
            need = f"an instance of a {words}, or None for BoTorch's default"
            check_kind(name, module, kind, need)
    validate_sampler("inducing_sampler", inducing_sampler)


def validate_transforms(input_transform: object, outcome_transform: object) -> None:
    """Check the types of the transforms that a model is given."""
    if input_transform is not None:
        need = "a BoTorch InputTransform, such as Normalize(d), or None"
        check_kind("input_transform", input_transform, InputTransform, need)
    if outcome_transform not in (None, DEFAULT):
        need = "a BoTorch OutcomeTransform, such as Standardize(m=1), or None"
        check_kind("outcome_transform", outcome_transform, OutcomeTransform, need)


@torch.no_grad()
def validate_kernel(model: ExactGP) -> None:
    """Evaluate a kernel that was given at two points, so that it fails here if ever."""
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
    """Check the columns of categories, which come without a kernel."""
    if cat_dims is None:
        return
    if covar_module is not None:
        raise InputDataError(
            "Got both cat_dims and a covar_module; need one of them. Leave out "
            "covar_module for the kernel of MixedSingleTaskGP."
        )
    check_columns(cat_dims, d)


def validate_call(model: ExactGP, *args: Tensor) -> None:
    """Check what the model is called with, transformed inputs.

    Only shapes are looked at: a look at values would wait for the device. NaN inputs
    give NaN at those points, as in `SingleTaskGP`, and NaN observations everywhere.
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
    """Check the dimension of transformed inputs."""
    check_tensors(inputs=X)
    if X.dim() == 1 and d == 1:
        return  # GPyTorch reads it as n x 1
    if X.dim() < 2 or X.shape[-1] != d:
        raise BotorchTensorDimensionError(
            f"Got inputs of shape {tuple(X.shape)} for a model of inputs of dimension "
            f"{d} (after the input transform); need `batch_shape x q x {d}`."
        )


def validate_points(X: Tensor) -> None:
    """Check what `remember` gets."""
    check_tensors(X=X)
    if X.dim() != 2:
        raise BotorchTensorDimensionError(
            f"Got points of shape {tuple(X.shape)}; need `r x d`, without a batch."
        )
