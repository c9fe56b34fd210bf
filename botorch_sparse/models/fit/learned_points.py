"""Inducing points that a fit moves, as hyperparameters of the collapsed bound.

Raw inputs are learned: input transforms move them as they move the data. The bound of a
part of the data leads near the optimum of the bound of all, at a fraction of the cost.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf, nan
from typing import Any

import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.models import SingleTaskGP
from botorch.optim.core import OptimizationResult, OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.nn import Parameter

from botorch_sparse.models.fit.candidate_fits import (
    TOLERANCES,
    Fitted,
    Options,
    fit_once,
    keep_best,
    loss_of,
    with_optimizer,
)
from botorch_sparse.models.fit.exact_fit import is_divisible, on_random_rows
from botorch_sparse.models.fit.log_parameters import (
    Bound,
    Closure,
    fit_gpytorch_mll_in_logarithms,
)
from botorch_sparse.models.inducing_points import InducingSet
from botorch_sparse.models.training_data import raw_inputs

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

# L-BFGS over thousands of coordinates remembers more steps than SciPy's ten. On
# california_housing (n = 16512, 200 points) the loss per observation was 0.7048 and
# 0.6978 after 200 and 500 evaluations; with ten steps, 0.7072 and 0.7014.
OPTIONS = {"maxcor": 50, "maxiter": 1000}

# A search ends where the last `EVALUATIONS` lowered the loss per observation by less
# than `GAIN`. SciPy's own criterion, a single step of little gain, ended one on
# california_housing after 20 iterations, 0.003 above what the next hundred lead to:
# where a run of L-BFGS ends by itself, another one begins there.
EVALUATIONS = 200
GAIN = 5e-4


Run = Callable[..., OptimizationResult]


def fit_learned_points(mll: MarginalLogLikelihood, options: Options) -> None:
    """Move hyperparameters and points together, the first steps on a part of much data.

    Points that were learned before have these steps behind them. What lowers the bound
    of all data is not kept.
    """
    model = mll.model
    num_points, num_rows = len(model._inducing_set().rows.first), _num_rows(model)
    is_long = model.learned_points is None and num_points >= LEAST_RATIO * num_rows
    options = with_optimizer(options, fit_points_and_hyperparameters)
    with points_as_parameters(model):
        if is_long and is_divisible(mll, options):
            keep_best(mll, [lambda mll, _: Fitted.of(mll), fit_part], options, _gain)
        fit_once(mll, options)


@contextmanager
def points_as_parameters(model: SingleTaskGP) -> Iterator[None]:
    """Let optimizers see the inducing points, and keep where they end.

    On an error they are what they were, and the caller restores the rest.
    """
    learned, X = model.learned_points, raw_inputs(model)
    start = model._inducing_set().points.detach()
    points = Parameter(start.clone(memory_format=torch.contiguous_format))
    del model.learned_points
    model.register_parameter("learned_points", points)
    model._take(InducingSet.of_points(X, points))
    try:
        yield
        learned = points.detach()
    finally:
        del model.learned_points
        model.register_buffer("learned_points", learned)
    model._take(InducingSet.of_points(raw_inputs(model), learned))


def fit_part(mll: MarginalLogLikelihood, options: Options) -> Fitted:
    """Fit random rows; points that the model drew compete with some of the rows."""
    part, m = on_random_rows(mll, _num_rows(mll.model)), mll.model.num_inducing
    points, X = part.model.learned_points, raw_inputs(part.model)
    part.model._take(InducingSet.of_points(X, points))
    starts = [points.detach().clone()]
    if mll.model._given_points is None:
        starts += X[..., : (NUM_STARTS - 1) * m, :].split(m, dim=-2)
    begun = [partial(_fit_from, start) for start in starts]
    kwargs = options.get("optimizer_kwargs") or {}
    own = kwargs.get("options") or {}
    maxiter = min(own.get("maxiter", TRIAL_ITERATIONS), TRIAL_ITERATIONS)
    short = {**kwargs, "options": {**own, "maxiter": maxiter}}
    keep_best(part, begun, {**options, "optimizer_kwargs": short}, _gain)
    fit_once(part, options)
    return replace(Fitted.of(part), chosen=mll.model._inducing_set())


def _num_rows(model: SingleTaskGP) -> int:
    """The rows of the part."""
    return ROWS_PER_POINT * model.num_inducing


def _fit_from(start: Tensor, mll: MarginalLogLikelihood, options: Options) -> Fitted:
    """Fit from these points."""
    with torch.no_grad():
        mll.model.learned_points.copy_(start)
    fit_once(mll, options)
    return Fitted.of(mll)


def _gain(mll: MarginalLogLikelihood, _: object) -> Tensor:
    """The objective, of all outputs together."""
    return -loss_of(mll).sum()


def fit_points_and_hyperparameters(
    mll: MarginalLogLikelihood,
    parameters: dict[str, Tensor] | None = None,
    bounds: dict[str, Bound] | None = None,
    closure: Closure | None = None,
    *,
    options: dict[str, Any] | None = None,
    timeout_sec: float | None = None,
    **kwargs: Any,
) -> OptimizationResult:
    """`fit_gpytorch_mll_in_logarithms`, the points in units of the data's spread.

    It runs again from where it ended, until that gains little; a search that failed
    after it had gained something is over, and none from sampled priors follows.
    `maxiter` and `timeout_sec` (seconds) are for all runs; with a tolerance there is a
    single run. A `closure` of one's own knows nothing of units, and must be None. The
    result's `step` counts the evaluations of all runs.
    """
    if closure is not None:
        kwargs.update(options=options, timeout_sec=timeout_sec)
        return fit_gpytorch_mll_scipy(mll, parameters, bounds, closure, **kwargs)
    begun = time.monotonic()
    search = _Search(mll, can_stall={*TOLERANCES, "maxfun"}.isdisjoint(options or {}))
    kwargs.update(units=units_of_points(mll), on_evaluation=search.note)
    run = partial(fit_gpytorch_mll_in_logarithms, mll, parameters, bounds, **kwargs)
    with warnings.catch_warnings():
        # On these BoTorch tries again, and loses what was gained.
        warnings.simplefilter("ignore", category=OptimizationWarning)
        status = search.repeat(run, {**OPTIONS, **(options or {})}, timeout_sec)
    if status is OptimizationStatus.FAILURE:
        message = "L-BFGS failed before it gained anything."
        warnings.warn(message, OptimizationWarning, stacklevel=2)
    best, seconds = search.best, time.monotonic() - begun
    fval = best[-1] if best else nan
    return OptimizationResult(step=len(best), fval=fval, status=status, runtime=seconds)


def units_of_points(mll: MarginalLogLikelihood) -> dict[str, Tensor]:
    """The spread of each column of the training inputs, for the column of the points.

    So columns of whatever scale lead to the same steps.
    """
    spread = raw_inputs(mll.model).std(dim=-2)
    spread = spread.reshape(-1, spread.shape[-1]).mean(0)
    return {"model.learned_points": torch.where(spread > 0, spread, 1.0)}


class _StalledError(Exception):
    """The last evaluations gained too little to go on."""


class _Search:
    """Runs of an optimizer, what they gained, and where the loss was least."""

    def __init__(self, mll: MarginalLogLikelihood, can_stall: bool) -> None:
        self.best: list[float] = []  # the least loss up to each evaluation
        self._mll, self._can_stall = mll, can_stall
        self._values: dict[str, Tensor] = {}
        # The loss is a sum over elements of a batch and outputs.
        self._least_gain = GAIN * mll.model._aug_batch_shape.numel()

    def repeat(
        self, run: Run, options: dict[str, Any], timeout_sec: float | None
    ) -> OptimizationStatus:
        """Run until that gains little, and leave the best parameters."""
        status, end = OptimizationStatus.SUCCESS, time.monotonic() + (timeout_sec or 0)
        is_over = False
        while not is_over:
            left = None if timeout_sec is None else end - time.monotonic()
            num_before = len(self.best)
            try:
                result = run(options=options, timeout_sec=left)
            except (_StalledError, NotPSDError) as error:
                if isinstance(error, NotPSDError) and not self.has_gained():
                    raise
                break
            status = result.status
            options = {**options, "maxiter": options["maxiter"] - result.step}
            # Iterations or time are used up, or another run would gain as little.
            is_over = status is OptimizationStatus.STOPPED or not self._can_stall
            is_over = is_over or not self.has_gained(since=num_before)
        self.restore()
        return OptimizationStatus.SUCCESS if self.has_gained() else status

    def note(self, loss: Tensor) -> None:
        """Note an evaluation of the present parameters."""
        value, best = float(loss), self.best[-1] if self.best else inf
        if value < best:
            named = self._mll.named_parameters()
            self._values = {name: p.detach().clone() for name, p in named}
        self.best.append(value if value < best else best)
        num_before = len(self.best) - 1 - EVALUATIONS
        if self._can_stall and num_before >= 0 and not self.has_gained(num_before):
            raise _StalledError

    def has_gained(self, since: int = 0) -> bool:
        """Whether evaluations gained something over the first one after `since`."""
        recent = self.best[since:]
        return len(recent) > 0 and recent[0] - recent[-1] >= self._least_gain

    @torch.no_grad()
    def restore(self) -> None:
        """Set the parameters of the best evaluation."""
        for name, parameter in self._mll.named_parameters():
            parameter.copy_(self._values.get(name, parameter))
