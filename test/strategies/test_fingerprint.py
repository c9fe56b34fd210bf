"""What saved states know rules, radii, samplers and options by."""

import enum
import json
import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refused
from strategy_table import make_candidates, make_kernel, objective

from botorch_sparse.acquisition.confidence import (
    ChowdhuryGopalanRadius,
    ConfidenceRadius,
    FixedBeta,
    RadiusStatistics,
    SrinivasAgnosticRadius,
)
from botorch_sparse.argument_checks import as_python
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import BBKB, GPUCB
from botorch_sparse.strategies.core.fingerprint import fingerprint

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


class Colour(enum.Enum):
    RED = 1


def slow(n: int) -> float:
    return math.log(1 + n)


def fast(n: int) -> float:
    return 2.0 * math.log(1 + n)


class Method:
    @staticmethod
    def gain(n: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Part:
    number: float
    hidden: Callable[[int], float] = field(default=slow, repr=False)


@dataclass(frozen=True)
class OtherPart:
    number: float
    hidden: Callable[[int], float] = field(default=slow, repr=False)


class Stateless:
    """No repr of its own: the default one has its address."""


class WithState:
    def __init__(self) -> None:
        self.number = 1


@dataclass
class Twice(RefitSchedule):
    """A schedule of one's own."""

    def is_due(self, num_observations: int) -> bool:
        return num_observations in (4, 9)


ALIKE = [
    lambda: None,
    lambda: [1, 2.5, "a", True, (3,), {"b": {1, 2}}],
    lambda: torch.arange(3.0),
    lambda: torch.float32,
    lambda: Colour.RED,
    lambda: Part(1.0),
    lambda: RefitSchedule(every=3),
    lambda: Twice(every=3),
    Stateless,
    lambda: Stateless,
    lambda: slow,
    lambda: Method.gain,
    lambda: partial(slow, 3),
    lambda: float("nan"),
]


@pytest.mark.parametrize("make", ALIKE)
def test_the_same_made_twice(make: Callable[[], Any]) -> None:
    """Equal, plain, and as it was after a file; nothing in it is an address."""
    ours, theirs = fingerprint(make(), "it"), fingerprint(make(), "it")
    assert ours == theirs and " at 0x" not in repr(ours)


def test_different_parts_differ() -> None:
    parts = [
        *(make() for make in ALIKE),
        Part(2.0),
        OtherPart(1.0),
        Part(1.0, fast),
        fast,
        partial(slow, 4),
        torch.arange(4.0),
        torch.arange(3.0).double(),
        [[1, 2.5]],
        {"a": 1},
        [["a", 1]],
        FixedBeta(4.0),
        FixedBeta(5.0),
        RefitSchedule(growth=3),
        float("inf"),
        np.float32(0.5),
        np.float32(0.75),
        np.arange(3),
        np.arange(4),
    ]
    known = [fingerprint(part, "it") for part in parts]
    assert all(known.count(one) == 1 for one in known)


@pytest.mark.parametrize(
    "value",
    [
        lambda n: 1.0,
        WithState(),
        Part(1.0, lambda n: 1.0),
        [lambda n: n],
        Decimal("0.5"),
        torch.Generator(),
    ],
    ids=["lambda", "object", "field", "item", "decimal", "generator"],
)
def test_what_has_none_is_refused(value: Any) -> None:
    def local(n: int) -> float:
        return 0.0

    for one in (value, local, partial(local, 1)):
        refused("which a saved state cannot know", fingerprint, one, "radius")


@pytest.mark.parametrize("cls", [ChowdhuryGopalanRadius, SrinivasAgnosticRadius])
def test_a_gain_that_no_repr_shows(cls: Any) -> None:
    """The repr of these radii leaves it out: another one was resumed with."""
    X, kernel = make_candidates(30), make_kernel()

    def build(gain: Callable[[int], float]) -> GPUCB:
        radius = cls(1.0, 1e-3, 0.1, max_information_gain=gain)
        return GPUCB(X, kernel, 1e-2, radius=radius)

    strategy = build(slow)
    strategy.run(objective, 5, progress=False)
    state = strategy.state_dict()
    build(slow).load_state_dict(state)
    refused(r"\['radius'\] differ", build(fast).load_state_dict, state)
    refused(r"Got radius.*max_information_gain", build(lambda n: 1.0).state_dict)


@dataclass(frozen=True, repr=False)
class Addressed(ConfidenceRadius):
    """A radius whose repr is its address."""

    width: float

    def paper_value(self, statistics: RadiusStatistics) -> float:
        return self.width


@dataclass(frozen=True, repr=False)
class AddressedSampler:
    """A sampler whose repr is its address."""

    oversampling: float

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return PosteriorVarianceSampler(self.oversampling)(*args, **kwargs)


@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["table", "box"])
def test_parts_of_ones_own_resume(bounds: torch.Tensor | None) -> None:
    """To the bit, and not with other ones."""
    X = make_candidates(30) if bounds is None else None
    kernel = make_kernel()

    def build(width: float = 1.0, oversampling: float = 3.0, raw: int = 16) -> BBKB:
        options: dict[str, Any] = {"num_restarts": 1, "raw_samples": raw}
        return BBKB(
            X,
            kernel,
            1e-2,
            bounds=bounds,
            radius=Addressed(width),
            sampler=AddressedSampler(oversampling),
            optimizer_options=None if bounds is None else options,
        )

    strategy, twin = build(), build()
    strategy.run(objective, 8, progress=False)
    state = strategy.state_dict()
    twin.load_state_dict(state)
    for one in (strategy, twin):
        one.run(objective, 14, progress=False)
    assert strategy.history.X.tolist() == twin.history.X.tolist()
    others = {"radius": build(width=2.0), "sampler": build(oversampling=4.0)}
    if bounds is not None:
        others["optimizer_options"] = build(raw=32)
    for name, other in others.items():
        refused(rf"\['{name}'\] differ", other.load_state_dict, state)


def test_arguments_that_are_numpy_scalars_resume_from_a_file(tmp_path: Path) -> None:
    """They were written, and refused when read; as numbers they are Python's."""
    X, kernel, path = make_candidates(30), make_kernel(), tmp_path / "state.pt"

    def build(real: Any, whole: Any, truth: Any) -> BBKB:
        radius, most = FixedBeta(real(4.0)), whole(2**30)
        options = {"unique": truth(True), "minimize": truth(False), "seed": whole(3)}
        lam, threshold = real(0.5), real(2.5)
        return BBKB(
            X, kernel, lam, ratio_threshold=threshold, radius=radius, max_memory=most,
            min_batch_width=whole(2), **options,
        )  # fmt: skip

    strategy, twin = build(np.float64, np.int64, np.bool_), build(float, int, bool)
    strategy.run(objective, 8, progress=False)
    strategy.save(path)
    twin.resume(path)
    assert twin.history.X.tolist() == strategy.history.X.tolist()
    assert twin.ask().X.tolist() == strategy.ask().X.tolist()


Size = namedtuple("Size", ["rows", "share"])


def test_what_holds_numbers_stays_what_it_is() -> None:
    given = {"a": [np.int64(3), 2.5], "b": Size(np.int32(4), np.float64(0.5)), "c": "d"}
    found = as_python(given)
    assert found == given and isinstance(found["b"], Size)
    assert json.dumps(found) == '{"a": [3, 2.5], "b": [4, 0.5], "c": "d"}'
