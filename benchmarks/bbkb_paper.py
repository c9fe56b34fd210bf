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
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from scipy.stats import t as student_t

from benchmarks.paper_baselines import (
    EpsilonGreedy,
    RegularizedEvolution,
    ThompsonSampling,
)
from benchmarks.paper_problems import PaperProblem, load_problem, mutation
from botorch_sparse.acquisition.confidence import BBKBRadius
from botorch_sparse.inducing import BLESSSampler
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    RandomSearch,
    StopAfter,
)

LAM = 1e-4
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
NUM_CHECKPOINTS = 5


@dataclass(frozen=True)
class Job:
    """One run."""

    data: str
    method: str
    lengthscale: float
    T: int
    seed: int
    num_initial: int = 0

    @property
    def key(self) -> str:
        """Its name in the output file."""
        return json.dumps(asdict(self))


@dataclass
class Record:
    """What a run leaves: `regret` and `batch_size` at equal steps up to its end."""

    evaluations: int
    regret: list[float]
    simple_regret: float
    seconds: float
    training: float
    batches: int
    num_inducing: int
    batch_size: list[float]


problem_of = cache(load_problem)


def build(job: Job, problem: PaperProblem) -> Any:
    """The strategy of a job."""
    table, method = problem.table, job.method
    kernel = RBFKernel().to(table.X)
    kernel.lengthscale = job.lengthscale
    kernel.requires_grad_(False)
    shared: dict[str, Any] = {"candidates": table.X, "seed": job.seed}
    gp = shared | {"covar_module": kernel, "lam": LAM}
    sparse = gp | {"noise_variance": LAM, "norm_bound": 1.0, "delta": 1.0 / job.T}
    sparse["mean_module"] = ZeroMean()
    radius = BBKBRadius(1.0, LAM, 1.0 / job.T)
    match method:
        case "BBKB global" | "BBKB global-local":
            first = BLESSSampler() if job.num_initial else None
            rule = method.removeprefix("BBKB ")
            return BBKB(**sparse, termination=rule, initial_sampler=first)
        case "BKB":
            return BKB(**sparse)
        case "GP-UCB":
            return GPUCB(**sparse)
        case "GP-BUCB":
            return GPBUCB(**sparse)
        case "async-TS":
            return ThompsonSampling(**gp, radius=radius)
        case "epsilon-greedy":
            return EpsilonGreedy(**gp, mean_module=ZeroMean())
        case "evolution":
            return RegularizedEvolution(**shared, mutate=mutation(table))
        case _:
            return RandomSearch(**shared)


def run(job: Job, max_seconds: float) -> Record:
    """Run a job, or as much of it as fits."""
    problem = problem_of(job.data)
    strategy, objective = build(job, problem), problem.feedback(job.seed)
    warm = 0.0
    if job.num_initial:
        generator = torch.Generator().manual_seed(1000 + job.seed)
        number = len(problem.table.Y)
        rows = torch.randperm(number, generator=generator)[: job.num_initial]
        start = time.perf_counter()
        strategy.tell(problem.table.X[rows], objective(rows))
        warm = time.perf_counter() - start
    history = strategy.run(
        objective,
        job.num_initial + job.T,
        progress=False,
        by_index=True,
        callbacks=[StopAfter(max_seconds)],
    )
    record = summarize(job, problem, history)
    return replace(record, seconds=record.seconds + warm)


def summarize(job: Job, problem: PaperProblem, history: Any) -> Record:
    """The figures of a run, initial data not counted."""
    table, indices = problem.table, history.indices[job.num_initial :]
    ratio, t = table.regret_ratio(indices), len(indices)
    steps = [t * (i + 1) // NUM_CHECKPOINTS for i in range(NUM_CHECKPOINTS)]
    number = history.batch_number[job.num_initial :]
    sizes = torch.bincount(number).double()
    cost = problem.cost[indices].double()
    slowest = torch.zeros(len(sizes)).double()
    slowest.scatter_reduce_(0, number, cost, reduce="amax")
    ends = [0, *steps]
    return Record(
        evaluations=t,
        regret=[float(ratio[step - 1]) for step in steps],
        simple_regret=float(table.Y.max() - table.Y[indices].max()),
        seconds=history.seconds,
        training=float(slowest.sum()),
        batches=len(history.batches),
        num_inducing=history.batches[-1].num_inducing,
        batch_size=[
            (end - start) / max(1, len(number[start:end].unique()))
            for start, end in zip(ends, steps, strict=False)
        ],
    )


class Results:
    """Records by job, kept in a file if there is one."""

    def __init__(self, path: Path | None, max_seconds: float) -> None:
        self.path, self.max_seconds = path, max_seconds
        self.known: dict[str, Any] = {}
        if path is not None and path.is_file():
            self.known = json.loads(path.read_text())
        self.finished = dict(self.known)

    def get(self, job: Job) -> Record:
        """The record of a job, from the file or a run."""
        if job.key not in self.known:
            record = run(job, self.max_seconds)
            self.known[job.key] = asdict(record)
            if record.evaluations == job.T:  # one that was cut is not kept
                self.finished[job.key] = self.known[job.key]
                self._save()
        return Record(**self.known[job.key])

    def _save(self) -> None:
        """Write the finished runs, whole or not at all."""
        if self.path is not None:
            beside = self.path.with_suffix(".part")
            beside.write_text(json.dumps(self.finished, indent=1))
            beside.replace(self.path)

    def seeds(self, job: Job, seeds: int) -> list[Record]:
        """The records of a job under several seeds."""
        return [self.get(replace(job, seed=seed)) for seed in range(seeds)]


def interval(values: list[float], digits: int = 3) -> str:
    """Mean, and the half width of its 95% interval (Student's t) if there are more."""
    mean = f"{statistics.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    quantile = student_t.ppf(0.975, len(values) - 1)
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean} +- {half:.{digits}f}"


def available(names: tuple[str, ...]) -> Iterator[str]:
    """Those data sets that can be loaded; says which are left out."""
    for name in names:
        try:
            problem_of(name)
        except InputDataError as error:
            print(f"{name}: left out, {error}")
        else:
            yield name


def table1(results: Results, T: int, seeds: int) -> None:
    """Figures 1 and 2."""
    for column, data in enumerate(TABLES):
        if data not in set(available((data,))):
            continue
        print(f"{data}, T = {T}, lengthscales of Table 1, {seeds} seeds:")
        print(f"  {'method':<18}{'scale':>6}{'regret ratio at T/5, ..., T':^42}seconds")
        for method, scales in LENGTHSCALES.items():
            job = Job(data, method, scales[column], T, 0)
            print(_line(f"{method:<18}{scales[column]:>6}", results.seeds(job, seeds)))


def _line(head: str, records: list[Record]) -> str:
    """Regret over time and cost of one method."""
    curves = zip(*(record.regret for record in records), strict=True)
    *early, last = [list(curve) for curve in curves]
    path = " ".join(f"{statistics.mean(values):.3f}" for values in early)
    first = records[0]
    cut = min(record.evaluations for record in records)
    seconds = statistics.mean(record.seconds for record in records)
    return (
        f"  {head}  {path} {interval(last):<16} {seconds:8.2f} s, {first.batches} "
        f"batches, m = {first.num_inducing}, {cut} evaluations"
    )


def sweep(results: Results, T: int, seeds: int) -> None:
    """Figures 5 and 6: the same lengthscale for all methods."""
    for data in available(TABLES):
        print(f"{data}, T = {T}, regret ratio at T by lengthscale, {seeds} seeds:")
        print(f"  {'method':<18}" + "".join(f"{scale:>16}" for scale in SWEEP))
        for method in LENGTHSCALES:
            cells = [
                interval([record.regret[-1] for record in results.seeds(job, seeds)])
                for job in (Job(data, method, scale, T, 0) for scale in SWEEP)
            ]
            line = "".join(f"{cell:>16}" for cell in cells)
            print(f"  {method:<18}{line}", flush=True)


def nas(results: Results, T: int, seeds: int, training_seconds: float) -> None:
    """Figures 3 and 4: with and without initial data."""
    for data in available(("nas_bench_macro",)):
        for num_initial in (2000, 0):
            print(
                f"{data}, T = {T} after {num_initial} initial architectures, {seeds} "
                f"seeds, {training_seconds:g} s of training on average:"
            )
            for method in SEARCH:
                scale = SEARCH_LENGTHSCALES[num_initial]
                job = Job(data, method, scale, T, 0, num_initial)
                records = results.seeds(job, seeds)
                hours = statistics.mean(
                    record.seconds + training_seconds * record.training
                    for record in records
                )
                simple = interval([r.simple_regret for r in records], 4)
                print(_line(f"{method:<18}", records))
                print(f"{'':20}simple regret {simple}, {hours / 3600:.1f} h in all")


def growth(results: Results, T: int, seeds: int) -> None:
    """Batch sizes over the run: they grow."""
    for data in available(("nas_bench_macro",)):
        print(f"{data}, mean batch size in each fifth of {T} evaluations:")
        for method in SEARCH[:2]:
            records = results.seeds(
                Job(data, method, SEARCH_LENGTHSCALES[0], T, 0), seeds
            )
            columns = zip(*(record.batch_size for record in records), strict=True)
            means = [statistics.mean(column) for column in columns]
            print(f"  {method:<18}" + "".join(f"{mean:9.1f}" for mean in means))


def main(arguments: list[str] | None = None) -> None:
    """Print the experiments that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("experiments", nargs="*", help=f"of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--full", action="store_true", help="T = 10^4, 10 seeds")
    parser.add_argument("--evaluations", type=int, help="T of tables and search")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--max-seconds", type=float, help="end a run after this time")
    parser.add_argument("--output", type=Path, help="JSON file of finished runs")
    parser.add_argument("--training-seconds", type=float, default=1200.0)
    args = parser.parse_args(arguments)
    names = args.experiments or EXPERIMENTS
    if unknown := set(names) - set(EXPERIMENTS):
        parser.error(f"no experiment {sorted(unknown)}; there are {EXPERIMENTS}")
    T = args.evaluations or (10_000 if args.full else 300)
    seeds = args.seeds or (10 if args.full else 2)
    default = math.inf if args.full else 10.0
    results = Results(args.output, args.max_seconds or default)
    print(f"{torch.get_num_threads()} threads, lam = noise = {LAM}, F = 1, delta = 1/T")
    if "table1" in names:
        table1(results, T, seeds)
    if "sweep" in names:
        sweep(results, T if args.full else T // 2, seeds if args.full else 1)
    if "nas" in names:
        nas(results, min(T, 2000), seeds, args.training_seconds)
    if "growth" in names:
        growth(results, 2000, seeds if args.full else 1)


if __name__ == "__main__":
    main()
