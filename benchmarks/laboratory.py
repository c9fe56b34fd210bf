"""Five rounds of eight rows: what a laboratory gets that calls `suggest` with defaults.

Each method proposes eight rows of a real table, is told what was measured in them, and
proposes again, five times. No method is told more than the columns of the table. Ours
are calls of `python -m botorch_sparse suggest` within this process, on CSV files in a
temporary folder: the first without results, with `--batch 8` and `--seed`. Beside it
are BayBE with its defaults (each column a categorical or numerical discrete parameter,
its own seed) and random rows.

Tables print medians over seeds of the rank of the best row so far after each round, 1
plus the number of rows of the table that are strictly better, by the values without
noise; the share of seeds whose last rank is within the best hundredth of the rows; and
CPU seconds of a call that has results. A line says how likely last ranks that are worse
than the peer's by as much are by chance (Mann and Whitney's rank-sum test). The row
*random, exactly* has what infinitely many seeds of random rows would give. Where a row
was measured several times, each seed draws one of its measurements, the same one for
all methods. sgemm_gpu is a random subset of 3,000 of its 241,600 rows, the same for all
methods and seeds: the peer keeps a frame of its whole search space.

    OMP_NUM_THREADS=1 python -m benchmarks.laboratory --store FILE.json.gz
    python -m benchmarks.laboratory --report benchmarks/results/laboratory.json.gz

Each run is kept as soon as it is over; what is there is not run again. `pip install -e
".[suggest,bench]"` has the peer; it is left out where it is not installed, and so are
tables that are not in the folder that `BOTORCH_SPARSE_DATA` names.
"""

import argparse
import csv
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu

from benchmarks.measure import installed
from benchmarks.paper_problems import NUM_LAYERS, text_columns
from benchmarks.pools import available
from benchmarks.store import Record, Store, parsed_runs, run_or_report
from botorch_sparse.suggest.suggest_command import main as suggest_main

ROUNDS, BATCH = 5, 8
ENDS = range(BATCH, ROUNDS * BATCH + 1, BATCH)  # rows measured after each round
SUBSET = 3_000
BEST_SHARE = 0.01
# Options of `suggest` beside those of the files, the batch and the seed.
SUGGEST: dict[str, list[str]] = {
    "suggest": [],
    "random first": ["--design", "random"],
    "thompson": ["--strategy", "thompson", "--design", "random"],  # the first default
    "bbkb": ["--strategy", "bbkb"],
}
NEEDS = {"baybe": "baybe"}  # packages that a method needs


@dataclass(frozen=True, eq=False)
class LaboratoryTable:
    """What can be measured, and what would be.

    Attributes:
        features: `A` rows; columns of text are categories, others numbers.
        measurements: `A x r`, in the user's sign.
        target: Its name.
        minimize: Whether smaller values are better.
    """

    features: pd.DataFrame
    measurements: np.ndarray
    target: str
    minimize: bool = False

    def rank(self, rows: Sequence[int]) -> int:
        """1 plus the number of rows that are better than the best of some."""
        Y = self.measurements.mean(-1) * (-1 if self.minimize else 1)
        return 1 + int((Y > Y[list(rows)].max()).sum())

    def feedback(self, seed: int) -> np.ndarray:
        """What a laboratory measures in each row: one of its measurements, `A`."""
        A, r = self.measurements.shape
        drawn = np.random.default_rng(seed).integers(r, size=A)
        return self.measurements[np.arange(A), drawn]


@cache
def load(name: str) -> LaboratoryTable:
    """A table by its name.

    Raises:
        InputDataError: If it is not here.
    """
    return TABLES[name]()


def molecules(name: str, target: str, *, minimize: bool = False) -> LaboratoryTable:
    """A table of molecules: the names of their fragments, and one property."""
    cells = pd.DataFrame(text_columns(name))
    outcome = cells.pop(target).astype(float)
    others = [column for column in cells if not column.startswith(("frag", "r"))]
    features = cells.drop(columns=others)
    return LaboratoryTable(features, outcome.to_numpy()[:, None], target, minimize)


def networks() -> LaboratoryTable:
    """NAS-Bench-Macro: names of eight layers; accuracies of three trainings."""
    cells = pd.DataFrame(text_columns("nas_bench_macro"))
    layers = "choice " + cells[[f"layer{i + 1}" for i in range(NUM_LAYERS)]]
    runs = cells.filter(like="test_acc").astype(float)
    return LaboratoryTable(layers, runs.to_numpy(), "accuracy")


def kernels() -> LaboratoryTable:
    """Matrix products on a GPU: fourteen numbers; milliseconds of four runs."""
    cells = pd.DataFrame(text_columns("sgemm_gpu"))
    cells = cells.sample(SUBSET, random_state=0).reset_index(drop=True).astype(float)
    runs = cells.filter(like="_ms")
    features = cells.drop(columns=runs.columns)
    return LaboratoryTable(features, runs.to_numpy(), "milliseconds", minimize=True)


TABLES: dict[str, Callable[[], LaboratoryTable]] = {
    "dye_lasers": partial(molecules, "dye_lasers", "peak_score"),
    "redoxmers": partial(molecules, "redoxmers", "abs_lam_diff", minimize=True),
    "nas_bench_macro": networks,
    "sgemm_gpu": kernels,
}


@dataclass(eq=False)
class Run:
    """The rounds of one method: what it proposed, and CPU seconds of its calls."""

    table: LaboratoryTable
    seed: int
    rows: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = self.table.feedback(self.seed)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count what is inside as one call."""
        start = time.process_time()
        yield
        self.seconds.append(round(time.process_time() - start, 3))

    def record(self) -> Record:
        """What is stored: rows, ranks after each round, seconds, rows of the table."""
        return {
            "rows": self.rows,
            "ranks": [self.table.rank(self.rows[:end]) for end in ENDS],
            "seconds": self.seconds,
            "of": len(self.table.features),
        }


def random(run: Run) -> None:
    """Different rows, uniformly."""
    for _ in range(ROUNDS):
        with run.call():
            drawn = np.random.default_rng(run.seed).permutation(len(run.values))
            done = len(run.rows)
            run.rows += drawn[done : done + BATCH].tolist()


def suggest(run: Run, options: Sequence[str]) -> None:
    """The command with these options, on files as a user has them."""
    table = run.table
    words = [*options, "--target", table.target, *["--minimize"] * table.minimize]
    words += ["--batch", str(BATCH), "--seed", str(run.seed), "--quiet"]
    with TemporaryDirectory() as name:
        pool, results, output = (
            Path(name, f"{file}.csv") for file in ("pool", "results", "next")
        )
        table.features.to_csv(pool, index=False)
        words += ["--candidates", str(pool), "--output", str(output)]
        for _ in range(ROUNDS):
            known = ["--results", str(results)] if run.rows else []
            with run.call():
                suggest_main([*words, *known])
            with output.open(newline="", encoding="utf-8-sig") as file:
                run.rows += [int(row["row"]) - 1 for row in csv.DictReader(file)]
            measured = table.features.iloc[run.rows]
            measured = measured.assign(**{table.target: run.values[run.rows]})
            measured.to_csv(results, index=False)


def baybe(run: Run) -> None:
    """BayBE's campaign with its defaults, on the rows of the table."""
    from baybe import Campaign, Settings
    from baybe.parameters import CategoricalParameter, NumericalDiscreteParameter
    from baybe.searchspace import SearchSpace
    from baybe.targets import NumericalTarget

    features, target = run.table.features, run.table.target
    with warnings.catch_warnings(), Settings(random_seed=run.seed):
        warnings.simplefilter("ignore")
        with run.call():
            parameters = [
                NumericalDiscreteParameter(name, sorted(set(column)))
                if pd.api.types.is_numeric_dtype(column)
                else CategoricalParameter(name, sorted(set(column)))
                for name, column in features.items()
            ]
            space = SearchSpace.from_dataframe(features, parameters)
            goal = NumericalTarget(target, minimize=run.table.minimize)
            campaign = Campaign(space, goal)
            batch = campaign.recommend(BATCH)
        for left in reversed(range(ROUNDS)):
            new = batch.index.tolist()
            run.rows += new
            if left:
                with run.call():
                    measured = batch.assign(**{target: run.values[new]})
                    campaign.add_measurements(measured)
                    batch = campaign.recommend(BATCH)


METHODS: dict[str, Callable[[Run], None]] = {
    **{name: partial(suggest, options=words) for name, words in SUGGEST.items()},
    "random": random,
    "baybe": baybe,
}


def execute(table: str, method: str, seed: int) -> Record:
    """One run."""
    if method in NEEDS:
        import_module(NEEDS[method])  # before the clock starts
    run = Run(load(table), seed)
    METHODS[method](run)
    return run.record()


def key_of(table: str, method: str, seed: int) -> str:
    """The key of a run in the store."""
    return f"{table}/{method}/{seed}"


def run_all(store: Store, args: argparse.Namespace) -> None:
    """Run what is not stored yet, all tables of one seed before the next."""
    methods = installed(args.methods, NEEDS)
    for seed in range(args.seeds):
        for table in available(args.tables, load):
            for method in methods:
                key = key_of(table, method, seed)
                if key not in store.records:
                    found = execute(table, method, seed)
                    store.add(key, found)
                    print(f"{key}: {found['ranks']}, {found['seconds']} s", flush=True)


def report(store: Store, args: argparse.Namespace) -> str:
    """Markdown: one table of medians for each table of rows."""
    lines = list[str]()
    for table in args.tables:
        found = dict[str, list[Record]]()
        for method in args.methods:
            keys = [key_of(table, method, seed) for seed in range(args.seeds)]
            found[method] = [store.records[key] for key in keys if key in store.records]
        found = {method: runs for method, runs in found.items() if runs}
        if found:
            size = max(run["of"] for runs in found.values() for run in runs)
            cells = [*table_of(found), exactly_random(size)]
            rows = [f"| {' | '.join(row)} |" for row in cells]
            lines += [f"### {table}: {size:,} rows", "", *rows, ""]
            lines += [*tests_of(found), ""]
    return "\n".join(lines)


def tests_of(found: dict[str, list[Record]]) -> list[str]:
    """Whether last ranks are worse than the peer's, by the one-sided rank-sum test."""
    last = {name: [run["ranks"][-1] for run in runs] for name, runs in found.items()}
    ours = [name for name in SUGGEST if name in last]
    return [
        f"- {name} worse than {peer} after {ENDS[-1]} rows: p = {p:.2f}"
        for peer in NEEDS
        if peer in last
        for name in ours
        for p in [mannwhitneyu(last[name], last[peer], alternative="greater").pvalue]
    ]


def table_of(found: dict[str, list[Record]]) -> list[list[str]]:
    """Cells: medians of ranks by measured rows, successes, and seconds."""
    ends = [f"rank at {end}" for end in ENDS]
    head = ["method", "seeds", *ends, "in the best 1%", "CPU s a call"]
    rows = [head, ["---"] * len(head)]
    for method, runs in found.items():
        ranks = zip(*(run["ranks"] for run in runs), strict=True)
        medians = [f"{statistics.median(each):g}" for each in ranks]
        hits = [run["ranks"][-1] <= BEST_SHARE * run["of"] for run in runs]
        calls = [second for run in runs for second in run["seconds"][1:]]
        share, second = statistics.mean(hits), statistics.median(calls)
        name = f"**{method}**" if method in SUGGEST else method
        cells = [name, str(len(runs)), *medians, f"{share:.0%}", f"{second:.2g}"]
        rows.append(cells)
    return rows


def exactly_random(size: int) -> list[str]:
    r"""Cells of random rows of a table without ties, from the distribution of ranks.

    .. math:: P(\mathrm{rank} > k) = \binom{A - k}{n} / \binom{A}{n}
    """

    def beyond(k: int, n: int) -> float:
        return math.comb(size - k, n) / math.comb(size, n)

    medians = [
        next(str(k) for k in range(1, size + 1) if beyond(k, n) <= 0.5) for n in ENDS
    ]
    share = 1 - beyond(int(BEST_SHARE * size), ENDS[-1])
    return ["random, exactly", "-", *medians, f"{share:.0%}", "-"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is not stored yet, and print the tables."""
    args = parsed_runs(__doc__, arguments, 20, tables=TABLES, methods=METHODS)
    run_or_report(args, run_all, report)


if __name__ == "__main__":
    main()
