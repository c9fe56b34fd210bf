"""Fits of an objective from several candidates, of which the best is kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isnan, pi
from typing import Any, Self

import torch
from botorch.exceptions import InputDataError, ModelFittingError
from botorch.exceptions.errors import OptimizationGradientError
from botorch.optim.closures import get_loss_closure
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import ExactGP
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from botorch_sparse.argument_checks import nonfinite_names
from botorch_sparse.models.fit.log_parameters import (
    GAIN,
    fit_gpytorch_mll_in_logarithms,
)
from botorch_sparse.models.inducing_points import DEFAULT_SEED, InducingSet
from botorch_sparse.models.training_data import TrainingData
from botorch_sparse.posteriors.leave_one_out import leave_one_out
from botorch_sparse.private_names import fit_fallback

# Observations left out, one at a time, to compare two sets of hyperparameters: at most,
# and with fewer than the least of them inducing points are asked as well.
NUM_LEFT_OUT = 2000
LEAST_LEFT_OUT = 50

# Options of L-BFGS that say when it ends, beside numbers of steps.
TOLERANCES = {"ftol", "gtol", "factr", "pgtol"}

# What a fit can fail with for numerical reasons.
NUMERICAL_ERRORS = (
    ModelFittingError,
    NotPSDError,
    NanError,
    OptimizationGradientError,
    InputDataError,
    torch.linalg.LinAlgError,
)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit leads to: the parameters of the objective, and inducing points."""

    hyperparameters: dict[str, Tensor]
    chosen: InducingSet | None  # None: they are drawn when they are needed

    @classmethod
    def of(cls, mll: MarginalLogLikelihood) -> Self:
        """A copy of the present ones."""
        values = {name: p.detach().clone() for name, p in mll.named_parameters()}
        return cls(values, mll.model._state.chosen)

    @torch.no_grad()
    def give(self, mll: MarginalLogLikelihood) -> None:
        """Set them, in train mode: input transforms are applied anew in eval mode."""
        for name, parameter in mll.train().named_parameters():
            parameter.copy_(self.hyperparameters[name])
        mll.model._take(self.chosen)


Options = dict[str, Any]  # of `fit_gpytorch_mll`
Candidate = Callable[[MarginalLogLikelihood, Options], Fitted]
# Of the objective as it is, among fits of which one is to be kept.
Score = Callable[[MarginalLogLikelihood, Sequence[Fitted]], Tensor]


def keep_best(
    mll: MarginalLogLikelihood,
    candidates: Sequence[Candidate],
    options: Options,
    score: Score,
) -> list[Fitted]:
    """Fit each candidate from the present values, and keep the one that scores best.

    What fails or is NaN loses; of equals the first is kept. If all failed, what the
    first candidate raised is raised.

    Returns:
        What was kept, and after it the other fits.
    """
    start, fits, errors = Fitted.of(mll), list[Fitted](), list[Exception]()
    for candidate in candidates:
        start.give(mll)
        try:
            fits.append(candidate(mll, options))
        except NUMERICAL_ERRORS as error:
            errors.append(error)
    if not fits:
        raise errors[0]
    if len(fits) == 1:
        fits[0].give(mll)
        return fits
    scores = [_score(mll, fitted, fits, score) for fitted in fits]
    best = fits[scores.index(max(scores))]
    if best is not fits[-1]:  # which the objective has, with its posterior
        best.give(mll)
    return [best, *(fitted for fitted in fits if fitted is not best)]


def _score(
    mll: MarginalLogLikelihood, fitted: Fitted, fits: Sequence[Fitted], score: Score
) -> float:
    """The score of a fit, which the objective has then."""
    fitted.give(mll)
    try:
        value = float(score(mll, fits))
    except NUMERICAL_ERRORS:
        return -inf
    return -inf if isnan(value) else value


def left_out_density(mll: MarginalLogLikelihood, fits: Sequence[Fitted] = ()) -> Tensor:
    """Mean log predictive density of observations left out; in eval mode then.

    In the units of the transformed outcomes, over all elements of a batch. The
    observations are the last of `shuffled_rows`, whose first ones the exact subset
    holds. None is an inducing point of any fit. At an inducing point the residual
    variance is zero: with small noise a posterior is too certain by far, and the better
    fit seems the worse one.
    """
    model = mll.eval().model
    data = TrainingData.of(model, model._inducing_set().rows)
    rows = _ordinary_rows(model, fits)[-NUM_LEFT_OUT:]
    X, Y, noise = data.X[..., rows, :], data.Y[..., rows], data.noise[..., rows]
    with torch.no_grad():
        loo = leave_one_out(model.nystrom_posterior(), X, Y, noise)
        variance = loo.variance + noise
        error = (Y - loo.mean).square() / variance
        return -0.5 * ((2 * pi * variance).log() + error).mean()


def _ordinary_rows(model: ExactGP, fits: Sequence[Fitted]) -> Tensor:
    """Shuffled rows that no sparse fit has as inducing points, if enough; else all."""
    rows, group = shuffled_rows(model), model._inducing_set().rows.inverse
    is_inducing = torch.zeros_like(group, dtype=torch.bool)
    for fitted in fits:
        chosen = fitted.chosen
        if chosen is None or chosen.index is None or chosen.is_complete:
            continue
        is_inducing[group[chosen.index.reshape(-1)]] = True
    ordinary = rows[~is_inducing[group[rows]]]
    return ordinary if len(ordinary) >= LEAST_LEFT_OUT else rows


def shuffled_rows(model: ExactGP) -> Tensor:
    """All rows of the training data in a random order, the same in each fit."""
    Y = model.train_targets
    generator = torch.Generator().manual_seed(DEFAULT_SEED)
    return torch.randperm(Y.shape[-1], generator=generator).to(Y.device)


@torch.no_grad()
def loss_of(mll: MarginalLogLikelihood) -> Tensor:
    """The objective per observation, negated, under the present inducing points."""
    return get_loss_closure(mll.train())()


def fit_once(mll: MarginalLogLikelihood, options: Options) -> None:
    """BoTorch's fit, with a hint where it fails and never with NaN as its result."""
    try:
        fit_fallback(mll, **options)
        unset = nonfinite_names(dict(mll.named_parameters()))
        if unset:
            raise ModelFittingError(f"{', '.join(unset)} became NaN or infinite.")
    except NUMERICAL_ERRORS as error:
        raise ModelFittingError(
            f"The fit failed and the model is as it was before: {error} Try inputs in "
            "the unit cube (input_transform=Normalize(d)), standardized observations "
            "(the default outcome transform), float64, and kernel parameters with "
            "priors or constraints that keep them from zero and infinity."
        ) from error


def with_optimizer(options: Options, optimizer: Callable[..., object]) -> Options:
    """The options of a fit, with this optimizer where no other was asked for."""
    kwargs = options.get("optimizer_kwargs") or {}
    is_asked = "optimizer" in options or "method" in kwargs
    return options if is_asked else {**options, "optimizer": optimizer}


def in_few_steps(options: Options) -> Options:
    """Options of a fit in logarithms that ends where its steps gain little.

    Unless they say themselves which optimizer to take, or when to end.
    """
    own = with_optimizer(options, fit_gpytorch_mll_in_logarithms)
    if own is options:
        return options
    kwargs = options.get("optimizer_kwargs") or {}
    given = kwargs.get("options") or {}
    if not TOLERANCES.isdisjoint(given):
        return own
    limits = {**given, "ftol": GAIN}
    return {**own, "optimizer_kwargs": {**kwargs, "options": limits}}
