"""Bad inputs of tables of candidates, data sets and plots."""

from functools import partial
from typing import Any

import argument_rows as bad
import pandas as pd
import torch
from argument_rows import BOUNDS, INF, KERNEL, NAN, Row, X, Y, anything, arguments

from botorch_sparse import plotting
from botorch_sparse.demo.datasets import Table, load_table
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies import BBKB, SBPE, CandidateTable, RandomSearch, RowIndex

TABLE = Table("t", X, Y, ("a", "b"), "y")
SEARCH = RandomSearch(X, batch_size=3)
HISTORY = SEARCH.run(lambda X: X[:, 0], 6, progress=False)
ON_BOX = RandomSearch(bounds=BOUNDS, batch_size=3)
STRATEGY = BBKB(X, covar_module=KERNEL)
STRATEGY.run(lambda X: X[:, 0], 6, progress=False)
EXPLORER = SBPE(X, KERNEL, num_evaluations=20, norm_bound=9.0)
EXPLORER.run(lambda X: X[:, 0], 20, progress=False)
LINE = SparseSingleTaskGP(X[:, :1], X[:, 1:])
FRAME = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
CANDIDATES = CandidateTable.of(FRAME)
INDEX = RowIndex(X)

HISTORIES: list[Any] = [[HISTORY], HISTORY, {"a": 3}, "x", None, SEARCH]
INDICES: list[Any] = [torch.tensor([-1]), torch.tensor([99]), torch.tensor([0.5]), "x"]
ROW_NUMBERS: list[Any] = [[99], [-1], [0.5], "x", 3]
SOURCES: list[Any] = [SEARCH, None, HISTORY, 3]
DEVICES: list[Any] = ["gpu", 3.5, "cuda:99"]
if not torch.cuda.is_available():
    DEVICES.append("cuda")
COLUMNS: list[Any] = [
    *({}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": [1, None]}, {"a": [1.0, INF]}),
    *("x", 3, None, {"a": 3}, {"a": "xy"}),
]


def table_of(**given: Any) -> CandidateTable:
    """The table of a frame."""
    return CandidateTable.of(FRAME, **given)


ROWS: list[Row] = [
    *anything(load_table, says="name|table|file", name_or_path=["nowhere", 3, None]),
    *arguments(
        partial(load_table, "abalone"),
        target=["nothing", 3],
        dtype=["float64", torch.long, torch.float16],
        device=DEVICES,
        ranks=[2, "x"],
    ),
    *anything(RowIndex, says="X", X=[None, 3, X[0], X[:0]]),
    *[
        row
        for name in ("equal", "find")
        for row in anything(
            getattr(INDEX, name), f"RowIndex.{name}", says="X", X=[None, X[0], X[:, :1]]
        )
    ],
    *[
        row
        for name in ("nearby", "six_digits")
        for row in anything(
            getattr(INDEX, name), f"RowIndex.{name}", says="x", x=[None, X, X[0, :1]]
        )
    ],
    *anything(
        partial(INDEX.within, X[0]),
        "RowIndex.within",
        says="tolerance",
        tolerance=[None, 0.1, X],
    ),
    *[
        row
        for method in (TABLE.values, TABLE.regret_ratio, TABLE.best_rank)
        for row in anything(method, "Table", says="indices", indices=INDICES)
    ],
    *[
        row
        for plot in (
            plotting.plot_batch_sizes,
            plotting.plot_hypervolume,
            plotting.plot_num_inducing,
            plotting.plot_seconds,
        )
        for row in (
            *arguments(plot, histories=HISTORIES),
            *arguments(partial(plot, {"a": HISTORY}), ax=["x", 3]),
        )
    ],
    *[
        row
        for plot in (
            plotting.plot_best_rank,
            plotting.plot_regret,
            plotting.plot_comparison,
        )
        for row in (
            *arguments(partial(plot, table=TABLE), histories=HISTORIES),
            *arguments(partial(plot, {"a": HISTORY}), table=[None, X, "abalone"]),
            *anything(
                partial(plot, table=TABLE),
                says="indices out of 0",
                histories=[{"a": ON_BOX.run(lambda X: X[:, 0], 3, progress=False)}],
            ),
        )
    ],
    *[
        row
        for plot in (plotting.plot_cumulative_regret, plotting.plot_simple_regret)
        for row in (
            *arguments(partial(plot, truth=TABLE), histories=HISTORIES),
            *arguments(partial(plot, {"a": HISTORY}), truth=[X, "abalone", 3]),
            *arguments(partial(plot, {"a": HISTORY}), optimum=["x", NAN]),
        )
    ],
    *arguments(plotting.plot_pareto, history=[SEARCH, None, {"a": HISTORY}]),
    *anything(plotting.plot_pareto, says="need two or three", history=[HISTORY]),
    *arguments(plotting.plot_best_so_far, history=[SEARCH, None, {"a": HISTORY}]),
    *[
        row
        for plot in (plotting.plot_effects, plotting.plot_category_effects)
        for row in arguments(plot, effects=[None, {}, {"a": 3}, {"a": ([1.0], [])}])
    ],
    *anything(
        partial(plotting.plot_predicted, mean=[1.0], ends=[[0.5], [1.5]]),
        says="measured",
        measured=["x", [NAN, 1.0], None],
    ),
    *arguments(plotting.svg_of, figure=[None, HISTORY]),
    *arguments(
        partial(plotting.plot_hypervolume, {"a": HISTORY}),
        reference=[[NAN], [1.0, 2.0], "x"],
    ),
    *arguments(plotting.plot_elimination, strategy=[SEARCH, None, HISTORY]),
    *arguments(partial(plotting.plot_elimination, EXPLORER), dim=[9, -1, "x"]),
    *anything(
        plotting.certified_step,
        says="strategy|inducing points",
        strategy=[SEARCH, None, HISTORY],
    ),
    *arguments(plotting.plot_certificates, steps=[SEARCH, None, [HISTORY], {"a": 3}]),
    *anything(plotting.plot_slice, says="Got|no posterior", source=SOURCES),
    *arguments(
        partial(plotting.plot_slice, STRATEGY),
        quantity=bad.CHOICE,
        dims=[(0, 9), (0, 0), 3],
        resolution=[0, -1, 2.5, NAN, "2"],
        at=["x"],
    ),
    *anything(plotting.plot_confidence_band, says="Got|no posterior", source=SOURCES),
    *arguments(
        partial(plotting.plot_confidence_band, LINE, X[:, :1]), beta=[-1.0, NAN, "x"]
    ),
    *arguments(table_of, "CandidateTable", key=["nothing", 3]),
    *anything(
        partial(CandidateTable.of, X),
        "CandidateTable.of",
        says="key|rows|candidates",
        key=["a"],
        rows=["x", slice(0, 4, 2), 3, slice(20, 30)],
    ),
    *arguments(
        CandidateTable.from_smiles,
        "CandidateTable.from_smiles",
        smiles=["CCO", 3.0],
    ),
    *arguments(
        partial(CandidateTable.from_columns, {"mol": ["CCO"]}),
        "CandidateTable.from_columns",
        says="smiles",
        smiles=["mol", ["other"]],
    ),
    *anything(
        CandidateTable.from_columns,
        "CandidateTable.from_columns",
        says="column",
        columns=COLUMNS,
    ),
    *anything(
        CANDIDATES.rows,
        "CandidateTable.rows",
        says="keys",
        keys=["x", [9], [[1]], 3, None],
    ),
    *anything(
        CANDIDATES.encode,
        "CandidateTable.encode",
        says="column|frame",
        frame=[{"a": [NAN], "b": ["x"]}, 3],
    ),
    *arguments(CANDIDATES.frame, "CandidateTable.frame", rows=ROW_NUMBERS),
    *arguments(CANDIDATES.keys_of, "CandidateTable.keys_of", rows=ROW_NUMBERS),
]
