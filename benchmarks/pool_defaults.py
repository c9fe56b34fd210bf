"""The defaults of our strategies on tables, each beside other choices.

Runs and tables are those of `benchmarks.pools`, with fewer evaluations:

    OMP_NUM_THREADS=1 python -m benchmarks.pool_defaults --output output/defaults.json

`--report FILE` prints what a file holds, and runs nothing.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.pool_runs import Store, report
from benchmarks.pool_tables import Candidates, Proposer, asked
from benchmarks.pools import Method, available, run
from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.strategies import BBKB, ThompsonSampling

TABLES = ("abalone", "nas_bench_macro")
# What stands first is the default, with the batches of `benchmarks.pools`.
BBKB_CHOICES: dict[str, dict[str, Any]] = {
    "bbkb": {},
    "bbkb, beta 1": {"radius": FixedBeta(1.0)},
    "bbkb, beta 9": {"radius": FixedBeta(9.0)},
    "bbkb, rows again": {"unique": False},
    "bbkb, rows again, batches by its rule": {"unique": False, "batch_size": None},
    "bbkb, 5 at first": {"num_initial": 5},
    "bbkb, 60 at first": {"num_initial": 60},
}
THOMPSON_CHOICES: dict[str, dict[str, Any]] = {
    "thompson": {},
    "thompson, rows again": {"unique": False},
    "thompson, 5 at first": {"num_initial": 5},
    "thompson, 60 at first": {"num_initial": 60},
}


def bbkb(candidates: Candidates, seed: int, options: dict[str, Any]) -> Proposer:
    """`BBKB` in batches of 20, or of at most 20."""
    return asked(BBKB(candidates.X, **{"batch_size": 20, "seed": seed} | options))


def thompson(candidates: Candidates, seed: int, options: dict[str, Any]) -> Proposer:
    """`ThompsonSampling`."""
    return asked(ThompsonSampling(candidates.X, **{"seed": seed} | options))


CHOICES: dict[str, Method] = {
    name: partial(make, options=options)
    for make, choices in ((bbkb, BBKB_CHOICES), (thompson, THOMPSON_CHOICES))
    for name, options in choices.items()
} | {f"bbkb, batches of {b}": partial(bbkb, options={"batch_size": b}) for b in (5, 60)}


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=CHOICES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=500)
    parser.add_argument("--output", type=Path, help="JSON file of runs")
    parser.add_argument("--report", type=Path, help="only print this file")
    args = parser.parse_args(arguments)
    store = Store([path for path in (args.report or args.output,) if path])
    tables = available(args.tables)
    if args.report is None:
        for seed in range(args.seeds):
            for table in tables:
                for name in args.choices:
                    if (table, name, seed) not in store.runs:
                        size = batch_of(name)
                        found = run(table, name, seed, args.evaluations, size, CHOICES)
                        store.add((table, name, seed), found)
    print(report(store, tables, (), tuple(CHOICES)))


def batch_of(name: str) -> int:
    """How many rows are asked for at a time."""
    return int(name.rpartition(" ")[2]) if "batches of" in name else 20


if __name__ == "__main__":
    main()
