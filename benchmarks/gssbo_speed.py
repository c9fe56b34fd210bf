"""Seconds of an iteration of GSSBO, RSSBO and the exact GP as samples come in.

On Hartmann6 from `n` Sobol points on, with M = 100: once with hyperparameters that
stand, and once with a fit in every iteration, as in [Wei2025]_. An iteration learns one
observation, chooses the samples and maximizes the upper confidence bound. CPU seconds.
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

SIZES = (300, 1000)
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


def main(arguments: list[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for fits in (False, True):
        print("a fit in every iteration:" if fits else "hyperparameters that stand:")
        at: dict[str, list[float]] = {}
        for name in METHODS:
            at[name] = [
                seconds(name, n, fits=fits, repeats=args.repeats) for n in SIZES
            ]
            early, late = at[name]
            goal = " (at most 1.5)" if name != "gp-ucb" and not fits else ""
            print(
                f"  {name:6s} {early:.3f} s at n = {SIZES[0]}, {late:.3f} s at n = "
                f"{SIZES[1]}: {late / early:.2f} times{goal}, "
                f"{at[name][-1] / at['gssbo'][-1]:.1f} times gssbo",
                flush=True,
            )


if __name__ == "__main__":
    main()
