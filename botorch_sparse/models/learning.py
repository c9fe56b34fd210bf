"""The optimizer of learned inducing points, together with hyperparameters."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.optim.core import OptimizationResult, OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_sparse.models.learned_points import NAME
from botorch_sparse.models.log_parameters import Bound, fit_gpytorch_mll_in_logarithms

# L-BFGS over thousands of coordinates of inducing points remembers more steps than
# SciPy's ten. On california_housing (n = 16512, 200 points) the objective per
# observation was 0.7048 and 0.6978 after 200 and 500 evaluations; with ten steps,
# 0.7072 and 0.7014.
OPTIONS = {"maxcor": 50, "maxiter": 1000}

# A search ends where the last `EVALUATIONS` lowered the loss per observation by less
# than `GAIN`. SciPy's own criterion, a single step of little gain, ended one on
# california_housing after 20 iterations, 0.003 above what the next hundred lead to:
# where a run of L-BFGS ends by itself, another one begins there.
EVALUATIONS = 200
GAIN = 5e-4

# Options that ask for SciPy's criterion.
TOLERANCES = {"ftol", "gtol", "factr", "pgtol", "maxfun"}


def fit_points_and_hyperparameters(
    mll: MarginalLogLikelihood,
    parameters: dict[str, Tensor] | None = None,
    bounds: dict[str, Bound] | None = None,
    closure: Callable[[], tuple[Tensor, Sequence[Tensor | None]]] | None = None,
    *,
    options: dict[str, Any] | None = None,
    timeout_sec: float | None = None,
    **kwargs: Any,
) -> OptimizationResult:
    """`fit_gpytorch_mll_in_logarithms`, the points in units of the data's spread.

    It runs again from where it ended, until that gains little; a search that failed
    after it had gained something is over, and none from sampled priors follows.

    Args:
        mll: The objective of a model whose points are parameters, in train mode.
        parameters: As in `fit_gpytorch_mll_scipy`.
        bounds: As in `fit_gpytorch_mll_scipy`.
        closure: Must be None: one's own knows nothing of units, and goes to
            `fit_gpytorch_mll_scipy`.
        options: Those of L-BFGS. `maxiter` counts the iterations of all runs; with a
            tolerance there is a single run, which ends by it.
        timeout_sec: Seconds for all runs.
        **kwargs: As in `fit_gpytorch_mll_scipy`. A `callback` sees the variables of the
            optimizer, logarithms and units.

    Returns:
        The result, with the evaluations of all runs as its `step`.
    """
    has_tolerance = bool(TOLERANCES & (options or {}).keys())
    options = {**OPTIONS, **(options or {})}
    if closure is not None:
        kwargs.update(options=options, timeout_sec=timeout_sec)
        return fit_gpytorch_mll_scipy(mll, parameters, bounds, closure, **kwargs)
    start, steps, progress = time.monotonic(), 0, _Progress(mll, not has_tolerance)
    status, is_over = OptimizationStatus.SUCCESS, False
    with _quiet_after_gain(progress):
        while not is_over:
            seconds, num_before = time.monotonic() - start, len(progress.best)
            try:
                result = fit_gpytorch_mll_in_logarithms(
                    mll,
                    parameters,
                    bounds,
                    units=units_of_points(mll),
                    on_evaluation=progress,
                    options={**options, "maxiter": options["maxiter"] - steps},
                    timeout_sec=None if timeout_sec is None else timeout_sec - seconds,
                    **kwargs,
                )
            except _StalledError:
                break
            except NotPSDError:
                if progress.has_gained():
                    break
                raise
            steps, status = steps + result.step, result.status
            # Iterations or time are used up, or another run would gain as little.
            is_over = status is OptimizationStatus.STOPPED or has_tolerance
            is_over = is_over or not progress.has_gained(since=num_before)
    progress.restore()
    return OptimizationResult(
        step=len(progress.best),
        fval=progress.best[-1] if progress.best else math.nan,
        status=OptimizationStatus.SUCCESS if progress.has_gained() else status,
        runtime=time.monotonic() - start,
    )


@contextmanager
def _quiet_after_gain(progress: "_Progress") -> Iterator[None]:
    """Drop the optimizer's warnings where it gained something; BoTorch retries on them.

    What it reached would be lost.
    """
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", category=OptimizationWarning)
            yield
    finally:
        for w in caught:
            is_optimizers = issubclass(w.category, OptimizationWarning)
            if not (is_optimizers and progress.has_gained()):
                warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)


def units_of_points(mll: MarginalLogLikelihood) -> dict[str, Tensor]:
    """The spread of each column of the training inputs, for the column of the points.

    So columns of whatever scale lead to the same steps. (Units in which the gradient
    has one size in all columns as well shorten the end of a search and harm its
    beginning, where the gradient says nothing of the lengthscales to come.)
    """
    spread = mll.model._raw_train_X().std(dim=-2)
    spread = spread.reshape(-1, spread.shape[-1]).mean(0)
    return {f"model.{NAME}": torch.where(spread > 0, spread, 1.0)}


class _StalledError(Exception):
    """The last evaluations gained too little to go on."""


class _Progress:
    """What a search has gained, and the parameters of its best evaluation.

    Args:
        mll: The objective.
        can_stall: Whether to end the search where little is gained.
    """

    def __init__(self, mll: MarginalLogLikelihood, can_stall: bool = True) -> None:
        self.best: list[float] = []  # the least loss up to each evaluation
        self._mll = mll
        self._parameters: dict[str, Tensor] = {}
        # The loss is a sum over elements of a batch and outputs.
        self._least_gain = GAIN * mll.model._aug_batch_shape.numel()
        self._can_stall = can_stall

    def __call__(self, loss: Tensor) -> None:
        """Note an evaluation of the present parameters."""
        value, best = float(loss), self.best[-1] if self.best else math.nan
        if math.isnan(best) or value < best:
            best, named = value, self._mll.named_parameters()
            self._parameters = {name: p.detach().clone() for name, p in named}
        self.best.append(best)
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
            if name in self._parameters:
                parameter.copy_(self._parameters[name])
