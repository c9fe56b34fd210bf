"""A new campaign beside an earlier one with the same columns: what the earlier brings.

Five rounds of eight rows of a table of up to 1,000, with `related=` 200 rows of another
task and without them (`alone`), by `ExpectedImprovement` and by `ThompsonSampling`;
beside them BoTorch's `MultiTaskGP` of all rows with the largest expected improvements,
one row after the other, and random rows. The tasks are those of `benchmarks.tasks`: two
halves of sgemm_gpu by a flag, dye_lasers by a first fragment, and functions with
a correlation of 0, 0.5 and 0.9. Larger values are better, but for sgemm_gpu.

Tables print medians over seeds of the rank of the best row after each round, by 1 plus
the number of rows that are better; the geometric mean of the last rank; and CPU
seconds of a run.

    OMP_NUM_THREADS=1 python -m benchmarks.transfer --store FILE.json.gz
    python -m benchmarks.transfer --report benchmarks/results/transfer.json.gz

Each run is kept as soon as it is over; what is there is not run again.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.fits import table
from benchmarks.molecule_peers import believed
from benchmarks.pools import available
from benchmarks.store import Record, Store, parsed_runs, run_or_report
from benchmarks.tasks import CASES, SOURCES
from botorch_sparse.strategies import ExpectedImprovement, Strategy, ThompsonSampling

ROUNDS, BATCH = 5, 8
ENDS = range(BATCH, ROUNDS * BATCH + 1, BATCH)  # rows measured after each round
RELATED, ROWS = 200, 1_000
MINIMIZED = ("sgemm_gpu",)
Data = tuple[Tensor, Tensor]


def load(case: str, seed: int) -> tuple[Data, Data]:
    """The table with its values, and rows of the earlier campaign."""
    (X, Y), (other_X, other_Y) = CASES[case](ROWS, torch.Generator().manual_seed(seed))
    sign = -1.0 if case in MINIMIZED else 1.0
    return (X[:ROWS], sign * Y[:ROWS]), (other_X[:RELATED], sign * other_Y[:RELATED])


def ours(
    own: Data, other: Data, seed: int, kind: Callable[..., Strategy], is_alone: bool
) -> list[int]:
    """A strategy as a user builds it."""
    X, Y = own
    related = {} if is_alone else {"related": [other]}
    strategy = kind(X, batch_size=BATCH, num_initial=BATCH, seed=seed, **related)
    for _ in range(ROUNDS):
        batch = strategy.ask()
        strategy.tell(batch, Y[batch.indices])
    rows: list[int] = strategy.history.indices.tolist()
    return rows


def random(own: Data, other: Data, seed: int) -> list[int]:
    """Different rows, uniformly."""
    generator = torch.Generator().manual_seed(seed)
    num = ROUNDS * BATCH
    rows: list[int] = torch.randperm(len(own[0]), generator=generator)[:num].tolist()
    return rows


def multi_task(own: Data, other: Data, seed: int) -> list[int]:
    """BoTorch's model of both tasks; its first rows are random."""
    X, Y = own
    low, high = torch.cat([X, other[0]]).aminmax(dim=0)
    width = (high - low).where(high > low, 1.0)
    inputs, other_X = ((each - low) / width for each in (X, other[0]))
    other_Y = (other[1] - other[1].mean()) / other[1].std()
    rows = random(own, other, seed)[:BATCH]
    while len(rows) < ROUNDS * BATCH:
        y = (Y[rows] - Y[rows].mean()) / Y[rows].std()
        tasks = torch.tensor([0.0] * len(rows) + [1.0] * len(other_Y)).double()
        both = torch.cat([inputs[rows], other_X])
        model = MultiTaskGP(
            torch.cat([both, tasks.unsqueeze(-1)], dim=-1),
            torch.cat([y, other_Y]).unsqueeze(-1),
            task_feature=-1,
            output_tasks=[0],
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        with torch.no_grad():
            joint = model.posterior(inputs).distribution
            mean, covariance = joint.mean, joint.covariance_matrix
            best, noise = mean[rows].max(), model.likelihood.noise.max()
            is_left = torch.ones(len(X), dtype=torch.bool)
            is_left[rows] = False
            left = is_left.nonzero().squeeze(-1)
            mean, covariance = mean[left], covariance[left][:, left]
            rows += left[believed(mean, covariance, noise, best, BATCH)].tolist()
    return rows


METHODS: dict[str, Callable[[Data, Data, int], list[int]]] = {
    "related": partial(ours, kind=ExpectedImprovement, is_alone=False),
    "alone": partial(ours, kind=ExpectedImprovement, is_alone=True),
    "thompson related": partial(ours, kind=ThompsonSampling, is_alone=False),
    "thompson alone": partial(ours, kind=ThompsonSampling, is_alone=True),
    "multi-task": multi_task,
    "random": random,
}


def execute(case: str, method: str, seed: int) -> Record:
    """One run: the rank of the best row after each round."""
    own, other = load(case, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        rows = METHODS[method](own, other, seed)
        seconds = time.process_time() - start
    ranks = [1 + int((own[1] > own[1][rows[:end]].max()).sum()) for end in ENDS]
    return {"ranks": ranks, "seconds": round(seconds, 2), "of": len(own[1])}


def key_of(case: str, method: str, seed: int) -> str:
    """The key of a run in the store."""
    return f"{case}/{method}/{seed}"


def run_all(store: Store, args: argparse.Namespace) -> None:
    """Run what is not stored yet, all cases of one seed before the next."""
    away = {*SOURCES.values()} - {*available([*SOURCES.values()], table)}
    for seed in range(args.seeds):
        for case in args.cases:
            for method in args.methods:
                key = key_of(case, method, seed)
                if key in store.records or SOURCES.get(case) in away:
                    continue
                found = execute(case, method, seed)
                store.add(key, found)
                print(f"{key}: {found['ranks']}, {found['seconds']} s", flush=True)


def report(store: Store, args: argparse.Namespace) -> str:
    """Markdown: one table for each case."""
    lines = list[str]()
    for case in args.cases:
        found = {
            method: [
                store.records[key]
                for seed in range(args.seeds)
                if (key := key_of(case, method, seed)) in store.records
            ]
            for method in args.methods
        }
        runs = [run for each in found.values() for run in each]
        if not runs:
            continue
        head = ["method", "seeds", *(f"rank at {end}" for end in ENDS)]
        head += ["last rank, geometric mean", "CPU s"]
        lines += [f"### {case}: {runs[0]['of']:,} rows", "", f"| {' | '.join(head)} |"]
        lines.append("| --- " * len(head) + "|")
        lines += [
            f"| {' | '.join([method, *cells(each)])} |"
            for method, each in found.items()
            if each
        ]
        lines.append("")
    return "\n".join(lines)


def cells(runs: list[Record]) -> list[str]:
    """Of one row: seeds, median ranks, the geometric mean, CPU seconds."""
    ranks = zip(*(run["ranks"] for run in runs), strict=True)
    medians = [f"{statistics.median(each):g}" for each in ranks]
    last = statistics.geometric_mean([run["ranks"][-1] for run in runs])
    seconds = statistics.median([run["seconds"] for run in runs])
    return [str(len(runs)), *medians, f"{last:.3g}", f"{seconds:.3g}"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, or print what is stored."""
    run_or_report(
        parsed_runs(__doc__, arguments, 20, cases=CASES, methods=METHODS),
        run_all,
        report,
    )


if __name__ == "__main__":
    main()
