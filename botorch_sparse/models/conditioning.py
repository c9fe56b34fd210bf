"""New observations for a model with a Nystrom posterior, as its kernel sees them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from botorch.models.gpytorch import BatchedMultiOutputGPyTorchModel
from botorch.models.model import Model
from botorch.models.utils.assorted import (
    fantasize as fantasize_flag,
)
from botorch.models.utils.assorted import (
    multioutput_to_batch_mode_transform,
)
from botorch.sampling.base import MCSampler
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.likelihoods.noise_models import FixedGaussianNoise
from gpytorch.module import Module
from torch import Tensor, nan

from botorch_sparse.argument_checks import check_tensors
from botorch_sparse.models.training_data import (
    likelihood_noise,
    outputs_in_batch,
    validate_dimension,
)


@dataclass(frozen=True, eq=False)
class ConcatenatedRows:
    """Rows of several tensors, one after the other; batch shapes broadcast."""

    parts: tuple[Tensor, ...]  # `part_batch x n_i x event` each
    batch_shape: torch.Size  # the batch shape of the result
    event_dims: int  # dimensions from the rows on: 2 for inputs, 1 for targets

    @property
    def num_rows(self) -> int:
        """The number of rows. Cost: O(1)."""
        return sum(part.shape[-self.event_dims] for part in self.parts)

    @property
    def num_columns(self) -> int:
        """The size of the last dimension, `d` for inputs."""
        return self.parts[0].shape[-1]

    def append(self, rows: Tensor, batch_shape: torch.Size) -> Self:
        """With more rows, in a larger batch. Cost: O(1)."""
        return replace(self, parts=(*self.parts, rows), batch_shape=batch_shape)

    def join(self) -> Tensor:
        """`batch_shape x num_rows x event`, the batch expanded."""
        k = self.event_dims
        batches = [part.shape[: part.dim() - k] for part in self.parts]
        common = torch.broadcast_shapes(*batches)
        parts = [part.expand(*common, *part.shape[-k:]) for part in self.parts]
        rows = torch.cat(parts, dim=-k)
        return rows.expand(*self.batch_shape, *rows.shape[-k:])

    def detached(self) -> Self:
        """The same rows without gradients."""
        return replace(self, parts=tuple(part.detach() for part in self.parts))

    def of_outputs(self, idcs: list[int]) -> Self:
        """Those of some outputs, which are the last dimension of the batch."""
        dim = -self.event_dims - 1
        parts = tuple(select_outputs(part, idcs, dim) for part in self.parts)
        outputs = () if len(idcs) == 1 else (len(idcs),)
        return replace(
            self,
            parts=parts,
            batch_shape=torch.Size([*self.batch_shape[:-1], *outputs]),
        )


def select_outputs(values: Tensor, idcs: list[int], dim: int) -> Tensor:
    """Some outputs along a dimension, if it is there; for one of them it goes."""
    if values.dim() < -dim:
        return values
    if values.shape[dim] > 1:
        index = torch.tensor(idcs, device=values.device)
        values = values.index_select(dim, index)
    return values.squeeze(dim) if len(idcs) == 1 else values


class ConcatenatedNoise(FixedGaussianNoise):
    """Noise variances of old and new observations."""

    def __init__(self, rows: ConcatenatedRows) -> None:
        Module.__init__(self)
        self.rows = rows

    @property
    def noise(self) -> Tensor:
        """All noise variances, `batch_shape x n`."""
        return self.rows.join()

    @noise.setter
    def noise(self, value: Tensor) -> None:
        self.rows = ConcatenatedRows((value,), value.shape[:-1], event_dims=1)

    def mean(self) -> Tensor:
        """Their mean, `batch_shape x 1`, without putting them together."""
        sums = (part.sum(dim=-1, keepdim=True) for part in self.rows.parts)
        return reduce(torch.add, sums) / self.rows.num_rows

    def __getstate__(self) -> dict[str, object]:
        """Everything but graphs, which cannot be copied."""
        return {**self.__dict__, "rows": self.rows.detached()}

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        parts = tuple(fn(part) for part in self.rows.parts)
        self.rows = replace(self.rows, parts=parts)
        return Module._apply(self, fn)


@dataclass(frozen=True, eq=False)
class NewData:
    """New observations, with the outputs as the last batch dimension."""

    raw_X: Tensor  # `input_batch x q x d` inputs before the input transform
    X: Tensor  # `input_batch x q x d` inputs after it
    Y: Tensor  # `... x q` observations after the outcome transform
    noise: Tensor  # `... x q` noise variances
    given_noise: Tensor | None  # what was passed: the likelihood may add to it
    batch_shape: torch.Size  # of the model of all observations, with outputs

    @classmethod
    def observed(
        cls,
        model: BatchedMultiOutputGPyTorchModel,
        X: Tensor,
        Y: Tensor,
        noise: Tensor | None,
        d: int,
    ) -> Self:
        """What `condition_on_observations` gets, with `d` transformed columns."""
        if hasattr(model, "outcome_transform"):
            Y, _ = model.outcome_transform(Y, X=X)
        if fantasize_flag.off():
            model._validate_tensor_args(X=X, Y=Y, Yvar=noise, strict=False)
        outputs = outputs_in_batch(model)
        if outputs > 1:
            X, Y, noise = multioutput_to_batch_mode_transform(
                train_X=X, train_Y=Y, num_outputs=outputs, train_Yvar=noise
            )
        else:
            Y, noise = Y.squeeze(-1), None if noise is None else noise.squeeze(-1)
        Z = model.transform_inputs(X)
        return cls.transformed(model, Z, Y, noise, raw_X=X, d=d)

    @classmethod
    def transformed(
        cls,
        model: BatchedMultiOutputGPyTorchModel,
        X: Tensor,
        Y: Tensor,
        noise: Tensor | None,
        *,
        raw_X: Tensor,
        d: int,
    ) -> Self:
        """Transformed inputs and outcomes, outputs first, as in `ExactGP`."""
        validate_dimension(X, d)
        validate_new_data(X, Y)
        input_batch, target_batch = _batches(model._aug_batch_shape, X, Y)
        q = X.shape[-2]
        X, raw_X = (t.expand(*input_batch, q, t.shape[-1]) for t in (X, raw_X))
        variances = _noise_variances(model.likelihood, X, noise)
        return cls(raw_X, X, Y, variances, noise, target_batch)

    def is_plain(self, model: BatchedMultiOutputGPyTorchModel) -> bool:
        """Whether they are more data for the model, and no fantasies or batches."""
        given = (self.raw_X, self.Y, self.given_noise)
        has_gradient = any(t is not None and t.requires_grad for t in given)
        return (
            fantasize_flag.off()
            and not has_gradient
            and self.batch_shape == model._aug_batch_shape
        )

    def likelihood(self, old: Likelihood) -> Likelihood:
        """The likelihood of old and new observations; fixed noise needs new noise."""
        noise = self.given_noise
        if noise is None or not isinstance(old, FixedNoiseGaussianLikelihood):
            shape = self.noise.shape
            given = {} if noise is None else {"noise": noise.expand(shape)}
            return old.get_fantasy_likelihood(**given)
        known = old.noise_covar
        rows = (
            known.rows.parts if isinstance(known, ConcatenatedNoise) else (known.noise,)
        )
        parts = (*rows, FixedGaussianNoise(noise).noise)
        shape = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
        joined = ConcatenatedNoise(ConcatenatedRows(parts, shape, event_dims=1))
        return copy.deepcopy(old, {id(known): joined})


def _batches(own: torch.Size, X: Tensor, Y: Tensor) -> tuple[torch.Size, torch.Size]:
    """The batch shapes of new inputs and targets with the model's, as in `ExactGP`."""
    X_batch, Y_batch = X.shape[:-2], Y.shape[:-1]
    try:
        input_batch = torch.broadcast_shapes(own, X_batch)
        target_batch = torch.broadcast_shapes(input_batch, Y_batch)
    except RuntimeError as error:
        raise RuntimeError(
            f"Model batch shape ({own}) and target batch shape ({Y_batch}) are not "
            "broadcastable."
        ) from error
    if len(target_batch) - len(input_batch) > 1:
        raise RuntimeError(
            f"Unsupported batch shapes: The target batch shape ({Y_batch}) must "
            "have either the same dimension as or one more dimension than the "
            f"input batch shape ({X_batch})"
        )
    return input_batch, target_batch


def _noise_variances(likelihood: Likelihood, X: Tensor, noise: Tensor | None) -> Tensor:
    """The noise variances of new observations at `X`, `... x q`."""
    shape = X.shape[:-1]
    if noise is None:
        if isinstance(likelihood, FixedNoiseGaussianLikelihood):
            likelihood.get_fantasy_likelihood()  # raises: it needs a noise
        given = {}
    elif isinstance(likelihood, FixedNoiseGaussianLikelihood):
        # GPyTorch would count noise that is given twice where it learns more.
        d = FixedGaussianNoise(noise).noise + likelihood.second_noise
        return d.expand(torch.broadcast_shapes(shape, d.shape))
    else:
        shape = torch.broadcast_shapes(shape, noise.shape)
        given = {"noise": noise.expand(shape)}
    return likelihood_noise(likelihood, X, X.new_zeros(shape), **given)


def validate_new_data(X: Tensor, Y: Tensor) -> None:
    """Check transformed inputs and outcomes.

    Values of fantasies, and those on a device, are not looked at.
    """
    check_tensors(X=X, Y=Y)
    if Y.dim() == 0 or X.dim() < 2 or X.shape[-2] != Y.shape[-1]:
        raise BotorchTensorDimensionError(
            f"Got new inputs of shape {tuple(X.shape)} and observations of shape "
            f"{tuple(Y.shape)} (several outputs first, points last); they need as "
            "many points."
        )
    is_seen = fantasize_flag.off() and X.device.type == "cpu"
    if is_seen and not (X.isfinite().all() and Y.isfinite().all()):
        raise InputDataError(
            "Got new observations with NaN or infinity; all inputs and "
            "observations must be finite. Leave out the rows concerned."
        )


def checked_noise(noise: Tensor | None) -> Tensor | None:
    """The noise variances of new observations: finite, and not negative.

    For fantasies they are taken as they are; on a device, where a look is a wait,
    negative ones become NaN.
    """
    if noise is None:
        return None
    check_tensors(noise=noise)
    if fantasize_flag.on():
        return noise
    if noise.device.type != "cpu":
        return noise.where(noise >= 0, nan)
    if not ((noise >= 0) & noise.isfinite()).all():
        raise InputDataError(
            f"Got noise from {noise.min().item():.3g} to {noise.max().item():.3g} "
            "for new observations; variances must be finite and at least 0."
        )
    return noise


def check_is_in_eval_mode(model: Model) -> None:
    """Conditioning is on predictions: refuse train mode, as `ExactGP` does."""
    if model.training:
        raise RuntimeError(
            "Fantasy observations can only be added after making predictions with "
            "a model so that all test independent caches exist. Call the model on "
            "some data first, or `model.eval()`."
        )


def fantasize_nothing(
    model: BatchedMultiOutputGPyTorchModel, X: Tensor, sampler: MCSampler
) -> Model:
    """The fantasy model without new points, which only has the fantasies' batch."""
    batch_shape = torch.broadcast_shapes(X.shape[:-2], model.batch_shape)
    shape = (*batch_shape, 0, outputs_in_batch(model))
    noise: dict[str, object] = {}
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        noise["noise"] = X.new_zeros(shape)
    X = X.expand(*batch_shape, 0, X.shape[-1])
    Y = X.new_zeros(*sampler.sample_shape, *shape)
    with fantasize_flag():
        return model.condition_on_observations(X, Y, **noise)
