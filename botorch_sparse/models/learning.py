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
from torch import Tensor

from botorch_sparse.models.learned_points import NAME
from botorch_sparse.models.log_parameters import Bound, fit_gpytorch_mll_in_logarithms

# L-BFGS over thousands of coordinates of inducing points remembers more steps than
# SciPy's ten. On california_housing (n = 16512, 200 points) the objective per
# observation was 0.7048 and 0.6978 after 200 and 500 evaluations; with ten steps,
# 0.7072 and 0.7014.
OPTIONS = {"maxcor": 50, "maxiter": 1000}

# A search ends where so many evaluations gained less for each observation. SciPy's own
# criterion, a single step of little gain, ended one on california_housing after 20
# iterations, 0.003 above what the next hundred lead to: where it ends by itself,
# another one begins there.
EVALUATIONS = 200
GAIN = 5e-4


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

    Args:
        mll: The objective of a model whose points are parameters, in train mode.
        parameters: As in `fit_gpytorch_mll_scipy`.
        bounds: As in `fit_gpytorch_mll_scipy`.
        closure: Must be None: one's own knows nothing of units, and goes to
            `fit_gpytorch_mll_scipy`.
        options: Those of L-BFGS; `maxiter` counts the iterations of all runs.
        timeout_sec: Seconds for all runs.
        **kwargs: As in `fit_gpytorch_mll_scipy`.

    Returns:
        The result, with the evaluations of all runs as its `step`.
    """
    options = {**OPTIONS, **(options or {})}
    if closure is not None:
        kwargs.update(options=options, timeout_sec=timeout_sec)
        return fit_gpytorch_mll_scipy(mll, parameters, bounds, closure, **kwargs)
    start, steps, progress = time.monotonic(), 0, _Progress(mll)
    status, is_over = OptimizationStatus.SUCCESS, False
    with _quiet_after(progress):
        while not is_over:
            seconds, first = time.monotonic() - start, len(progress.best)
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
            steps, status = steps + result.step, result.status
            # Iterations or time are used up, or another run would gain as little.
            is_over = status is OptimizationStatus.STOPPED
            is_over = is_over or not progress.gain(len(progress.best) - first) >= GAIN
    progress.restore()
    return OptimizationResult(
        step=len(progress.best),
        fval=progress.best[-1] if progress.best else math.nan,
        status=status,
        runtime=time.monotonic() - start,
    )


@contextmanager
def _quiet_after(progress: "_Progress") -> Iterator[None]:
    """Drop the warnings of a failed search that had gained something before."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", category=OptimizationWarning)
        yield
    has_gained = progress.gain(len(progress.best)) >= GAIN
    for w in caught:
        if not (has_gained and issubclass(w.category, OptimizationWarning)):
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
    """

    def __init__(self, mll: MarginalLogLikelihood) -> None:
        self.best: list[float] = []  # the least loss up to each evaluation
        self._mll = mll
        self._parameters: dict[str, Tensor] = {}

    def __call__(self, loss: Tensor) -> None:
        """Note an evaluation of the present parameters."""
        value, best = float(loss), self.best[-1] if self.best else math.nan
        if math.isnan(best) or value < best:
            best, named = value, self._mll.named_parameters()
            self._parameters = {name: p.detach().clone() for name, p in named}
        self.best.append(best)
        if len(self.best) > EVALUATIONS and self.gain(EVALUATIONS + 1) < GAIN:
            raise _StalledError

    def gain(self, num_evaluations: int) -> float:
        """What so many of the last evaluations gained over the first one of them."""
        recent = self.best[len(self.best) - num_evaluations :]
        return recent[0] - recent[-1] if recent else 0.0

    @torch.no_grad()
    def restore(self) -> None:
        """Set the parameters of the best evaluation."""
        for name, parameter in self._mll.named_parameters():
            if name in self._parameters:
                parameter.copy_(self._parameters[name])
