"""Which of the tests of models run where, and what BoTorch says of all their data.

An operation costs the simulated device some 50 microseconds. Of tests that differ in
their parameters alone one is enough to see whether the rules of a device are kept, and
of long fits those that take different ways through the code. In the same way one of a
family runs in float32.
"""

from pathlib import Path
from typing import Any

import pytest

# Fits and finite differences, which take seconds there; others take the same steps.
NOT_SIMULATED = {
    "test_an_exact_model_is_fitted_exactly",
    "test_default_is_deterministic",
    "test_doubles_are_free_of_jitter",
    "test_few_points_are_exact_through_a_fit",
    "test_gradcheck",
    "test_gradients_reach_the_fantasy_points",
    "test_improves_and_is_deterministic",
    "test_monte_carlo_moments",
    "test_nothing_square_in_the_data",
    "test_a_warm_fit_starts_where_it_ended",
    "test_tolerance",
}
# In these modules, those named alone.
SIMULATED_FITS = {
    "test_fit_exact.py": {"test_the_copy_of_some_rows"},
    "test_fit_learned_points.py": {
        "test_all_kinds_of_models",
        "test_copies_and_moves",
        "test_the_best_of_several_starts",
    },
    "test_fit_points_optimizer.py": {"test_is_told_where_nothing_was_gained"},
    "test_fit_log_parameters.py": set(),
}

# Points a few lengthscales apart, on which dense closed forms are well conditioned, and
# outcomes without a transform, whose scale has to come back.
BY_PRODUCTS = (
    r"ignore:Data \(input features\) is not contained to the unit cube",
    r"ignore:Data \(outcome observations\) is not standardized",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the last of each family on the simulated device, and in float32."""
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in ours:
        item.add_marker(pytest.mark.filterwarnings(*BY_PRODUCTS), append=False)
    quick = [item for item in ours if item.get_closest_marker("slow") is None]
    dropped = set()
    for params in ({"device": "sim"}, {"device": "cpu", "tkwargs": "float32"}):
        few = [item for item in quick if params.items() <= _params(item).items()]
        last = {item.nodeid.partition("[")[0]: item for item in few}
        dropped |= {id(item) for item in few} - {id(item) for item in last.values()}
    dropped |= {id(item) for item in ours if _is_long(item)}
    items[:] = [item for item in items if id(item) not in dropped]


def _params(item: pytest.Item) -> dict[str, Any]:
    """The parameters of a test."""
    return getattr(getattr(item, "callspec", None), "params", {})


def _is_long(item: pytest.Item) -> bool:
    """Whether it takes seconds on the simulated device, and others stand for it."""
    if _params(item).get("device") != "sim":
        return False
    name = item.originalname  # type: ignore[attr-defined]
    return name in NOT_SIMULATED or name not in SIMULATED_FITS.get(
        item.path.name, {name}
    )
