"""Bad inputs of `botorch_sparse.ax`."""

from functools import partial
from typing import Any

import pandas as pd
from door_rows import FLAG, NAN, NON_NEGATIVE, SEED, THRESHOLD, WHOLE, Row, X, arguments

from botorch_sparse import ax

GROWTH: list[Any] = [0.5, NAN, "2"]
OPTIONS: dict[str, list[Any]] = {
    "max_baseline": WHOLE,
    "allow_repeats": FLAG,
    "ratio_threshold": THRESHOLD[:-1],
}
STRATEGIES = (
    ax.sparse_generation_strategy,
    ax.bbkb_generation_strategy,
    ax.gssbo_generation_strategy,
)
ROWS: list[Row] = [
    *[
        row
        for make in STRATEGIES
        for row in (
            *arguments(make, num_initial=WHOLE, seed=SEED, refit_growth=GROWTH),
            *arguments(make, says="option", optoins=[{}]),
        )
    ],
    *arguments(
        ax.bbkb_generation_strategy, beta=NON_NEGATIVE, ratio_threshold=THRESHOLD
    ),
    *arguments(ax.gssbo_generation_strategy, subset_size=WHOLE),
    *arguments(partial(ax.recommended_batch_size, None), max_trials=WHOLE),
    *arguments(ax.recommended_batch_size, client=[None, 3]),
    *arguments(
        ax.ArmTable.of,
        "ArmTable",
        says="missing|candidates",
        candidates=[[], pd.DataFrame({"a": [1.0, None]})],
    ),
    *arguments(
        ax.SparseGenerator,
        refit_growth=GROWTH,
        refit_on_cv=FLAG,
        candidates=[X, "x", ax.ArmTable],
        seed=SEED,
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
        for acquisition in (ax.SparseAcquisition, ax.AdaptiveBatchAcquisition)
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
