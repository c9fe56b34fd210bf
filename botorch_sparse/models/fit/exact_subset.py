"""The exact likelihood of random rows, a rival of the bound of all.

The collapsed bound explains by noise what few inducing points leave over. The exact
likelihood of a random subset has no such bias and less data. Which of the two serves a
data set is seen on observations that are left out, all outputs together.
"""

import copy
from dataclasses import replace

from botorch.exceptions import ModelFittingError
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.noise_models import FixedGaussianNoise
from gpytorch.mlls import MarginalLogLikelihood

from botorch_sparse.models.fit.candidate_fits import (
    Fitted,
    Options,
    fit_once,
    shuffled_rows,
    with_optimizer,
)
from botorch_sparse.models.fit.log_parameters import fit_gpytorch_mll_in_logarithms
from botorch_sparse.models.inducing_points import EXACT_SIZE, InducingSet
from botorch_sparse.models.training_data import raw_inputs


def fit_exact_subset(
    mll: MarginalLogLikelihood, options: Options, num_rows: int = EXACT_SIZE
) -> Fitted:
    """Fit some random rows; all data then have inducing points under it."""
    few, model = on_random_rows(mll, num_rows), mll.model
    if model._aug_batch_shape.numel() == 1:
        options = with_optimizer(options, fit_gpytorch_mll_in_logarithms)
    fit_once(few, options)
    fitted = replace(Fitted.of(few), chosen=model._inducing_set())
    fitted.give(mll)
    return replace(fitted, chosen=model._draw(model._points()))


def on_random_rows(mll: MarginalLogLikelihood, num_rows: int) -> MarginalLogLikelihood:
    """A copy of the objective for random rows of its data: the exact GP, in train mode.

    What transforms of the inputs have learned from all data stays.
    """
    model, rows = mll.train().model, shuffled_rows(mll.model)[:num_rows]
    of_rows = {id(X): X[..., rows, :] for X in model.train_inputs}
    of_rows[id(model.train_targets)] = model.train_targets[..., rows]
    of_rows[id(model._state)] = type(model._state)()
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        noise = model.likelihood.noise_covar
        of_rows[id(noise)] = FixedGaussianNoise(noise.noise[..., rows])
    try:
        part = copy.deepcopy(mll, of_rows)
    except RuntimeError as error:
        raise ModelFittingError(f"The objective cannot be copied: {error}") from error
    for module in part.modules():
        if hasattr(module, "learn_coefficients"):
            module.learn_coefficients = False
    part.model._is_fitting = True  # BoTorch's retries load checkpoints
    part.model._take(InducingSet.of_all(raw_inputs(part.model)))
    return part


def is_divisible(mll: MarginalLogLikelihood, options: Options) -> bool:
    """Whether random rows of the objective can be fitted with the same options.

    Data in the likelihood must be known, and no option may belong to this objective
    alone.
    """
    divisible = (GaussianLikelihood, FixedNoiseGaussianLikelihood)
    kwargs: Options = options.get("optimizer_kwargs") or {}
    named = {"parameters", "bounds", "callback", "timeout_sec"}
    return (
        type(mll.model.likelihood) in divisible
        and options.get("closure_kwargs") is None
        and named.isdisjoint([*kwargs, *options])
    )
