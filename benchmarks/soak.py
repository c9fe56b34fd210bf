"""Soak: every strategy for 10^5 evaluations. Seconds for each, and resident memory.

    python -m benchmarks.soak --max-seconds 600        # all, ten minutes each at most
    python -m benchmarks.soak bbkb/float32 random/clustered
    python -m benchmarks.soak --report                 # prints what is there

The table is that of `benchmarks.scale evaluations`, 20,000 points of the unit cube in
six dimensions, in float64 or float32, or as many in 50 cubes of edge 0.01. GSSBO, RSSBO
and trust regions have no tables, and choose from the cube. The kernel is given, rows
may come again, a batch has 20 points, or one where the algorithm has no batches.
GSSBO's step looks at all samples, O(n M^2), so that 10^5 of them take a day: from 10^3
on, GSSBO and RSSBO are told of uniform points in place of their own, but for the last
500 before a stop.

Each run has a process and a thread of its own, and stops at 10^3, 10^4 and 10^5
evaluations, or where its time is over; the next call goes on from there, in another
process. Exact posteriors grow with the different rows and may not reach the end.
Seconds are CPU seconds of the run, objective included, for each evaluation in the later
half up to that number: other work on the machine counts for little.
"""

import argparse
import json
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.means import ZeroMean
from torch import Tensor

from benchmarks import measure
from benchmarks.scale import NOISE_SD, PROBLEMS, Problem, function, kernel, noisy
from benchmarks.store import read_json, write_whole
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    GSSBO,
    RSSBO,
    SBPE,
    Batch,
    History,
    RandomSearch,
    StopAfter,
    Strategy,
    ThompsonSampling,
    TrustRegionBBKB,
)
from botorch_sparse.threads import one_thread

RESULTS = Path(__file__).parent / "results" / "soak.json"
PROBLEM = PROBLEMS["evaluations"]
NUM_CLUSTERS, WIDTH = 50, 0.01
METHODS = ("bbkb", "random", "sbpe", "thompson", "gpbucb", "gpucb", "bkb")
ON_CUBE = ("gssbo", "rssbo", "regions")
ARE_TOLD = ("gssbo", "rssbo")
KINDS = ("float64", "float32", "clustered")
RUNS = [
    *(f"{name}/{KINDS[0]}" for name in METHODS),
    *(f"{name}/cube" for name in ON_CUBE),
    *(f"{name}/{kind}" for kind in KINDS[1:] for name in METHODS),
]
Point = dict[str, float]  # what is known of a run at some number of evaluations
Store = dict[str, dict[str, Point]]  # by run, and by number of evaluations


def stops(problem: Problem) -> tuple[int, ...]:
    """Numbers of evaluations at which a run stops."""
    return problem.T // 100, problem.T // 10, problem.T


def candidates(kind: str, problem: Problem) -> Tensor:
    """Points of the unit cube: uniform in `float64` or `float32`, or `clustered`."""
    random = np.random.default_rng([1, 0])
    X = random.random((problem.rows, problem.dim))
    if kind == "clustered":
        center = random.random((NUM_CLUSTERS, problem.dim))
        X = center[np.arange(problem.rows) % NUM_CLUSTERS] + WIDTH * (X - 0.5)
    return torch.from_numpy(X).to(torch.float32 if kind == "float32" else torch.float64)


def target(problem: Problem) -> Callable[[Tensor], Tensor]:
    """What is maximized, from 0 to 1 on the uniform table."""
    values = function(problem)
    known = values(candidates("float64", problem).numpy())
    low, high = known.min(), known.max()
    return lambda X: torch.from_numpy((values(X.double().numpy()) - low) / (high - low))


def build(method: str, X: Tensor, problem: Problem) -> Strategy:
    """The strategy of a method, of candidates or of the whole cube."""
    batch = {"batch_size": problem.batch_size}
    own: dict[str, Any] = {"covar_module": kernel(problem, 1.0).to(X)}
    own["lam"] = NOISE_SD**2
    if method in ON_CUBE:
        own["bounds"] = torch.tensor([[0.0], [1.0]]).double().expand(2, problem.dim)
    else:
        own["candidates"] = X
    gp = own | {"mean_module": ZeroMean()}
    ucb = gp | {"noise_variance": NOISE_SD**2, "delta": 1.0 / problem.T}
    match method:
        case "bbkb":
            return BBKB(**ucb, **batch)
        case "random":
            return RandomSearch(X, **batch)
        case "sbpe":
            return SBPE(**own, num_evaluations=problem.T, noise_std=NOISE_SD)
        case "thompson":
            return ThompsonSampling(**gp, **batch)
        case "gpbucb":
            return GPBUCB(**ucb, **batch)
        case "gpucb":
            return GPUCB(**ucb)
        case "bkb":
            return BKB(**ucb)
        case "gssbo":
            return GSSBO(**own, subset_size=100)
        case "rssbo":
            return RSSBO(**own, subset_size=100)
        case _:
            return TrustRegionBBKB(**own, **batch)


@dataclass
class Meter:
    """CPU seconds by evaluations done; a callback of `Strategy.run`.

    Attributes:
        done: Numbers of evaluations, each 2 % more than the one before.
        seconds: CPU seconds by then, since the run began.
        start: What the clock of this process showed then.
    """

    done: list[int] = field(default_factory=lambda: [0])
    seconds: list[float] = field(default_factory=lambda: [0.0])
    start: float = field(default_factory=time.process_time)

    @classmethod
    def go_on(cls, path: Path) -> "Meter":
        """With the marks of an earlier process."""
        meter = cls(**json.loads(path.read_text())) if path.is_file() else cls()
        meter.start = time.process_time() - meter.seconds[-1]
        return meter

    def __call__(self, strategy: Strategy, batch: Batch, history: History) -> None:
        """Look at the clock, where it is worth a mark."""
        if len(history) >= 1.02 * self.done[-1]:
            self.mark(len(history))

    def mark(self, done: int) -> None:
        """Look at the clock."""
        if done > self.done[-1]:
            self.done.append(done)
            self.seconds.append(time.process_time() - self.start)

    def begin_at(self, done: int) -> None:
        """Count from here on: the evaluations before were none of the strategy's."""
        self.done, self.seconds = [done], [time.process_time() - self.start]

    def per_evaluation(self) -> float:
        """Seconds for each evaluation of the later half."""
        half = bisect_left(self.done, self.done[-1] / 2)
        half = min(half, len(self.done) - 2)
        took = self.seconds[-1] - self.seconds[half]
        return took / (self.done[-1] - self.done[half])


@one_thread()
def run(
    name: str, folder: Path, store: Path, max_seconds: float, problem: Problem = PROBLEM
) -> None:
    """Do a run, or what is left of it, and note what it took at each of the stops."""
    method, kind = name.split("/")
    strategy = build(method, candidates(kind, problem), problem)
    state = folder / f"{method}-{kind}.state"
    if state.is_file():
        strategy.resume(state)
    meter = Meter.go_on(state.with_suffix(".json"))
    values, end = target(problem), time.monotonic() + max_seconds
    first, *_ = ends = stops(problem)
    for stop in [stop for stop in ends if stop > len(strategy.history)]:
        if method in ARE_TOLD and stop > first:
            own = problem.T // 200  # the others are told
            tell_uniform(strategy, values, stop - own - len(strategy.history))
            meter.begin_at(len(strategy.history))
        left = StopAfter(max(0.0, end - time.monotonic()))
        strategy.run(
            noisy(strategy, values),
            stop,
            progress=False,
            callbacks=[meter, left],
            batch_size=problem.batch_size,
        )
        meter.mark(len(strategy.history))
        keep(store, name, strategy, meter, ends)
        strategy.save(state)
        marks = {"done": meter.done, "seconds": meter.seconds}
        state.with_suffix(".json").write_text(json.dumps(marks))
        if len(strategy.history) < stop or time.monotonic() >= end:
            break


def tell_uniform(
    strategy: Strategy, values: Callable[[Tensor], Tensor], num: int
) -> None:
    """Tell of points of the cube that nobody asked for, noisy values included."""
    generator = torch.Generator().manual_seed(num)
    dim = strategy.domain.dim
    X = torch.rand(max(num, 0), dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(X), generator=generator, dtype=torch.float64)
    if len(X):
        strategy.tell(X, values(X) + NOISE_SD * noise)


def keep(
    path: Path, name: str, strategy: Strategy, meter: Meter, ends: Sequence[int]
) -> None:
    """Write down where a run is; the file is whole at any moment."""
    history = strategy.history
    known = read(path)
    at = known.get(name, {})
    known[name] = {key: at[key] for key in at if int(key) in ends}
    known[name][str(len(history))] = {
        "milliseconds": round(1e3 * meter.per_evaluation(), 4),
        "cpu_seconds": round(meter.seconds[-1], 1),
        "resident_mib": round(measure.resident_kilobytes() / 1024, 1),
        "peak_mib": round(measure.peak_kilobytes() / 1024, 1),
        "inducing": history.batches[-1].num_inducing,
        "different": history.num_unique,
    }
    write_whole(path, json.dumps(known, indent=1, sort_keys=True) + "\n")


def read(path: Path) -> Store:
    """What is known of all runs."""
    known: Store = read_json(path)
    return known


def report(store: Store, ends: Sequence[int]) -> Iterable[str]:
    """A table: a row for each run, a column for each of the stops and for the end."""
    heads = [f"to {stop:,}" for stop in ends]
    yield f"| run | {' | '.join(heads)} | reached | inducing | different rows |"
    yield "|---" * (len(heads) + 4) + "|"
    for name in [name for name in RUNS if name in store]:
        points = store[name]
        end = max(points, key=int)
        at_stops = [_cell(points.get(str(stop))) for stop in ends]
        last = f"{int(end):,}" + (
            "" if int(end) == ends[-1] else f": {_cell(points[end])}"
        )
        m, different = points[end]["inducing"], points[end]["different"]
        yield f"| {name} | {' | '.join(at_stops)} | {last} | {m} | {different:,} |"


def _cell(point: Point | None) -> str:
    if point is None:
        return ""
    return f"{point['milliseconds']:.3g} ms, {point['resident_mib']:.0f} MiB"


def main(arguments: list[str] | None = None, problem: Problem = PROBLEM) -> None:
    """Go on with runs, or print what is known of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="*", help=f"of {', '.join(RUNS)}")
    parser.add_argument("--max-seconds", type=float, default=math.inf, help="for each")
    parser.add_argument("--folder", type=Path, default=Path("output/soak"))
    parser.add_argument("--store", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args(arguments)
    if unknown := set(args.runs) - set(RUNS):
        parser.error(f"no runs {sorted(unknown)}")
    for name in [] if args.report else args.runs or RUNS:
        args.folder.mkdir(parents=True, exist_ok=True)
        given = (name, args.folder, args.store, args.max_seconds, problem)
        measure.in_fresh_process(run, *given)
        print(name, read(args.store).get(name), flush=True)
    print("\n".join(report(read(args.store), stops(problem))))


if __name__ == "__main__":
    main()
