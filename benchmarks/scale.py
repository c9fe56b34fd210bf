"""BBKB at scale: many candidates, and many evaluations. Seconds and peak memory.

    python -m benchmarks.scale million                # 10^6 x 20, T = 2000
    python -m benchmarks.scale ten-million            # 10^7 x 8, T = 2000
    python -m benchmarks.scale evaluations            # 20,000 x 6, T = 100,000
    torchrun --nproc-per-node 2 -m benchmarks.scale million

The tables are written once, as `.npy` files with the target in the last column: uniform
points of the unit cube and a function of the kernel's own smoothness (random features).
The feedback is the target, scaled to [0, 1], plus N(0, 0.1^2), the kernel is given,
rows may come again. A run that was interrupted goes on from its last batch, and one
that is done is not done again but with `--anew`. Seconds are those of `ask` and `tell`,
memory is the largest that one of its processes took.

`evaluations` takes batches of 20, so that there are as many boundaries for each
evaluation at the end as at the beginning: seconds for each evaluation up to 10^3, 10^4
and 10^5 (the later half of each) should agree within 1.5.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from benchmarks.measure import peak_kilobytes, seconds
from botorch_sparse.demo.datasets import load_table
from botorch_sparse.distributed import ALONE, Ranks, joined_ranks
from botorch_sparse.strategies import BBKB, History, StopAfter, Strategy

NOISE_SD = 0.1
CHUNK = 2**16  # rows written at a time
NUM_FEATURES = 100


@dataclass(frozen=True)
class Problem:
    """A table and what is done with it.

    Attributes:
        rows: Candidates.
        dim: Their columns.
        lengthscale: The kernel's, and that of the function, in the unit cube.
        T: Evaluations.
        batch_size: Points in a batch; None for as many as the rule says.
        rule: What ends a batch.
        memory: GiB of the pool; in 8 GiB a million rows keep 500 kernel columns, in 16
            ten million keep 107.
    """

    rows: int
    dim: int
    lengthscale: float
    T: int
    batch_size: int | None = None
    rule: str = "global-local"
    memory: float = 2.0

    @property
    def name(self) -> str:
        """What its run is called."""
        return f"{self.rows}x{self.dim}-{self.rule}-{self.T}"


PROBLEMS = {
    "million": Problem(1_000_000, 20, 6.0, 2000, memory=8.0),
    # The local rule would take a pass over all rows for each group of new points.
    "ten-million": Problem(10_000_000, 8, 4.0, 2000, rule="global", memory=16.0),
    "evaluations": Problem(20_000, 6, 2.0, 100_000, batch_size=20),
}


def function(problem: Problem) -> Callable[[np.ndarray], np.ndarray]:
    """What is maximized, from `b x d` points of the unit cube to `b` values."""
    random = np.random.default_rng(0)
    frequency = random.normal(size=(problem.dim, NUM_FEATURES)) / problem.lengthscale
    phase = random.uniform(0, 2 * np.pi, NUM_FEATURES)
    return lambda X: np.cos(X @ frequency + phase).mean(1)


def write_table(problem: Problem, path: Path) -> None:
    """Write the table, if it is not there: whole or not at all."""
    if path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    values = function(problem)
    beside = path.with_suffix(".part")
    shape = (problem.rows, problem.dim + 1)
    table = np.lib.format.open_memmap(beside, "w+", np.float64, shape)
    for number, start in enumerate(range(0, problem.rows, CHUNK)):
        chunk = table[start : start + CHUNK]
        chunk[:, :-1] = np.random.default_rng([1, number]).random(chunk[:, :-1].shape)
        chunk[:, -1] = values(chunk[:, :-1])
    table.flush()
    beside.replace(path)


def kernel(problem: Problem, edge: float = math.sqrt(12)) -> RBFKernel:
    """The kernel of the function, of columns in which the cube has such an edge.

    By default in those of a table, which have variance 1.
    """
    given = RBFKernel().double().requires_grad_(False)
    given.lengthscale = problem.lengthscale * edge
    return given


def build(X: Any, problem: Problem) -> BBKB:
    """The strategy."""
    return BBKB(
        X,
        covar_module=kernel(problem).to(X.device),
        lam=NOISE_SD**2,
        mean_module=ZeroMean(),
        noise_variance=NOISE_SD**2,
        delta=1.0 / problem.T,
        batch_size=problem.batch_size,
        max_memory=int(problem.memory * 2**30),
        termination=problem.rule,  # type: ignore[arg-type]
    )


def noisy(
    strategy: Strategy, values: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Feedback whose noise depends on the number of evaluations before it."""

    def objective(X: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(len(strategy.history))
        noise = torch.randn(len(X), generator=generator, dtype=torch.float64)
        return values(X) + NOISE_SD * noise

    return objective


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        history: Its history.
        memory: Largest resident GiB of one of its processes by evaluations done.
        saving: Seconds that it took to write the last checkpoint once more.
    """

    history: History
    memory: dict[int, float]
    saving: float


def run(
    problem: Problem,
    folder: Path,
    stops: Sequence[int],
    max_seconds: float = math.inf,
    ranks: Ranks = ALONE,
    *,
    anew: bool = False,
) -> Outcome:
    """Run a problem, or what is left of it, and note memory at each of the stops."""
    path = folder / f"{problem.rows}x{problem.dim}.npy"
    state = folder / f"{problem.name}-{ranks.size}.state"
    ranks.once(lambda: write_table(problem, path))
    table = load_table(path, ranks=ranks)
    strategy = build(table.candidates, problem)
    notes = state.with_suffix(".json")
    memory: dict[int, float] = {}
    saving = 0.0
    if anew:
        ranks.once(partial(state.unlink, missing_ok=True))
    if ranks.once(state.is_file):
        strategy.resume(state)
        if notes.is_file():
            lines, saving = json.loads(notes.read_text())
            memory = dict(lines)
    objective, end = noisy(strategy, table.known_values), time.monotonic() + max_seconds
    for stop in stops:
        if len(strategy.history) < stop:
            strategy.run(
                objective,
                stop,
                progress=False,
                by_index=True,
                checkpoint=state,
                callbacks=[StopAfter(max(0.0, end - time.monotonic()))],
            )
            peak = max(ranks.gather(peak_kilobytes())) / 1024**2
            peak = max([peak, *memory.values()])
            memory[len(strategy.history)] = peak
            saving = ranks.gather(seconds(lambda: strategy.save(state)))[0]
            noted = json.dumps([[*memory.items()], saving])
            ranks.once(partial(notes.write_text, noted))
        if len(strategy.history) < stop:
            break
    return Outcome(strategy.history, memory, saving)


def per_evaluation(history: History, end: int) -> float:
    """Seconds for each evaluation of the later half of the first `end`."""
    done, took, count = 0, 0.0, 0
    for batch in history.batches:
        if end // 2 <= done < end:
            took += batch.ask_seconds + batch.tell_seconds
            count += batch.size
        done += batch.size
    return took / max(count, 1)


def num_inducing(history: History, end: int) -> int:
    """How many inducing points the last of the first `end` evaluations had."""
    ends = accumulate(batch.size for batch in history.batches)
    number = next(i for i, done in enumerate(ends) if done >= end)
    return history.batches[number].num_inducing


def report(
    problem: Problem,
    folder: Path,
    max_seconds: float,
    ranks: Ranks,
    *,
    anew: bool = False,
) -> list[str]:
    """Run a problem, and say what it took."""
    stops = [10**k for k in range(3, 9) if 10**k < problem.T] + [problem.T]
    outcome = run(problem, folder, stops, max_seconds, ranks, anew=anew)
    history, memory = outcome.history, outcome.memory
    sizes = [batch.size for batch in history.batches]
    lines = [
        f"{problem.rows} x {problem.dim}, {problem.rule}, T = {len(history)} of "
        f"{problem.T}, {ranks.size} ranks, {torch.get_num_threads()} threads each: "
        f"{history.seconds:.1f} s in ask and tell, peak {max(memory.values()):.2f} GiB "
        f"a rank, {len(sizes)} batches, at most {max(sizes)} points, "
        f"m = {history.batches[-1].num_inducing}, {history.num_unique} different rows, "
        f"{1e3 * outcome.saving:.1f} ms to save"
    ]
    first = per_evaluation(history, min(stops[0], len(history)))
    for stop in [stop for stop in stops if stop in memory]:
        each = per_evaluation(history, stop)
        lines.append(
            f"  up to {stop}: {1e3 * each:.3f} ms for each evaluation "
            f"({each / first:.2f} times), m = {num_inducing(history, stop)}, "
            f"peak {memory[stop]:.2f} GiB"
        )
    return lines


def main(
    arguments: list[str] | None = None, problems: Mapping[str, Problem] = PROBLEMS
) -> None:
    """Print the figures of one problem or more."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("problems", nargs="*", help=f"of {', '.join(problems)}")
    parser.add_argument("--rows", type=int, help="in place of the problem's")
    parser.add_argument("--evaluations", type=int, help="in place of the problem's")
    parser.add_argument("--rule", help="in place of the problem's")
    parser.add_argument("--max-seconds", type=float, default=float("inf"))
    parser.add_argument("--anew", action="store_true", help="from the first batch on")
    parser.add_argument("--folder", type=Path, default=Path("output/scale"))
    args = parser.parse_args(arguments)
    changes = {"rows": args.rows, "T": args.evaluations, "rule": args.rule}
    changes = {name: value for name, value in changes.items() if value}
    with joined_ranks() as ranks:
        for name in args.problems or problems:
            problem = replace(problems[name], **changes)
            lines = report(
                problem, args.folder, args.max_seconds, ranks, anew=args.anew
            )
            if ranks.rank == 0:
                print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
