"""Runs that are saved and loaded go on to the same bits, also in a new process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import box_table
import finish_runs
import pytest
import sbpe_problems
import torch
from botorch.exceptions import InputDataError
from finish_runs import OBJECTIVES, TABLES
from strategy_cases import ALL
from strategy_table import (
    GP,
    TABLE,
    equal,
    make_candidates,
    make_kernel,
    without_times,
)

from botorch_sparse.acquisition.confidence import FixedBeta
from botorch_sparse.inducing import BLESSSampler
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import Strategy

OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0], [1.5, -0.5]], dtype=torch.float64)
NAMES = [name for name in ALL if name not in ("reduction", "sbpe-inferred")]


def half_way(name: str) -> Strategy:
    """Points that nobody waited for, part of a batch told, and another one pending."""
    make, f, start = ALL[name]
    strategy = make(seed=3)
    X = OUTSIDE if strategy.box is None else strategy.box.sample(3, 0)
    strategy.tell(X, f(X))
    strategy.run(f, start, progress=False)
    first = strategy.ask(3)
    strategy.tell(first.X[:1], f(first.X[:1]))
    strategy.ask(2)
    return strategy


@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_a_new_process_goes_on(every: int, tmp_path: Path) -> None:
    """One for many strategies, since it takes long to import torch."""
    runs = {name: half_way(name) for name in {*NAMES[::every], "rebuilt"}}
    states = {name: strategy.state_dict() for name, strategy in runs.items()}
    torch.save(states, tmp_path / "in.pt")
    here = Path(__file__).parents
    subprocess.run(
        [sys.executable, finish_runs.__file__, tmp_path / "in.pt", tmp_path / "out.pt"],
        check=True,
        env=os.environ | {"PYTHONPATH": f"{here[2]}{os.pathsep}{here[1]}"},
    )
    finished = torch.load(tmp_path / "out.pt", weights_only=True)
    # An exact strategy that has factorized anew, and has rows since.
    num_rebuilt = states["rebuilt"]["surrogate"]["num_rebuilt"]
    assert 1 < num_rebuilt < len(runs["rebuilt"].history)
    for name, strategy in runs.items():
        ours = finish_runs.finish(name, strategy)
        assert equal(without_times(finished[name]), without_times(ours)), name


OTHER_KERNEL = make_kernel()
OTHER_KERNEL.raw_lengthscale.data += 1e-12
TABLE_CHANGES: list[tuple[str, dict[str, Any], str]] = [
    *[(name, {"lam": 0.5}, r"\['lam'\] differ") for name in GP],
    *[(name, {"covar_module": OTHER_KERNEL}, "'kernel'") for name in GP],
    *[(name, {"radius": FixedBeta(4.0)}, "'radius'") for name in GP],
    *[(name, {"unique": True}, "'unique'") for name in TABLE],
    *[(name, {"candidates": make_candidates(149)}, "'candidates'") for name in TABLE],
    *[
        (name, {"candidates": make_candidates().flip(-1)}, "'candidates'")
        for name in TABLE
    ],
    ("bbkb-global", {"termination": "global-local"}, "'rule'"),
    ("bbkb-global-local", {"local_bound": "paper"}, "'rule'"),
    ("bbkb-global", {"oversampling": 3.0}, "'sampler'"),
    ("bbkb-global", {"ratio_threshold": 3.0}, "'rule'"),
    ("bbkb-global", {"repeat": "until-uncertainty-halves"}, "'rule'"),
    ("bkb", {"repeat": "until-uncertainty-halves"}, "'rule'"),
    ("bkb", {"oversampling": 3.0}, "'sampler'"),
    ("bkb", {"initial_sampler": BLESSSampler(3.0)}, "'initial_sampler'"),
    ("bkb", {"min_batch_width": 3}, "'min_batch_width'"),
    ("gpbucb-sum", {"rule": "product"}, "'rule'"),
    ("bbkb-global", {"max_memory": 0}, "'max_memory'"),
    ("random", {"batch_size": 8}, "'batch_size'"),
    ("thompson", {"batch_size": 4}, "'batch_size'"),
]
HALF = (torch.tensor([0]), torch.ones(1), 0.5)
BOX_CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("bbkb-global", {"bounds": box_table.BOUNDS + 1}, "'bounds'"),
    ("bbkb-global", {"termination": "global-local"}, "'rule'"),
    ("bbkb-global", {"lam": 0.1}, "'lam'"),
    ("bbkb-global", {"refit": RefitSchedule(every=3)}, "'refit'"),
    ("bbkb-global", {"num_initial": 3}, "'num_initial'"),
    ("bbkb-global", {"optimizer_options": {"num_restarts": 3}}, "'optimizer_options'"),
    ("bbkb-inferred", {"lam": 0.1, "covar_module": box_table.make_kernel()}, "kernel"),
    ("gpbucb-sum", {"rule": "product"}, "'rule'"),
    *[
        ("random", {f"{kind}_constraints": [HALF]}, "'constraints'")
        for kind in ("inequality", "equality")
    ],
    ("random", {"fixed_features": {0: 0.5}}, "'fixed_features'"),
    *[
        ("gssbo-known", {name: value}, f"'{name}'")
        for name, value in {
            "subset_size": 9,
            "num_initial": 5,
            "Z": 5.0,
            "patience": 1,
            "reading": "scalar",
            "selection": "recent",
            "noise_scale": 0.2,
            "radius": FixedBeta(1.0),
            "refit": RefitSchedule(every=3),
            "bounds": box_table.BOUNDS + 1,
        }.items()
    ],
]
SBPE_CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("table", {"lam": 0.5}, "'lam'"),
    ("table", {"refresh": "exact"}, "'refresh'"),
    ("table", {"exploration": "random"}, "'exploration'"),
    ("table", {"num_evaluations": 121}, "'lengths'"),
    ("table", {"norm_bound": 2.0}, "'norm_bound'"),
    ("table", {"candidates": sbpe_problems.make_table(199)}, "'candidates'"),
    ("box", {"raw_samples": 17}, "'raw_samples'"),
    ("box", {"bounds": 2 * sbpe_problems.UNIT_BOX}, "'bounds'"),
]
CHANGES = {"table": TABLE_CHANGES, "box": BOX_CHANGES, "sbpe": SBPE_CHANGES}


@pytest.mark.parametrize(
    "domain, name, change, match",
    [(domain, *change) for domain, changes in CHANGES.items() for change in changes],
)
def test_built_otherwise(
    domain: str, name: str, change: dict[str, Any], match: str
) -> None:
    build = TABLES[domain][name]
    strategy, other = build(), build(**change)
    strategy.run(OBJECTIVES[domain], 3, progress=False)
    before = other.state_dict()
    with pytest.raises(InputDataError, match="does not fit this strategy.*" + match):
        other.load_state_dict(strategy.state_dict())
    assert equal(other.state_dict(), before)


def test_another_strategy_or_version() -> None:
    state = TABLE["gpucb"]().state_dict()
    with pytest.raises(InputDataError, match="'strategy'"):
        TABLE["bkb"]().load_state_dict(state)
    with pytest.raises(InputDataError, match="has the version 2, and this release"):
        TABLE["gpucb"]().load_state_dict(state | {"version": 2})
    with pytest.raises(InputDataError, match="does not fit"):
        TABLE["gpucb"]().load_state_dict({})
