"""Small experiments for the tests of `botorch_sparse.ax`."""

import logging
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ax")

sys.path.append(str(Path(__file__).parent))

from ax.api.client import Client
from ax_problems import BOX, branin, floats

# Two starts and few samples: tests look at what is asked of the optimizers.
FAST = {"num_restarts": 2, "raw_samples": 16}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No reports of each trial, one thread, and the caller's random numbers back."""
    logging.disable(logging.WARNING)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)
    logging.disable(logging.NOTSET)


@pytest.fixture
def fast() -> dict[str, int]:
    return dict(FAST)


@pytest.fixture
def make_client() -> Callable[..., Client]:
    """A client for a strategy; two parameters and one outcome `f` by default."""

    def make(
        strategy: Any,
        parameters: list[Any] | None = None,
        objective: str = "f",
        constraints: list[str] | None = None,
        **options: Any,
    ) -> Client:
        client = Client(**options)
        client.configure_experiment(name="test", parameters=parameters or floats(BOX))
        client.configure_optimization(
            objective=objective, outcome_constraints=constraints or []
        )
        client.set_generation_strategy(strategy)
        return client

    return make


@pytest.fixture
def evaluate() -> Callable[..., Any]:
    """Completes trials of a client, by default with a smooth function and noise."""

    def run(
        client: Client,
        num_trials: int,
        function: Callable[..., float] = branin,
        noise: float = 1.0,
        max_trials: int = 1,
    ) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []
        while len(asked) < num_trials:
            size = min(max_trials, num_trials - len(asked))
            for index, parameters in client.get_next_trials(size).items():
                error = random.Random(index).gauss(0.0, noise)
                feedback = {"f": function(**parameters) + error}
                client.complete_trial(index, raw_data=feedback)
                asked.append(parameters)
        return asked

    return run


@pytest.fixture
def attach() -> Callable[..., None]:
    """Attaches completed trials at random points of the box."""

    def run(client: Client, num_trials: int, noise: float = 1.0) -> None:
        first = len(client._experiment.trials)
        for t in range(first, first + num_trials):
            rng = random.Random(t)
            point = {name: rng.uniform(*bounds) for name, bounds in BOX.items()}
            index = client.attach_trial(parameters=point)
            value = branin(**point) + rng.gauss(0.0, noise)
            client.complete_trial(index, raw_data={"f": value})

    return run
