"""BoTorch's fit over the logarithms of positive hyperparameters.

BoTorch's default lengthscale and noise have no transform: L-BFGS sees them as they are,
a noise variance of 1e-3 beside a lengthscale of 30. In logarithms the same optimum
takes a fraction of the evaluations (`test/models/test_fit_log_parameters.py`).
"""

import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.optim.closures import get_loss_closure_with_grads
from botorch.optim.closures.core import NdarrayOptimizationClosure
from botorch.optim.core import OptimizationResult, OptimizationStatus, scipy_minimize
from botorch.optim.fit import fit_gpytorch_mll_scipy
from botorch.optim.utils import get_bounds_as_ndarray, get_parameters_and_bounds
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models.fit.newton import End, hessian, newton
from botorch_sparse.models.fit.plain_likelihood import Bound, Closure, plain_closure

ENDED = (OptimizationStatus.SUCCESS, OptimizationStatus.STOPPED)
# Values of a line search that are closer, for values of one, differ by rounding alone.
ROUNDING, NUM_LAST = 1e-6, 5
NEWTON = "Newton's steps end where the next would gain nothing."
# What a step of L-BFGS gains for each observation that is worth another one: on
# sixteen test functions with 700 points, 3 evaluations of 20 less than by SciPy's, and
# log densities of new observations within 0.001. And what one of Newton's has to gain.
GAIN = 1e-5


def fit_gpytorch_mll_in_logarithms(
    mll: MarginalLogLikelihood,
    parameters: dict[str, Tensor] | None = None,
    bounds: dict[str, Bound] | None = None,
    closure: Closure | None = None,
    *,
    units: dict[str, Tensor] | None = None,
    on_evaluation: Callable[[Tensor], None] | None = None,
    few: Callable[[], MarginalLogLikelihood] | None = None,
    **kwargs: object,
) -> OptimizationResult:
    r"""`fit_gpytorch_mll_scipy` over :math:`\log \theta` where :math:`\theta > 0`.

    A parameter is taken in logarithms where its constraint, or the bound given, keeps
    it above zero. The objective and its optima are the same. A `closure` of one's own
    knows nothing of logarithms, and must be None. Positive `units` of parameters are
    used where these have neither bounds nor a constraint: the optimizer sees how far
    they went, and what has no gradient stays to the last bit. `on_evaluation` sees each
    value of the objective, negated, while the parameters are as evaluated. `few` makes
    the objective of some rows with the same parameters: it is for fits that begin near
    an optimum, which Newton's steps with its curvature reach in few evaluations
    (`newton`), or L-BFGS from where they end. They end at a step that would gain less
    than `GAIN`, and see no other options. Without a curvature there are none.

    A line search that fails among values that are equal but for rounding has found an
    optimum. After others there is BoTorch's warning, on which it begins anew.
    """
    if closure is not None:
        return fit_gpytorch_mll_scipy(mll, parameters, bounds, closure, **kwargs)
    last = deque[Tensor](maxlen=NUM_LAST)

    def see(loss: Tensor) -> None:
        last.append(loss)
        if on_evaluation is not None:
            on_evaluation(loss)

    logs = _InLogarithms.of(mll, parameters, bounds, units or {}, see)
    objective = NdarrayOptimizationClosure(logs.evaluate, logs.variables)
    if few is not None:
        start = objective.state
        end = _newton(logs, objective, few(), bounds)
        objective.state = start if end is None else end.x
        if end is not None and end.is_optimum:
            return OptimizationResult(
                end.steps, end.loss, OptimizationStatus.SUCCESS, message=NEWTON
            )
    result = scipy_minimize(objective, logs.variables, logs.limits, **kwargs)
    logs.assign()  # the optimum, which is not what was tried last
    if result.status in ENDED:
        return result
    if _are_equal(torch.stack(list(last))):
        return replace(result, status=OptimizationStatus.SUCCESS)
    message = f"L-BFGS ended with {result.status}: {result.message}"
    warnings.warn(message, OptimizationWarning, stacklevel=2)
    return result


def _newton(
    logs: "_InLogarithms",
    objective: NdarrayOptimizationClosure,
    few: MarginalLogLikelihood,
    bounds: dict[str, Bound] | None,
) -> End | None:
    """Newton's steps with the curvature of few rows; None where these have none."""
    of_few = dict(few.named_parameters())
    same = {n: of_few[n] for n in logs.parameters}
    part = _InLogarithms.of(few, same, bounds, logs.units, lambda _: None)
    part = replace(part, start=logs.start)
    evaluate = NdarrayOptimizationClosure(part.evaluate, part.variables)
    x = objective.state
    box = get_bounds_as_ndarray(logs.variables, logs.limits)
    box = np.tile((-np.inf, np.inf), (len(x), 1)) if box is None else box
    try:
        curvature = hessian(evaluate, x, box)
        return newton(objective, x, box, curvature, GAIN)
    except ValueError:  # a prior has no density there
        return None


@dataclass(frozen=True, eq=False)
class _InLogarithms:
    """An objective over the logarithms of its positive parameters.

    Attributes:
        parameters: What is fitted, by name.
        variables: What an optimizer sees of them.
        limits: Bounds of the variables.
        of_logs: Bounds of the parameters that are taken in logarithms.
        units: Units of parameters that have neither bounds nor a constraint.
        start: Where these began.
        closure: The objective, negated, and its gradient in the parameters.
        see: Is given each value.
    """

    parameters: dict[str, Tensor]
    variables: dict[str, Tensor]
    limits: dict[str, Bound]
    of_logs: dict[str, tuple[Tensor | None, ...]]
    units: dict[str, Tensor]
    start: dict[str, Tensor]
    closure: Closure
    see: Callable[[Tensor], None]

    @classmethod
    def of(
        cls,
        mll: MarginalLogLikelihood,
        parameters: dict[str, Tensor] | None,
        bounds: dict[str, Bound] | None,
        units: dict[str, Tensor],
        see: Callable[[Tensor], None],
    ) -> Self:
        """With all parameters that require gradients if None are given."""
        known, constraints = get_parameters_and_bounds(mll)
        limits = {**constraints, **(bounds or {})}
        if parameters is None:
            parameters = {n: p for n, p in known.items() if p.requires_grad}
        of_logs = {
            n: _tensors(limits[n], p)
            for n, p in parameters.items()
            if _is_positive(limits.get(n))
        }
        units = {n: u for n, u in units.items() if n not in limits}
        start = {n: parameters[n].detach().clone() for n in units if n in parameters}
        variables = {
            n: p.detach().log() if n in of_logs else p.detach().clone()
            for n, p in parameters.items()
        } | {n: torch.zeros_like(p) for n, p in start.items()}
        for n, limit in of_logs.items():
            limits[n] = tuple(None if b is None else b.log() for b in limit)
        closure = plain_closure(mll, parameters)
        closure = closure or get_loss_closure_with_grads(mll, parameters)
        return cls(parameters, variables, limits, of_logs, units, start, closure, see)

    @torch.no_grad()
    def assign(self) -> None:
        """Give the parameters what the variables say."""
        for n, p in self.parameters.items():
            if n in self.of_logs:
                # Within the bounds to the last bit, whatever the exponential rounds to.
                p.copy_(self.variables[n].exp().clamp(*self.of_logs[n]))
            elif n in self.start:
                p.copy_(self.start[n] + self.variables[n] * self.units[n])
            else:
                p.copy_(self.variables[n])

    def evaluate(self) -> tuple[Tensor, list[Tensor | None]]:
        """The objective, negated, and its gradient in the variables."""
        self.assign()
        loss, grads = self.closure()
        self.see(loss.detach())
        slopes = {
            n: p.detach() for n, p in self.parameters.items() if n in self.of_logs
        } | self.units
        pairs = zip(self.parameters, grads, strict=True)
        return loss, [None if g is None else g * slopes.get(n, 1.0) for n, g in pairs]


def _are_equal(losses: Tensor) -> bool:
    """Whether as many as are looked at differ by rounding alone."""
    spread = losses.amax() - losses.amin()
    is_close = spread <= ROUNDING * losses[-1].abs().clamp_min(1.0)
    return len(losses) == NUM_LAST and bool(is_close)


def _is_positive(limit: Bound | None) -> bool:
    """Whether the bounds keep a parameter above zero."""
    if limit is None or limit[0] is None:
        return False
    return bool((torch.as_tensor(limit[0]) > 0).all())


def _tensors(limit: Bound, like: Tensor) -> tuple[Tensor | None, ...]:
    """Both bounds as tensors, None where there is none."""
    tensor = partial(torch.as_tensor, dtype=like.dtype, device=like.device)
    return tuple(None if bound is None else tensor(bound) for bound in limit)
