"""A user's session: trials, saving and loading in the middle, plots and analyses."""

import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from ax.adapter.cross_validation import cross_validate
from ax.api.client import Client
from ax_problems import (
    BOX,
    CAPPED,
    MIXED,
    NO_THRESHOLDS,
    branin,
    floats,
    mixed,
    storage,
)

from botorch_sparse.ax import (
    bbkb_generation_strategy,
    gssbo_generation_strategy,
    sparse_generation_strategy,
    thompson_generation_strategy,
)
from botorch_sparse.models import SparseSingleTaskGP, SubsetSingleTaskGP

pytestmark = CAPPED

PROBLEMS = {"branin": (floats(BOX), branin, 1.0), "mixed": (MIXED, mixed, 0.05)}
# Best values and those of 30 random points are -0.4 and about -3, 0.7 and about 0.2.
GOOD = {"branin": -2.0, "mixed": 0.4}

MODELS = {"sparse": SparseSingleTaskGP, "gssbo": SubsetSingleTaskGP}


def strategy_named(name: str, fast: dict[str, Any], size: int = 8) -> Any:
    """From more observations than `size` on they have fewer points in use."""
    options: dict[str, Any] = {"seed": 0, "optimizer_options": fast}
    if name == "sparse":
        return sparse_generation_strategy(
            4, model_options={"max_inducing_points": size}, **options
        )
    if name == "gssbo":
        return gssbo_generation_strategy(4, subset_size=size, **options)
    return bbkb_generation_strategy(4, **options)


FULL = [
    pytest.param(name, problem, 15, 15, 12, marks=pytest.mark.slow)
    for name in ("sparse", "bbkb", "gssbo")
    for problem in PROBLEMS
]


# Ax's exact models meet points that are nearly the same.
@pytest.mark.filterwarnings("ignore:A not p.d., added jitter")
@pytest.mark.parametrize(
    ("name", "problem", "before", "after", "size"),
    [
        pytest.param("sparse", "branin", 5, 2, 5, marks=pytest.mark.slow),
        ("bbkb", "mixed", 5, 2, 5),
        pytest.param("gssbo", "mixed", 5, 2, 5, marks=pytest.mark.slow),
        *FULL,
    ],
)
def test_trials_saved_and_loaded_in_the_middle(
    name, problem, before, after, size, make_client, evaluate, fast, tmp_path
):
    """The next candidate is the same from JSON, from sqlite, and in memory."""
    if problem == "mixed":
        fast["num_restarts"] = 1
        fast["options"] = {"maxiter_alternating": 1, "maxiter_continuous": 3}
    parameters, function, noise = PROBLEMS[problem]
    config = storage(tmp_path / "ax.db")
    strategy = strategy_named(name, fast, size)
    client = make_client(strategy, parameters, storage_config=config)
    asked = evaluate(client, before, function, noise)
    client.save_to_json_file(str(tmp_path / "ax.json"))
    from_json = Client.load_from_json_file(str(tmp_path / "ax.json"))
    from_sql = Client.load_from_database("test", storage_config=config)
    # In memory last: what it asks for is in the database from then on.
    expected = from_json.get_next_trials(1)
    strategy = client._generation_strategy
    runs = strategy.clone_reset().gen(client._experiment, n=1)
    assert runs[0][0].arms[0].parameters == expected[before]
    assert from_sql._generation_strategy.name == strategy.name
    sql = from_sql._generation_strategy.gen(from_sql._experiment, n=1)
    assert sql[0][0].arms[0].parameters == expected[before]
    assert client.get_next_trials(1) == expected
    client.complete_trial(before, raw_data={"f": function(**expected[before])})
    asked += evaluate(client, after - 1, function, noise)
    assert len(client._experiment.trials) == before + after
    if name == "gssbo":
        model = strategy.adapter.generator.surrogate.model
        assert model.train_targets.shape[-1] == size < model.num_observations
    if before + after == 30:
        assert max(function(**parameters) for parameters in asked) > GOOD[problem]
    adapter = strategy.adapter
    for folds in (-1, 4):
        assert len(cross_validate(adapter, folds=folds)) == before + after - 1
    best, predicted, _, _ = client.get_best_parameterization()
    assert set(best) == {p.name for p in parameters} and "f" in predicted


def test_arms_of_a_table_saved_and_loaded_in_the_middle(
    make_client, evaluate, tmp_path
):
    """The next arms of Thompson sampling are the same, and those after them."""
    g = torch.Generator().manual_seed(0)
    unit = torch.rand(200, 2, generator=g, dtype=torch.float64)
    low, high = torch.tensor([*BOX.values()], dtype=torch.float64).mT
    table = pd.DataFrame((low + (high - low) * unit).numpy(), columns=["x1", "x2"])
    config = storage(tmp_path / "ax.db")
    strategy = thompson_generation_strategy(4, candidates=table, seed=0)
    client = make_client(strategy, storage_config=config)
    evaluate(client, 8)
    client.save_to_json_file(str(tmp_path / "ax.json"))
    from_json = Client.load_from_json_file(str(tmp_path / "ax.json"))
    from_sql = Client.load_from_database("test", storage_config=config)
    experiment = from_sql._experiment
    sql = from_sql._generation_strategy.gen(experiment, n=1, num_trials=2)
    clients = (client, from_json)
    ours, theirs = (evaluate(each, 6, max_trials=2) for each in clients)
    assert ours == theirs
    assert [run[0].arms[0].parameters for run in sql] == ours[:2]
    held = {tuple(row) for row in table.itertuples(index=False)}
    assert {(arm["x1"], arm["x2"]) for arm in ours} <= held


def test_analyses_and_predictions(make_client, attach, evaluate, fast):
    """Ax's own plots are of the sparse model, and none fails."""
    client = make_client(strategy_named("sparse", fast))
    attach(client, 12)
    evaluate(client, 2, branin, 1.0)
    cards = client.compute_analyses(display=False)
    names = []

    def collect(card: Any) -> None:
        for child in getattr(card, "children", []):
            collect(child)
        names.append(type(card).__name__)

    for card in cards if isinstance(cards, list) else [cards]:
        collect(card)
    assert len(names) > 5
    assert not any("Error" in name for name in names)
    (prediction,) = client.predict(points=[{"x1": 0.0, "x2": 5.0}])
    mean, sem = prediction["f"]
    assert np.isfinite(mean) and sem > 0


@pytest.mark.one_in(4)
@NO_THRESHOLDS
@pytest.mark.parametrize(
    ("objective", "constraints"), [("f, -g", ["h <= 3.0"]), ("f", ["h <= 3.0"])]
)
@pytest.mark.parametrize("name", ["sparse", "gssbo"])
def test_several_objectives_and_constraints(
    name, objective, constraints, make_client, fast
):
    """With trials that fail, and outcomes that some lack at the end."""
    strategy = strategy_named(name, fast)
    client = make_client(strategy, objective=objective, constraints=constraints)
    is_moo = "g" in objective
    for t in range(13):
        if t < 10:
            p = {x: random.Random(t).uniform(*bounds) for x, bounds in BOX.items()}
            index = client.attach_trial(parameters=p)
        else:
            ((index, p),) = client.get_next_trials(1).items()
        outcome = {"f": branin(**p), "h": p["x2"] / 4}
        if is_moo:
            outcome["g"] = p["x1"] ** 2 + p["x2"]
        if t == 11:
            del outcome["h"]
        if t == 7:
            client.mark_trial_failed(index)
        elif t == 8:
            client.mark_trial_abandoned(index)
        else:
            client.complete_trial(index, raw_data=outcome)
        if t == 10:
            model = strategy.adapter.generator.surrogate.model
            assert model.num_outputs == 2 + is_moo
    generator = strategy.adapter.generator
    models = generator.surrogate.model.models  # one for each outcome by now
    assert len(models) == 2 + is_moo
    assert {type(model) for model in models} == {MODELS[name]}
    expected = "Hypervolume" if is_moo else "LogNoisyExpectedImprovement"
    assert expected in type(generator._acquisition.acqf).__name__
    if name == "gssbo":
        sizes = {(m.train_targets.shape[-1], m.num_observations) for m in models}
        assert sizes == {(8, 10), (8, 9)}
    if is_moo:
        front = client.get_pareto_frontier()
        assert front and all(predicted["h"][0] < 3.5 for _, predicted, *_ in front)
        # Ax infers thresholds by the model: observations may all be worse.
        for _, values, *_ in client.get_pareto_frontier(use_model_predictions=False):
            assert np.asarray(values["h"]).flat[0] <= 3.0
    else:
        _, predicted, *_ = client.get_best_parameterization()
        assert predicted["h"][0] < 3.5


def test_a_failed_trial_is_followed_by_another_candidate(
    make_client, attach, fast, tmp_path
):
    """It adds no data; the next candidate is another, and the same after loading."""
    client = make_client(strategy_named("sparse", fast))
    attach(client, 7)
    ((failed, arm),) = client.get_next_trials(max_trials=1).items()
    client.mark_trial_failed(failed)
    path = tmp_path / "client.json"
    client.save_to_json_file(str(path))
    loaded = Client.load_from_json_file(str(path))
    (after,) = client.get_next_trials(max_trials=1).values()
    (after_loading,) = loaded.get_next_trials(max_trials=1).values()
    assert after == after_loading
    assert after != arm


@pytest.mark.parametrize("name", ["sparse", "thompson"])
def test_no_failed_row_is_proposed_again(name, make_client, fast):
    """Where values are best all fail, and without noise nothing asks for repeats."""
    rows = [{"x1": i / 2 - 5, "x2": 5.0} for i in range(31)]
    options = {"candidates": rows, "allow_repeats": False, "seed": 0}
    if name == "sparse":
        strategy = sparse_generation_strategy(4, optimizer_options=fast, **options)
    else:
        strategy = thompson_generation_strategy(4, **options)
    client, asked = make_client(strategy), list[float]()
    for _ in range(12):
        ((index, arm),) = client.get_next_trials(1).items()
        asked.append(arm["x1"])
        if asked[-1] > 5.0:
            client.mark_trial_failed(index)
        else:
            client.complete_trial(index, raw_data={"f": asked[-1]})
    assert sum(x1 > 5.0 for x1 in asked) >= 3
    assert len(set(asked)) == 12
