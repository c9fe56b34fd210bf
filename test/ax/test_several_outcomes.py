"""Objectives and outcome constraints, by acquisition functions and by sample paths."""

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from ax.api.client import Client
from ax.core.metric import Metric
from ax.core.objective import Objective
from ax.core.optimization_config import OptimizationConfig
from ax.exceptions.core import DataRequiredError
from ax_problems import BOX, CAPPED, NO_THRESHOLDS, branin
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models import SingleTaskGP

from botorch_sparse.ax import (
    sparse_generation_strategy,
    thompson_acquisition,
    thompson_generation_strategy,
    trust_region_generation_strategy,
)
from botorch_sparse.ax.strategy_options import check_metrics
from botorch_sparse.strategies import ThompsonSampling

pytestmark = [CAPPED, NO_THRESHOLDS]

PROBLEMS = {
    "constraint": ("f", ["h <= 2.0"]),
    "objectives": ("f, -g", []),
    "both": ("f, -g", ["h <= 2.0", "h >= 0.5", "f >= -30.0", "g <= 60.0"]),
    "infeasible": ("f, -g", ["h <= -1.0"]),
}


def points(num: int, seed: int = 0) -> list[dict[str, float]]:
    rng = random.Random(seed)
    return [{x: rng.uniform(*b) for x, b in BOX.items()} for _ in range(num)]


def outcomes(point: dict[str, float]) -> dict[str, float]:
    x1, x2 = point["x1"], point["x2"]
    return {"f": branin(x1, x2), "g": x1**2 + x2, "h": x2 / 4}


def measured(client: Client, point: dict[str, float]) -> dict[str, float]:
    """What the client wants to know of a point."""
    names = {metric.name for metric in client._experiment.metrics.values()}
    return {name: y for name, y in outcomes(point).items() if name in names}


def strategy_named(name: str, fast: dict[str, Any], **options: Any) -> Any:
    options = {"model_options": {"max_inducing_points": 12}, "seed": 0} | options
    if name != "sparse":
        options.setdefault("candidates", points(60))
    if name == "thompson":
        return thompson_generation_strategy(4, **options)
    if name == "trust_region":
        del options["candidates"]
        return trust_region_generation_strategy(4, **options)
    return sparse_generation_strategy(4, optimizer_options=fast, **options)


def told(client: Client, attach: Any, num: int = 14) -> Client:
    """The client with trials at points that are in no table."""
    at = points(num, seed=1)
    attach(client, [(point, measured(client, point)) for point in at])
    return client


@pytest.mark.one_in(12)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", ["sparse", "table", "thompson"])
def test_saved_and_loaded_with_pending_trials(
    name, problem, make_client, attach, fast, tmp_path
):
    """The next arms are the same, and different from those that are pending."""
    objective, constraints = PROBLEMS[problem]
    strategy = strategy_named(name, fast)
    client = make_client(strategy, objective=objective, constraints=constraints)
    told(client, attach)
    (first,) = client.get_next_trials(1).items()
    client.complete_trial(first[0], raw_data=measured(client, first[1]))
    pending = client.get_next_trials(2)
    path: Path = tmp_path / "client.json"
    client.save_to_json_file(str(path))
    loaded = Client.load_from_json_file(str(path))
    expected = client.get_next_trials(2)
    assert loaded.get_next_trials(2) == expected
    arms = [first[1], *pending.values(), *expected.values()]
    if name != "sparse":
        assert all(arm in points(60) for arm in arms)
        assert len({tuple(arm.values()) for arm in arms}) == len(arms) == 5


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `ThompsonSampling` was made with and told."""
    calls: list[dict[str, Any]] = []

    class Recorded(ThompsonSampling):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            calls.append(options | {"rows": arguments[0], "lam": arguments[2]})
            super().__init__(*arguments, **options)

        def tell(self, X: Any, Y: Any) -> None:
            calls[-1] |= {"X": X, "Y": Y}
            super().tell(X, Y)

    monkeypatch.setattr(thompson_acquisition, "ThompsonSampling", Recorded)
    return calls


def test_what_is_wanted_of_each_outcome(asked, make_client, attach, fast):
    """Transforms of Ax keep the order, so that the same trials are within limits."""
    objective, constraints = PROBLEMS["both"]
    strategy = strategy_named("thompson", fast)
    client = make_client(strategy, objective=objective, constraints=constraints)
    told(client, attach).get_next_trials(1)
    (call,) = asked
    wanted = dict(zip(strategy.adapter.outcomes, call["outcomes"], strict=True))
    Y = dict(zip(wanted, call["Y"].mT, strict=True))
    raw = pd.DataFrame([outcomes(point) for point in points(14, seed=1)])
    within = {
        "f": (raw["f"] >= -30.0, Y["f"] >= wanted["f"].threshold),
        "g": (raw["g"] <= 60.0, Y["g"] <= wanted["g"].threshold),
        "upper": (raw["h"] <= 2.0, Y["h"] <= wanted["h"].upper),
        "lower": (raw["h"] >= 0.5, Y["h"] >= wanted["h"].lower),
    }
    assert not wanted["f"].minimize and wanted["g"].minimize
    for expected, found in within.values():
        assert 0 < sum(expected) < len(raw)
        assert expected.tolist() == found.tolist()
    acquisition = strategy.adapter.generator._acquisition
    goals = wanted["f"].threshold, -wanted["g"].threshold
    assert acquisition.objective_thresholds.tolist() == pytest.approx(goals)


def test_thresholds_that_are_not_given_are_noted(asked, make_client, attach, fast):
    """Of the first trials: later ones that are better do not move them."""
    strategy = strategy_named("thompson", fast)
    client = make_client(strategy, objective="f, -g", constraints=["f >= -30.0"])
    told(client, attach, 30).get_next_trials(1)
    (call,) = asked
    f, g = call["outcomes"]
    assert f.threshold is not None and g.threshold is None
    noted = strategy.adapter.generator._acquisition.objective_thresholds
    assert noted[0] == f.threshold
    assert -noted[1] == pytest.approx(float(call["Y"][:20, 1].quantile(0.75)))


def test_outcomes_that_some_trials_lack(asked, make_client, attach, fast):
    """Each model learns from what there is."""
    strategy = strategy_named("thompson", fast)
    client = make_client(strategy, objective="f, -g", constraints=["h <= 2.0"])
    trials = [(point, outcomes(point)) for point in points(12, seed=1)]
    for _, outcome in trials[:3]:
        del outcome["h"]
    attach(client, trials)
    client.get_next_trials(2)
    for call in asked:
        names = strategy.adapter.outcomes
        known = dict(zip(names, (~call["Y"].isnan()).sum(0).tolist(), strict=True))
        assert known == {"f": 12, "g": 12, "h": 9}


def test_a_batch_maximizes_paths_where_the_constraint_holds(make_client, attach, fast):
    """The constraint is known well, so that nearly all paths keep to it."""
    strategy = strategy_named(
        "thompson", fast, candidates=points(200), model_options={}, allow_repeats=False
    )
    client = make_client(strategy, constraints=["h <= 1.0"])
    told(client, attach, 30)
    ((run,),) = strategy.gen(client._experiment, n=20, num_trials=1)
    arms = [arm.parameters for arm in run.arms]
    assert len({tuple(arm.values()) for arm in arms}) == 20
    is_feasible = [outcomes(arm)["h"] <= 1.0 for arm in arms]
    assert sum(is_feasible) >= 18  # of 53 rows of 200
    best = sorted(outcomes(p)["f"] for p in points(200) if outcomes(p)["h"] <= 1.0)
    assert max(outcomes(arm)["f"] for arm in arms) in best[-3:]


@pytest.mark.parametrize("name", ["sparse", "thompson"])
def test_constraints_relative_to_the_status_quo(name, make_client, attach, fast):
    """They become absolute by its data; without data there is nothing to go by."""
    strategy = strategy_named(name, fast)
    client = told(make_client(strategy, constraints=["h <= 0.5 * baseline"]), attach)
    with pytest.raises(DataRequiredError, match="status quo"):
        client.get_next_trials(1)
    index = client.attach_baseline({"x1": 0.0, "x2": 8.0})
    client.complete_trial(index, raw_data={"f": -20.0, "h": 3.0})
    assert len(client.get_next_trials(1)) == 1
    generator = strategy.adapter.generator
    A, bound = generator._acquisition._outcome_constraints
    (data,) = generator.surrogate.training_data
    raw = [outcomes(point)["h"] for point in points(14, seed=1)]
    is_within = (data.Y[: len(raw)] @ A.T <= bound).squeeze(-1).tolist()
    assert is_within == [h <= 1.5 for h in raw]
    assert 0 < sum(is_within) < len(raw)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        # Ax takes it for a constraint on the first metric,
        ({"constraints": ["g + h <= 9.0"]}, r"combines the metrics \['g', 'h'\]"),
        # and these for three objectives.
        ({"objective": "f - 2*g, -h"}, r"combines the metrics \['f', 'g'\]"),
    ],
)
def test_combinations_of_outcomes(options, says, make_client, attach, fast):
    """Refused before the first arm, and where there are some already."""
    for name in ("sparse", "thompson"):
        client = make_client(strategy_named(name, fast), **options)
        with pytest.raises(UnsupportedError, match=says):
            client.get_next_trials(1)
    told(client, attach)
    with pytest.raises(UnsupportedError, match=says):
        client.get_next_trials(1)


@pytest.mark.parametrize("name", ["thompson", "trust_region"])
def test_an_objective_that_is_a_combination(name, make_client, fast):
    """Paths of several outcomes do not take it: refused before the first arm."""
    client = make_client(strategy_named(name, fast), objective="f - 2*g")
    with pytest.raises(UnsupportedError, match="'f - 2\\*g', which combines metrics"):
        client.get_next_trials(1)


@pytest.mark.filterwarnings("ignore:Passing `metric` to Objective")
def test_names_of_metrics_that_are_no_identifiers():
    """Ax takes them for single objectives, and does not parse them."""
    metric = Metric(name="acc @ 1", lower_is_better=False)
    objective = Objective(metric=metric, minimize=False)
    check_metrics(OptimizationConfig(objective), takes_sums=False)


def test_acquisition_functions_take_a_combination(make_client, attach, fast):
    client = make_client(strategy_named("sparse", fast), objective="f - 2*g")
    told(client, attach)
    assert len(client.get_next_trials(1)) == 1


def test_a_model_with_an_outcome_transform():
    X = torch.rand(9, 2, dtype=torch.double)
    model = SingleTaskGP(X, X.sum(-1, keepdim=True))
    with pytest.raises(UnsupportedError, match="outcome_transform_classes"):
        thompson_acquisition._each_output(model)


def test_without_a_table():
    with pytest.raises(InputDataError, match="candidates=None"):
        thompson_generation_strategy(4)
