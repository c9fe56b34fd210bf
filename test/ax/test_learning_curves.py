"""Trials whose learning curves are watched, and which are stopped early."""

from typing import Any

import numpy as np
import pytest
from ax.adapter.cross_validation import cross_validate
from ax.api.client import Client
from ax.core.data import MAP_KEY
from ax.early_stopping.strategies import PercentileEarlyStoppingStrategy
from ax_problems import CAPPED, floats

from botorch_sparse.ax import (
    SparseGenerator,
    bbkb_generation_strategy,
    gssbo_generation_strategy,
    sparse_generation_strategy,
)

# Ax's exact models meet points that are nearly the same.
pytestmark = [CAPPED, pytest.mark.filterwarnings("ignore:A not p.d., added jitter")]

LAST = 5
BOX = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
# Good and bad ones in turns: the bad ones are stopped.
STARTS = [{"a": 0.3 + 0.1 * (i % 2) * i, "b": 0.7 - 0.09 * i} for i in range(8)]
TABLE = [*STARTS, *({"a": i / 9, "b": (7 * i % 10) / 9} for i in range(10))]
STRATEGIES = {
    "sparse": (sparse_generation_strategy, {"model_options": {}}),
    "few": (sparse_generation_strategy, {"model_options": {"max_inducing_points": 4}}),
    "bbkb": (bbkb_generation_strategy, {}),
    "gssbo": (gssbo_generation_strategy, {"subset_size": 6}),
}


def train(client: Client, index: int, parameters: dict[str, Any]) -> bool:
    """Report a curve as it comes; whether Ax stopped it."""
    loss = (parameters["a"] - 0.3) ** 2 + (parameters["b"] - 0.7) ** 2
    for step in range(1, LAST + 1):
        reported = {"loss": loss + 1 / step}
        client.attach_data(index, raw_data=reported, progression=step)
        if step < LAST and client.should_stop_trial_early(index):
            client.mark_trial_early_stopped(index)
            return True
    client.complete_trial(index)
    return False


def trained_client(make_client: Any, fast: dict[str, Any], name: str, **options: Any):
    """A client with eight curves, some of them short; and its strategy."""
    factory, own = STRATEGIES[name]
    strategy = factory(4, seed=0, optimizer_options=fast, **own, **options)
    client = make_client(strategy, floats(BOX), "-loss")
    client.set_early_stopping_strategy(
        PercentileEarlyStoppingStrategy(
            metric_signatures=["loss"], min_curves=3, min_progression=2
        )
    )
    stopped = 0
    for parameters in STARTS:
        index = client.attach_trial(parameters=parameters)
        stopped += train(client, index, parameters)
    assert 0 < stopped < len(STARTS)
    return client, strategy


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("candidates", [None, TABLE], ids=["box", "table"])
def test_the_next_trials(name, candidates, make_client, fast, tmp_path):
    """Candidates are for the last progression, which is no parameter of an arm."""
    options = {} if candidates is None else {"candidates": candidates}
    client, strategy = trained_client(make_client, fast, name, **options)
    path = str(tmp_path / "client.json")
    client.save_to_json_file(path)
    trials = client.get_next_trials(2)
    assert len(trials) == 2
    first = Client.load_from_json_file(path).get_next_trials(1)
    assert first.items() <= trials.items()
    for index, parameters in trials.items():
        assert parameters.keys() == BOX.keys()
        assert candidates is None or parameters in candidates
        train(client, index, parameters)
    generator = strategy.adapter.generator
    assert MAP_KEY in strategy.adapter.parameters
    if candidates is not None:
        last = max(X[:, -1].max() for X in generator.Xs)
        assert (generator.choices[:, -1] == last).all()
    client.get_next_trials(1)
    best, predicted, _, _ = client.get_best_parameterization()
    assert best.keys() == BOX.keys()
    assert np.isfinite(predicted["loss"][0])


def test_a_table_before_and_after_the_first_stop(make_client, fast):
    """The parameter of progressions comes with the first curve that is shorter."""
    strategy = sparse_generation_strategy(2, candidates=TABLE, optimizer_options=fast)
    client = make_client(strategy, floats(BOX), "-loss")
    for index in (client.attach_trial(parameters=p) for p in STARTS[:3]):
        for step in (1, LAST):
            loss = index + 1 / step
            client.attach_data(index, raw_data={"loss": loss}, progression=step)
        client.complete_trial(index)
    ((index, _),) = client.get_next_trials(1).items()
    assert MAP_KEY not in strategy.adapter.parameters
    client.attach_data(index, raw_data={"loss": 2.0}, progression=1)
    client.mark_trial_early_stopped(index)
    (parameters,) = client.get_next_trials(1).values()
    assert MAP_KEY in strategy.adapter.parameters
    assert parameters in TABLE


def test_predictions_without_an_arm_are_those_of_a_model_without_it(
    make_client, fast, monkeypatch
):
    client, strategy = trained_client(make_client, fast, "sparse")
    client.get_next_trials(1)
    results = [cross_validate(strategy.adapter)]
    monkeypatch.setattr(SparseGenerator, "left_out_models", lambda _: None)
    results.append(cross_validate(strategy.adapter))
    ours, expected = ([r.predicted.means[0] for r in fold] for fold in results)
    assert np.allclose(ours, expected, rtol=0.0, atol=1e-5 * np.std(expected))
