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
from strategy_table import (
    GP,
    TABLE,
    equal,
    make_candidates,
    make_kernel,
    objective,
    without_times,
)

from botorch_sparse.acquisition.confidence import FixedBeta
from botorch_sparse.inducing import BLESSSampler
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import Strategy

# Enough for batches of several points before and after the interruption.
START, TOTAL = 12, 30
OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0], [1.5, -0.5]], dtype=torch.float64)


def saved(strategy: Strategy, name: str, total: int = TOTAL, **run: Any) -> Any:
    """What `finish` takes; the seed that counts is that of the state."""
    plain = {"domain": "table", "name": name, "arguments": {"seed": 99}}
    return plain | {"total": total, "state": strategy.state_dict()} | run


# Few candidates and much noise: repeats alternate, and rows outgrow unique points.
REBUILDING: dict[str, Any] = {"lam": 30.0, "noise_variance": 30.0, "seed": 5}
REBUILDING["candidates"] = make_candidates(8)
REPEATED = {"repeat": "until-uncertainty-halves", "lam": 1.0}


def rebuilt() -> tuple[Strategy, dict[str, Any]]:
    """An exact strategy that has factorized anew, and has rows since."""
    strategy = TABLE["gpucb"](**REBUILDING)
    strategy.run(objective, 80, progress=False)
    return strategy, saved(strategy, "gpucb", 100, arguments=REBUILDING)


def off_table_and_pending(
    name: str, **arguments: Any
) -> tuple[Strategy, dict[str, Any]]:
    """Points beside the table, part of one batch told, and another one pending."""
    strategy = TABLE[name](seed=3, **arguments)
    strategy.tell(OUTSIDE, objective(OUTSIDE))
    strategy.run(objective, START, progress=False)
    more = torch.cat([OUTSIDE[:1], OUTSIDE[:2] + 0.25, strategy.candidates[:3]])
    strategy.tell(more, objective(more))
    first = strategy.ask(20)
    strategy.tell(first.X[:1], objective(first.X[:1]))
    strategy.ask(20)
    return strategy, saved(strategy, name, arguments={"seed": 99} | arguments)


def middle_of_a_batch(domain: str, name: str) -> tuple[Strategy, dict[str, Any]]:
    """Part of one batch told, and another one pending."""
    strategy, f = TABLES[domain][name](seed=3), OBJECTIVES[domain]
    if domain == "box":
        X = strategy.box.sample(6, 0)
        strategy.tell(X, f(X))
    strategy.run(f, 7, progress=False)
    first = strategy.ask(3)
    strategy.tell(first.X[:1], f(first.X[:1]))
    strategy.ask(2)
    total = {"box": 10, "sbpe": 18}[domain]
    return strategy, saved(strategy, name, total, domain=domain)


BOXES = ["bbkb-global-local", "gpbucb-sum", "bbkb-inferred", "gpucb-inferred"]
BOXES += [*box_table.SUBSET, *box_table.THOMPSON, *box_table.REGIONS, "random"]
ELSEWHERE: dict[str, Any] = {
    "rebuilt": rebuilt,
    **{
        f"repeated-{name}": lambda n=name: off_table_and_pending(n, **REPEATED)
        for name in ("bkb", "bbkb-global-local")
    },
    **{f"table-{name}": lambda n=name: off_table_and_pending(n) for name in TABLE},
    **{
        f"{domain}-{name}": lambda d=domain, n=name: middle_of_a_batch(d, n)
        for domain, names in (("box", BOXES), ("sbpe", sbpe_problems.TABLE))
        for name in names
    },
}


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_new_process_goes_on(every: int, tmp_path: Path) -> None:
    """One for many strategies, since it takes long to import torch."""
    runs = {key: make() for key, make in [*ELSEWHERE.items()][::every]}
    torch.save({key: run for key, (_, run) in runs.items()}, tmp_path / "in.pt")
    here = Path(__file__).parents
    subprocess.run(
        [sys.executable, finish_runs.__file__, tmp_path / "in.pt", tmp_path / "out.pt"],
        check=True,
        env=os.environ | {"PYTHONPATH": f"{here[2]}{os.pathsep}{here[1]}"},
    )
    finished = torch.load(tmp_path / "out.pt", weights_only=True)
    rebuilt, run = runs["rebuilt"]
    num_rebuilt = run["state"]["surrogate"]["num_rebuilt"]
    assert 1 < num_rebuilt < len(rebuilt.history)
    others = list[str]()
    for key, (strategy, run) in runs.items():
        strategy.run(OBJECTIVES[run["domain"]], run["total"], progress=False)
        assert len(strategy.history) == run["total"]
        theirs, ours = finished[key], strategy.state_dict()
        if not equal(without_times(theirs), without_times(ours)):
            others.append(key)
    assert not others


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
