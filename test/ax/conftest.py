"""Small experiments for the tests of `botorch_sparse.ax`."""

import logging
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll

pytest.importorskip("ax.api")

sys.path.append(str(Path(__file__).parent))

import pandas as pd
from ax.api.client import Client
from ax.core.data import Data
from ax_problems import BOX, branin, floats

# Two starts, few samples and steps: tests look at what is asked of the optimizers.
FAST = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 4}}
FIT_STEPS = 6


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


@pytest.fixture(autouse=True)
def short_fits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits end after a few steps, but in slow tests, which ask how good the arms are.

    Ax has no option for it.
    """
    if request.node.get_closest_marker("slow") is None:
        options = {"options": {"maxiter": FIT_STEPS}}
        monkeypatch.setattr(
            "ax.generators.torch.botorch_modular.utils.fit_gpytorch_mll",
            partial(fit_gpytorch_mll, optimizer_kwargs=options),
        )


@pytest.fixture
def fast() -> dict[str, Any]:
    return deepcopy(FAST)


@pytest.fixture
def make_client() -> Callable[..., Client]:
    """A client for a strategy; two parameters and one outcome `f` by default."""

    def make(
        strategy: Any,
        parameters: list[Any] | None = None,
        objective: str = "f",
        constraints: list[str] | None = None,
        parameter_constraints: list[str] | None = None,
        **options: Any,
    ) -> Client:
        client = Client(**options)
        client.configure_experiment(
            name="test",
            parameters=parameters or floats(BOX),
            parameter_constraints=parameter_constraints or [],
        )
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
    """Attaches completed trials, by default at random points of the box.

    An outcome is a number, or one with its standard error. The data come at once: trial
    by trial Ax goes over all of them each time.
    """

    def run(
        client: Client,
        trials: int | Sequence[tuple[dict[str, Any], Mapping[str, Any]]],
        noise: float = 1.0,
    ) -> None:
        experiment, rows = client._experiment, []
        if isinstance(trials, int):
            first = len(experiment.trials)
            trials = [random_trial(t, noise) for t in range(first, first + trials)]
        for parameters, outcomes in trials:
            index = client.attach_trial(parameters=parameters)
            for name, value in outcomes.items():
                mean, sem = value if isinstance(value, tuple) else (value, math.nan)
                rows.append(
                    {
                        "trial_index": index,
                        "arm_name": experiment.trials[index].arm.name,
                        "metric_name": name,
                        "metric_signature": name,
                        "mean": mean,
                        "sem": sem,
                    }
                )
        experiment.attach_data(Data(df=pd.DataFrame(rows)))
        for index in {row["trial_index"] for row in rows}:
            experiment.trials[index].mark_completed()

    return run


def random_trial(seed: int, noise: float) -> tuple[dict[str, float], dict[str, float]]:
    rng = random.Random(seed)
    point = {name: rng.uniform(*bounds) for name, bounds in BOX.items()}
    return point, {"f": branin(**point) + rng.gauss(0.0, noise)}
