"""The best molecule of a table: ours beside what people use.

Each run (problem, method, seed) chooses 1,000 rows in batches of 20, of a million
candidates in batches of 100, each row at most once. It has a process of its own, and is
kept in a JSON file as soon as it is over; what is there is not run again, unless it is
to be longer. All methods see the same fingerprints, which are made before their clock
starts. Tables print medians over seeds: the rank of the best row so far, 1 plus
the number of rows that are strictly better; the shares of the best rows that were
found; CPU seconds of the method alone; peak memory of the process, which holds torch
and the table too.

    OMP_NUM_THREADS=1 python -m benchmarks.molecules --store FILE.json.gz
    python -m benchmarks.molecules --report benchmarks/results/molecules.json.gz

`pip install -e ".[molecules,bench]"` has what is needed, but for the kernel of one peer
(`pip install --no-deps gauche`), which is left out without it. Problems are left out
whose data are not in the folder that `BOTORCH_SPARSE_DATA` names. The 10^6 molecules of
`enumerated` are made by the first run, which takes an hour of CPU time.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from botorch.utils.sampling import manual_seed

from benchmarks.measure import Clock, in_fresh_process, installed
from benchmarks.molecule_peers import PEERS, SCREENED_ROWS
from benchmarks.molecule_problems import PROBLEMS, MoleculeProblem, load_molecules
from benchmarks.pool_tables import Proposer, asked, random_rows
from benchmarks.pools import available
from benchmarks.store import Record, Store, run_or_report
from botorch_sparse.strategies import (
    BBKB,
    ExpectedImprovement,
    Strategy,
    ThompsonSampling,
)

TOTAL, AT = 1_000, (100, 300, 1_000)
BATCH, LARGE_BATCH, LARGE = 20, 100, 100_000  # the second from so many rows on
SHARES = (0.01, 0.001)  # of the rows, which are looked for
# With which time is compared.
EXACT = ("exact-ts", "exact-logei", "exact-logei-of-all", "gauche-logei")
NEEDS = {"forest-ucb": "sklearn", "gauche-logei": "gauche"}  # packages they need


def ours(
    problem: MoleculeProblem, seed: int, strategy: Callable[..., Strategy]
) -> Proposer:
    """A strategy as a user builds it."""
    batch = batch_size(problem)
    return asked(strategy(problem.table, unique=True, batch_size=batch, seed=seed))


Method = Callable[[MoleculeProblem, int], Proposer]
OURS: dict[str, Method] = {
    "thompson": partial(ours, strategy=ThompsonSampling),
    "bbkb": partial(ours, strategy=BBKB),
    "improvement": partial(ours, strategy=ExpectedImprovement),
}
METHODS = OURS | PEERS


def batch_size(problem: MoleculeProblem) -> int:
    """Rows that are measured at a time."""
    return BATCH if len(problem.values) < LARGE else LARGE_BATCH


def execute(name: str, method: str, seed: int, total: int) -> Record:
    """One run: rows in their order, and what was found by them."""
    torch.broadcast_shapes((1,), (1,))  # imports sympy before the clock starts
    if method in NEEDS:
        __import__(NEEDS[method])  # the same
    problem, clock = load_molecules(name), Clock()
    values = torch.from_numpy(problem.values)
    free = torch.ones(len(values), dtype=torch.bool)
    rows, seconds = torch.empty(0, dtype=torch.long), list[float]()
    batch = batch_size(problem)
    with manual_seed(seed):
        with clock:
            propose = METHODS[method](problem, seed)
        while len(rows) < total:
            q = min(batch, total - len(rows))
            with clock:
                if len(rows) == 0 and method in PEERS:
                    new = random_rows(free, q, torch.Generator().manual_seed(seed))
                else:
                    new = propose(rows, values[rows], free, q)
            free[new] = False
            rows = torch.cat([rows, new])
            seconds.append(clock.cpu)
    ends = [at for at in AT if at < total] + [total]
    found = figures(problem.values, rows.numpy(), ends)
    counts = [round(seconds[-(-end // batch) - 1], 2) for end in ends]
    return {"rows": rows.tolist(), "of": len(values), **found, "seconds": counts}


def figures(values: np.ndarray, rows: np.ndarray, ends: Sequence[int]) -> Record:
    """Ranks of the best of the first rows, and shares of the best rows among them."""
    best = [values[rows[:end]].max() for end in ends]
    shares = {}
    for share in SHARES:
        num = max(1, round(share * len(values)))
        is_best = values >= np.partition(values, -num)[-num]
        found = [is_best[rows[:end]].sum() / is_best.sum() for end in ends]
        shares[f"{share:.1%}"] = [round(float(each), 4) for each in found]
    return {
        "at": list(ends),
        "ranks": [1 + int((values > each).sum()) for each in best],
        "found": shares,
    }


def key_of(problem: str, method: str, seed: int) -> str:
    """The key of a run in the store."""
    return f"{problem}/{method}/{seed}"


def run_all(store: Store, args: argparse.Namespace) -> None:
    """Run what is not stored yet, all problems of one seed before the next."""
    methods = installed(args.methods, NEEDS)
    for seed in range(args.seeds):
        for problem in available(args.problems, load_molecules):
            for method in methods:
                key, total = key_of(problem, method, seed), args.total
                size = len(load_molecules(problem).values)
                if method == "exact-logei-of-all" and size <= SCREENED_ROWS:
                    continue  # as exact-logei
                if key in store.records and length(store.records[key]) >= total:
                    continue
                run, memory = in_fresh_process(execute, problem, method, seed, total)
                store.add(key, run | {"memory": round(memory, 2)})
                print(
                    f"{key}: ranks {run['ranks']}, found {run['found']}, "
                    f"{run['seconds'][-1]} CPU s, {memory:.1f} GiB",
                    flush=True,
                )


def report(store: Store, args: argparse.Namespace) -> str:
    """Markdown: one table for a problem, and how ours compare with the peers."""
    lines = list[str]()
    for problem in args.problems:
        found = dict[str, list[Record]]()
        for method in args.methods:
            keys = [key_of(problem, method, seed) for seed in range(args.seeds)]
            found[method] = [store.records[key] for key in keys if key in store.records]
        found = {method: runs for method, runs in found.items() if runs}
        if found:
            longest = max((run for each in found.values() for run in each), key=length)
            lines += [f"### {problem}: {longest['of']:,} rows", ""]
            lines += [*table(found, longest["at"]), ""]
            compared = comparisons(found)
            lines += [*compared, ""] if compared else []
    return "\n".join(lines)


def table(found: dict[str, list[Record]], ends: Sequence[int]) -> list[str]:
    """Markdown: medians of what each method found, and the least and largest share."""
    head = ["method", "seeds", *(f"rank at {end:,}" for end in ends)]
    head += [f"found of the best {share:.1%}" for share in SHARES]
    rows = [[*head, "CPU s", "GiB"], ["---"] * (len(head) + 2)]
    for method, runs in found.items():
        ranks = [
            f"{median([run['ranks'][i] for run in runs if i < len(run['at'])]):g}"
            for i in range(len(ends))
        ]
        shares = [f"{recall(runs, share):.1%}" for share in SHARES]
        shares[0] += spread(runs, SHARES[0])
        memory = median([run["memory"] for run in runs])
        name = f"**{method}**" if method in OURS else method
        costs = [f"{cpu_seconds(runs):.3g}", f"{memory:.2g}"]
        rows.append([name, str(len(runs)), *ranks, *shares, *costs])
    return [f"| {' | '.join(row)} |" for row in rows]


def comparisons(found: dict[str, list[Record]]) -> list[str]:
    """Ours at the end and the best peers there, and the share of exact GPs' time."""
    peers = [method for method in found if method in PEERS]
    lines = list[str]()
    for method, runs in found.items():
        if method in PEERS or not peers:
            continue
        first = min(peers, key=lambda peer: last_rank(found[peer]))
        finder = max(peers, key=lambda peer: recall(found[peer], SHARES[0]))
        rank, most = last_rank(found[first]), recall(found[finder], SHARES[0])
        is_worse = [last_rank(runs) > rank, recall(runs, SHARES[0]) < most]
        words = ["WORSE" if each else "no worse" for each in is_worse]
        shares = [
            f"; {cpu_seconds(runs) / cpu_seconds(found[exact]):.3f} of the CPU time of "
            f"{exact}"
            for exact in EXACT
            if exact in found
        ]
        lines.append(
            f"- {method}: rank {words[0]} than {first}'s ({rank:g}), share of the best "
            f"{SHARES[0]:.0%} {words[1]} than {finder}'s ({most:.1%}){''.join(shares)}"
        )
    return lines


def length(run: Record) -> int:
    """Rows that were evaluated."""
    return len(run["rows"])


def median(values: Sequence[float]) -> float:
    """Their median; NaN if there is none."""
    return statistics.median(values) if values else float("nan")


def last_rank(runs: list[Record]) -> float:
    """The median rank at the end."""
    return median([run["ranks"][-1] for run in runs])


def recall(runs: list[Record], share: float) -> float:
    """The median share of the best rows that was found at the end."""
    return median(recalls(runs, share))


def spread(runs: list[Record], share: float) -> str:
    """The smallest and the largest of these shares; nothing of a single run."""
    found = recalls(runs, share)
    return f" ({min(found):.0%} to {max(found):.0%})" if len(found) > 1 else ""


def recalls(runs: list[Record], share: float) -> list[float]:
    """The share of the best rows that each run found."""
    return [run["found"][f"{share:.1%}"][-1] for run in runs]


def cpu_seconds(runs: list[Record]) -> float:
    """The median of whole runs."""
    return median([run["seconds"][-1] for run in runs])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is not stored yet, and print the tables."""
    args = _parse(arguments)
    run_or_report(args, run_all, report)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    problems, methods = list(PROBLEMS), list(METHODS)
    parser.add_argument("--problems", nargs="*", choices=problems, default=problems)
    parser.add_argument("--methods", nargs="*", choices=methods, default=methods)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--total", type=int, default=TOTAL, help="evaluations")
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
