"""Between a BoTorch model's own space and the user's: inputs, noise, posteriors."""

from typing import Any

from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models.gpytorch import (
    BatchedMultiOutputGPyTorchModel,
    ModelListGPyTorchModel,
    MultiTaskGPyTorchModel,
)
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior, Posterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.models import ExactGP
from linear_operator import to_linear_operator
from torch import Tensor

from botorch_sparse.argument_checks import check_tensors


def validate_model(model: Model) -> None:
    """Refuse a model whose posterior cannot be conditioned on points without values."""
    if isinstance(model, type):
        raise UnsupportedError(
            f"Got the class {model.__name__}; need a fitted model of it."
        )
    name = type(model).__name__
    if isinstance(model, ModelListGPyTorchModel):
        raise UnsupportedError(
            f"Got a {name} of {model.num_outputs} outputs; need one model. Try one "
            "SingleTaskGP or SparseSingleTaskGP with all outputs in train_Y."
        )
    is_supported = isinstance(model, BatchedMultiOutputGPyTorchModel)
    is_multi_task = isinstance(model, MultiTaskGPyTorchModel)
    if not is_supported or is_multi_task or not isinstance(model, ExactGP):
        raise UnsupportedError(
            f"Got a {name}; need a model such as SingleTaskGP or SparseSingleTaskGP, "
            "whose variance does not depend on the values still to come."
        )
    if model.batch_shape:
        raise UnsupportedError(
            f"Got a {name} of batch shape {tuple(model.batch_shape)}; need a model "
            "without batches. Build one model for each batch element."
        )


def validate_batch(X: Tensor, d: int) -> None:
    """Refuse pending points that are not a finite `s x d` tensor."""
    check_tensors(points=X)
    if X.dim() != 2 or X.shape[-1] != d:
        raise BotorchTensorDimensionError(
            f"Got pending points of shape {tuple(X.shape)}; need `s x {d}`, one row "
            "for each point."
        )
    if not X.isfinite().all():
        raise InputDataError(
            f"Got pending points with {int((~X.isfinite()).sum())} entries that are "
            "not finite; need finite ones."
        )


def validate_width(name: str, X: Tensor, d: int) -> None:
    """Refuse points, or bounds, that have not as many columns as the model."""
    if X.shape[-1] != d:
        raise BotorchTensorDimensionError(
            f"Got {name} of {X.shape[-1]} features; need {d}, those of the model's "
            "training points, in their order."
        )


def validate_noise(noise: Tensor, num_points: int) -> None:
    """Refuse noise variances that are not one positive number for each point."""
    check_tensors(noise=noise)
    if noise.shape[-1:] not in {(1,), (num_points,)} or not (noise > 0).all():
        raise InputDataError(
            f"Got noise variances of shape {tuple(noise.shape)}, the smallest "
            f"{float(noise.min()):.3g}, for {num_points} points; need one positive "
            "number for each."
        )


def raw_train_inputs(model: Any) -> Tensor:
    """The training inputs before the input transform, of the first output."""
    has_transformed = getattr(model, "_has_transformed_inputs", False)
    X = model._original_train_inputs if has_transformed else model.train_inputs[0]
    return X[0] if model.num_outputs > 1 else X


def transformed_inputs(model: Model, X: Tensor) -> Tensor:
    """The points as the kernel sees them, `N x d`, one for each row of `X`."""
    Z = model.transform_inputs(X)
    if Z.shape[:-1] != X.shape[:-1]:
        raise UnsupportedError(
            f"The input transform made {tuple(Z.shape)} of {tuple(X.shape)}; it needs "
            "to keep the number of points. Leave out InputPerturbation or "
            "AppendFeatures, or set transform_on_eval=False."
        )
    return Z


def pending_noise(model: Model) -> Tensor:
    """The noise variance of an evaluation to come, one an output; the mean if given."""
    noise = getattr(model.likelihood, "noise", None)
    if not isinstance(noise, Tensor):
        raise UnsupportedError(
            f"The likelihood {type(model.likelihood).__name__} has no `noise`; need "
            "one such as GaussianLikelihood or FixedNoiseGaussianLikelihood."
        )
    return noise.detach().mean(-1)


def untransformed_posterior(
    model: Model,
    mean: Tensor,
    covariance: Tensor,
    X: Tensor,
    posterior_transform: PosteriorTransform | None = None,
) -> Posterior:
    """A posterior at `batch_shape x q x d` points, from moments in the model's space.

    Means are `batch_shape x aug x q`, covariances `batch_shape x aug x q x q`. The
    posterior transform is applied last.
    """
    mean, covariance = mean.to(X.dtype), covariance.to(X.dtype)
    if model.num_outputs > 1:
        outputs = zip(mean.unbind(-2), covariance.unbind(-3), strict=True)
        mvn = MultitaskMultivariateNormal.from_independent_mvns(
            [MultivariateNormal(m, to_linear_operator(C)) for m, C in outputs]
        )
    else:  # as an operator: of a tensor a Cholesky factor would be taken at once
        mvn = MultivariateNormal(mean, to_linear_operator(covariance))
    posterior: Posterior = GPyTorchPosterior(mvn)
    if hasattr(model, "outcome_transform"):
        Z = model.transform_inputs(X)
        posterior = model.outcome_transform.untransform_posterior(posterior, X=Z)
    if posterior_transform is not None:
        posterior = posterior_transform(posterior=posterior, X=X)
    return posterior
