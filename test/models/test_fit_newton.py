"""Newton's steps: on parabolas in one, within bounds, never uphill."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from botorch_sparse.models.fit import newton as fit_newton
from botorch_sparse.models.fit.log_parameters import GAIN
from botorch_sparse.models.fit.newton import (
    BENT,
    DIFFERENCE,
    LEAST_CURVATURE,
    LONGEST,
    SHORTENED,
    Array,
    Evaluate,
    hessian,
    newton,
)

A = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])
OPTIMUM = np.array([0.4, -0.3, 0.2])
ANYWHERE = np.tile((-np.inf, np.inf), (3, 1))


def parabola(x: Array) -> tuple[Array, Array]:
    away = x - OPTIMUM
    return np.asarray(0.5 * away @ A @ away - 1.0), A @ away


def counted(evaluate: Evaluate, buffer: Array) -> tuple[Evaluate, list[Array]]:
    """As BoTorch's closures are: every gradient is in one place."""
    seen = list[Array]()

    def evaluated(x: Array) -> tuple[Array, Array]:
        seen.append(x.copy())
        loss, buffer[:] = evaluate(x)
        return loss, buffer

    return evaluated, seen


def test_a_parabola_takes_one_step():
    evaluate, seen = counted(parabola, np.empty(3))
    end = newton(evaluate, np.zeros(3), ANYWHERE, A, GAIN)
    assert end.is_optimum and end.steps == 1 and len(seen) == 2
    assert_allclose(end.x, OPTIMUM, atol=1e-12)
    assert end.loss == pytest.approx(-1.0, abs=1e-12)
    again = newton(evaluate, end.x, ANYWHERE, A, GAIN)
    assert again.is_optimum and again.steps == 0 and len(seen) == 3


@pytest.mark.parametrize("scale", [1.5, 2.5])
def test_another_curvature_is_corrected(scale):
    """In fewer steps than the same curvature would take without that."""
    evaluate, _ = counted(parabola, np.empty(3))
    curvature = scale * A + 0.3 * np.diag([1.0, 0.0, 0.5])
    end = newton(evaluate, np.zeros(3), ANYWHERE, curvature, GAIN)
    assert end.is_optimum and 1 < end.steps <= 5
    x, count = np.zeros(3), 0
    while 0.5 * parabola(x)[1] @ np.linalg.solve(curvature, parabola(x)[1]) >= GAIN:
        x, count = x - np.linalg.solve(curvature, parabola(x)[1]), count + 1
    assert end.steps < count


def test_the_hessian_is_that_of_autograd():
    def of(x: torch.Tensor) -> torch.Tensor:
        return (x[0] * x[1]).sin() + (x[2] - x[0]).exp() + x.square().sum()

    def evaluate(x: Array) -> tuple[Array, Array]:
        point = torch.tensor(x, requires_grad=True)
        loss = of(point)
        (gradient,) = torch.autograd.grad(loss, point)
        return loss.detach().numpy(), gradient.numpy()

    expected = torch.autograd.functional.hessian(of, torch.tensor(OPTIMUM))
    found = hessian(counted(evaluate, np.empty(3))[0], OPTIMUM, ANYWHERE)
    assert_allclose(found, expected, atol=2 * DIFFERENCE)
    assert_allclose(found, found.T)


def test_bounds_hold_and_the_rest_goes_on():
    """The optimum within them: that of a parabola whose first coordinate is held."""
    bounds = np.array([[-0.1, 0.1], [-1.0, 1.0], [-1.0, 1.0]])
    end = newton(counted(parabola, np.empty(3))[0], np.zeros(3), bounds, A, GAIN)
    assert end.is_optimum
    assert end.x[0] == 0.1
    rest = OPTIMUM[1:] - np.linalg.solve(A[1:, 1:], A[1:, 0] * (0.1 - OPTIMUM[0]))
    assert_allclose(end.x[1:], rest, atol=1e-9)
    held = np.stack([end.x, end.x], -1)
    assert newton(parabola, end.x, held, A, GAIN) == (end.x, end.loss, 0, True)


def test_steps_are_not_long():
    flat = np.diag([0.0, 1.0, -1e-9])  # its inverse has no use
    evaluate, seen = counted(parabola, np.empty(3))
    newton(evaluate, np.zeros(3), ANYWHERE, flat, GAIN)
    assert np.abs(seen[1]).max() == pytest.approx(LONGEST)
    assert LEAST_CURVATURE * LONGEST < np.abs(A @ OPTIMUM).max()


@pytest.mark.parametrize("least, is_near", [(-0.5 * BENT, True), (-2 * BENT, False)])
def test_curvature_that_bends_the_other_way_is_that_of_no_optimum(least, is_near):
    _, vectors = np.linalg.eigh(A)
    bent = (vectors * [least, 0.9, 2.2]) @ vectors.T
    evaluate, seen = counted(parabola, np.empty(3))
    end = newton(evaluate, np.zeros(3), ANYWHERE, bent, GAIN)
    if is_near:
        assert end.loss < parabola(seen[0])[0]
    else:
        assert not end.is_optimum and end.steps == 0 and not seen


@pytest.mark.parametrize("loss", [np.inf, np.nan, 5.0])
def test_a_step_that_loses_is_shortened_once(loss):
    """To a tenth, or where the parabola through both losses is least."""

    def wall(x: Array) -> tuple[Array, Array]:
        value, gradient = parabola(x)
        return np.asarray(loss) if x[0] > 0.3 else value, gradient

    evaluate, seen = counted(wall, np.empty(3))
    newton(evaluate, np.zeros(3), ANYWHERE, A, GAIN)
    share = SHORTENED
    if loss == 5.0:
        value, gradient = parabola(np.zeros(3))
        slope = gradient @ OPTIMUM
        share = -0.5 * slope / (5.0 - value - slope)
    assert_allclose(seen[2], share * OPTIMUM)
    assert_allclose(seen[1], OPTIMUM)

    def walled(x: Array) -> tuple[Array, Array]:
        value, gradient = parabola(x)
        return np.asarray(loss) if (x != 0.0).any() else value, gradient

    evaluate, seen = counted(walled, np.empty(3))
    end = newton(evaluate, np.zeros(3), ANYWHERE, A, GAIN)
    assert not end.is_optimum and end.steps == 0 and len(seen) == 3
    assert_allclose(end.x, 0.0)
    assert end.loss == parabola(np.zeros(3))[0]


@pytest.mark.parametrize("share, is_optimum", [(1.01, True), (0.99, False)])
def test_what_a_step_has_to_gain(share, is_optimum):
    gain = share * (parabola(np.zeros(3))[0] - parabola(OPTIMUM)[0])
    end = newton(counted(parabola, np.empty(3))[0], np.zeros(3), ANYWHERE, A, gain)
    assert end.is_optimum
    assert (end.steps == 0) == is_optimum


def test_a_bound_lets_go():
    """A start at a bound, with the optimum within."""
    bounds = np.array([[0.0, 1.0], [-1.0, 0.0], [-1.0, 1.0]])
    end = newton(counted(parabola, np.empty(3))[0], np.zeros(3), bounds, A, GAIN)
    assert end.is_optimum
    assert_allclose(end.x, OPTIMUM, atol=1e-12)


def test_differences_stay_within_bounds():
    bounds = np.array([[0.0, 0.3], [-0.3, 0.003 - 0.3], [-0.1, -0.1]])
    start = np.array([0.3, -0.3, -0.1])
    evaluate, seen = counted(parabola, np.empty(3))
    assert_allclose(hessian(evaluate, start, bounds), A, atol=1e-9)
    inside = (seen >= bounds[:, 0]) & (seen <= bounds[:, 1])
    assert inside[:, :2].all()  # the last one may not move


def test_slow_progress_is_left_to_others(monkeypatch):
    monkeypatch.setattr(fit_newton, "MOST_STEPS", 4)
    evaluate, seen = counted(parabola, np.empty(3))

    def steep(x: Array) -> tuple[Array, Array]:
        value, _ = evaluate(x)
        return value, np.sign(x - OPTIMUM) * 0.05

    end = newton(steep, np.zeros(3), ANYWHERE, np.eye(3), GAIN)
    assert not end.is_optimum and end.steps == 4 == len(seen) - 1


@pytest.mark.parametrize("where", ["curvature", "loss"])
def test_without_numbers_there_is_no_step(where):
    curvature, evaluate = A.copy(), parabola
    if where == "curvature":
        curvature[0, 1] = np.nan
    else:

        def evaluate(x: Array) -> tuple[Array, Array]:
            return np.asarray(np.nan), np.zeros(3)

    end = newton(evaluate, np.zeros(3), ANYWHERE, curvature, GAIN)
    assert not end.is_optimum and end.steps == 0
    assert_allclose(end.x, 0.0)
