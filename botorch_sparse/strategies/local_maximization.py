"""The largest value of a function over a box, or over what is left of one."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import Module

from botorch_sparse.posteriors.exact_variance import ExactVariance
from botorch_sparse.strategies.data.box import Box

# Halvings of a step that has left the region.
BISECTIONS = 30
# Of a search whose maximum, if it were missed, would end a run or uncertainty sampling
# too early.
LEAST_OPTIONS = {"num_restarts": 10, "raw_samples": 1024}

Function: TypeAlias = Callable[[Tensor], Tensor]


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
        num_restarts: From how many of them to search, the best ones.
        box: The domain.
        slack: Negative at `n x d` points that are ruled out; None where none is.

    Returns:
        A `1 x d` surviving point in the dtype of the bounds.
    """
    from botorch.optim import (
        optimize_acqf,  # takes time, and a table has no local search
    )

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
            of_points(function),
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
    from botorch.generation.gen import gen_candidates_scipy

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


def maximize_each(
    functions: Callable[[Tensor, Tensor], Tensor],
    num: int,
    *,
    bounds: Tensor,
    num_restarts: int,
    options: Mapping[str, Any],
    raw_samples: int | None = None,
    batch_initial_conditions: Tensor | None = None,
    ic_generator: Function | None = None,
    fixed_features: Mapping[int, float] | None = None,
    nonlinear_inequality_constraints: Sequence[tuple[Function, bool]] = (),
    post_processing_func: Function | None = None,
    **rest: Any,
) -> Tensor:
    """Maximize several functions together, by one call of `optimize_acqf`.

    Each has the starts that it would have alone. For a few hundred points what takes
    time is a call of the functions. To `optimize_acqf` the number of a function is one
    more feature, in which nothing has a slope.

    Args:
        functions: From `n x d` points and `n` numbers of functions to `n` values.
        num: The number `q` of functions.
        bounds: This and what follows are arguments of `optimize_acqf`.
        num_restarts: The number `r` of local searches of each function.
        options: See there.
        raw_samples: See there, for each function.
        batch_initial_conditions: See there; they are starts of all functions.
        ic_generator: See there.
        fixed_features: See there.
        nonlinear_inequality_constraints: See there.
        post_processing_func: See there.
        **rest: Others; those that it does not know are `ic_generator`'s.

    Returns:
        Where the local searches end, `q x r x d`. One that has ended outside of a
        nonlinear constraint is where it began.
    """
    from botorch.optim import gen_batch_initial_conditions, optimize_acqf
    from botorch.optim.parameter_constraints import evaluate_feasibility

    from botorch_sparse.batching.acquisition_batch import SEARCH_OPTIONS

    own = (batch_initial_conditions,) if batch_initial_conditions is not None else ()
    names = "inequality_constraints", "equality_constraints"
    constraints = {name: rest.get(name) for name in names}
    draw: Any = ic_generator or gen_batch_initial_conditions
    unknown = [name for name in rest if name not in SEARCH_OPTIONS]
    for_starts = {name: rest.pop(name) for name in unknown}

    def starts(number: int) -> Tensor:
        def function(X: Tensor) -> Tensor:
            return functions(X, torch.full((len(X),), number))

        missing = num_restarts - sum(map(len, own))
        if missing <= 0:
            return torch.cat(own)
        drawn = draw(
            acq_function=of_points(function),
            bounds=bounds,
            q=1,
            num_restarts=missing,
            raw_samples=raw_samples,
            fixed_features=fixed_features,
            options=options,
            **constraints,
            **for_starts,
        )
        return torch.cat([*own, drawn])

    def numbered(X: Tensor) -> Tensor:
        return functions(X[:, :-1], X[:, -1].detach().round().long().cpu())

    X = torch.stack([starts(number) for number in range(num)])
    number = torch.arange(num).to(bounds).repeat_interleave(X.shape[1]).unsqueeze(-1)
    # For solvers whose searches are one problem, as those with constraints.
    options = {"max_optimization_problem_aggregation_size": X.shape[1], **options}
    if nonlinear_inequality_constraints or any(constraints.values()):
        options.pop("factr", None)  # SLSQP does not know it
    ends, _ = optimize_acqf(
        of_points(numbered),
        q=1,
        bounds=torch.cat([bounds, bounds.new_tensor([[0.0], [num]])], dim=-1),
        num_restarts=len(number),
        batch_initial_conditions=torch.cat([X.flatten(0, 1), number[:, None]], dim=-1),
        fixed_features=fixed_features,
        nonlinear_inequality_constraints=[
            (partial(_of_other_features, function), is_intra_point)
            for function, is_intra_point in nonlinear_inequality_constraints
        ]
        or None,
        options=options,
        return_best_only=False,
        **rest,
    )
    ends = ends[..., :-1]
    if nonlinear_inequality_constraints:
        is_inside = evaluate_feasibility(
            ends, nonlinear_inequality_constraints=[*nonlinear_inequality_constraints]
        )
        ends = torch.where(is_inside[:, None, None], ends, X.flatten(0, 1))
    if post_processing_func is not None:
        ends = post_processing_func(ends)
    return ends.reshape(X.shape[:2] + bounds.shape[-1:])


def _of_other_features(function: Function, X: Tensor) -> Tensor:
    """A function of all features but the last."""
    return function(X[..., :-1])


def of_points(function: Function) -> Any:
    """A function of `n x d` points as an acquisition function, `b x 1 x d` to `b`."""
    return lambda X: function(X.squeeze(-2))


def thorough(options: Mapping[str, Any]) -> dict[str, int]:
    """`raw_samples` and `num_restarts` of options, `LEAST_OPTIONS` if that is more."""
    return {name: max(least, options[name]) for name, least in LEAST_OPTIONS.items()}


@torch.no_grad()
def most_uncertain(
    variance: ExactVariance, box: Box, options: Mapping[str, Any], seed: int
) -> tuple[Tensor, float]:
    """The point of largest variance that local searches find.

    For Algorithm 3 of [Calandriello2020]_. Searches start from drawn points and from
    those that were evaluated: the largest variances are at corners and along edges
    again and again.

    Args:
        variance: The variance.
        box: The domain.
        options: `raw_samples`, how many points are drawn, and `num_restarts`, from how
            many of the best the searches start; see `thorough`.
        seed: Decides on the draw.

    Returns:
        The point, `1 x d` in the dtype of the bounds, and its variance.
    """
    num = thorough(options)
    drawn = box.sample(num["raw_samples"], seed).double()
    pool = torch.cat([drawn, variance.X.unique(dim=0)])
    values = variance(pool)
    if bool(values.max() > values.min()):
        x = maximize_from_points(variance, pool, values, num["num_restarts"], box, None)
    else:  # a stationary prior: nothing to search for
        x = box.clamp(pool[:1])
    return x, float(variance(x.double()))
