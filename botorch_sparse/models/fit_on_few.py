"""Hyperparameters by the exact likelihood of a few observations, as a candidate."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from botorch.exceptions import ModelFittingError
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    _GaussianLikelihoodBase,
)
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models.adaptive_inducing import DEFAULT_SEED, EXACT_SIZE
from botorch_sparse.models.fitting import fit_once
from botorch_sparse.models.leave_one_out import leave_one_out_score
from botorch_sparse.models.log_parameters import fit_gpytorch_mll_in_logarithms

# Observations left out, one at a time, to compare two sets of hyperparameters.
NUM_LEFT_OUT = 2000

Hyperparameters = dict[str, Tensor]


class FitOnFewMixin:
    """A second opinion for `FittingMixin`.

    The collapsed bound is a bound: it explains by noise what few inducing points leave
    over. The exact likelihood of a random subset has no such bias and less data. Which
    of the two serves a data set is seen on observations that are left out.
    """

    likelihood: Any
    training: bool
    resparsify: Callable[..., Any]
    _inducing: Any
    _given_points: Tensor | None
    _keeps_all_of_few: bool
    _unique_rows: Callable[..., Any]
    _takes_all: Callable[..., bool]
    _aug_batch_shape: torch.Size
    _clear_cache: Callable[[], None]

    def _fit_on_few(
        self, mll: MarginalLogLikelihood, options: dict[str, Any]
    ) -> Hyperparameters | None:
        """Fit `EXACT_SIZE` random observations by their exact likelihood.

        Args:
            mll: The objective; its hyperparameters become the fitted ones.
            options: Those of the fit.

        Returns:
            The hyperparameters; None where the model draws no points of its own, has a
            likelihood with data that cannot be divided, or where the fit failed.
        """
        draws = self._given_points is None and self._keeps_all_of_few
        if not draws or self._takes_all(self._unique_rows()):
            return None
        if not _is_divisible(self.likelihood):
            return None
        few = _on_rows(mll.train(), self._random_rows(EXACT_SIZE))
        if few.model._aug_batch_shape.numel() == 1:
            options = {"optimizer": fit_gpytorch_mll_in_logarithms, **options}
        try:
            fit_once(few, **options)
        except ModelFittingError:
            return None
        found = {name: p.detach().clone() for name, p in few.named_parameters()}
        _assign(mll, found)
        self._clear_cache()
        return found

    def _keep_the_better(
        self, mll: MarginalLogLikelihood, few: Hyperparameters
    ) -> None:
        """Keep those hyperparameters that predict better what is left out.

        Cost: O(n m^2), twice.
        """
        rows = self._random_rows(NUM_LEFT_OUT)
        fitted = {name: p.detach().clone() for name, p in mll.named_parameters()}
        mll.eval()
        chosen, score = self._inducing, leave_one_out_score(self, rows)
        _assign(mll, few)
        self._clear_cache()
        self.resparsify()
        if leave_one_out_score(self, rows) > score:
            return
        _assign(mll, fitted)
        self._inducing = chosen
        self._clear_cache()

    def _random_rows(self, num: int) -> Tensor:
        """At most `num` rows of the training data, the same ones in each fit."""
        rows = self._unique_rows().inverse
        generator = torch.Generator().manual_seed(DEFAULT_SEED)
        return torch.randperm(len(rows), generator=generator)[:num].to(rows.device)


def _is_divisible(likelihood: _GaussianLikelihoodBase) -> bool:
    """Whether `_on_rows` knows what in the likelihood belongs to the data."""
    return type(likelihood) in (GaussianLikelihood, FixedNoiseGaussianLikelihood)


def _on_rows(mll: MarginalLogLikelihood, rows: Tensor) -> Any:
    """A copy of the objective for some rows of its data, in train mode."""
    few = copy.deepcopy(mll)
    model = few.model
    inputs = tuple(X[..., rows, :] for X in model.train_inputs)
    model.set_train_data(inputs, model.train_targets[..., rows], strict=False)
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        noise = model.likelihood.noise_covar
        noise.noise = noise.noise[..., rows]
    return few


@torch.no_grad()
def _assign(mll: MarginalLogLikelihood, values: Hyperparameters) -> None:
    """Set the hyperparameters."""
    for name, parameter in mll.named_parameters():
        parameter.copy_(values[name])
