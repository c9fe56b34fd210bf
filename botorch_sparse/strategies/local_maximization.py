"""The largest value of a function over a box, or over what is left of one."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.generation.gen import gen_candidates_scipy
from botorch.optim import optimize_acqf
from torch import Tensor
from torch.nn import Module

from botorch_sparse.strategies.data.box import Box

# Halvings of a step that has left the region.
BISECTIONS = 30

Function = Callable[[Tensor], Tensor]


def maximize_from_points(
    function: Function,
    X: Tensor,
    values: Tensor,
    num_restarts: int,
    box: Box,
    slack: Function | None,
) -> Tensor:
    """Improve on surviving points by `optimize_acqf`, within the region.

    Args:
        function: From `n x d` points to `n` values; differentiable.
        X: `n x d` surviving points; the result is no worse than the best one.
        values: Their `n` values.
        num_restarts: From how many of them to climb, the best ones.
        box: The domain.
        slack: Negative at `n x d` points that are ruled out; None where none is.

    Returns:
        A `1 x d` surviving point in the dtype of the bounds.
    """
    starts = X[values.topk(min(num_restarts, len(values))).indices]

    def survive(X: Tensor) -> Tensor:
        return box.is_feasible(X) & (True if slack is None else slack(X) >= 0)

    arguments = box.arguments()
    if slack is not None:
        constraint = (lambda x: slack(x.unsqueeze(0)).squeeze(0), True)
        arguments["nonlinear_inequality_constraints"] = [constraint]
    batch_limit = len(starts) if slack is None else 1
    with warnings.catch_warnings():
        # The best start is kept whatever the optimizer has to say.
        warnings.simplefilter("ignore")
        X, _ = optimize_acqf(
            PointAcquisition(function),
            q=1,
            num_restarts=len(starts),
            batch_initial_conditions=starts.unsqueeze(1),
            options={"batch_limit": batch_limit, "maxiter": 20},
            retry_on_optimization_warning=False,
            gen_candidates=partial(_generate, survive),
            **arguments,
        )
    tried = box.clamp(torch.cat([X.detach().view(-1, box.dim), starts]))
    with torch.no_grad():
        values = function(tried.double())
        values[~survive(tried)] = float("-inf")
    if not bool((values > float("-inf")).any()):
        return tried[-len(starts) :][:1]  # starts that float32 has rounded out
    return tried[int(values.argmax())].unsqueeze(0)


@torch.no_grad()
def _generate(
    survive: Function,
    initial_conditions: Tensor,
    acquisition_function: Module,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Candidates of the optimizer, drawn back to their starts where it left.

    SLSQP may end outside by a little, which `optimize_acqf` takes for a failure.
    """
    with torch.enable_grad():
        X, values = gen_candidates_scipy(
            initial_conditions, acquisition_function, **options
        )
    start = initial_conditions.squeeze(1)
    step = X.squeeze(1) - start
    outside = ~survive(start + step)
    if not bool(outside.any()):
        return X, values
    low = torch.where(outside, 0.0, 1.0).to(X)
    high = torch.ones_like(low)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        inside = survive(start + middle.unsqueeze(-1) * step)
        low = torch.where(inside, middle, low)
        high = torch.where(inside, high, middle)
    X = (start + low.unsqueeze(-1) * step).unsqueeze(1)
    return X, acquisition_function(X)


class PointAcquisition(AcquisitionFunction):
    """A function of single points in the form that the optimizers need."""

    def __init__(self, function: Function) -> None:
        Module.__init__(self)
        self._function = function

    def forward(self, X: Tensor) -> Tensor:
        """`b x 1 x d` to `b`."""
        return self._function(X.squeeze(-2))
