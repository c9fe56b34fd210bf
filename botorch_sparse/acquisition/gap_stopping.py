r"""Stop when the best upper and the best lower confidence bound are close.

While the bounds hold, the maximum of the function lies below the largest upper bound,
and the point of the largest lower bound is worth at least that bound: its simple regret
is at most

.. math:: \max_x (\mu(x) + w(x)) - \max_x (\mu(x) - w(x))
"""

from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions import InputDataError
from botorch.models.model import Model
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.utils.sampling import manual_seed
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import validate_beta
from botorch_sparse.argument_checks import (
    as_bounds,
    check_kind,
    check_number,
    check_tensors,
    short_repr,
)


def confidence_gap(mean: Tensor, width: Tensor) -> Tensor:
    """The largest upper minus the largest lower bound, never negative.

    Args:
        mean: `... x A` posterior means.
        width: `... x A` widths: multiplier times standard deviation, plus an offset.

    Returns:
        A `...` tensor, in units of the mean.
    """
    check_tensors(mean=mean, width=width)
    return (mean + width).amax(-1) - (mean - width).amax(-1)


@dataclass(frozen=True)
class ConfidenceGapStopping:
    """Stop when the gap of `confidence_gap` is at most a tolerance.

    Args:
        tolerance: Largest simple regret accepted, in units of Y, non-negative.

    Example:
        >>> rule = ConfidenceGapStopping(tolerance=0.5)
        >>> rule.should_stop(torch.tensor([0.0, 1.0]), torch.tensor([0.2, 0.2]))
        True
    """

    tolerance: float

    def __post_init__(self) -> None:
        need = "need a number of at least 0, the simple regret that is accepted."
        check_number("tolerance", self.tolerance, "[0, inf]", need)

    def should_stop(self, mean: Tensor, width: Tensor) -> bool:
        """Whether to stop, given means and widths of all candidates (`A`)."""
        return bool(confidence_gap(mean, width).item() <= self.tolerance)

    def should_stop_model(self, model: Model, beta: float, **domain: Any) -> bool:
        """Whether to stop, given a model; arguments as in `model_confidence_gap`."""
        return model_confidence_gap(model, beta, **domain) <= self.tolerance


def model_confidence_gap(
    model: Model,
    beta: float,
    *,
    choices: Tensor | None = None,
    bounds: Tensor | None = None,
    posterior_transform: PosteriorTransform | None = None,
    maximize: bool = True,
    optimizer_options: dict[str, Any] | None = None,
) -> float:
    r"""The gap of a model's bounds :math:`\mu \pm \beta^{1/2} \sigma` over a domain.

    Over a box both maxima come from local searches. One that is missed below makes the
    gap too large, which is safe; one above makes it too small: give enough restarts.

    Args:
        model: A fitted model.
        beta: BoTorch's beta, the square of the multiplier, non-negative.
        choices: `A x d` choices, or
        bounds: a `2 x d` tensor of lower and upper bounds.
        posterior_transform: Needed for several outputs.
        maximize: If False, the gap between the smallest bounds.
        optimizer_options: For `optimize_acqf`: constraints, `num_restarts` (20),
            `raw_samples` (512), `options` with a `seed`, ...
    """
    if (choices is None) == (bounds is None):
        raise InputDataError("Give either choices or bounds.")
    check_kind("model", model, Model, "a fitted model, such as a SingleTaskGP")
    validate_beta(beta)
    if choices is None:
        bounds = as_bounds(bounds)
    elif choices.dim() != 2 if isinstance(choices, Tensor) else True:
        raise InputDataError(
            f"Got choices={short_repr(choices)}; need an `A x d` tensor."
        )
    upper, lower = (
        largest_value(
            kind(model, beta, posterior_transform, maximize),
            choices,
            bounds,
            optimizer_options,
        )
        for kind in (UpperConfidenceBound, LowerConfidenceBound)
    )
    return upper - lower


def largest_value(
    acqf: AcquisitionFunction,
    choices: Tensor | None,
    bounds: Tensor | None,
    optimizer_options: dict[str, Any] | None,
) -> float:
    """The largest value of one point; the domain as in `model_confidence_gap`."""
    if choices is not None:
        _, value = optimize_acqf_discrete(acqf, q=1, choices=choices)
    else:
        options: dict[str, Any] = {"num_restarts": 20, "raw_samples": 512}
        options |= optimizer_options or {}
        with manual_seed((options.get("options") or {}).get("seed")):
            _, value = optimize_acqf(acqf, bounds=bounds, q=1, **options)
    return float(value)


class LowerConfidenceBound(UpperConfidenceBound):
    r"""The bound :math:`\mu(x) - \beta^{1/2} \sigma(x)`, to be maximized.

    Its maximizer is the point of the best guaranteed value. (With `maximize=False`,
    :math:`-\mu(x) - \beta^{1/2} \sigma(x)`.) Arguments as in `UpperConfidenceBound`.
    """

    def __init__(
        self,
        model: Model,
        beta: float | Tensor,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
    ) -> None:
        check_kind("model", model, Model, "a fitted model, such as a SingleTaskGP")
        validate_beta(beta)
        super().__init__(model, beta, posterior_transform, maximize)

    @t_batch_mode_transform(expected_q=1)
    def forward(self, X: Tensor) -> Tensor:
        """The bound at each point, `batch_shape`, from `batch_shape x 1 x d` points."""
        check_tensors(X=X)
        mean, sigma = self._mean_and_sigma(X)
        value = (mean if self.maximize else -mean) - self.beta.to(mean).sqrt() * sigma
        return torch.squeeze(value, -1)
