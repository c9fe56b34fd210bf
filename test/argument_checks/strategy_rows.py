"""Bad inputs of `botorch_sparse.strategies`."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import argument_rows as bad
import numpy as np
import pandas as pd
import torch
from argument_rows import (
    BOUNDS,
    INF,
    KERNEL,
    NAN,
    NEED,
    Row,
    X,
    anything,
    arguments,
    usual,
)
from botorch.exceptions import BotorchError, UnsupportedError
from strategy_table import equal

from botorch_sparse import strategies as s
from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.batching import Local
from botorch_sparse.inducing import PosteriorVarianceSampler

RULES: dict[str, list[Any]] = {"rule": ["bless", 3, Local]}
BOUND: dict[str, list[Any]] = {"norm_bound": [*bad.NON_NEGATIVE, 0]}
GRADIENTS = dict.fromkeys(("selection", "reading", "gradients", "noise_scale"))


def known(strategy: Callable[..., Any], **given: Any) -> partial[Any]:
    """A strategy on a table with a kernel."""
    return partial(strategy, **{"candidates": X, "covar_module": KERNEL} | given)


SPACES: list[Callable[..., Any]] = [s.RandomSearch, s.BBKB, s.SBPE]
CANDIDATES: dict[str, Any] = {
    "one dimension": X[0],
    "three dimensions": X[None],
    "no rows": X[:0],
    "int": X.long(),
    "float16": X.half(),
    "bfloat16": X.bfloat16(),
    "complex": X.to(torch.complex64),
    "NaN": X * NAN,
    "infinity": X / 0,
    "without data": X.to("meta"),
    "sparse": X.to_sparse(),
    "number": 3.0,
    "dict": {"a": [1.0]},
    "texts": [["a", "b"]],
    "numbers as texts": [["1", "2"]],
    "ragged": [[1.0], [1.0, 2.0]],
    "class": torch.Tensor,
    "complex list": [[1j]],
    "set": {1, 2},
    "objects": np.array([[None]]),
    "complex array": np.array([[1j]]),
    "dates": np.array([["2020-01-01"]], dtype="datetime64[D]"),
    "masked": np.ma.masked_array([[1.0]], mask=[[True]]),
    "none": None,
}
ONE = torch.ones(1, dtype=torch.float64)
CONSTRAINTS: list[Any] = [
    [(torch.tensor([0]), ONE)],
    [1],
    "x",
    [(torch.tensor([0.5]), ONE, 0.0)],
    [(torch.tensor([0]), ONE * NAN, 0.0)],
    [(torch.tensor([0]), ONE, "a")],
]
FIXED: list[Any] = [{5: 0.0}, {"a": 0.0}, {0: "a"}, {0: NAN}, {0: 7.0}, [0.5], {0.5: 1}]


def domain_rows(strategy: Callable[..., Any]) -> list[Row]:
    """Candidates, bounds and constraints."""
    name = strategy.__name__
    rows = [
        Row(
            name, f"candidates: {what}", partial(strategy, wrong), (NEED,), BotorchError
        )
        for what, wrong in CANDIDATES.items()
    ]
    box = partial(strategy, bounds=BOUNDS)
    for argument in ("inequality_constraints", "equality_constraints"):
        rows += arguments(box, **{argument: CONSTRAINTS})
    rows += arguments(box, fixed_features=FIXED)
    rows += arguments(box, candidate=[X], raises=TypeError)
    rows += arguments(partial(strategy, X), batch_sise=[3], raises=TypeError)
    rows += anything(strategy, says="bounds", bounds=bad.BAD_BOUNDS)
    return rows


def asked(strategy: Any) -> Any:
    """A strategy with three trials that are pending, and the batch."""
    return strategy, strategy.ask()


TABLE = partial(s.RandomSearch, X, batch_size=3)
BOX = partial(s.RandomSearch, bounds=BOUNDS, batch_size=3)
THREE = [1.0, 2.0, 3.0]
FEEDBACK: dict[str, Any] = {
    "complex": torch.ones(3) * 1j,
    "complex list": [1j] * 3,
    "NaN": [1.0, 2.0, NAN],
    "infinity": [1.0, 2.0, INF],
    "texts": ["1", "2", "3"],
    "text": "abc",
    "too few": [1.0, 2.0],
    "number": 1.0,
    "two columns": torch.ones(3, 2),
    "none": None,
    "nones": [None] * 3,
    "sparse": torch.ones(3).to_sparse(),
    "without data": torch.ones(3, device="meta"),
    "dates": np.array(["2020-01-01"] * 3, dtype="datetime64[D]"),
    "masked": np.ma.masked_array([1.0, 2.0, 3.0], mask=[True, False, False]),
    "dict": {"a": 1.0},
    "set": {1.0, 2.0, 3.0},
}
POINTS: dict[str, Any] = {
    "one column": torch.ones(3, 1),
    "three dimensions": torch.ones(1, 3, 2),
    "NaN": torch.ones(3, 2) * NAN,
    "complex": torch.ones(3, 2) * 1j,
    "truth values": torch.ones(3, 2) > 0,
    "none": None,
    "text": "x",
    "texts": [["a", "b"]] * 3,
    "ids that are not out": [7, 8, 9],
    "negative ids": [-1, -2, -3],
    "ids as floats": [0.0, 1.0, 2.0],
    "one trial twice": [0, 0, 1],
    "sparse": torch.ones(3, 2).to_sparse(),
    "without data": torch.ones(3, 2, device="meta"),
    "dict": {"a": [1]},
    "frame of others": pd.DataFrame({"a": THREE}),
    "class": s.Batch,
}


def tell(make: Callable[..., Any], X: Any = None, Y: Any = THREE) -> None:
    """Tell a strategy that waits for three trials; X may be made of the batch."""
    strategy, batch = asked(make())
    try:
        strategy.tell(X(batch) if callable(X) and X is not s.Batch else X, Y)
    finally:
        assert len(strategy.history) == 0 and len(strategy.pending) == 3


ROWS_TO_READMIT: list[Any] = [3, "x", ["a"], [0.5], [True], [-1], [99], [None], s.Batch]
ROWS_TO_READMIT += [torch.tensor(0.5), torch.ones(2) > 0, {"a": 1}]
ROWS_TO_RESTORE: list[Any] = [3, "x", ["a"], [0.5], [-1], [99], [None]]


def readmit(make: Callable[..., Any], rows: Any) -> None:
    """Readmit rows of a strategy of which three failed."""
    strategy, batch = asked(make())
    strategy.fail(batch)
    failed = strategy.state_dict()["failed"]
    try:
        strategy.readmit(rows)
    finally:
        assert strategy.state_dict()["failed"] == failed


def edited(batch: s.Batch) -> s.Batch:
    """A batch whose first point was moved in place."""
    batch.X[0] += 0.3
    return batch


def batch_rows() -> list[Row]:
    """Batches that were put together by hand; `tell` looks that nothing changed."""
    changes: dict[str, Callable[[s.Batch], Any]] = {
        "text": lambda b: replace(b, X="x", ids=None, indices=None),
        "X of two": lambda b: replace(b, X=b.X[:2]),
        "X of one column": lambda b: replace(b, X=b.X[:, :1]),
        "X of another point": lambda b: replace(b, X=b.X.flip(0)),
        "NaN": lambda b: replace(b, X=b.X * NAN),
        "two ids": lambda b: replace(b, ids=b.ids[:2]),
        "ids as floats": lambda b: replace(b, ids=b.ids.double()),
        "one id": lambda b: replace(b, ids=3),
        "ids as truth values": lambda b: replace(b, ids=b.ids > 0),
        "two rows": lambda b: replace(b, indices=torch.tensor([0, 1])),
        "no ids, rows as floats": lambda b: s.Batch(b.X, torch.ones(3)),
        "no ids, other rows": lambda b: s.Batch(b.X, torch.tensor([0, 0, 0])),
        "no ids, no rows, truth values": lambda b: s.Batch(b.X > 0),
    }
    return [
        Row("Batch", f"{place}, {what}", partial(tell, make, change), (), BotorchError)
        for place, make in (("table", TABLE), ("box", BOX))
        for what, change in changes.items()
    ]


def of_another(batch: s.Batch) -> s.Batch:
    """The batch of a strategy of another seed on the same domain."""
    return TABLE(seed=5).ask() if batch.indices is not None else BOX(seed=5).ask()


def feedback_rows() -> list[Row]:
    """What `tell` and `set_candidates` are called with."""
    rows = []
    name = "RandomSearch.tell"
    for place, make in (("table", TABLE), ("box", BOX)):
        for what, Y in FEEDBACK.items():
            call = partial(tell, make, lambda batch: batch, Y)
            rows.append(Row(name, f"tell {place}, Y {what}", call, (), BotorchError))
        for what, wrong in POINTS.items():
            call = partial(tell, make, wrong)
            rows.append(Row(name, f"tell {place}, X {what}", call, (), BotorchError))
        for change in (edited, of_another):
            call, given = (
                partial(tell, make, change),
                f"tell {place}, {change.__name__}",
            )
            rows.append(Row(name, given, call, ("not those of its trials",)))
        rows += arguments(
            partial(readmit, make), "RandomSearch.readmit", rows=ROWS_TO_READMIT
        )
    for what, wrong in CANDIDATES.items():
        call = partial(TABLE().set_candidates, wrong)
        setter = "RandomSearch.set_candidates"
        rows.append(Row(setter, what, call, (NEED,), BotorchError))
    text = pd.DataFrame({"x0": ["a"] * 3, "x1": [0.2] * 3})
    rows.append(
        Row(name, "tell box, a frame of text", partial(tell, BOX, text), (NEED,))
    )
    far = partial(tell, BOX, [[1e6, 0.5]] * 3)
    return [*rows, Row(name, "tell box, other units", far, ("outside of the bounds",))]


def still(method: str, *given: Any, **options: Any) -> None:
    """Call a method of a strategy that waits for three trials, and goes on to."""
    strategy, _ = asked(TABLE())
    before = strategy.state_dict()
    try:
        getattr(strategy, method)(*given, **options)
    finally:
        assert equal(strategy.state_dict(), before)


SIZES = {"max_batch_size": bad.WHOLE}
PACE: dict[str, list[Any]] = {"max_seconds": [0, -1, NAN, "2"], "progress": [3, "x"]}
IDS: list[Any] = ["x", None, [0.5], 3.5, [True], [[0]]]
PATHS: list[Any] = [None, 3, b"state.pt", ["state.pt"]]
RUN: dict[str, list[Any]] = {
    "objective": [None, "f", 3],
    "num_evaluations": [-1, 2.5, NAN, INF, "5", True, None],
    "progress": bad.FLAG,
    "by_index": bad.FLAG,
    "executor": ["x", 3, ThreadPoolExecutor],
    "timeout": [0, -1.0, NAN, INF, "2", True],
    "callbacks": ["x", 3, s.StopAfter, [None]],
    "checkpoint": [3, True, "no folder/state.pt"],
    "catch": ["x", [ValueError], ValueError(), KeyboardInterrupt, (ValueError, 3)],
    "batch_size": bad.WHOLE,
}
AT: list[Any] = [X[0], X[:, :1], X[None], "x", None, 3.0, [["a", "b"]], X * 1j]


def explorer() -> s.SBPE:
    """A strategy with a horizon."""
    return s.SBPE(X, KERNEL, num_evaluations=20)


def collector() -> s.UncertaintyReduction:
    """A strategy whose dataset has a size."""
    strategy = s.UncertaintyReduction(X, KERNEL)
    strategy.collect_dataset(6)
    return strategy


def method_rows() -> list[Row]:
    """What other methods are called with."""
    run = partial(still, "run", objective=lambda X: X[:, 0], num_evaluations=5)
    rows = [
        *arguments(partial(still, "ask"), "RandomSearch.ask", **SIZES, **PACE),
        *arguments(explorer().ask, "SBPE.ask", **SIZES, **PACE),
        *arguments(collector().ask, "UncertaintyReduction.ask", **SIZES),
        *arguments(run, "RandomSearch.run", **RUN),
        *arguments(partial(still, "fail", [0]), "RandomSearch.fail", retry=bad.FLAG),
        *arguments(
            partial(still, "trial"), "RandomSearch.trial", id=["a", 0.0, None, True, 9]
        ),
        *arguments(
            partial(still, "pending_batch"), "RandomSearch.pending_batch", **SIZES
        ),
        *arguments(
            s.UncertaintyReduction(X, KERNEL).collect_dataset,
            "UncertaintyReduction.collect_dataset",
            n=bad.WHOLE,
        ),
    ]
    for method in ("fail", "withdraw"):
        name, call = f"RandomSearch.{method}", partial(still, method)
        rows += arguments(call, name, says="ids|feedback", trials=IDS)
        own = getattr(explorer(), method)
        rows += arguments(own, f"SBPE.{method}", says="ids|feedback", trials=IDS)
    rows += arguments(
        partial(still, "restore_trials", []),
        "RandomSearch.restore_trials",
        says="rows",
        failed=ROWS_TO_RESTORE,
    )
    for strategy in (explorer(), s.TrustRegionBBKB(bounds=BOUNDS)):
        name = f"{type(strategy).__name__}.restore_trials"
        call = partial(strategy.restore_trials, [0])
        rows.append(Row(name, "a plan", call, ("resume",), UnsupportedError))
    new = s.TrustRegionBBKB(bounds=BOUNDS)
    name = "TrustRegionBBKB.restore"
    rows += arguments(partial(new.restore, Y=[1.0, 2.0]), name, X=[None, "x"])
    rows += arguments(
        partial(new.restore, X[:2]),
        name,
        says="value|points",
        Y=[None, "x", [1.0], [[1.0, 2.0]] * 2],
    )
    rows += arguments(
        partial(new.restore, X[:2], [1.0, 2.0]),
        name,
        trials=[[1]],
        runs=[[0, 0, 0]],
        num_learned=[-1, 3, 1.5],
        pending=["x"],
        note=[{}, {"regions": [], "priors": []}, 3],
    )
    rows += arguments(new.runs_of, "TrustRegionBBKB.runs_of", says="batch", batch=[3])
    for strategy in (explorer(), s.UncertaintyReduction(X, KERNEL)):
        run = partial(strategy.run, objective=lambda X: X[:, 0], num_evaluations=5)
        rows += arguments(
            run,
            f"{type(strategy).__name__}.run",
            num_evaluations=[-1, 2.5, "5", None],
            objective=["f"],
        )
    for method in ("save", "resume"):
        rows += arguments(partial(still, method), f"RandomSearch.{method}", path=PATHS)
    region = s.TrustRegionBBKB(bounds=BOUNDS, covar_module=KERNEL)
    for strategy in (TABLE(), known(s.BBKB)(), region, explorer(), collector()):
        name = f"{type(strategy).__name__}.predict"
        rows += anything(strategy.predict, name, says="X", X=AT)
    return rows


def with_entry(state: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a state with one entry changed, or taken out for `KeyError`."""
    changed = place = deepcopy(state)
    *parts, last = path.split(".")
    for part in parts:
        place = place[part]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return changed


STATES: dict[str, list[Any]] = {
    "history": [KeyError, None, {}],
    "history.Y": [KeyError, [NAN] * 6, [1.0], ["a"] * 6],
    "history.point": [KeyError, [99] * 6, [-1] * 6, [0.5] * 6],
    "history.extra": [torch.ones(1, 9)],
    "num_learned": [KeyError],
    "num_proposed": [KeyError],
    "pending": [KeyError, [[0, 0, 0, 0]], [[9, 0, 0, 0]], "x"],
    "has_asked": [KeyError],
    "failed": [KeyError, None],
    "generator": [KeyError, None, torch.zeros(3)],
    "version": [KeyError, 1],
    "config": [KeyError, {}, None],
}


def load(value: Any) -> None:
    """Load a bad state; nothing is taken over."""
    strategy = TABLE()
    try:
        strategy.load_state_dict(value)
    finally:
        assert len(strategy.history) == 0


def state_rows() -> list[Row]:
    """What `load_state_dict` is called with."""
    strategy = TABLE()
    strategy.run(lambda X: X[:, 0], 6, progress=False)
    states = {"none": None, "list": []} | {
        f"{path}={value}": with_entry(strategy.state_dict(), path, value)
        for path, several in STATES.items()
        for value in several
    }
    return [
        Row("RandomSearch.load_state_dict", given, partial(load, state), ())
        for given, state in states.items()
    ]


LENGTHS: list[Any] = ["often", [0, 3], 2, [1.5]]
ROWS = [
    *usual(
        known(s.BBKB),
        **BOUND | RULES,
        termination=bad.CHOICE,
        local_bound=bad.CHOICE,
        num_evaluations=[100],
    ),
    *usual(known(s.BKB), **BOUND, num_evaluations=[100]),
    *[
        row
        for strategy in (s.BBKB, s.BKB)
        for row in arguments(
            known(strategy, constants="theory", num_evaluations=100),
            num_evaluations=[*bad.WHOLE, None],
            oversampling=[*bad.POSITIVE, 2.0],
            sampler=[PosteriorVarianceSampler(1e3)],
            radius=[FixedBeta(4.0)],
            batch_size=[5],
            delta=bad.PROBABILITY,
            norm_bound=bad.NON_NEGATIVE,
            noise_variance=bad.NON_NEGATIVE,
        )
    ],
    *usual(known(s.GPBUCB), **BOUND | RULES),
    *usual(known(s.GPUCB), **BOUND),
    *usual(known(s.ThompsonSampling)),
    *usual(known(s.ExpectedImprovement)),
    *arguments(
        partial(s.ThompsonSampling, X), radius=[FixedBeta(4.0)], raises=TypeError
    ),
    *usual(
        known(s.SBPE, num_evaluations=100),
        **BOUND,
        num_initial=None,
        num_evaluations=bad.WHOLE,
        schedule=LENGTHS,
    ),
    *arguments(
        partial(s.SBPE, X, num_evaluations=100),
        num_initial=[*bad.WHOLE, 1, 90],
        lam=bad.POSITIVE,
        noise_std=bad.NON_NEGATIVE,
    ),
    *usual(known(s.UncertaintyReduction), covar_module=[*bad.KERNELS, None], **BOUND),
    *[
        row
        for gssbo, not_its_own in ((s.GSSBO, {}), (s.RSSBO, GRADIENTS))
        for row in usual(
            partial(gssbo, bounds=BOUNDS, covar_module=KERNEL),
            **not_its_own,
            subset_size=[0, -1, 2.5, NAN, "static"],
            Z=[0, -1.0, NAN, "2"],
            acquisition=["ucb", 3],
            clock=[3],
        )
    ],
    *usual(
        partial(s.TrustRegionBBKB, bounds=BOUNDS, covar_module=KERNEL),
        acquisition=bad.CHOICE,
    ),
    *arguments(partial(s.TrustRegionBBKB, bounds=BOUNDS, acquisition="ucb"), **RULES),
    *usual(partial(s.RandomSearch, X)),
    *arguments(s.StopAfter, seconds=[-1, NAN, "1", None]),
    *arguments(s.StopAtTarget, value=[NAN, "1", None]),
    *arguments(
        partial(s.StopAtHypervolume, value=1.0),
        value=[-1.0, NAN, "2"],
        reference=["x", 3.0, [NAN], [1.0, INF], [["a"]], [[1.0]]],
    ),
    *arguments(partial(s.Objective, "a"), minimize=bad.FLAG, threshold=[NAN, INF, "1"]),
    *arguments(
        partial(s.Constraint, "a", upper=1.0),
        lower=[NAN, INF, "1", 1.5],
        upper=[NAN, -INF, "1", None],
    ),
    *arguments(s.StopOnConfidenceGap, tolerance=[-1, NAN, "1", None]),
    *arguments(s.StopOnNoImprovement, num_evaluations=[*bad.WHOLE, None]),
    *arguments(partial(s.StopOnNoImprovement, 3), min_gain=[-1, NAN, "1", None]),
    *[row for strategy in SPACES for row in domain_rows(strategy)],
    *feedback_rows(),
    *method_rows(),
    *batch_rows(),
    *state_rows(),
]
