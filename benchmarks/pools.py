"""The best row of a table, without being told a kernel: ours against what people use.

Each run chooses rows of one table in batches, its feedback noisy, and is kept in a JSON
file with the rows in their order; what is there is not run again. The tables print, as
medians over seeds, the rank of the best row evaluated (1 plus the number of rows that
are strictly better, by the values without noise) after 100, 300 and all evaluations,
the simple regret (on the table's scale of [0, 1]), cumulative regret over that expected
of uniform choice, and CPU seconds of the method alone. CPU seconds can be compared
within one machine and load only, so run with one thread:

    OMP_NUM_THREADS=1 python -m benchmarks.pools --output output/pools.json

`BOTORCH_SPARSE_DATA` names the folder of tables; see `benchmarks.pool_tables`. A path
of a CSV file, whose last column is the target, is a table too. `--report FILE ...`
prints what files hold, and runs nothing.
"""

import argparse
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from botorch.exceptions import InputDataError
from botorch.utils.sampling import manual_seed
from tqdm.auto import tqdm

from benchmarks.measure import Clock
from benchmarks.pool_peers import PEERS
from benchmarks.pool_runs import Run, Store, report
from benchmarks.pool_tables import (
    NAMES,
    Candidates,
    Proposer,
    asked,
    load_pool,
    random_rows,
)
from benchmarks.store import here
from botorch_sparse import strategies

PACKAGES = ("torch", "botorch", "gpytorch", "scikit-learn", "optuna", "botorch_sparse")


def bbkb(candidates: Candidates, seed: int) -> Proposer:
    """`BBKB` in batches of 20, each row at most once."""
    return asked(strategies.BBKB(candidates.X, batch_size=20, seed=seed))


def thompson(candidates: Candidates, seed: int) -> Proposer:
    """`ThompsonSampling`, each row at most once."""
    return asked(strategies.ThompsonSampling(candidates.X, seed=seed))


Method = Callable[[Candidates, int], Proposer]
OURS: dict[str, Method] = {
    "bbkb": bbkb,
    "thompson": thompson,
}
METHODS = OURS | PEERS


def run(
    table: str,
    method: str,
    seed: int,
    evaluations: int,
    batch: int,
    methods: Mapping[str, Method] = METHODS,
) -> Run:
    """Let a method, one of `methods`, choose rows of a table.

    All peers begin with the same random rows of a seed; ours begin as they do by
    themselves.
    """
    problem = load_pool(table)
    objective, num_rows = problem.feedback(seed), len(problem.table.Y)
    free = torch.ones(num_rows, dtype=torch.bool)
    rows, Y = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.float64)
    clock = Clock()
    bar = tqdm(total=evaluations, desc=f"{table} {method} {seed}", disable=None)
    with bar, manual_seed(seed):
        with clock:
            propose = methods[method](problem.candidates, seed)
        while len(rows) < evaluations:
            q = min(batch, evaluations - len(rows))
            if len(rows) == 0 and method in PEERS:
                new = random_rows(free, q, torch.Generator().manual_seed(seed))
            else:
                with clock:
                    new = propose(rows, Y, free, q)
            free[new] = False
            rows, Y = torch.cat([rows, new]), torch.cat([Y, objective(new)])
            bar.update(len(new))
    return Run(rows.tolist(), clock.cpu, clock.wall, _versions())


def _versions() -> dict[str, str]:
    found = {
        "made": here(),
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, and print the tables."""
    args = _parse(arguments)
    store = Store(args.report or ([args.output] if args.output else []))
    if args.report is None:
        for seed in range(args.seeds):  # all methods of one seed before the next
            for table in available(args.tables):
                for method in args.methods:
                    known = store.runs.get((table, method, seed))
                    if known is None or len(known.rows) < args.evaluations:
                        found = run(table, method, seed, args.evaluations, args.batch)
                        store.add((table, method, seed), found)
    print(report(store, available(args.tables), tuple(PEERS), tuple(OURS)))


def available(
    names: Iterable[str], load: Callable[[str], object] = load_pool
) -> list[str]:
    """The tables that can be loaded; says which are left out."""
    found = []
    for name in names:
        try:
            load(name)
        except InputDataError as error:
            print(f"{name}: left out, {error}", file=sys.stderr)
        else:
            found.append(name)
    return found


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", type=names, default=NAMES, help="of pool_tables")
    parser.add_argument("--methods", type=names, default=tuple(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--output", type=Path, help="JSON file of runs")
    parser.add_argument("--report", type=Path, nargs="+", help="only print these files")
    args = parser.parse_args(arguments)
    if unknown := set(args.methods) - set(METHODS):
        parser.error(f"no methods {sorted(unknown)}; there are {', '.join(METHODS)}")
    return args


if __name__ == "__main__":
    main()
