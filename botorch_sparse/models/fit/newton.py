r"""Newton's method for an objective of which another one knows the curvature.

The exact likelihood of some random rows has for each of them nearly the curvature that
the likelihood of all has. Half of the rows take an eighth of the time, so their Hessian
:math:`B`, by differences of gradients, costs about one evaluation of all. Steps

.. math:: \theta \leftarrow \theta - B^{-1} \nabla f(\theta)

lead to a near optimum of all rows in 3 to 9 evaluations, where L-BFGS, which begins
without any curvature, takes 5 to 15 (`benchmarks.fit_objective`). Each step corrects
:math:`B` by the formula of Broyden, Fletcher, Goldfarb and Shanno (Nocedal and Wright,
*Numerical Optimization*, 2006, equation 6.19).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

Array = NDArray[np.float64]
# A loss and its gradient.
Evaluate = Callable[[Array], tuple[Array, Array]]

# Steps after which another optimizer goes on; the longest one, of each parameter.
MOST_STEPS, LONGEST = 20, 1.0
# Curvature of directions in which the objective is flat; and below that of minus `BENT`
# no optimum is near.
LEAST_CURVATURE, BENT = 1e-4, 0.01
# Of differences between gradients.
DIFFERENCE = 1e-2
# Of a step that leads where the objective has no value.
SHORTENED = 0.1


class End(NamedTuple):
    """Where the steps ended, the loss there if known, and whether it is an optimum."""

    x: Array
    loss: float
    steps: int
    is_optimum: bool


def hessian(evaluate: Evaluate, x: Array, bounds: Array) -> Array:
    """The Hessian at `x` of length p, by differences of p + 1 gradients.

    All of them are within the `p x 2` bounds, where a parameter may move at all.
    """
    lower, upper = bounds.T
    room = np.maximum(upper - x, x - lower)
    size = np.where(room > 0, np.minimum(DIFFERENCE, room), DIFFERENCE)
    steps = np.where(x + size <= upper, size, -size)
    rows = approx_fprime(x, lambda y: evaluate(y)[1].copy(), steps)
    return 0.5 * (rows + rows.T)


def newton(
    evaluate: Evaluate, x: Array, bounds: Array, curvature: Array, gain: float
) -> End:
    """Steps from `x` within the `p x 2` bounds until the next one would gain nothing.

    Which is less than `gain` by the curvature. A step that loses is shortened once, and
    has to gain as much. Where it does not they end before, at the best so far: another
    optimizer has to go on. Where the curvature is that of no optimum there are none.
    Cost: an evaluation for each step, and one.
    """
    B, (lower, upper) = _positive_definite(curvature), bounds.T
    if B is None:
        return End(x, np.inf, 0, False)
    loss, gradient = _evaluated(evaluate, x)
    if not np.isfinite(loss):
        return End(x, loss, 0, False)
    for i in range(MOST_STEPS):
        is_held = (x <= lower) & (gradient > 0) | (x >= upper) & (gradient < 0)
        step = _step(B, gradient, ~is_held)
        if -0.5 * gradient @ step < gain:
            return End(x, loss, i, True)
        step = np.clip(x + step, lower, upper) - x
        new_loss, new_gradient = _evaluated(evaluate, x + step)
        if not new_loss < loss:
            step *= _share(loss, float(gradient @ step), new_loss)
            new_loss, new_gradient = _evaluated(evaluate, x + step)
            if not new_loss < loss - gain:
                return End(x, loss, i, False)
        B = _updated(B, step, new_gradient - gradient)
        x, loss, gradient = x + step, new_loss, new_gradient
    return End(x, loss, MOST_STEPS, False)


def _evaluated(evaluate: Evaluate, x: Array) -> tuple[float, Array]:
    """A loss, and a copy of its gradient."""
    loss, gradient = evaluate(x)
    return float(loss), gradient.copy()


def _step(B: Array, gradient: Array, is_free: NDArray[np.bool_]) -> Array:
    """Newton's step of the free parameters, shortened if it is long."""
    step = np.zeros_like(gradient)
    step[is_free] = -np.linalg.solve(B[is_free][:, is_free], gradient[is_free])
    return step / max(1.0, np.abs(step).max() / LONGEST)


def _share(loss: float, slope: float, lost: float) -> float:
    """Where on a step that lost the parabola through both losses is least."""
    return -0.5 * slope / (lost - loss - slope) if np.isfinite(lost) else SHORTENED


def _positive_definite(B: Array) -> Array | None:
    """With a least curvature in all directions; None far from an optimum."""
    if not np.isfinite(B).all():
        return None
    values, vectors = np.linalg.eigh(B)
    if values[0] < -BENT:
        return None
    return (vectors * values.clip(LEAST_CURVATURE)) @ vectors.T


def _updated(B: Array, step: Array, change: Array) -> Array:
    """With the curvature that a step has seen, where that is positive."""
    if step @ change <= 0:
        return B
    product = B @ step
    seen = np.outer(change, change) / (step @ change)
    return B - np.outer(product, product) / (step @ product) + seen
