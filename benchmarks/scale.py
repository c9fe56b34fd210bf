"""BBKB at scale: many candidates, and many evaluations. Seconds and peak memory.

    python -m benchmarks.scale million                # 10^6 x 20, T = 2000
    python -m benchmarks.scale ten-million            # 10^7 x 8, T = 2000
    python -m benchmarks.scale evaluations            # 20,000 x 6, T = 100,000

The tables are written once, as `.npy` files with the target in the last column: uniform
points of the unit cube and a function of the kernel's own smoothness (random features),
scaled to [0, 1]. The feedback is the target plus N(0, 0.1^2), the kernel is given,
rows may come again. A run that was interrupted goes on from its last save; seconds are
those of `ask` and `tell`, memory is the largest that one of its processes took.

`evaluations` takes batches of 20, so that there are as many boundaries for each
evaluation at the end as at the beginning: seconds for each evaluation up to 10^3, 10^4
and 10^5 (the later half of each) should agree within 1.5.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.measure import peak_kilobytes
from botorch_sparse.strategies import BBKB, History, StopAfter

NOISE_SD = 0.1
CHUNK = 2**16  # rows written at a time
NUM_FEATURES = 100
SAVE_SECONDS = 60.0


@dataclass(frozen=True)
class Problem:
    """A table and what is done with it.

    Attributes:
        rows: Candidates.
        dim: Their columns.
        lengthscale: The kernel's, and that of the function.
        T: Evaluations.
        batch_size: Points in a batch; None for as many as the rule says.
        rule: What ends a batch.
    """

    rows: int
    dim: int
    lengthscale: float
    T: int
    batch_size: int | None = None
    rule: str = "global-local"

    @property
    def name(self) -> str:
        """What its run is called."""
        return f"{self.rows}x{self.dim}-{self.rule}-{self.T}"


PROBLEMS = {
    "million": Problem(1_000_000, 20, 6.0, 2000),
    "ten-million": Problem(10_000_000, 8, 4.0, 2000),
    "evaluations": Problem(20_000, 6, 2.0, 100_000, batch_size=20),
}


def write_table(problem: Problem, path: Path) -> None:
    """Write the table, if it is not there: whole or not at all."""
    if path.is_file():
        return
    random = np.random.default_rng(0)
    frequency = random.normal(size=(problem.dim, NUM_FEATURES)) / problem.lengthscale
    phase = random.uniform(0, 2 * np.pi, NUM_FEATURES)
    beside = path.with_suffix(".part")
    shape = (problem.rows, problem.dim + 1)
    table = np.lib.format.open_memmap(beside, "w+", np.float64, shape)
    for number, start in enumerate(range(0, problem.rows, CHUNK)):
        chunk = table[start : start + CHUNK]
        chunk[:, :-1] = np.random.default_rng([1, number]).random(chunk[:, :-1].shape)
        chunk[:, -1] = np.cos(chunk[:, :-1] @ frequency + phase).mean(1)
    low, high = table[:, -1].min(), table[:, -1].max()
    table[:, -1] = (table[:, -1] - low) / (high - low)
    table.flush()
    beside.replace(path)


def kernel(problem: Problem) -> RBFKernel:
    """The kernel of the function."""
    given = RBFKernel().double().requires_grad_(False)
    given.lengthscale = problem.lengthscale
    return given


def build(X: Any, problem: Problem) -> BBKB:
    """The strategy."""
    return BBKB(
        X,
        covar_module=kernel(problem),
        lam=NOISE_SD**2,
        mean_module=ZeroMean(),
        noise_variance=NOISE_SD**2,
        delta=1.0 / problem.T,
        batch_size=problem.batch_size,
        termination=problem.rule,  # type: ignore[arg-type]
    )


def noisy(strategy: BBKB, Y: NDArray[np.float64]) -> Callable[[Tensor], Tensor]:
    """Feedback whose noise depends on the number of evaluations before it."""

    def objective(rows: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(len(strategy.history))
        noise = torch.randn(len(rows), generator=generator, dtype=torch.float64)
        return torch.from_numpy(Y[rows.numpy()]) + NOISE_SD * noise

    return objective


class Keeper:
    """Saves a run now and then, and notes the memory that it takes.

    Attributes:
        memory: Pairs of evaluations and largest resident GiB so far.
    """

    def __init__(self, strategy: BBKB, path: Path) -> None:
        self.strategy, self.path = strategy, path
        self.memory: list[tuple[int, float]] = []
        if path.is_file():
            strategy.resume(path)
            self.memory = json.loads(self._beside.read_text())
        self._last = time.perf_counter()

    @property
    def _beside(self) -> Path:
        return self.path.with_suffix(".json")

    def __call__(self, *_: Any) -> bool:
        """Save, if it is time."""
        if time.perf_counter() - self._last > SAVE_SECONDS:
            self.save()
        return False

    def save(self) -> None:
        """Write state and memory."""
        before = self.memory[-1][1] if self.memory else 0.0
        now = max(before, peak_kilobytes() / 1024**2)
        self.memory.append((len(self.strategy.history), now))
        self._beside.write_text(json.dumps(self.memory))
        self.strategy.save(self.path)
        self._last = time.perf_counter()


def per_evaluation(history: History, end: int) -> float:
    """Seconds for each evaluation of the later half of the first `end`."""
    done, took, count = 0, 0.0, 0
    for batch in history.batches:
        if end // 2 <= done < end:
            took += batch.ask_seconds + batch.tell_seconds
            count += batch.size
        done += batch.size
    return took / max(count, 1)


def run(
    problem: Problem, folder: Path, stops: list[int], max_seconds: float
) -> tuple[History, Keeper]:
    """Run a problem, or what is left of it, with a save at each of the stops."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{problem.rows}x{problem.dim}.npy"
    write_table(problem, path)
    table = np.load(path, mmap_mode="r")
    strategy = build(torch.from_numpy(table[:, :-1].copy()), problem)
    keeper = Keeper(
        strategy, folder / f"{problem.name}-{problem.T}-{problem.rule}.state"
    )
    objective = noisy(strategy, table[:, -1])
    end = time.monotonic() + max_seconds
    for stop in stops:
        if len(strategy.history) < stop and time.monotonic() < end:
            callbacks = [keeper, StopAfter(end - time.monotonic())]
            strategy.run(
                objective, stop, progress=False, by_index=True, callbacks=callbacks
            )
            keeper.save()
    return strategy.history, keeper


def report(problem: Problem, folder: Path, max_seconds: float) -> None:
    """Run a problem and print what it took."""
    stops = [10**k for k in range(3, 9) if 10**k < problem.T] + [problem.T]
    history, keeper = run(problem, folder, stops, max_seconds)
    memory = dict(keeper.memory)
    sizes = [batch.size for batch in history.batches]
    print(
        f"{problem.rows} x {problem.dim}, {problem.rule}, T = {len(history)} of "
        f"{problem.T}, {torch.get_num_threads()} threads: {history.seconds:.1f} s in "
        f"ask and tell, peak {keeper.memory[-1][1]:.2f} GiB, {len(sizes)} batches, at "
        f"most {max(sizes)} points, m = {history.batches[-1].num_inducing}, "
        f"{history.num_unique} different rows"
    )
    first = per_evaluation(history, min(stops[0], len(history)))
    for stop in [stop for stop in stops if stop <= len(history)]:
        each = per_evaluation(history, stop)
        print(
            f"  up to {stop}: {1e3 * each:.3f} ms for each evaluation "
            f"({each / first:.2f} times), peak {memory.get(stop, 0.0):.2f} GiB",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> None:
    """Print the figures of one problem or more."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("problems", nargs="*", help=f"of {', '.join(PROBLEMS)}")
    parser.add_argument("--rows", type=int, help="in place of the problem's")
    parser.add_argument("--evaluations", type=int, help="in place of the problem's")
    parser.add_argument("--rule", help="in place of the problem's")
    parser.add_argument("--max-seconds", type=float, default=float("inf"))
    parser.add_argument("--folder", type=Path, default=Path("output/scale"))
    args = parser.parse_args(arguments)
    changes = {"rows": args.rows, "T": args.evaluations, "rule": args.rule}
    changes = {name: value for name, value in changes.items() if value}
    for name in args.problems or PROBLEMS:
        report(replace(PROBLEMS[name], **changes), args.folder, args.max_seconds)


if __name__ == "__main__":
    main()
