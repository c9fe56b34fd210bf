"""Thousands of cheap trials through Ax's `Client`: seconds for each, and memory.

Someone who can afford 2000 evaluations of a function of five parameters asks Ax for
them one by one. `sparse_generation_strategy` and `bbkb_generation_strategy` beside Ax's
default strategy; each in a process of its own, one after the other, and Ax's until a
trial takes too long. A trial is `get_next_trials(1)` and `complete_trial`; seconds are
those of the processor, in one thread, which other processes disturb less than the
clock. Records go to a file as they come.

`--side-by-side` measures the growth of a trial's cost where other processes come and
go: clients that were given 200, 500, 1000 and 2000 completed trials ask for the next
ones in turns.
"""

import argparse
import json
import logging
import math
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.core.data import Data
from botorch.test_functions import Ackley, Levy

from benchmarks.measure import in_fresh_process, matmul_seconds

DIMENSION = 5
NOISE = 0.05  # standard deviation, relative to that of the function
NUM_INITIAL = 10
BEST = {"ackley": 1 / 3, "levy": 0.55}  # where the optimum is in the unit cube
# And "trust_region", "gssbo", and "sobol", which is Ax alone.
STRATEGIES = ("sparse", "bbkb", "default")
# Trials around a point of the table whose median is shown.
WINDOW = 20


def objective(name: str) -> Any:
    """A function of the unit cube to maximize, with noise; and without it."""
    boxes = {"ackley": [(-5, 10)], "levy": [(-10, 10)]}  # no optimum in the center
    function = {"ackley": Ackley, "levy": Levy}[name](
        DIMENSION, negate=True, bounds=boxes[name] * DIMENSION
    ).double()
    lower, upper = function.bounds
    X = torch.rand(4096, DIMENSION, generator=torch.Generator().manual_seed(0))
    scale = function(lower + (upper - lower) * X.double()).std()
    noise = torch.Generator().manual_seed(1)

    def evaluate(parameters: dict[str, float]) -> tuple[float, float]:
        x = torch.tensor(list(parameters.values()), dtype=torch.float64)
        value = float(function(lower + (upper - lower) * x))
        error = NOISE * float(scale * torch.randn((), generator=noise))
        return value + error, value

    return evaluate


def client_with(strategy: str) -> Client:
    """A client that optimizes `f` over the unit cube."""
    client = Client(random_seed=0)
    client.configure_experiment(
        name=strategy,
        parameters=[
            RangeParameterConfig(name=f"x{i}", bounds=(0, 1), parameter_type="float")
            for i in range(DIMENSION)
        ],
    )
    client.configure_optimization(objective="f")
    if strategy == "default":
        client.configure_generation_strategy(
            initialization_budget=NUM_INITIAL, initialization_random_seed=0
        )
        return client
    if strategy == "sobol":
        client.configure_generation_strategy(method="random_search")
        return client
    from botorch_sparse import ax

    factory = getattr(ax, f"{strategy}_generation_strategy")
    client.set_generation_strategy(factory(NUM_INITIAL, seed=0))
    return client


def run(strategy: str, args: argparse.Namespace) -> dict[str, Any]:
    """All trials; stops early when they take too long."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    evaluate, client = objective(args.function), client_with(strategy)
    record: dict[str, Any] = {"strategy": strategy, "matmul": matmul_seconds()}
    record |= {"seconds": [], "wall": [], "best": [], "memory": []}
    best, start = -math.inf, time.perf_counter()
    for t in range(args.trials):
        before, wall = time.process_time(), time.perf_counter()
        ((index, parameters),) = client.get_next_trials(1).items()
        feedback, value = evaluate(parameters)
        client.complete_trial(index, raw_data={"f": feedback})
        record["seconds"].append(time.process_time() - before)
        record["wall"].append(time.perf_counter() - wall)
        best = max(best, value)
        record["best"].append(best)
        record["memory"].append(resident())
        if (t + 1) % 50 == 0:
            write(record, args.output, strategy)
        too_slow = statistics.median(record["seconds"][-WINDOW:]) > args.patience
        if too_slow or time.perf_counter() - start > args.limit:
            break
    write(record, args.output, strategy)
    return record


def attached(strategy: str, args: argparse.Namespace, n: int) -> Client:
    """A client with `n` completed trials: a third spread out, the others converging.

    Their data come at once: trial by trial Ax goes over all of them each time.
    """
    evaluate, client, rows = objective(args.function), client_with(strategy), []
    generator = torch.Generator().manual_seed(n)
    for t in range(n):
        width = 0.05 if t % 3 == 2 else 0.15
        x = BEST[args.function] + width * torch.randn(DIMENSION, generator=generator)
        if t % 3 == 0:
            x = torch.rand(DIMENSION, generator=generator)
        names = [f"x{i}" for i in range(DIMENSION)]
        point = dict(zip(names, x.clamp(0, 1).tolist(), strict=True))
        index = client.attach_trial(parameters=point)
        trial = client._experiment.trials[index]
        row = {"trial_index": index, "arm_name": trial.arm.name, "sem": math.nan}
        row |= {"metric_name": "f", "metric_signature": "f"}
        rows.append(row | {"mean": evaluate(point)[0]})
        trial.mark_completed()
    client._experiment.attach_data(Data(df=pd.DataFrame(rows)))
    return client


def in_turns(strategy: str, args: argparse.Namespace, sizes: list[int]) -> None:
    """Medians over trials of clients of several sizes, which take turns."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    evaluate = objective(args.function)
    clients, times = {}, {n: [] for n in sizes}
    for n in sizes:
        before = resident()
        clients[n] = attached(strategy, args, n)
        clients[n].get_next_trials(1)  # fits, and stays pending
        print(f"{strategy}: {n} trials, {resident() - before:.2f} GiB", flush=True)
    for _ in range(args.turns):
        for n, client in clients.items():
            before = time.process_time()
            ((index, parameters),) = client.get_next_trials(1).items()
            client.complete_trial(index, raw_data={"f": evaluate(parameters)[0]})
            times[n].append(time.process_time() - before)
    medians = {n: statistics.median(values) for n, values in times.items()}
    means = {n: statistics.mean(values) for n, values in times.items()}
    shown = ", ".join(f"n = {n}: {medians[n]:.2f} s" for n in sizes)
    first, last = min(sizes), max(sizes)
    print(
        f"{strategy}: {shown}; n = {last} over n = {first}: medians "
        f"{medians[last] / medians[first]:.2f}, means {means[last] / means[first]:.2f}",
        flush=True,
    )


def resident() -> float:
    """Resident memory of this process in GiB, or NaN where it is not known."""
    status = Path("/proc/self/statm")
    if not status.is_file():
        return float("nan")
    return int(status.read_text(encoding="ascii").split()[1]) * 4096 / 1024**3


def write(record: dict[str, Any], output: str | None, strategy: str) -> None:
    if output:
        path = Path(output).with_suffix(f".{strategy}.json")
        path.write_text(json.dumps(record), encoding="utf-8")


def around(values: list[float], t: int) -> float:
    """The median of the trials that end at number `t`."""
    return statistics.median(values[max(0, t - WINDOW) : t])


def report(records: list[dict[str, Any]], marks: list[int]) -> None:
    """Seconds, memory and best value at some numbers of trials, and the bound."""
    print(f"{'':9}" + "".join(f"{'n = ' + str(t):>24}" for t in marks))
    for record in records:
        done = len(record["seconds"])
        cells = [
            f"{around(record['seconds'], t):.2f} s, {record['memory'][t - 1]:.2f} GiB, "
            f"{record['best'][t - 1]:.3g}"
            if t <= done
            else "-"
            for t in marks
        ]
        print(f"{record['strategy']:9}" + "".join(f"{cell:>24}" for cell in cells))
    for record in records:
        times, done = record["seconds"], len(record["seconds"])
        early = marks[0]
        if done < 2 * early:
            continue
        ratio = around(times, done) / around(times, early)
        mean = statistics.mean(times[-min(done // 4, 500) :])
        before = statistics.mean(times[early // 2 : early])
        grown = record["memory"][-1] - record["memory"][early - 1]
        limit = " (at most 2)" if (early, done) == (200, 2000) else ""
        print(
            f"{record['strategy']}: a trial at n = {done} takes {ratio:.2f} times one "
            f"at n = {early}{limit}, in the mean over many, fits included, "
            f"{mean / before:.2f}; memory grew by {grown:.2f} GiB; "
            f"{sum(times):.0f} s in all; a matrix product {record['matmul']:.3f} s"
        )


def main(arguments: list[str] | None = None) -> None:
    """Run the strategies and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--function", choices=["ackley", "levy"], default="ackley")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--patience", type=float, default=20.0, help="s for a trial")
    parser.add_argument("--limit", type=float, default=3600.0, help="s for a strategy")
    parser.add_argument("--output", help="file for the records")
    parser.add_argument("--side-by-side", type=int, nargs="*", metavar="N")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--short", action="store_true", help="60 trials")
    args = parser.parse_args(arguments)
    marks = [200, 500, 1000, 2000]
    if args.side_by_side is not None:
        for name in args.strategies:
            sizes = args.side_by_side or marks
            in_fresh_process(in_turns, name, args, sizes)
        return
    if args.short:
        args.trials, marks = 60, [20, 60]
    records = [in_fresh_process(run, name, args)[0] for name in args.strategies]
    report(records, [t for t in marks if t <= args.trials])


if __name__ == "__main__":
    main()
