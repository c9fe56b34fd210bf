"""The data of a sparse model, as they were given and as its kernel sees them."""

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from botorch.exceptions import BotorchTensorDimensionError, UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import ChainedInputTransform, InputTransform
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.kernels import in_double
from botorch_sparse.posteriors import FoldedData, RepeatedRows, fold_repeats


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Observations, with the outputs as the last batch dimension.

    Attributes:
        raw_X: `batch_shape x n x d` inputs before the input transform.
        rows: Their repeated rows.
        X: `aug_batch x n x d` inputs after it.
        Y: `aug_batch x n` observations after the outcome transform.
        noise: `aug_batch x n` noise variances.
        num_outputs: Number of outputs.
    """

    raw_X: Tensor
    rows: RepeatedRows
    X: Tensor
    Y: Tensor
    noise: Tensor
    num_outputs: int

    @classmethod
    def of(cls, model: SingleTaskGP, rows: RepeatedRows | None = None) -> Self:
        """The training data of a model, in train and in eval mode.

        Looking at them teaches the input transform nothing: in train mode a copy of it
        learns, except for the graph of its parameters, which is the model's own.

        Args:
            model: The model.
            rows: The repeated rows of its raw inputs, if they are known.

        Raises:
            UnsupportedError: If the input transform changes the number of rows.
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
        return cls(raw_X, rows, X, model.train_targets, noise, model.num_outputs)

    @property
    def points(self) -> Tensor:
        """The different points, `aug_batch x n_u x d`."""
        return self.X[..., self.rows.first, :]

    @cached_property
    def folded(self) -> FoldedData:
        """Their observations, repeats folded."""
        return fold_repeats(self.rows, self.Y, self.noise)


def raw_inputs(model: SingleTaskGP) -> Tensor:
    """Training inputs before the input transform, `batch_shape x n x d`."""
    has_transformed = model._has_transformed_inputs
    X = model._original_train_inputs if has_transformed else model.train_inputs[0]
    return X[..., 0, :, :] if model.num_outputs > 1 else X


def training_noise(model: SingleTaskGP, X: Tensor | None = None) -> Tensor:
    """Noise variances of a model's observations, of the shape of its targets.

    Args:
        model: The model.
        X: The training inputs as the likelihood sees them; by default as they are.
    """
    Y, X = model.train_targets, model.train_inputs[0] if X is None else X
    noiseless = MultivariateNormal(Y, DiagLinearOperator(torch.zeros_like(Y)))
    covariance = model.likelihood(noiseless, X).lazy_covariance_matrix
    return covariance.diagonal(dim1=-1, dim2=-2)


@torch.no_grad()
def before_transform(transform: InputTransform, X: Tensor) -> Tensor:
    """What an input transform makes the training inputs `X` of.

    Raises:
        UnsupportedError: If the transform cannot be undone.
    """
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
    if first.device == second.device and first.dtype == second.dtype:
        layouts = [(t.data_ptr(), t.shape, t.stride()) for t in (first, second)]
        if layouts[0] == layouts[1] and first.numel() > 0:
            return True
    return (
        first.shape == second.shape
        and first.dtype == second.dtype
        and first.device == second.device
        and torch.equal(first, second)
    )
