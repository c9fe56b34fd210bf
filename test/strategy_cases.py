"""Strategies of all kinds: on tables, on boxes, and for a dataset.

Tests that take long for each of them run a sample each time, and the others with the
slow tests.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import box_table
import pytest
import sbpe_problems
import strategy_table
import torch
from torch import Tensor

from botorch_sparse.acquisition import (
    BBKBRadius,
    GuessAndDouble,
    RandomizedRadius,
    UnknownHyperparameters,
)
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import (
    Constraint,
    Objective,
    Strategy,
    UncertaintyReduction,
)


class Case(NamedTuple):
    """A strategy, its objective, and evaluations to begin with."""

    make: Callable[..., Strategy]
    objective: Callable[[Tensor], Tensor]
    start: int


def reduction(**overrides: Any) -> UncertaintyReduction:
    """A strategy for a dataset."""
    X, kernel = strategy_table.make_candidates(), strategy_table.make_kernel()
    return UncertaintyReduction(X, kernel, lam=1e-2, **overrides)


CASES = {
    f"{domain}-{name}": Case(make, tables.objective, start)
    for domain, tables, start in (
        ("table", strategy_table, 12),
        ("box", box_table, 6),
        ("sbpe", sbpe_problems, 9),
    )
    for name, make in tables.TABLE.items()
}
INFERRED = {
    f"table-{name}-inferred": Case(make, strategy_table.objective, 12)
    for name, make in strategy_table.INFERRED.items()
}
UNKNOWN = UnknownHyperparameters(growth=0.4, norm_growth=0.0, start=2)
DOUBLED = RandomizedRadius(GuessAndDouble(BBKBRadius(0.05, 1e-2, 0.1)), seed=5)
# Few candidates and much noise: repeats alternate, and rows outgrow unique points.
REBUILDING: dict[str, Any] = {"lam": 30.0, "noise_variance": 30.0}
REBUILDING["candidates"] = strategy_table.make_candidates(8)
REPEATED: dict[str, Any] = {"repeat": "until-uncertainty-halves", "lam": 1.0}
FITTED: dict[str, Any] = {"lam": 0.1, "refit": RefitSchedule(every=6)}
FITTED["covar_module"] = strategy_table.make_kernel(0.7).requires_grad_(True)
# What begins, or goes on, otherwise.
STARTS = {
    **{
        name: Case(partial(build, **options), strategy_table.objective, start)
        for name, build, options, start in (
            ("rebuilt", strategy_table.TABLE["gpucb"], REBUILDING, 80),
            ("repeated-bkb", strategy_table.TABLE["bkb"], REPEATED, 12),
            ("repeated-bbkb", strategy_table.TABLE["bbkb-global"], REPEATED, 12),
            ("fitted", strategy_table.INFERRED["bbkb"], FITTED, 12),
        )
    },
    "initializing": Case(
        partial(strategy_table.TABLE["bbkb-global"], min_batch_width=50),
        strategy_table.objective,
        0,
    ),
    "reduction": Case(reduction, strategy_table.objective, 0),
    **{
        f"{name}-{kind}": Case(partial(make, radius=radius), objective, start)
        for kind, radius in (("unknown", UNKNOWN), ("doubled", DOUBLED))
        for name, (make, objective, start) in (CASES | INFERRED).items()
        if name in ("table-bkb", "table-gpbucb-sum", "table-bbkb-inferred", "box-bkb")
    },
}
OUTCOMES = [
    Objective("yield"),
    Objective("cost", minimize=True),
    Constraint("waste", upper=0.3),
]


def three_outcomes(objective: Callable[[Tensor], Tensor], X: Tensor) -> Tensor:
    """`b x 3` values; about half of the points keep to the constraint."""
    values = objective(X)
    return torch.stack([values, X[:, 0] + 0.5 * X[:, 1], values.square()], dim=-1)


SEVERAL = {
    f"{name}-several": Case(
        partial(make, outcomes=OUTCOMES), partial(three_outcomes, objective), start
    )
    for name, (make, objective, start) in (CASES | INFERRED).items()
    if name
    in (
        *("table-random", "table-thompson", "table-thompson-inferred"),
        *("table-improvement", "table-improvement-inferred"),
        *("table-bbkb-global", "table-bbkb-global-local", "table-bbkb-inferred"),
        *("table-bkb", "table-gpucb", "table-gpbucb-sum"),
        *("box-random", "box-thompson", "box-thompson-inferred"),
        *("box-bbkb-global", "box-regions", "box-regions-two"),
    )
}
ALL = CASES | INFERRED | STARTS | SEVERAL
# One of each family, and each that chooses, learns or is saved otherwise.
SAMPLE = {
    *(f"table-{name}" for name in ("bbkb-global-local", "gpucb", "thompson", "random")),
    *(f"box-{name}" for name in ("bbkb-inferred", "gpucb", "gssbo-dynamic", "regions")),
    *(f"sbpe-{name}" for name in ("every", "box", "inferred")),
    *("table-thompson-inferred", "reduction", "initializing"),
    *("table-random-several", "table-thompson-several", "box-thompson-several"),
    "table-improvement-several",
    *("table-bbkb-global-local-several", "table-bbkb-inferred-several"),
    *("table-bkb-unknown", "table-bkb-doubled", "table-gpbucb-sum-doubled"),
}


def sampled(names: Iterable[str]) -> list[Any]:
    """Parameters of a test; those that are not in the sample are slow."""
    slow = pytest.mark.slow
    return [pytest.param(name, marks=() if name in SAMPLE else slow) for name in names]
