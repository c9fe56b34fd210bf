"""GSSBO on the functions of its paper [Wei2025]_, against what it is compared with.

Twenty Sobol points, UCB with beta = 4, Matern-5/2, the same optimizer of the
acquisition function and the same schedule of fits for all. Subsets and inducing sets
have 100 samples, which is about what Z = 4 gave the authors, so that a run does not
depend on the machine; `gssbo-z4` has the dynamic buffer by the clock. `gp-ucb` and what
follows build their model anew each time, as BoTorch's loop does; `gssbo-all`, to be
asked for, is GP-UCB with the code of GSSBO. Runs are kept in a JSON file, so that a
long benchmark can be run in pieces; all methods of one seed come before the next seed.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError
from scipy.stats import t as student

from benchmarks.gssbo_methods import (
    METHODS,
    READINGS,
    STRATEGIES,
    Run,
    run,
    seconds_per_evaluation,
)
from benchmarks.gssbo_problems import PROBLEMS, Problem

SHORT_PROBLEMS = ("hartmann6", "levy20", "eggholder2", "pima")
Runs = dict[str, Run]


def interval(values: list[float]) -> str:
    """Mean, and half the width of its 95% interval."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.4g}"
    t = student.ppf(0.975, len(values) - 1)
    return f"{mean:.4g} +- {t * statistics.stdev(values) / len(values) ** 0.5:.2g}"


def done(runs: Runs, name: str, method: str, seeds: int) -> dict[int, Run]:
    """The runs of a method that are stored, by seed."""
    keys = {seed: f"{name}/{method}/{seed}" for seed in range(seeds)}
    return {seed: runs[key] for seed, key in keys.items() if key in runs}


def report(runs: Runs, name: str, methods: list[str], seeds: int, at: int) -> None:
    """Print the table of one problem."""
    what = "cumulative error" if name == "pima" else "cumulative regret"
    print(f"{name}: {what} at {at}, best one, CPU and wall seconds, samples in model")
    for method in methods:
        stored = done(runs, name, method, seeds)
        if not stored:
            continue
        r = list(stored.values())
        print(
            f"  {method:18s} {interval([sum(x['regret'][:at]) for x in r]):20s} "
            f"{interval([min(x['regret'][:at]) for x in r]):18s} "
            f"{interval([sum(x['cpu'][:at]) for x in r]):14s} "
            f"{interval([sum(x['wall'][:at]) for x in r]):14s} "
            f"{interval([float(x['size']) for x in r])}, {len(r)} seeds"
        )
    report_pairs(runs, name, seeds, at)
    report_speed(runs, name, methods, seeds)


def report_pairs(runs: Runs, name: str, seeds: int, at: int) -> None:
    """Print differences of cumulative regret between runs from the same design."""
    pairs = [(f"gssbo-{r}", other) for other in ("rssbo", "gp-ucb") for r in READINGS]
    for method, other in pairs:
        ours, theirs = (done(runs, name, m, seeds) for m in (method, other))
        both = sorted(ours.keys() & theirs.keys())
        if len(both) > 1:
            differences = [
                sum(ours[s]["regret"][:at]) - sum(theirs[s]["regret"][:at])
                for s in both
            ]
            wins = sum(d < 0 for d in differences)
            print(
                f"  {method} less {other}: {interval(differences)}, "
                f"smaller for {wins} of {len(both)} seeds"
            )


def report_overall(runs: Runs, names: list[str], seeds: int, at: int) -> None:
    """Print what a reading changes against random choice, in the mean of the problems.

    A seed counts once: the intervals are over seeds.
    """
    for method in (f"gssbo-{reading}" for reading in READINGS):
        changes: dict[int, list[float]] = {}
        for name in names:
            ours, random = (done(runs, name, m, seeds) for m in (method, "rssbo"))
            for seed in ours.keys() & random.keys():
                ratio = sum(ours[seed]["regret"][:at]) / sum(
                    random[seed]["regret"][:at]
                )
                changes.setdefault(seed, []).append(100 * (ratio - 1))
        means = [statistics.mean(c) for c in changes.values() if len(c) == len(names)]
        if means:
            print(
                f"{method} against rssbo, all problems: {interval(means)} % of regret"
            )


def report_speed(runs: Runs, name: str, methods: list[str], seeds: int) -> None:
    """Print the cost of an evaluation early and late, and the part of selection."""
    for method in methods:
        for first in list(done(runs, name, method, seeds).values())[:1]:
            n = len(first["cpu"])
            early = seconds_per_evaluation(first, 5 * n // 20, 7 * n // 20)
            late = seconds_per_evaluation(first, 18 * n // 20, n)
            line = (
                f"  {method}: {early:.3f} s an evaluation around {3 * n // 10}, "
                f"{late:.3f} s up to {n} ({late / early:.2f} times)"
            )
            if first.get("selection"):
                share = first["selection"] / sum(first["wall"])
                line += f", selection {100 * share:.1f}% of the time"
            print(line)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The arguments; those of the paper's setting with `--paper`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper", action="store_true", help="the whole setting")
    parser.add_argument("--problems", nargs="*", choices=PROBLEMS)
    parser.add_argument("--methods", nargs="*", choices=[*METHODS, *STRATEGIES])
    parser.add_argument("--seeds", type=int, help="up to 5, or 50 with --paper")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--total", type=int, help="300, or 1000 with --paper")
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args(arguments)
    args.problems = args.problems or (PROBLEMS if args.paper else SHORT_PROBLEMS)
    args.methods = args.methods or list(METHODS)
    args.seeds = args.seeds or (50 if args.paper else 5)
    args.total = args.total or (1000 if args.paper else 300)
    if args.paper and args.store is None:
        args.store = Path("output/gssbo.json")
    return args


def load(store: Path | None) -> Runs:
    """The runs so far."""
    if store is None or not store.exists():
        return {}
    runs: Runs = json.loads(store.read_text())
    return runs


def save(store: Path, key: str, run: Run) -> None:
    """Add a run to the store, beside those that other processes added since.

    Of two runs that are saved at the same moment one may be lost, and is made again.
    """
    store.parent.mkdir(parents=True, exist_ok=True)
    fresh = load(store) | {key: run}
    part = store.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(fresh))
    part.replace(store)


def run_missing(args: argparse.Namespace, runs: Runs) -> None:
    """Run what is not stored yet, seed by seed."""
    for seed in range(args.first_seed, args.seeds):
        for name in args.problems:
            for method in args.methods:
                key = f"{name}/{method}/{seed}"
                if key in runs:
                    continue
                try:
                    problem = Problem(name, seed)
                except InputDataError as error:
                    print(f"{name}: left out, {error}")
                    break
                runs[key] = rounded(run(method, problem, args.total))
                print(f"{key}: {sum(runs[key]['cpu']):.0f} s", file=sys.stderr)
                if args.store is not None:
                    save(args.store, key, runs[key])


def rounded(run: Run) -> dict[str, Any]:
    """A run with six digits of each number."""
    return {
        key: [float(f"{x:.6g}") for x in value] if isinstance(value, list) else value
        for key, value in run.items()
    }


def main(arguments: list[str] | None = None) -> None:
    """Run what is not stored yet, and print the tables."""
    args = parse(arguments)
    torch.set_num_threads(1)
    from benchmarks import gssbo_methods

    gssbo_methods.SUBSET_SIZE = int(os.environ.get("GS_M", 100))
    runs = load(args.store)
    if not args.report:
        run_missing(args, runs)
    for name in args.problems:
        if any(key.startswith(f"{name}/") for key in runs):
            report(runs, name, args.methods, args.seeds, args.total)
    report_overall(runs, args.problems, args.seeds, args.total)


if __name__ == "__main__":
    main()
