"""Search spaces and functions of the tests of `botorch_sparse.ax`."""

import math
from pathlib import Path

import pytest
from ax.api.configs import (
    ChoiceParameterConfig,
    RangeParameterConfig,
    StorageConfig,
)

# By-products of small problems.
CAPPED = pytest.mark.filterwarnings(
    "ignore:The inducing points reached their cap:"
    "botorch.exceptions.warnings.BotorchWarning"
)
NO_THRESHOLDS = pytest.mark.filterwarnings(
    "ignore:Encountered a .MultiObjective. without objective thresholds:"
    "ax.exceptions.core.AxOptimizationWarning"
)


def floats(bounds: dict[str, tuple[float, float]]) -> list[RangeParameterConfig]:
    return [
        RangeParameterConfig(name=name, bounds=b, parameter_type="float")
        for name, b in bounds.items()
    ]


BOX = {"x1": (-5.0, 10.0), "x2": (0.0, 15.0)}
MIXED = [
    ChoiceParameterConfig(
        name="kind", values=["a", "b", "c"], parameter_type="str", is_ordered=False
    ),
    ChoiceParameterConfig(
        name="level", values=[1, 2, 4], parameter_type="int", is_ordered=True
    ),
    RangeParameterConfig(name="k", bounds=(1, 8), parameter_type="int"),
    RangeParameterConfig(name="x", bounds=(0.0, 1.0), parameter_type="float"),
    RangeParameterConfig(
        name="rate", bounds=(1e-4, 1.0), parameter_type="float", scaling="log"
    ),
]


def branin(x1: float, x2: float) -> float:
    """To maximize; the best value is -0.398."""
    a = x2 - 5.1 / (4 * math.pi**2) * x1**2 + 5 / math.pi * x1 - 6
    return -(a**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x1) + 10)


def mixed(kind: str, level: int, k: int, x: float, rate: float) -> float:
    """To maximize; the best value is 0.7."""
    value = {"a": 0.0, "b": 0.5, "c": -0.5}[kind] + 0.05 * level - 0.1 * (k - 4) ** 2
    return value - (x - 0.3) ** 2 - 0.2 * (math.log10(rate) + 2) ** 2


def storage(path: Path) -> StorageConfig:
    """A fresh sqlite file."""
    db = pytest.importorskip("ax.storage.sqa_store.db")
    url = f"sqlite:///{path}"
    db.init_engine_and_session_factory(url=url, force_init=True)
    db.create_all_tables(db.get_engine())
    return StorageConfig(url=url)
