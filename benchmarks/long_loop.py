"""A BoTorch loop of ten thousand evaluations with `SparseSingleTaskGP`, 50 at a time.

Hartmann's function in six dimensions, observed with noise of standard deviation 0.1, to
be maximized by Thompson sampling; hyperparameters are fitted as data grow by half, from
where they stand, and outcomes are standardized anew then. CPU seconds for each step:
the fit where there is one, the model with its inducing points, and the maxima of sample
paths. Windows hold one fit each, and show means over their steps.

    python -m benchmarks.long_loop --store FILE.json
    python -m benchmarks.long_loop --report benchmarks/results/long_loop.json
"""

import argparse
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.test_functions import Hartmann
from botorch.utils.sampling import manual_seed, optimize_posterior_samples
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.measure import resident_kilobytes
from benchmarks.store import Store
from botorch_sparse.models import RefitSchedule, SparseSingleTaskGP

NUM_INITIAL, BATCH_SIZE, NOISE, GROWTH = 500, 50, 0.1, 1.5
WINDOWS = ((1000, 1500), (3000, 4500), (6667, 10_000))
# Of a step, in this order.
PARTS = ("fit", "model", "paths")


def run(seed: int, total: int) -> dict[str, Any]:
    """Each step's CPU seconds and the process's memory, and what was found."""
    f = Hartmann(negate=True, dtype=torch.float64)
    steps: dict[str, list[float]] = {"at": [], "megabytes": [], "best": []}
    steps |= {part: [] for part in PARTS}
    with manual_seed(seed):
        X = torch.rand(NUM_INITIAL, 6, dtype=torch.float64)
        Y = f(X).unsqueeze(-1) + NOISE * torch.randn(len(X), 1)
        schedule, state = RefitSchedule(growth=GROWTH), dict[str, Any]()
        while len(X) < total:
            clock = [time.process_time()]
            model = SparseSingleTaskGP(X, Y, max_inducing_points=500)
            if schedule.is_due(len(X)):
                state = {k: v for k, v in state.items() if "transform" not in k}
            model.load_state_dict({**model.state_dict(), **state})
            schedule.fit(ExactMarginalLogLikelihood(model.likelihood, model))
            state = model.state_dict()
            clock.append(time.process_time())
            with torch.no_grad():
                mean = model.posterior(X).mean
            clock.append(time.process_time())
            paths = draw_matheron_paths(model, torch.Size([BATCH_SIZE]))
            new, _ = optimize_posterior_samples(paths, f.bounds)
            clock.append(time.process_time())
            steps["at"].append(len(X))
            steps["best"].append(float(f(X[mean.argmax()])))
            steps["megabytes"].append(resident_kilobytes() // 1024)
            for part, (start, end) in zip(PARTS, pairwise(clock), strict=True):
                steps[part].append(round(end - start, 3))
            X = torch.cat([X, new])
            Y = torch.cat([Y, f(new).unsqueeze(-1) + NOISE * torch.randn(len(new), 1)])
    return steps


def window(steps: dict[str, Any], low: int, high: int) -> dict[str, float]:
    """Means of what the steps of a window took, and the most memory."""
    place = [i for i, n in enumerate(steps["at"]) if low <= n < high]
    means = {p: statistics.mean(steps[p][i] for i in place) for p in PARTS}
    most = max(steps["megabytes"][i] for i in place)
    last = steps["best"][place[-1]]
    return means | {"all": sum(means.values()), "megabytes": most, "best": last}


def report(runs: list[dict[str, Any]]) -> str:
    """Markdown: a line for each window, medians over the runs."""
    head = ["evaluations", "CPU s a step", *PARTS, "times the first", "MB", "regret"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    first = None
    for low, high in WINDOWS:
        found = [window(r, low, high) for r in runs if r["at"][-1] >= high - BATCH_SIZE]
        if not found:
            continue
        median = {k: statistics.median(w[k] for w in found) for k in found[0]}
        first = median["all"] if first is None else first
        parts = " | ".join(f"{median[part]:.2f}" for part in PARTS)
        regret = -Hartmann().optimal_value - median["best"]
        lines.append(
            f"| {low:,} to {high:,} | {median['all']:.2f} | {parts} "
            f"| {median['all'] / first:.2f} | {median['megabytes']:.0f} "
            f"| {regret:.3f} |"
        )
    return "\n".join([f"{len(runs)} seeds, medians:", "", *lines])


def main(arguments: list[str] | None = None) -> None:
    """Run what is not stored yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--total", type=int, default=10_000)
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    args = parser.parse_args(arguments)
    store = Store(args.report or args.store)
    keys = [f"{seed}/{args.total}" for seed in range(args.seeds)]
    for seed, key in enumerate(keys):
        if args.report is None and key not in store.records:
            store.add(key, run(seed, args.total))
    print(store.made(keys))
    print()
    print(report([store.records[key] for key in keys if key in store.records]))


if __name__ == "__main__":
    main()
