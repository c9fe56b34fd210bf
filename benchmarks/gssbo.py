"""GSSBO on the functions of its paper [Wei2025]_, against what it is compared with.

    python -m benchmarks.gssbo --store FILE.json    # goes on with what is not there yet
    python -m benchmarks.gssbo --report FILE.json   # runs nothing

Twenty Sobol points, UCB with beta = 4, Matern-5/2, the same optimizer of the
acquisition function and the same schedule of fits for all. All methods of one seed come
before the next seed, and several processes may share the store. `--paper` is the
paper's experiment: 1000 evaluations, a fit in each iteration, with 10 seeds where it
has 50. `--speed` prints the seconds of an iteration at a number of samples instead.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from scipy.stats import t as student

from benchmarks.gssbo_methods import LANDMARKS, STRATEGIES, Loop, Run, Setting, run
from benchmarks.gssbo_problems import PROBLEMS, Problem
from benchmarks.store import Store
from botorch_sparse.strategies import Strategy

PAPER_PROBLEMS = ("hartmann6", "levy20", "powell50", "rastrigin100")
SHORT_PROBLEMS = ("hartmann6", "levy20", "eggholder2")
METHODS = (
    *("gssbo-mixed", "gssbo-leverage", "rssbo", "gssbo-contribution", "gp-ucb"),
    *("gssbo-recent", "kmeans++", "mini-meta", "gssbo-scalar"),
)
SPEED_SIZES = (100, 300, 600, 1000)


@dataclass(frozen=True)
class Plan:
    """Which runs there are to be."""

    setting: Setting
    problems: Sequence[str]
    methods: Sequence[str]
    seeds: int

    def runs(self) -> Iterator[tuple[str, str, int]]:
        """Problem, method and seed, seed by seed."""
        order = product(range(self.seeds), self.problems, self.methods)
        return ((name, method, seed) for seed, name, method in order)


def interval(values: list[float]) -> str:
    """Mean, and half the width of its 95% interval."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.4g}"
    t = student.ppf(0.975, len(values) - 1)
    return f"{mean:.4g} +- {t * statistics.stdev(values) / len(values) ** 0.5:.2g}"


def key(setting: Setting, name: str, method: str, seed: int) -> str:
    """What a run is stored under."""
    fits = " fits" if setting.fit_each else ""
    return f"T={setting.total} M={setting.size}{fits} {name}/{method}/{seed}"


def done(
    store: Store, setting: Setting, name: str, method: str, seeds: int
) -> dict[int, Run]:
    """The runs of a method that are stored, by seed."""
    keys = {seed: key(setting, name, method, seed) for seed in range(seeds)}
    return {s: store.records[k] for s, k in keys.items() if k in store.records}


def report(store: Store, plan: Plan, name: str) -> None:
    """Print the table of one problem; ratios are those of runs from one design."""
    setting = plan.setting
    print(
        f"{name}, T = {setting.total}, M = {setting.size}: cumulative regret, over "
        "that of rssbo with the same seed, best one, CPU seconds, samples in the model"
    )
    random = done(store, setting, name, "rssbo", plan.seeds)
    for method in plan.methods:
        stored = done(store, setting, name, method, plan.seeds)
        if not stored:
            continue
        regret = {seed: sum(r["regret"]) for seed, r in stored.items()}
        ratios = [
            regret[s] / sum(random[s]["regret"]) for s in stored.keys() & random.keys()
        ]
        r = list(stored.values())
        print(
            f"  {method:18s} {interval(list(regret.values())):20s} "
            f"{interval(ratios) if ratios else '-':16s} "
            f"{interval([min(x['regret']) for x in r]):18s} "
            f"{statistics.mean(x['cpu'] for x in r):4.0f} "
            f"{statistics.mean(x['size'] for x in r):4.0f}, {len(r)} seeds"
        )


def report_all(store: Store, plan: Plan) -> None:
    """Print the tables of those problems that have runs, and where these are from."""
    told = [key(plan.setting, *one) for one in plan.runs()]
    told = [one for one in told if one in store.records]
    for name in plan.problems:
        if any(f" {name}/" in one for one in told):
            report(store, plan, name)
    print(store.made(told))


def run_missing(store: Store, plan: Plan) -> None:
    """Make those runs that are not stored yet."""
    for name, method, seed in plan.runs():
        one = key(plan.setting, name, method, seed)
        if one in store.records:
            continue
        found = rounded(run(method, Problem(name, seed), plan.setting))
        store.add(one, found)
        print(f"{one}: {found['cpu']:.0f} s", file=sys.stderr)


def rounded(run: Run) -> Run:
    """A run with six digits of each number, and its CPU seconds in all."""
    regret = [float(f"{x:.6g}") for x in run["regret"]]
    return {"regret": regret, "cpu": round(sum(run["cpu"]), 1), "size": run["size"]}


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


def report_speed(methods: Sequence[str], setting: Setting) -> None:
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
    parser.add_argument("--seeds", type=int, help="up to 10")
    parser.add_argument("--total", type=int, help="150, or 1000 with --paper")
    parser.add_argument("--size", type=int, help="of subsets: 50, or 100 with --paper")
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    args = parser.parse_args(arguments)
    every = (*LANDMARKS, *STRATEGIES) if args.report else METHODS
    args.problems = args.problems or (PAPER_PROBLEMS if args.paper else SHORT_PROBLEMS)
    args.methods = args.methods or every
    args.seeds = args.seeds or 10
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
    store = Store(args.report or args.store)
    plan = Plan(setting, args.problems, args.methods, args.seeds)
    if args.report is None:
        run_missing(store, plan)
    report_all(store, plan)


if __name__ == "__main__":
    main()
