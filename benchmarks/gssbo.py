"""GSSBO on the functions of its paper [Wei2025]_, against what it is compared with.

Twenty Sobol points, UCB with beta = 4, Matern-5/2, the same optimizer of the
acquisition function and the same schedule of fits for all. Runs are kept in a JSON
file, so that a long benchmark can be run in pieces; all methods of one seed come before
the next seed. `--paper` is the paper's experiment: 1000 evaluations, a fit in each
iteration, with 10 seeds where it has 50. `--speed` prints the seconds of an iteration
at a number of samples instead.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError
from scipy.stats import t as student

from benchmarks.gssbo_methods import LANDMARKS, STRATEGIES, Loop, Run, Setting, run
from benchmarks.gssbo_problems import PROBLEMS, Problem
from benchmarks.measure import provenance
from benchmarks.store import read_json, write_whole
from botorch_sparse.strategies import Strategy

PAPER_PROBLEMS = ("hartmann6", "levy20", "powell50", "rastrigin100")
SHORT_PROBLEMS = ("hartmann6", "levy20", "eggholder2")
METHODS = (
    *("gssbo-mixed", "gssbo-leverage", "rssbo", "gssbo-contribution", "gp-ucb"),
    *("gssbo-recent", "kmeans++", "mini-meta", "gssbo-scalar"),
)
SPEED_SIZES = (100, 300, 600, 1000)
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


def report(runs: Runs, name: str, methods: list[str], seeds: int) -> None:
    """Print the table of one problem; ratios are those of runs from one design."""
    print(f"{name}: cumulative regret, over that of rssbo, best one, CPU seconds, size")
    random = done(runs, name, "rssbo", seeds)
    for method in methods:
        stored = done(runs, name, method, seeds)
        if not stored:
            continue
        regret = {seed: sum(r["regret"]) for seed, r in stored.items()}
        ratios = [
            regret[s] / sum(random[s]["regret"]) for s in stored.keys() & random.keys()
        ]
        r = list(stored.values())
        print(
            f"  {method:18s} {interval(list(regret.values())):20s} "
            f"{interval(ratios) if ratios else '':16s} "
            f"{interval([min(x['regret']) for x in r]):18s} "
            f"{interval([sum(x['cpu']) for x in r]):14s} "
            f"{statistics.mean(x['size'] for x in r):.0f}, {len(r)} seeds"
        )


def load(store: Path | None, setting: Setting) -> Runs:
    """The runs so far.

    Raises:
        InputDataError: If they are of another setting.
    """
    stored: dict[str, Any] = {} if store is None else read_json(store)
    if not stored:
        return {}
    if stored["setting"] != asdict(setting):
        raise InputDataError(
            f"Got {store} with runs of {stored['setting']} for {asdict(setting)}. "
            "Name another store."
        )
    runs: Runs = stored["runs"]
    return runs


def save(store: Path, setting: Setting, key: str, run: Run) -> None:
    """Add a run to the store, beside those that other processes added since.

    Of two runs that are saved at the same moment one may be lost, and is made again.
    """
    runs = load(store, setting) | {key: run}
    about = provenance(f"python -m benchmarks.gssbo {' '.join(sys.argv[1:])}")
    stored = {**about, "setting": asdict(setting), "runs": runs}
    write_whole(store, json.dumps(stored))


def run_missing(args: argparse.Namespace, setting: Setting) -> Runs:
    """All runs, of which those that are not stored yet are made, seed by seed."""
    runs = load(args.store, setting)
    for seed in range(args.seeds):
        for name in args.problems:
            for method in args.methods:
                key = f"{name}/{method}/{seed}"
                if key in runs:
                    continue
                runs[key] = rounded(run(method, Problem(name, seed), setting))
                print(f"{key}: {sum(runs[key]['cpu']):.0f} s", file=sys.stderr)
                if args.store is not None:
                    save(args.store, setting, key, runs[key])
    return runs


def rounded(run: Run) -> Run:
    """A run with six digits of each number."""
    return {
        key: [float(f"{x:.6g}") for x in value] if isinstance(value, list) else value
        for key, value in run.items()
    }


class Design(Problem):
    """Hartmann6 with an initial design of `num` points."""

    def __init__(self, num: int) -> None:
        super().__init__("hartmann6", 0)
        self.num = num

    def initial(self, num: int = 0) -> torch.Tensor:
        """All of the design."""
        return super().initial(self.num)


def seconds(method: str, num: int, setting: Setting, repeats: int = 5) -> float:
    """Median CPU seconds of an iteration with `num` samples, after the first."""
    problem, times = Design(num), []
    source: Strategy | Loop
    if method in STRATEGIES:
        source = STRATEGIES[method](problem, setting)
        source.tell(problem.initial(), problem.evaluate(problem.initial()))
    else:
        source = Loop(problem, setting, LANDMARKS[method])
    for _ in range(repeats + 1):
        start = time.process_time()
        if isinstance(source, Loop):
            source.step()
        else:
            batch = source.ask(1)
            source.tell(batch, problem.evaluate(batch.X))
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


def report_speed(methods: list[str], setting: Setting) -> None:
    """Print the seconds of an iteration at several numbers of samples."""
    print(f"CPU seconds of an iteration at n = {SPEED_SIZES}, {setting}")
    for method in methods:
        times = [seconds(method, n, setting) for n in SPEED_SIZES]
        print(f"  {method:18s} {', '.join(f'{t:.3f}' for t in times)}", flush=True)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The arguments; those of the paper's setting with `--paper`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper", action="store_true", help="1000 evaluations, fits")
    parser.add_argument("--fit-each", action="store_true", help="fit in each iteration")
    parser.add_argument("--speed", action="store_true", help="seconds, and no runs")
    parser.add_argument("--problems", nargs="*", choices=PROBLEMS)
    parser.add_argument("--methods", nargs="*", choices=[*LANDMARKS, *STRATEGIES])
    parser.add_argument("--seeds", type=int, help="up to 5, or 10 with --paper")
    parser.add_argument("--total", type=int, help="150, or 1000 with --paper")
    parser.add_argument("--size", type=int, help="of subsets: 50, or 100 with --paper")
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    args = parser.parse_args(arguments)
    args.problems = args.problems or (PAPER_PROBLEMS if args.paper else SHORT_PROBLEMS)
    args.methods = args.methods or METHODS
    args.seeds = args.seeds or (10 if args.paper else 5)
    args.fit_each |= args.paper
    if args.paper and args.store is None:
        args.store = Path("output/gssbo.json")
    return args


def main(arguments: list[str] | None = None) -> None:
    """Run what is not stored yet, and print the tables."""
    args = parse(arguments)
    torch.set_num_threads(1)
    total, size = (1000, 100) if args.paper else (150, 50)
    setting = Setting(args.total or total, args.size or size, args.fit_each)
    if args.speed:
        report_speed(args.methods, setting)
        return
    runs = run_missing(args, setting)
    for name in args.problems:
        report(runs, name, args.methods, args.seeds)


if __name__ == "__main__":
    main()
