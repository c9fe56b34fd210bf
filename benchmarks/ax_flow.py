"""Each call of Ax's flow with thousands of trials known; and outcome constraints.

Trials are attached, and their data at once. Then each of the calls that a user makes
is timed: attach and complete one trial more, ask, tell, predict, best, save, load, ask
after that, analyses. CPU seconds, one thread.

`--constraint` compares strategies on Branin inside of a disc: the best
feasible value after some trials one by one, and how many of them were infeasible.
"""

import argparse
import logging
import random
import statistics
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.core.data import Data
from botorch.test_functions import Branin

from benchmarks.ax_client import DIMENSION, client_with, objective, resident
from benchmarks.measure import CLOCKS, in_fresh_process

DISC = 50.0  # the square of the radius, around (2.5, 7.5)
NUM_PREDICTED = 100
PARTS = ["best", "storage", "analyses"]


def attach(client: Client, n: int, evaluate: Callable[..., Any]) -> None:
    """`n` completed trials at random points, their data at once."""
    experiment, rows, rng = client._experiment, [], random.Random(0)
    for _ in range(n):
        point = {f"x{i}": rng.random() for i in range(DIMENSION)}
        index = client.attach_trial(parameters=point)
        rows.append(
            {
                "trial_index": index,
                "arm_name": experiment.trials[index].arm.name,
                "metric_name": "f",
                "metric_signature": "f",
                "mean": evaluate(point)[0],
                "sem": float("nan"),
            }
        )
    experiment.attach_data(Data(df=pd.DataFrame(rows)))
    for row in rows:
        experiment.trials[row["trial_index"]].mark_completed()


def flow(strategy: str, n: int, parts: list[str]) -> None:
    """Prints the seconds of each call; of those at the end, of these parts."""
    quiet()
    evaluate, client = objective("ackley"), client_with(strategy)
    rng, clock = random.Random(1), CLOCKS["cpu"]

    def timed(name: str, call: Callable[[], Any]) -> Any:
        start = clock()
        result = call()
        print(f"{strategy}, n = {n}: {name:28}{clock() - start:8.2f} s", flush=True)
        return result

    def point() -> dict[str, float]:
        return {f"x{i}": rng.random() for i in range(DIMENSION)}

    def tell(trials: dict[int, Any]) -> None:
        for index, parameters in trials.items():
            client.complete_trial(index, raw_data={"f": evaluate(parameters)[0]})

    timed(f"attach {n} trials", lambda: attach(client, n, evaluate))
    one = timed(
        "attach one", lambda: {client.attach_trial(parameters=(p := point())): p}
    )
    timed("complete it", lambda: tell(one))
    trials = timed("ask, the first time: fits", lambda: client.get_next_trials(1))
    timed("tell", lambda: tell(trials))
    trials = timed("ask", lambda: client.get_next_trials(1))
    timed("ask for eight", lambda: client.get_next_trials(8))
    points = [point() for _ in range(NUM_PREDICTED)]
    timed(f"predict at {NUM_PREDICTED}", lambda: client.predict(points=points))
    if "best" in parts:
        timed("best, with leave-one-out", client.get_best_parameterization)
    if "storage" in parts:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "client.json")
            timed("save", lambda: client.save_to_json_file(path))
            loaded = timed("load", lambda: Client.load_from_json_file(path))
        timed("ask after that: fits", lambda: loaded.get_next_trials(1))
    if "analyses" in parts:
        timed("analyses", lambda: client.compute_analyses(display=False))
    print(f"{strategy}, n = {n}: {resident():.2f} GiB resident", flush=True)


def constrained(strategy: str, seed: int, num_trials: int) -> tuple[float, int]:
    """The best feasible value, and how many trials were infeasible."""
    quiet()
    client = Client(random_seed=seed)
    bounds = {"x1": (-5.0, 10.0), "x2": (0.0, 15.0)}
    client.configure_experiment(
        name=strategy,
        parameters=[
            RangeParameterConfig(name=name, bounds=b, parameter_type="float")
            for name, b in bounds.items()
        ],
    )
    client.configure_optimization(
        objective="-f", outcome_constraints=[f"g <= {DISC:g}"]
    )
    if strategy == "default":
        client.configure_generation_strategy(
            initialization_budget=5, initialization_random_seed=seed
        )
    else:
        from botorch_sparse import ax

        factory = getattr(ax, f"{strategy}_generation_strategy")
        client.set_generation_strategy(factory(5, seed=seed))
    branin, best, infeasible = Branin().double(), float("inf"), 0
    for _ in range(num_trials):
        ((index, p),) = client.get_next_trials(1).items()
        f = float(branin(torch.tensor([p["x1"], p["x2"]], dtype=torch.float64)))
        g = (p["x1"] - 2.5) ** 2 + (p["x2"] - 7.5) ** 2
        best, infeasible = (
            (min(best, f), infeasible) if g <= DISC else (best, infeasible + 1)
        )
        client.complete_trial(index, raw_data={"f": f, "g": g})
    return best, infeasible


def constraints(strategies: list[str], seeds: int, num_trials: int) -> None:
    """Prints a row for each strategy."""
    print(f"Branin in a disc, {num_trials} trials, {seeds} seeds; the optimum is 0.398")
    print(f"{'':9}{'median':>9}{'best':>9}{'worst':>9}{'infeasible':>12}")
    for strategy in strategies:
        runs = [
            in_fresh_process(constrained, strategy, seed, num_trials)[0]
            for seed in range(seeds)
        ]
        values, counts = zip(*runs, strict=True)
        print(
            f"{strategy:9}{statistics.median(values):9.4f}{min(values):9.4f}"
            f"{max(values):9.4f}{statistics.mean(counts):12.1f}",
            flush=True,
        )


def quiet() -> None:
    """One thread, and no reports of each trial."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # of each metric that has no data to fetch
    torch.set_num_threads(1)


def main(arguments: list[str] | None = None) -> None:
    """Run the flow, or the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--strategies", nargs="+", default=["sparse"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--constraint", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args(arguments)
    if args.constraint:
        constraints(args.strategies, args.seeds, min(args.trials, 30))
        return
    for strategy in args.strategies:
        in_fresh_process(flow, strategy, args.trials, args.parts)


if __name__ == "__main__":
    main()
