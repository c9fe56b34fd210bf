"""Bad inputs of `botorch_sparse.ax`."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import argument_rows as bad
import pandas as pd
from argument_rows import NAN, NEED, Row, X, arguments
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model

from botorch_sparse import ax
from botorch_sparse.acquisition import BatchUpperConfidenceBound

GROWTH: list[Any] = [0.5, NAN, "2"]
OPTIONS: dict[str, list[Any]] = {
    "max_baseline": bad.WHOLE,
    "allow_repeats": bad.FLAG,
    "ratio_threshold": bad.THRESHOLD[:-1],
}
OPTIMIZER: dict[str, list[Any]] = {
    "raw_samples": [1],
    # Not of the optimizers, or given by Ax.
    **{name: [2] for name in ("num_restart", "bounds", "fixed_features")},
}
SPARSE: dict[str, list[Any]] = {
    **{name: [-5, 2.5, "2"] for name in ("max_inducing_points", "max_memory")},
    "objective": bad.CHOICE,
    "inducing_sampler": bad.CHOICE,
    "inducing_points": [[[0.5]], X.half()],
    "learn_inducing_points": bad.FLAG,
    "robust": bad.FLAG,
    "max_inducing": [3],
}
SUBSET: dict[str, list[Any]] = {
    **{name: [-5, 2.5, "2"] for name in ("subset_size", "num_newest", "num_initial")},
    "selection": bad.CHOICE,
    "seed": bad.SEED,
    "subset": [3],
}
STRATEGIES = (
    ax.sparse_generation_strategy,
    ax.bbkb_generation_strategy,
    ax.gssbo_generation_strategy,
)
MODEL = dict(zip(STRATEGIES, (SPARSE, SPARSE, SUBSET), strict=True))


def each(make: Any, argument: str, values: dict[str, list[Any]]) -> Iterator[Row]:
    """Rows for bad values of options that are a dictionary."""
    for name, several in values.items():
        options = [{name: value} for value in several]
        yield from arguments(make, says=name, **{argument: options})


ROWS: list[Row] = [
    *[
        row
        for make in STRATEGIES
        for row in (
            *arguments(make, num_initial=bad.WHOLE, seed=bad.SEED, refit_growth=GROWTH),
            *arguments(make, says="option", optoins=[{}]),
            *arguments(make, allow_repeats=bad.FLAG, candidates=[3]),
            Row(make.__name__, "name=3", partial(make, name=3), ("name=3", NEED)),
            *arguments(make, model_options=[3], optimizer_options=[3, "fast"]),
            *each(make, "optimizer_options", OPTIMIZER),
            *each(make, "model_options", MODEL[make]),
        )
    ],
    *[
        row
        for make in (ax.sparse_generation_strategy, ax.gssbo_generation_strategy)
        for row in (
            *arguments(make, acqf_class=["UCB", 3, Model, AcquisitionFunction]),
            *arguments(make, acqf_options=[3]),
            *arguments(make, says="acqf_options.*betta", acqf_options=[{"betta": 3}]),
            *arguments(
                partial(make, acqf_class=BatchUpperConfidenceBound),
                make.__name__,
                says="acqf_options.*num_fantasies.*beta",
                acqf_options=[{"num_fantasies": 3}],
            ),
        )
    ],
    *arguments(
        ax.bbkb_generation_strategy,
        beta=bad.NON_NEGATIVE,
        ratio_threshold=bad.THRESHOLD,
    ),
    *arguments(ax.gssbo_generation_strategy, subset_size=bad.WHOLE),
    *arguments(ax.thompson_generation_strategy, candidates=[None, 3]),
    *arguments(
        partial(ax.thompson_generation_strategy, candidates=[{"x": 0.5}]),
        "thompson_generation_strategy",
        num_initial=bad.WHOLE,
        seed=bad.SEED,
        refit_growth=GROWTH,
        allow_repeats=bad.FLAG,
    ),
    *arguments(
        ax.trust_region_generation_strategy,
        num_initial=bad.WHOLE,
        batch_size=bad.WHOLE,
        num_regions=bad.WHOLE,
        num_candidates=bad.WHOLE,
        seed=bad.SEED,
        refit_growth=GROWTH,
    ),
    *arguments(ax.TrustRegionGenerator, refit_on_cv=bad.FLAG, seed=bad.SEED),
    *arguments(partial(ax.recommended_batch_size, None), max_trials=bad.WHOLE),
    *arguments(ax.recommended_batch_size, client=[None, 3]),
    *arguments(
        ax.ArmTable.of,
        "ArmTable",
        says="missing|candidates",
        candidates=[
            *([], pd.DataFrame({"a": [1.0, None]}), 3, {"x": 1.0}, [{"x": object()}]),
            pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
            pd.DataFrame({"a": pd.to_datetime(["2026-01-01"])}),
        ],
    ),
    *arguments(
        ax.ArmTable.of, "ArmTable", says="cannot be read", candidates=["nofile.csv"]
    ),
    *arguments(
        ax.ArmTable.of,
        "ArmTable",
        says="repeats the column names.*must",
        candidates=[pd.DataFrame([[1, 2]], columns=c) for c in (["a", "a"], ["1", 1])],
    ),
    *arguments(
        ax.SparseGenerator,
        refit_growth=GROWTH,
        refit_on_cv=bad.FLAG,
        candidates=[X, "x", ax.ArmTable],
        seed=bad.SEED,
    ),
    *arguments(
        ax.SparseGenerator, says="options", acquisition_options=[{"max_baselin": 3}]
    ),
    *[
        row
        for option, several in OPTIONS.items()
        for row in arguments(
            partial(ax.SparseGenerator, acquisition_class=ax.AdaptiveBatchAcquisition),
            says=option,
            acquisition_options=[{option: value} for value in several],
        )
    ],
    *arguments(ax.SparseSurrogate, refit_growth=GROWTH),
    *[
        Row("SparseGenerators", key, partial(ax.SparseGenerators, key), (), ValueError)
        for key in ("GP", "")
    ],
    *[
        row
        for acquisition in (
            ax.SparseAcquisition,
            ax.AdaptiveBatchAcquisition,
            ax.ThompsonAcquisition,
        )
        for row in (
            *arguments(
                partial(acquisition, torch_opt_config=None),
                surrogate=[None, 3, ax.SparseSurrogate],
            ),
            *arguments(
                partial(acquisition, ax.SparseSurrogate(), torch_opt_config=None),
                says="max_baseline|options",
                options=[{"max_baselin": 3}, {"max_baseline": 0}],
            ),
        )
    ],
]
