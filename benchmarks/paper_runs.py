"""Runs of `benchmarks.bbkb_paper`: what they are, and the file that keeps them."""

import json
import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean

from benchmarks.paper_baselines import (
    EpsilonGreedy,
    RegularizedEvolution,
    ThompsonSampling,
)
from benchmarks.paper_problems import PaperProblem, load_problem, mutation
from benchmarks.store import Store
from botorch_sparse.acquisition.confidence import BBKBRadius
from botorch_sparse.inducing import BLESSSampler
from botorch_sparse.strategies import BBKB, BKB, GPBUCB, GPUCB, RandomSearch, StopAfter

LAM = 1e-4
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
    cpu_seconds: float = math.nan
    made: str = ""


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
    warm, cpu = 0.0, time.process_time()
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
    cpu = time.process_time() - cpu
    record = summarize(job, problem, history)
    return replace(record, seconds=record.seconds + warm, cpu_seconds=cpu)


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
    """Records by job, kept in a file if there is one.

    Args:
        path: The file.
        max_seconds: After which a run ends; what was cut is not kept.
        methods: Those that are run where the file lacks them; none for a report.
    """

    def __init__(
        self, path: Path | None, max_seconds: float, methods: Collection[str]
    ) -> None:
        self.store, self.methods = Store(path), methods
        self.max_seconds = max_seconds
        self.cut: dict[str, Record] = {}
        self.used: list[str] = []

    def get(self, job: Job) -> Record | None:
        """The record of a job, from the file or a run."""
        held = self.store.records
        if not {job.key} & (held.keys() | self.cut.keys()) and (
            job.method in self.methods
        ):
            record = run(job, self.max_seconds)
            if record.evaluations == job.T:
                self.store.add(job.key, asdict(record))
            else:
                self.cut[job.key] = record
        self.used.append(job.key)
        return Record(**held[job.key]) if job.key in held else self.cut.get(job.key)

    def seeds(self, job: Job, seeds: int) -> list[Record]:
        """The records of a job under several seeds, those that there are."""
        found = [self.get(replace(job, seed=seed)) for seed in range(seeds)]
        return [record for record in found if record is not None]

    def available(self, names: Sequence[str]) -> list[str]:
        """Data sets that can be loaded, or need not be; says which are left out."""
        return [*available(names)] if self.methods else [*names]


def available(names: Sequence[str]) -> Iterator[str]:
    """Those data sets that can be loaded; says which are left out."""
    for name in names:
        try:
            problem_of(name)
        except InputDataError as error:
            print(f"{name}: left out, {error}")
        else:
            yield name
