"""The experiments of [Calandriello2020]_ (BBKB) on our data: figures 1, 2, 3, 4, 5, 6.

Regret ratios (cumulative regret over the expected one of uniform choice), seconds of
`ask` and `tell`, batches and inducing points, as means and 95% intervals over seeds:

- `table1`: abalone and california_housing, each method with its lengthscale of Table 1;
- `sweep`: the same with one lengthscale for all, 5 to 17.5;
- `nas`: architecture search on nas_bench_macro, with and without initial data, against
  regularized evolution; the time counts what training takes, a batch in parallel;
- `growth`: batch sizes on nas_bench_macro.

The short mode takes minutes; `--full` is the paper's T = 10^4 and 10 seeds, and takes
hours: give it `--output FILE.json`, and a run that was interrupted goes on from there.
`--report FILE.json` prints what is there, runs nothing, and needs no data:

    python -m benchmarks.bbkb_paper --full --report benchmarks/results/bbkb_paper.json

CPU seconds are those of `ask` and `tell`, and of the objective, which looks up a row; a
mean over the runs that kept them.
"""

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import t as student_t

from benchmarks.paper_runs import LAM, Job, Record, Results

# Table 1 (abalone, california_housing); the last two rows are ours: it has none.
LENGTHSCALES = {
    "BBKB global": (17.5, 12.5),
    "BBKB global-local": (17.5, 12.5),
    "BKB": (17.5, 12.5),
    "GP-UCB": (5.0, 12.5),
    "GP-BUCB": (12.5, 12.5),
    "async-TS": (10.0, 10.0),
    "epsilon-greedy": (17.5, 12.5),
    "random": (17.5, 12.5),
}
SWEEP = (5.0, 7.5, 10.0, 12.5, 15.0, 17.5)
TABLES = ("abalone", "california_housing")
SEARCH = ("BBKB global", "BBKB global-local", "evolution", "random")
# As in the paper, for features of unit norm: with initial data, and without.
SEARCH_LENGTHSCALES = {2000: 125.0, 0: 100.0}
EXPERIMENTS = ("table1", "sweep", "nas", "growth")


def interval(values: list[float], digits: int = 3) -> str:
    """Mean, and the half width of its 95% interval (Student's t) if there are more."""
    mean = f"{statistics.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    quantile = student_t.ppf(0.975, len(values) - 1)
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean} +- {half:.{digits}f}"


def table1(results: Results, T: int, seeds: int, tables: Sequence[str]) -> None:
    """Figures 1 and 2."""
    for data in results.available(tables):
        print(f"{data}, T = {T}, lengthscales of Table 1:")
        print(_head(f"{'method':<18}{'scale':>6}"))
        for method, scales in LENGTHSCALES.items():
            scale = scales[TABLES.index(data)]
            job = Job(data, method, scale, T, 0)
            print(_line(f"{method:<18}{scale:>6}", results.seeds(job, seeds)))


def _head(first: str) -> str:
    return (
        f"  {first}{'seeds':>6}  {'regret ratio at T/5, ..., T':<41}{'CPU s':>8}"
        f"{'batches':>9}{'m':>6}"
    )


def _line(head: str, records: list[Record]) -> str:
    """Regret over time and cost of one method, means over its seeds."""
    if not records:
        return f"  {head}{0:>6}  not run"
    curves = zip(*(record.regret for record in records), strict=True)
    *early, last = [list(curve) for curve in curves]
    path = " ".join(f"{statistics.mean(values):.3f}" for values in early)
    cpu = [r.cpu_seconds for r in records if not math.isnan(r.cpu_seconds)]
    batches = statistics.mean(record.batches for record in records)
    m = statistics.mean(record.num_inducing for record in records)
    cut = min(record.evaluations for record in records)
    return (
        f"  {head}{len(records):>6}  {path} {interval(last):<17}"
        f"{f'{statistics.mean(cpu):.1f}' if cpu else '-':>8}{batches:>9.0f}{m:>6.0f}"
        f"{'' if cut == max(r.evaluations for r in records) else f', cut at {cut}'}"
    )


def sweep(results: Results, T: int, seeds: int, tables: Sequence[str]) -> None:
    """Figures 5 and 6: the same lengthscale for all methods."""
    for data in results.available(tables):
        print(f"{data}, T = {T}, regret ratio at T by lengthscale (number of seeds):")
        print(f"  {'method':<18}" + "".join(f"{scale:>20}" for scale in SWEEP))
        for method in LENGTHSCALES:
            cells = [
                _cell([r.regret[-1] for r in results.seeds(job, seeds)])
                for job in (Job(data, method, scale, T, 0) for scale in SWEEP)
            ]
            if set(cells) != {"-"}:
                line = "".join(f"{cell:>20}" for cell in cells)
                print(f"  {method:<18}{line}", flush=True)


def _cell(values: list[float]) -> str:
    return f"{interval(values)} ({len(values)})" if values else "-"


def nas(results: Results, T: int, seeds: int, training_seconds: float) -> None:
    """Figures 3 and 4: with and without initial data."""
    for data in results.available(("nas_bench_macro",)):
        for num_initial in (2000, 0):
            print(
                f"{data}, T = {T} after {num_initial} initial architectures, "
                f"{training_seconds:g} s of training on average:"
            )
            print(_head(f"{'method':<18}"))
            for method in SEARCH:
                scale = SEARCH_LENGTHSCALES[num_initial]
                job = Job(data, method, scale, T, 0, num_initial)
                records = results.seeds(job, seeds)
                print(_line(f"{method:<18}", records))
                if records:
                    print(f"{'':26}{_search(records, training_seconds)}")


def _search(records: list[Record], training_seconds: float) -> str:
    """Simple regret, and hours where a batch is trained in parallel."""
    hours = statistics.mean(
        record.seconds + training_seconds * record.training for record in records
    )
    simple = interval([record.simple_regret for record in records], 4)
    return f"simple regret {simple}, {hours / 3600:.1f} h in all"


def growth(results: Results, T: int, seeds: int) -> None:
    """Batch sizes over the run: they grow."""
    for data in results.available(("nas_bench_macro",)):
        print(f"{data}, mean batch size in each fifth of {T} evaluations:")
        for method in SEARCH[:2]:
            records = results.seeds(
                Job(data, method, SEARCH_LENGTHSCALES[0], T, 0), seeds
            )
            columns = zip(*(record.batch_size for record in records), strict=True)
            means = [statistics.mean(column) for column in columns]
            line = "".join(f"{mean:9.1f}" for mean in means)
            print(f"  {method:<18}{line}, {len(records)} seeds")


def main(arguments: list[str] | None = None) -> None:
    """Print the experiments that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("experiments", nargs="*", help=f"of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--full", action="store_true", help="T = 10^4, 10 seeds")
    parser.add_argument("--evaluations", type=int, help="T of tables and search")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--max-seconds", type=float, help="end a run after this time")
    parser.add_argument("--output", type=Path, help="JSON file of finished runs")
    parser.add_argument("--report", type=Path, help="only print this file")
    parser.add_argument("--methods", nargs="+", help="run these alone; default: all")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--training-seconds", type=float, default=1200.0)
    args = parser.parse_args(arguments)
    names = args.experiments or EXPERIMENTS
    if unknown := set(names) - set(EXPERIMENTS):
        parser.error(f"no experiment {sorted(unknown)}; there are {EXPERIMENTS}")
    T = args.evaluations or (10_000 if args.full else 300)
    seeds = args.seeds or (10 if args.full else 2)
    default = math.inf if args.full else 10.0
    methods = () if args.report else args.methods or (*LENGTHSCALES, *SEARCH)
    path = args.report or args.output
    results = Results(path, args.max_seconds or default, methods)
    print(f"lam = noise = {LAM}, F = 1, delta = 1/T; 95% intervals")
    if "table1" in names:
        table1(results, T, seeds, args.tables)
    if "sweep" in names:
        T_sweep, num = (T, seeds) if args.full else (T // 2, 1)
        sweep(results, T_sweep, num, args.tables)
    if "nas" in names:
        nas(results, min(T, 2000), seeds, args.training_seconds)
    if "growth" in names:
        growth(results, 2000, seeds if args.full else 1)
    print(results.store.made(results.used))


if __name__ == "__main__":
    main()
