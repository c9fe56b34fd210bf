"""Fits to a part of the data: a second opinion, and the first steps of learning."""

import copy
import math
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
from botorch_sparse.models.fitting import NUMERICAL_ERRORS, fit_once, loss_of
from botorch_sparse.models.inducing_set import InducingSet
from botorch_sparse.models.leave_one_out import leave_one_out_score
from botorch_sparse.models.log_parameters import fit_gpytorch_mll_in_logarithms
from botorch_sparse.posteriors import RepeatedRows

# Observations left out, one at a time, to compare two sets of hyperparameters.
NUM_LEFT_OUT = 2000

# Observations for each inducing point in the first steps of learning. On sgemm_gpu
# (n = 40000, 50 points) 500 evaluations on 5000 rows and 100 on all lead where 750 on
# all rows do, in a quarter of the time. With less than so many times the rows of the
# part there is too little to save.
ROWS_PER_POINT = 100
LEAST_RATIO = 4

# Sets of points that learning may begin with, and iterations after which one of them is
# chosen. On sgemm_gpu (n = 40000, 20 points) the loss per observation that two of them
# led to was 0.340 and 0.323, and that on the part had told which.
NUM_STARTS = 3
TRIAL_ITERATIONS = 200

Hyperparameters = dict[str, Tensor]


class FitOnFewMixin:
    """Random parts of the data for `FittingMixin`.

    The collapsed bound is a bound: it explains by noise what few inducing points leave
    over. The exact likelihood of a random subset has no such bias and less data. Which
    of the two serves a data set is seen on observations that are left out, all outputs
    together.

    Where the inducing points are learned, the bound of a part of the data leads near
    the optimum of the bound of all, at a fraction of the cost of an evaluation.
    """

    likelihood: Any
    resparsify: Callable[..., Any]
    _inducing: Any
    _has_warned: bool
    _given_points: Tensor | None
    _keeps_all_of_few: bool
    _unique_rows: Callable[..., Any]
    _takes_all: Callable[..., bool]
    _aug_batch_shape: torch.Size
    _has_learned: bool
    num_inducing: int

    def _fit_on_few(
        self, mll: MarginalLogLikelihood, options: dict[str, Any]
    ) -> Hyperparameters | None:
        """Fit `EXACT_SIZE` random observations by their exact likelihood.

        Args:
            mll: The objective, whose hyperparameters the fit starts from; they stay.
            options: Those of the fit.

        Returns:
            The hyperparameters; None where the model draws no points of its own, where
            model or objective cannot be copied with a part of the data, where the
            options name parameters or a limit of time, or where the fit failed.
        """
        draws = self._given_points is None and self._keeps_all_of_few
        if not draws or self._takes_all(self._unique_rows()):
            return None
        few = self._on_random_rows(mll, EXACT_SIZE, options)
        if few is None:
            return None
        if few.model._aug_batch_shape.numel() == 1:
            options = {"optimizer": fit_gpytorch_mll_in_logarithms, **options}
        return _fitted(few, options)

    def _learn_on_part(
        self, mll: MarginalLogLikelihood, options: dict[str, Any]
    ) -> None:
        """Take the first steps of learned points on a part of much data.

        Points that were learned before have these steps behind them. Those that the
        model draws compete with random rows. What lowers the bound of all data is not
        kept.

        Args:
            mll: The objective, the points among its parameters; they all move.
            options: Those of the fit.
        """
        num_rows = ROWS_PER_POINT * self.num_inducing
        if self._has_learned or len(self._unique_rows().first) < LEAST_RATIO * num_rows:
            return
        num_starts = NUM_STARTS if self._given_points is None else 1
        parts = [self._part(mll, num_rows, i, options) for i in range(num_starts)]
        begun = [part for part in parts if part and _fitted(part, _short(options))]
        if not begun:
            return
        learned = _fitted(min(begun, key=_total_loss), options)
        if learned is None:
            return
        before, loss = _hyperparameters(mll), _total_loss(mll)
        _assign(mll, learned)
        if _total_loss(mll) >= loss:
            _assign(mll, before)

    def _part(
        self,
        mll: MarginalLogLikelihood,
        num_rows: int,
        start: int,
        options: dict[str, Any],
    ) -> Any:
        """The bound of random rows with the points there are, or others of the rows."""
        part = self._on_random_rows(mll, num_rows, options)
        if part is None:
            return None
        points, X = part.model.learned_points, part.model._raw_train_X()
        if start > 0:
            m = points.shape[-2]
            with torch.no_grad():
                points.copy_(X[..., (start - 1) * m : start * m, :])
        part.model._use(part.model._inducing, points)
        return part

    def _on_random_rows(
        self, mll: MarginalLogLikelihood, num_rows: int, options: dict[str, Any]
    ) -> Any:
        """A copy of the objective on random rows, or None where there can be none."""
        if not is_divisible(self.likelihood) or _names_parameters(options):
            return None
        try:
            return on_rows(mll.train(), self._shuffled_rows()[:num_rows])
        except RuntimeError:  # deepcopy: a module holds a tensor with history
            return None

    def _keep_the_better(
        self, mll: MarginalLogLikelihood, few: Hyperparameters
    ) -> None:
        """Keep those hyperparameters that predict better what is left out.

        Cost: O(n m^2), twice.
        """
        # Those last that `few` was fitted to.
        rows = self._shuffled_rows().flip(0)[:NUM_LEFT_OUT]
        fitted = _hyperparameters(mll)
        score, chosen = self._score(mll, rows), self._inducing
        has_warned, self._has_warned = self._has_warned, True
        _assign(mll, few)
        try:
            self.resparsify()
            is_better = self._score(mll, rows) > score
        except NUMERICAL_ERRORS:
            is_better = False
        self._has_warned = has_warned
        if is_better:
            return
        _assign(mll, fitted)
        self._inducing = chosen

    def _score(self, mll: MarginalLogLikelihood, rows: Tensor) -> float:
        """The mean log density of some observations; minus infinity where it fails."""
        mll.eval()
        try:
            score = float(leave_one_out_score(self, rows))
        except NUMERICAL_ERRORS:
            return -math.inf
        return -math.inf if math.isnan(score) else score

    def _shuffled_rows(self) -> Tensor:
        """All rows of the training data in a random order, the same in each fit."""
        rows = self._unique_rows().inverse
        generator = torch.Generator().manual_seed(DEFAULT_SEED)
        return torch.randperm(len(rows), generator=generator).to(rows.device)


def is_divisible(likelihood: _GaussianLikelihoodBase) -> bool:
    """Whether `on_rows` knows what in the likelihood belongs to the data."""
    return type(likelihood) in (GaussianLikelihood, FixedNoiseGaussianLikelihood)


def on_rows(mll: MarginalLogLikelihood, rows: Tensor) -> Any:
    """A copy of the objective for some rows of its data: the exact GP, in train mode.

    What transforms of the inputs have learned from all data stays.
    """
    few = copy.deepcopy(mll)
    model = few.model
    model._is_fitting = True  # BoTorch's retries load checkpoints
    for module in getattr(model, "input_transform", torch.nn.Module()).modules():
        if hasattr(module, "learn_coefficients"):
            module.learn_coefficients = False
    inputs = tuple(X[..., rows, :] for X in model.train_inputs)
    model.set_train_data(inputs, model.train_targets[..., rows], strict=False)
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        noise = model.likelihood.noise_covar
        noise.noise = noise.noise[..., rows]
    X = model._raw_train_X()
    found = RepeatedRows.find(X)
    index = torch.arange(len(found.first), device=X.device)
    model._inducing = InducingSet.from_index(X, found, index)
    return few


def _names_parameters(options: dict[str, Any]) -> bool:
    """Whether the options of a fit belong to this very objective."""
    kwargs = options.get("optimizer_kwargs") or {}
    named = {"parameters", "bounds", "callback", "timeout_sec"}
    has_arguments = options.get("closure_kwargs") is not None
    return has_arguments or bool(named & (kwargs.keys() | options.keys()))


def _short(options: dict[str, Any]) -> dict[str, Any]:
    """The same options with `TRIAL_ITERATIONS` at most."""
    kwargs = options.get("optimizer_kwargs") or {}
    own = kwargs.get("options") or {}
    maxiter = min(own.get("maxiter", TRIAL_ITERATIONS), TRIAL_ITERATIONS)
    kwargs = {**kwargs, "options": {**own, "maxiter": maxiter}}
    return {**options, "optimizer_kwargs": kwargs}


def _fitted(
    mll: MarginalLogLikelihood, options: dict[str, Any]
) -> Hyperparameters | None:
    """The parameters after a fit; None where it failed."""
    try:
        fit_once(mll, **options)
    except ModelFittingError:
        return None
    return _hyperparameters(mll)


def _total_loss(mll: MarginalLogLikelihood) -> float:
    """The objective, negated, of all outputs together; infinity where it fails."""
    try:
        loss = float(loss_of(mll).sum())
    except NUMERICAL_ERRORS:
        return math.inf
    return math.inf if math.isnan(loss) else loss


def _hyperparameters(mll: MarginalLogLikelihood) -> Hyperparameters:
    """A copy of the present values."""
    return {name: p.detach().clone() for name, p in mll.named_parameters()}


@torch.no_grad()
def _assign(mll: MarginalLogLikelihood, values: Hyperparameters) -> None:
    """Set the hyperparameters; transforms are applied again in the next mode."""
    mll.train()
    for name, parameter in mll.named_parameters():
        parameter.copy_(values[name])
