"""Seconds of an iteration of GSSBO, RSSBO and the exact GP as samples come in.

On Hartmann6 from `n` Sobol points on, with M = 100: once with hyperparameters that
stand, and once with a fit in every iteration, as in [Wei2025]_. An iteration learns one
observation, chooses the samples and maximizes the upper confidence bound. CPU seconds.
The total is that of all iterations up to the largest n, by the trapezoidal rule.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gssbo_baselines import Loop
from benchmarks.gssbo_methods import SUBSET_SIZE, common
from benchmarks.gssbo_problems import Problem
from botorch_sparse.models import RefitSchedule
from botorch_sparse.strategies import GSSBO, RSSBO

SIZES = [100, 300, 600, 1000]
FLAT_FROM = 300
NEVER = 1e9


class Design(Problem):
    """Hartmann6 with an initial design of `num` points."""

    def __init__(self, num: int) -> None:
        super().__init__("hartmann6", 0)
        self.num = num

    def initial(self, num: int = 0) -> torch.Tensor:
        """All of the design."""
        return super().initial(self.num)


def iterations_of_strategy(
    cls: type[GSSBO], num: int, refit: RefitSchedule
) -> Callable[[], None]:
    """One iteration of a strategy that knows `num` samples."""
    problem = Design(num)
    settings: dict[str, Any] = common(problem) | {"refit": refit}
    strategy = cls(**settings, subset_size=SUBSET_SIZE)
    strategy.tell(problem.initial(), problem.evaluate(problem.initial()))

    def iterate() -> None:
        batch = strategy.ask()
        strategy.tell(batch, problem.evaluate(batch.X))

    return iterate


def iterations_of_loop(num: int, refit: RefitSchedule) -> Callable[[], None]:
    """One iteration of the exact GP."""
    loop = Loop(Design(num))
    loop.schedule = refit

    def iterate() -> None:
        loop.step()

    return iterate


METHODS: dict[str, Callable[[int, RefitSchedule], Callable[[], None]]] = {
    "gssbo": lambda num, refit: iterations_of_strategy(GSSBO, num, refit),
    "rssbo": lambda num, refit: iterations_of_strategy(RSSBO, num, refit),
    "gp-ucb": iterations_of_loop,
}


def seconds(name: str, num: int, *, fits: bool, repeats: int) -> float:
    """Median CPU seconds of an iteration, after the first, which fits from scratch."""
    refit = RefitSchedule(every=1) if fits else RefitSchedule(growth=NEVER)
    iterate = METHODS[name](num, refit)
    times = []
    for _ in range(repeats + 1):
        start = time.process_time()
        iterate()
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


def _integral(values: list[float], sizes: list[int]) -> float:
    return float(torch.trapezoid(torch.tensor(values), torch.tensor(sizes)))


def report(name: str, at: dict[int, float], of_gssbo: float, goal: str) -> float:
    """Print one line, and return the total."""
    sizes, values = list(at), list(at.values())
    total = sizes[0] * values[0] + _integral(values, sizes)
    cells = ", ".join(f"{value:.3f}" for value in values)
    flat = [at[n] for n in sizes if n >= FLAT_FROM]
    print(
        f"  {name:6s} {cells} s: {flat[-1] / flat[0]:.2f} times{goal} from n = "
        f"{FLAT_FROM} on; total {total:.0f} s, {total / (of_gssbo or total):.1f} "
        "times gssbo",
        flush=True,
    )
    return total


def main(arguments: list[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for fits in (False, True):
        title = "a fit in every iteration" if fits else "hyperparameters that stand"
        print(f"{title}, n = {', '.join(map(str, args.sizes))}:")
        of_gssbo = 0.0
        for name in METHODS:
            at = {
                n: seconds(name, n, fits=fits, repeats=args.repeats) for n in args.sizes
            }
            goal = " (at most 1.5)" if name != "gp-ucb" and not fits else ""
            total = report(name, at, of_gssbo, goal)
            of_gssbo = of_gssbo or total


if __name__ == "__main__":
    main()
