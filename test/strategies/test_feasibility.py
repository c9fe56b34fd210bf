"""Constraints of a box are checked when a strategy is built."""

from typing import Any
from unittest import mock

import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.utils.sampling import get_polytope_samples
from box_table import TABLE
from refusals import refused

from botorch_sparse.strategies import SBPE, RandomSearch
from botorch_sparse.strategies.data import box as module


def constraint(indices: list[int], coefficients: list[float], rhs: float) -> Any:
    return torch.tensor(indices), torch.tensor(coefficients), rhs


# On the box [-1, 2] x [0, 1].
INFEASIBLE = {
    "sum": {"inequality_constraints": [constraint([0, 1], [1.0, 1.0], 3.5)]},
    "pair": {
        "inequality_constraints": [
            constraint([0], [1.0], 1.0),
            constraint([0], [-1.0], -0.5),
        ]
    },
    "equality": {"equality_constraints": [constraint([0, 1], [1.0, 2.0], -2.0)]},
    "repeated index": {"equality_constraints": [constraint([1, 1], [1.0, 1.0], 2.5)]},
    "fixed": {
        "inequality_constraints": [constraint([0, 1], [1.0, 1.0], 2.5)],
        "fixed_features": {0: 0.0},
    },
}
FEASIBLE = {
    "sum": {"inequality_constraints": [constraint([0, 1], [1.0, 1.0], 2.5)]},
    "corner": {"inequality_constraints": [constraint([0, 1], [1.0, 1.0], 3.0)]},
    "equality": {"equality_constraints": [constraint([0, 1], [1.0, 2.0], 1.0)]},
    "fixed": {
        "inequality_constraints": [constraint([0, 1], [1.0, 1.0], 0.5)],
        "fixed_features": {0: 0.0},
    },
}
BAD = [
    ([constraint([2], [1.0], 0.0)], "indices \\[2\\]; need 0 to 1"),
    ([constraint([-1], [1.0], 0.0)], "need 0 to 1"),
    ([constraint([0, 1], [1.0], 0.0)], "equally long"),
    ([(torch.tensor([[0, 1]]), torch.tensor([[1.0]]), 0.0)], "between points"),
]


@pytest.mark.parametrize("case", INFEASIBLE)
@pytest.mark.parametrize("name", ["bbkb-global-local", "bkb-inferred", "random"])
def test_no_point_is_left(name: str, case: str) -> None:
    refused("no point of the box", TABLE[name], **INFEASIBLE[case])


def test_no_point_is_left_for_sbpe() -> None:
    box = torch.tensor([[-1.0, 0.0], [2.0, 1.0]], dtype=torch.float64)
    with pytest.raises(InputDataError, match="no point of the box"):
        SBPE(bounds=box, num_evaluations=20, **INFEASIBLE["sum"])


@pytest.mark.parametrize("case", FEASIBLE)
def test_some_point_is_left(case: str) -> None:
    strategy = TABLE["random"](**FEASIBLE[case])
    if case == "equality":  # hit and run takes a second; it finds no single point
        assert bool(strategy.box.is_feasible(strategy.ask().X).all())


@pytest.mark.parametrize(("constraints", "match"), BAD)
@pytest.mark.parametrize("kind", ["inequality_constraints", "equality_constraints"])
def test_bad_constraints(kind: str, constraints: Any, match: str) -> None:
    refused(match, TABLE["random"], **{kind: constraints})


ALL = {
    "inequality_constraints": [constraint([0, 1], [-1.0, 1.0], -1.0)],
    "equality_constraints": [constraint([0, 1], [1.0, 2.0], 2.0)],
    "fixed_features": {1: 0.25},
}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("inequality_constraints", [1.5, 0.5], [1.5, 0.4]),
        ("equality_constraints", [1.0, 0.5], [1.1, 0.5]),
        ("fixed_features", [1.0, 0.25], [1.0, 0.75]),
    ],
)
def test_told_points_are_in_the_domain(
    kind: str, good: list[float], bad: list[float]
) -> None:
    """Up to six digits of the sides of the box, as bounds have it."""
    box = torch.tensor([[-1.0, 0.0], [2.0, 1.0]], dtype=torch.float64)
    strategy = RandomSearch(bounds=box, **{kind: ALL[kind]})  # type: ignore[arg-type]
    step = torch.tensor([bad]).double() - torch.tensor([good]).double()
    X = torch.tensor([good]).double()
    strategy.tell(X, [0.0])
    strategy.tell(X + 5e-6 * step / step.abs().max(), [0.0])
    for x in (X + step, X + 1e-3 * step):
        refused(rf"breaks '{kind}\[.\]'.*points of", strategy.tell, x, [99.0])
    assert len(strategy.history) == 2 and strategy.history.best().value == 0.0


BOX = torch.tensor([[-1.0, 0.0, 2.0], [2.0, 1.0, 4.0]], dtype=torch.float64)
# Constraints, whether they need a walk, and the centroid of what is left; where that
# is thin a walk gets along it slowly.
CUTS: dict[str, tuple[dict[str, Any], bool, list[float] | None]] = {
    "half": (
        {"inequality_constraints": [constraint([0, 1], [1.0, 3.0], 2.0)]},
        False,
        [1, 2 / 3, 3],
    ),
    "pinned": (
        {
            "inequality_constraints": [constraint([0, 1], [-1.0, 1.0], 0.5)],
            "fixed_features": {2: 3.5},
        },
        False,
        [-11 / 24, 7 / 12, 3.5],
    ),
    "thin": (
        {
            "inequality_constraints": [
                constraint([0], [1.0], 0.5),
                constraint([0], [-1.0], -0.501),
            ]
        },
        True,
        None,
    ),
    "line": (
        {"equality_constraints": [constraint([0, 1], [1.0, 3.0], 2.0)]},
        True,
        [0.5, 0.5, 3],
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("cut", CUTS)
def test_samples_are_uniform_on_what_is_left(cut: str, dtype: torch.dtype) -> None:
    """By a walk, which takes a second, only where few points of the box are left."""
    options, walks, centroid = CUTS[cut]
    box, num = module.Box(BOX.to(dtype), **options), 256
    name = "get_polytope_samples"
    with mock.patch.object(module, name, wraps=get_polytope_samples) as walk:
        X = box.sample(num, seed=3)
    assert walk.called == walks
    assert X.shape == (num, 3) and X.dtype == dtype
    assert bool(box.is_feasible(X).all()) and len(X.unique(dim=0)) == num
    if not walks:
        assert torch.equal(X[:9], box.sample(9, seed=3))
    if centroid is not None:  # the spread of means; those of a walk are half as good
        off = (X.double().mean(0) - torch.tensor(centroid)).abs()
        spread = X.double().std(0) * (2 if walks else 1) / num**0.5
        assert bool((off <= 6 * spread + 1e-5).all())
