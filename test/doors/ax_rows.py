"""Bad inputs of `botorch_sparse.ax`."""

from functools import partial

import pandas as pd
from door_rows import NAN, NON_NEGATIVE, SEED, THRESHOLD, WHOLE, Row, arguments

from botorch_sparse import ax

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
            *arguments(
                make, num_initial=WHOLE, seed=SEED, refit_growth=[0.5, NAN, "2"]
            ),
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
]
