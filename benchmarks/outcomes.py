"""Several outcomes of one pool or box: ours beside what people use.

Each run (problem, method, seed) is kept in a JSON file as soon as it is over; what is
there is not run again, unless it is to be longer. The tables print medians over seeds,
with CPU seconds of the method alone: on tables the share of the whole table's
hypervolume, on boxes the hypervolume, with one objective the best feasible value (of
`speed_reducer` and `ackley20` smaller ones are better). Batches have 10 points.
`--limit` breaks a run off after so many CPU seconds. `pip install -e ".[bench,boxes]"`
has the peers; those that are not installed are left out, and so are tables that are not
in the folder that `BOTORCH_SPARSE_DATA` names.

    OMP_NUM_THREADS=1 python -m benchmarks.outcomes --store FILE.json.gz --limit 120
    python -m benchmarks.outcomes --report benchmarks/results/outcomes.json.gz

`--reference-points` runs Thompson sampling whose scalarizations start from other points
than those that it infers, on the tables with several objectives.

`--batches` prints wall seconds of a batch of 20 of Thompson sampling on the 200,000
rows of `limited`, asked for and learned, with one outcome and with more in turns.
"""

import argparse
import math
import os
import statistics
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.boxes import cell, seen
from benchmarks.measure import seconds
from benchmarks.outcome_methods import METHODS, REFERENCE_POINTS, Run
from benchmarks.outcome_problems import BOXES, TABLES, load_outcomes
from benchmarks.pools import available
from benchmarks.store import Store, run_or_report
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.strategies import ThompsonSampling
from botorch_sparse.strategies.model_strategy import surrogate_of
from botorch_sparse.strategies.surrogates.inferred_kernels import few_data_kernel

AT = (50, 100, 200, 500, 1000, 2000)
COMPARED_AT = (100, 200)  # and at the end
EXACT = "qlognehvi"  # with which CPU time is compared
# Packages that a method needs.
NEEDS = {"cma-es": "cma", "nsga2": "pymoo", "forest": "sklearn"}
MINIMIZED = {"speed_reducer", "ackley20"}
# Digits of the measure in tables; 3 of all others.
DIGITS = {"penicillin": 0, "vehicle_safety": 1, "car_side_impact": 1}
DIGITS |= {"speed_reducer": 1, "dtlz2": 4, "welded_beam": 4}
ALL = METHODS | REFERENCE_POINTS
# Evaluations before the batches that are timed, and how many batches these are.
BATCHES_AFTER, BATCHES, SIZE = (100, 300, 500), 5, 20
Record = dict[str, Any]


def total_of(problem: str, total: int | None) -> int:
    """Evaluations of a problem: 500 on tables and 2,000 on boxes, or what is given."""
    return total or (500 if problem in TABLES else 2000)


def execute(problem: str, method: str, seed: int, total: int, limit: float) -> Record:
    """One run: the measure of all points so far and seconds, at some counts."""
    if method in NEEDS:
        import_module(NEEDS[method])  # before the clock starts
    run = Run(load_outcomes(problem), total, seed, limit)
    ALL[method].run(run)
    num = min(total, len(run.values))
    Y = run.problem.values(torch.cat(run.points))
    at = sorted({*range(50, min(num, 501), 50), *range(600, num, 100), num})
    return {
        "at": at,
        "best": [run.problem.measure(Y[:n]) for n in at],
        "seconds": [round(run.seconds[n - 1], 3) for n in at],
        "limit": limit if num < total else None,
    }


def is_done(known: Record | None, total: int, limit: float) -> bool:
    """Whether a stored run is as long as it can get."""
    if known is None:
        return False
    is_cut = known["limit"] is not None and known["limit"] >= limit
    return is_cut or known["at"][-1] >= total


def key_of(problem: str, method: str, seed: int) -> str:
    """The key of a run in the store."""
    return f"{problem}/{method}/{seed}"


def run_all(store: Store, args: argparse.Namespace) -> None:
    """Run what is not stored yet, all methods of one seed before the next."""
    for seed in range(args.seeds):
        for problem in available(args.problems, load_outcomes):
            total = total_of(problem, args.total)
            for method in args.methods:
                key, package = key_of(problem, method, seed), NEEDS.get(method)
                if package and not find_spec(package):
                    continue
                if not ALL[method].suits(load_outcomes(problem)):
                    continue
                if is_done(store.records.get(key), total, args.limit):
                    continue
                run = execute(problem, method, seed, total, args.limit)
                store.add(key, run)
                print(
                    f"{key}: {run['best'][-1]:.4f}, {run['seconds'][-1]:.1f} CPU s, "
                    f"{run['at'][-1]} evaluations",
                    flush=True,
                )


def runs_of(
    store: Store, problem: str, args: argparse.Namespace
) -> dict[str, list[Record]]:
    """The stored runs of each method that has some."""
    found = dict[str, list[Record]]()
    for method in args.methods:
        keys = [key_of(problem, method, seed) for seed in range(args.seeds)]
        found[method] = [store.records[key] for key in keys if key in store.records]
    return {method: runs for method, runs in found.items() if runs}


def report(store: Store, args: argparse.Namespace) -> str:
    """Markdown: one table for a problem, and how ours compare with the others."""
    lines, verdicts = list[str](), dict[str, list[bool]]()
    for problem in args.problems:
        found = runs_of(store, problem, args)
        if not found:
            continue
        longest = max(run["at"][-1] for runs in found.values() for run in runs)
        end = min(longest, total_of(problem, args.total))
        lines += ["", f"### {problem}", "", *table(problem, found, end), ""]
        for method in found:
            if not ALL[method].is_ours or all(ALL[name].is_ours for name in found):
                continue
            text, is_no_worse = compared(problem, method, found, end)
            lines.append(text)
            kind = "tables" if problem in TABLES else "boxes"
            names = [f"{method}, {kind}"]
            if method == advised(problem):
                names.append(f"what is advised, {kind}")
            for name in names:
                verdicts.setdefault(name, []).append(is_no_worse)
    lines.append("")
    for name, each in verdicts.items():
        counts = f"{sum(each)} of {len(each)}"
        lines.append(f"- {name}: no worse than the best peer at all three on {counts}")
    return "\n".join(lines)


def advised(problem: str) -> str:
    """What `docs/explanation/choosing_a_strategy.md` says for a problem."""
    if problem in TABLES or not load_outcomes(problem).outcomes.constraints:
        return "thompson"
    return "trust-region"


def table(problem: str, found: dict[str, list[Record]], end: int) -> list[str]:
    """Markdown: the measure (CPU seconds) by evaluations."""
    ends = [at for at in AT if at < end] + [end]
    head = ["method", "seeds", *(f"at {at:,}" for at in ends), "broken off at"]
    rows = [head, ["---"] * len(head)]
    for method, runs in found.items():
        name = f"**{method}**" if ALL[method].is_ours else method
        cells = [cell(runs, at, DIGITS.get(problem, 3)) for at in ends]
        cut = ", ".join(str(r["at"][-1]) for r in runs if r["limit"] is not None)
        rows.append([name, str(len(runs)), *cells, cut or "-"])
    return [f"| {' | '.join(row)} |" for row in rows]


def median_at(runs: list[Record], name: str, at: int) -> float | None:
    """The median of the runs that came so far."""
    values = [value for run in runs if (value := seen(run, name, at)) is not None]
    return statistics.median(values) if values else None


def compared(
    problem: str, method: str, found: dict[str, list[Record]], end: int
) -> tuple[str, bool]:
    """Ours and the best peer, to the digits that are printed."""
    digits, sign = DIGITS.get(problem, 3), -1 if problem in MINIMIZED else 1
    parts, is_no_worse = list[str](), True
    for at in dict.fromkeys((*COMPARED_AT, end)):
        own = median_at(found[method], "best", at)
        others = {
            peer: best
            for peer, runs in found.items()
            if not ALL[peer].is_ours
            and (best := median_at(runs, "best", at)) is not None
        }
        if not others:
            continue
        if own is None:
            parts.append(f"at {at}: not reached")
            is_no_worse = False
            continue
        peer = max(others, key=lambda name: sign * others[name])
        is_worse = sign * round(own, digits) < sign * round(others[peer], digits)
        is_no_worse &= not is_worse
        word = "WORSE than" if is_worse else "no worse than"
        parts.append(f"at {at}: {word} {peer} ({others[peer]:.{digits}f})")
    text = f"- {method}: {'; '.join(parts)}"
    return text + _share_of_time(found[method], found.get(EXACT)), is_no_worse


def _share_of_time(own: list[Record], exact: list[Record] | None) -> str:
    """CPU time at 200 evaluations over the exact GP's, there or where it ended."""
    if exact is None:
        return ""
    last = min(200, *(run["at"][-1] for run in exact))
    mine, theirs = median_at(own, "seconds", 200), median_at(exact, "seconds", last)
    if mine is None or not theirs:
        return ""
    there = "" if last == 200 else f" at {last}"
    return f"; {mine / theirs:.3f} of the CPU time of {EXACT}{there}"


def batches_of(
    num_outcomes: int, num_before: int, *, has_their_kernel: bool = True
) -> Callable[[], None]:
    """One more batch of `limited` with so many outcomes, after so many evaluations.

    An outcome alone has another kernel than several have, or else theirs.
    """
    problem = load_outcomes("limited")
    assert problem.X is not None
    outcomes = problem.outcomes.parts[:num_outcomes]
    strategy = ThompsonSampling(problem.X, outcomes=outcomes, batch_size=SIZE, seed=0)
    if num_outcomes == 1 and has_their_kernel:
        strategy.surrogate = surrogate_of(
            strategy.domain,
            strategy.settings,
            sampler=PosteriorVarianceSampler(),
            embeds=False,
            inferred_kernel=few_data_kernel,
        )

    def values(rows: Tensor) -> Tensor:
        return problem.values(rows)[:, :num_outcomes]

    def next_batch() -> None:
        batch = strategy.ask()
        assert batch.indices is not None
        strategy.tell(batch, values(batch.indices))
        strategy.learn()

    first = torch.arange(num_before)  # Sobol points
    strategy.tell(problem.X[first], values(first))
    strategy.learn()
    return next_batch


def batch_seconds() -> str:
    """Markdown: medians of batches with one, two and three outcomes in turns.

    Ratios are to one outcome with the kernel that several have; see `batches_of`.
    """
    kinds = {
        "one, same kernel": (1, True),
        "two": (2, True),
        "three": (3, True),
        "one": (1, False),
    }
    names = [*kinds]
    lines = ["| threads | evaluations before | " + " | ".join(names) + " |"]
    lines.append("| --- " * (2 + len(names)) + "|")
    before = torch.get_num_threads()
    for threads in (1, os.cpu_count() or 1):
        torch.set_num_threads(threads)
        for num in BATCHES_AFTER:
            jobs = {
                name: batches_of(count, num, has_their_kernel=is_same)
                for name, (count, is_same) in kinds.items()
            }
            timed = {name: list[float]() for name in names}
            for _ in range(1 + BATCHES):
                for name, job in jobs.items():
                    timed[name].append(seconds(job))
            medians = [statistics.median(each[1:]) for each in timed.values()]
            cells = [f"{m:.2f} s ({m / medians[0]:.2f})" for m in medians]
            lines.append(f"| {threads} | {num} | " + " | ".join(cells) + " |")
    torch.set_num_threads(before)
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run what is not stored yet, and print the tables."""
    args = _parse(arguments)
    if args.batches:
        print(batch_seconds())
        return
    run_or_report(args, run_all, report)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    problems = [*TABLES, *BOXES]
    parser.add_argument("--problems", nargs="*", choices=problems, default=problems)
    parser.add_argument("--methods", nargs="*", choices=ALL)
    parser.add_argument("--reference-points", action="store_true")
    parser.add_argument("--batches", action="store_true", help="seconds of batches")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--total", type=int, help="evaluations; see the module")
    parser.add_argument("--limit", type=float, default=math.inf, help="CPU s of a run")
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    args = parser.parse_args(arguments)
    known = REFERENCE_POINTS if args.reference_points else METHODS
    args.methods = args.methods or list(known)
    return args


if __name__ == "__main__":
    main()
