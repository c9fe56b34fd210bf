"""Batches end where the rule says, whatever happens to their trials."""

import itertools
import random
from typing import Any

import pandas as pd
import pytest
import torch
from ax.core.data import Data
from ax.core.experiment import Experiment
from ax_problems import NO_THRESHOLDS
from botorch.acquisition import qLogNoisyExpectedImprovement

from botorch_sparse.acquisition import BatchUpperConfidenceBound, GlobalLocal
from botorch_sparse.ax import (
    bbkb_generation_strategy,
    recommended_batch_size,
    sparse_generation_strategy,
)
from botorch_sparse.ax.adaptive_batch_acquisition import AdaptiveBatchAcquisition

MAX_SIZE = 6
SEM = 15.0


def attach_data(experiment: Experiment, trial: Any, outcomes: dict[str, float]) -> None:
    rows = [
        {
            "trial_index": trial.index,
            "arm_name": name,
            "metric_name": "f",
            "metric_signature": "f",
            "mean": value,
            "sem": SEM,
        }
        for name, value in outcomes.items()
    ]
    experiment.attach_data(Data(df=pd.DataFrame(rows)))


def ratio_after(acquisition: AdaptiveBatchAcquisition, X: torch.Tensor) -> float:
    """The rule's bound with pending points and a batch, on the box."""
    model, pending = acquisition._model, acquisition.X_pending
    batch = X if pending is None else torch.cat([pending, X])
    bounds = torch.tensor(acquisition.search_space_digest.bounds).double().T
    return GlobalLocal(model, batch).bound(2.0, bounds=bounds)


@pytest.mark.slow
def test_batch_trials_out_of_order_and_failing(make_client, fast):
    """Seven batch trials; some fail, and some come back after later ones."""
    strategy = bbkb_generation_strategy(4, seed=0, optimizer_options=fast)
    client = make_client(strategy)
    experiment, rng = client._experiment, random.Random(0)
    running: list[Any] = []
    sizes, crossed = [], []

    def outcome(parameters: dict[str, Any]) -> float:
        return -((parameters["x1"] - 2) ** 2) + rng.gauss(0, SEM)

    for t in range(7):
        runs = strategy.gen(experiment, n=30 if t == 0 else MAX_SIZE, num_trials=1)[0]
        trial = experiment.new_batch_trial(generator_runs=runs)
        trial.mark_running(no_runner_required=True)
        running.append(trial)
        sizes.append(int(sum(runs[0].weights)))
        generator = strategy.adapter.generator
        if t > 0:
            X = torch.tensor(
                [[a.parameters["x1"], a.parameters["x2"]] for a in runs[0].arms]
            ).double()
            if sizes[-1] == len(X):  # no arm twice in the batch
                acquisition = generator._acquisition
                ends = [ratio_after(acquisition, X[: k + 1]) > 2 for k in range(len(X))]
                assert not any(ends[:-1])
                assert ends[-1] or len(X) == MAX_SIZE
                crossed.append(ends[-1])
        if t == 0 or len(running) == 3:
            done = running.pop(0 if t == 0 else rng.randrange(3))
            if t % 4 == 3:
                done.mark_failed()
                continue
            outcomes = {arm.name: outcome(arm.parameters) for arm in done.arms}
            attach_data(experiment, done, outcomes)
            done.mark_completed()
    assert sizes[0] == 30
    assert len(set(sizes[1:])) > 1 and max(sizes[1:]) <= MAX_SIZE
    assert any(crossed)


@pytest.mark.parametrize("threshold", [1.0, 1e6])
def test_limits_of_the_threshold(threshold, make_client, attach, fast):
    """One gives batches of one, a large number those that were asked for."""
    strategy = bbkb_generation_strategy(
        4, ratio_threshold=threshold, seed=0, optimizer_options=fast
    )
    client = make_client(strategy)
    attach(client, 8)
    (runs,) = strategy.gen(client._experiment, n=4, num_trials=1)
    assert sum(runs[0].weights) == (1 if threshold == 1.0 else 4)


def test_recommended_size_is_that_of_the_batch_and_leaves_no_trace(
    make_client, attach, fast
):
    strategy = bbkb_generation_strategy(4, seed=0, optimizer_options=fast)
    client = make_client(strategy)
    assert recommended_batch_size(client) == 4
    client.get_next_trials(1)
    assert recommended_batch_size(client) == 3
    assert recommended_batch_size(client, max_trials=2) == 2
    attach(client, 12)
    states = torch.get_rng_state(), random.getstate()
    size = recommended_batch_size(client, max_trials=MAX_SIZE)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert len(client._experiment.trials) == 13
    asked = recommended_batch_size(client, max_trials=MAX_SIZE)
    assert asked == size
    (runs,) = strategy.gen(client._experiment, n=MAX_SIZE, num_trials=1)
    assert sum(runs[0].weights) == size
    trials = client.get_next_trials(size)
    assert len(trials) == size
    # All of the batch is pending now, and more would be too much.
    assert recommended_batch_size(client, MAX_SIZE) <= max(1, size)


def test_strategies_without_a_rule_recommend_one(make_client, attach, fast):
    client = make_client(sparse_generation_strategy(4, optimizer_options=fast))
    attach(client, 6)
    assert recommended_batch_size(client) == 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("objective", "constraints", "expected", "same_trials"),
    [
        ("-f", [], BatchUpperConfidenceBound, True),
        ("f", ["g <= 2.0"], qLogNoisyExpectedImprovement, True),
        ("f", ["g <= 2.0"], None, False),
        pytest.param("f, -g", [], None, True, marks=NO_THRESHOLDS),
    ],
)
def test_objectives_and_constraints(
    objective, constraints, expected, same_trials, make_client, attach, fast
):
    """Outcomes that are not observed in the same trials have models of their own."""
    torch.manual_seed(0)  # the searches of some seeds take a hundred times longer
    strategy = bbkb_generation_strategy(4, seed=0, optimizer_options=fast)
    client = make_client(strategy, objective=objective, constraints=constraints)
    metrics = {m.name for m in client._experiment.metrics.values()}
    rng, trials = random.Random(0), []
    for t in range(10):
        point = {"x1": rng.uniform(-5, 10), "x2": rng.uniform(0, 15)}
        outcome = {"f": -abs(point["x1"]) + rng.gauss(0, 0.5)}
        if "g" in metrics and (same_trials or t != 3):
            outcome["g"] = point["x2"] / 5
        trials.append((point, outcome))
    attach(client, trials)
    (runs,) = strategy.gen(client._experiment, n=3, num_trials=1)
    assert 1 <= sum(runs[0].weights) <= 3
    acquisition = strategy.adapter.generator._acquisition
    assert isinstance(acquisition, AdaptiveBatchAcquisition)
    if expected is not None:
        assert type(acquisition.acqf) is expected
        assert float(getattr(acquisition.acqf, "beta", 4)) == 4


def test_with_a_constraint_the_boundary_is_nothing_special(make_client, attach):
    """The best point is far inside, its surroundings are known, and no noise."""
    sides = [3.75 * i - 5 for i in range(5)], [3.75 * i for i in range(5)]
    trials = []
    for x1, x2 in itertools.product(*sides):
        outcomes = {"f": -((x1 - 2) ** 2 + (x2 - 5) ** 2) / 20, "g": x2}
        trials.append(({"x1": x1, "x2": x2}, outcomes))
    steps = {"num_restarts": 2, "raw_samples": 64, "options": {"maxiter": 10}}
    strategy = bbkb_generation_strategy(4, seed=0, optimizer_options=steps)
    client = make_client(strategy, constraints=["g <= 10.0"])
    attach(client, trials)
    ((_, candidate),) = client.get_next_trials(1).items()
    assert abs(candidate["x1"] - 2) < 1.5
    assert abs(candidate["x2"] - 5) < 1.5


@pytest.mark.filterwarnings("ignore:A not p.d., added jitter")  # by BoTorch
def test_eight_trials_asked_at_once_are_different(make_client, evaluate, fast):
    """More than the rule allows: without noise, it ends with the first of them."""
    fast = {**fast, "num_restarts": 4, "raw_samples": 128, "options": {"maxiter": 20}}
    client = make_client(bbkb_generation_strategy(8, seed=0, optimizer_options=fast))
    evaluate(client, 14, noise=0.0)
    trials = client.get_next_trials(8)
    X = torch.tensor([[p["x1"] / 15, p["x2"] / 15] for p in trials.values()])
    assert len(X) == 8
    assert torch.pdist(X, p=torch.inf).min() > 0.01
