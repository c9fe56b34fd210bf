"""Several functions that are climbed together, beside closed forms."""

from typing import Any

import pytest
import torch
from botorch.generation import gen_candidates_scipy
from botorch.optim import gen_batch_initial_conditions
from torch import Tensor

from botorch_sparse.strategies.local_maximization import maximize_each

BOUNDS = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]).double()
CENTERS = torch.tensor([[0.2, 0.3, 0.9], [0.7, 0.1, 0.4], [1.5, 0.5, 0.5]]).double()
ALL = torch.arange(3), torch.ones(3).double()
GIVEN: dict[str, Any] = {"bounds": BOUNDS, "num_restarts": 3, "raw_samples": 16}


def distances(X: Tensor, number: Tensor) -> Tensor:
    """The largest values are at the centres."""
    return -(X - CENTERS[number]).square().sum(-1)


def ends(**more: Any) -> Tensor:
    """`q x r x d`, of the same seed."""
    options = {"options": {"seed": 0}, "retry_on_optimization_warning": False}
    return maximize_each(distances, 3, **GIVEN | options | more)


def as_one_problem(X: Tensor, acqf: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """As BoTorch climbs with a SciPy that it does not know."""
    return gen_candidates_scipy(X, acqf, use_parallel_mode=False, **options)


@pytest.mark.parametrize("climb", [gen_candidates_scipy, as_one_problem])
def test_in_a_box(climb: Any) -> None:
    X = ends(gen_candidates=climb)
    assert X.shape == (3, 3, 3)
    best = CENTERS.clamp(0, 1).unsqueeze(1).expand_as(X)
    torch.testing.assert_close(X, best, rtol=0, atol=1e-4)


def test_a_fixed_feature() -> None:
    best = CENTERS.clamp(0, 1)
    best[:, 1] = 0.25
    X = ends(fixed_features={1: 0.25})
    torch.testing.assert_close(X[:, 0], best, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_linear_constraints() -> None:
    """The sum of all features is 1, and the nearest point of that plane is known.

    SLSQP ends when a step gains less than 1e-6, which is 1e-3 in the features.
    """
    X = ends(equality_constraints=[(*ALL, 1.0)])
    best = CENTERS[:2] + (1 - CENTERS[:2].sum(-1, keepdim=True)) / 3
    torch.testing.assert_close(X[:2, 0], best, rtol=0, atol=2e-3)


def test_a_nonlinear_constraint_and_a_step_at_the_end() -> None:
    """The first feature is at most 0.5 by a function; what comes out is rounded."""
    start = torch.full((1, 1, 3), 0.25).double()
    X = ends(
        nonlinear_inequality_constraints=[(lambda x: 0.5 - x[..., 0], True)],
        batch_initial_conditions=start,
        num_restarts=1,
        post_processing_func=lambda X: X.round(decimals=2),
    )
    best = CENTERS.clamp(0, 1)
    best[:, 0] = best[:, 0].clamp_max(0.5)
    torch.testing.assert_close(X[:, 0], best, rtol=0, atol=1e-4)
    assert bool((X == X.round(decimals=2)).all())


@pytest.mark.parametrize("num_given", [0, 2, 5])
def test_starts_are_those_that_each_function_has_alone(num_given: int) -> None:
    """Nothing moves in a single step of no length; those that are given come first."""
    given = torch.rand(num_given, 1, 3).double()
    drawn = list[Tensor]()

    def draw(**arguments: Any) -> Tensor:
        drawn.append(gen_batch_initial_conditions(**arguments).squeeze(-2))
        return drawn[-1].unsqueeze(-2)

    X = ends(
        batch_initial_conditions=given if num_given else None,
        ic_generator=draw,
        gen_candidates=lambda X, acqf, **_: (X, acqf(X)),
    )
    assert X.shape == (3, max(3, num_given), 3)
    for number in range(3):
        own = [given.squeeze(-2), *drawn[number : number + 1]]
        torch.testing.assert_close(X[number], torch.cat(own), rtol=0, atol=0)
    assert len(drawn) == (3 if num_given < 3 else 0)
