"""Outcomes are what Ax's storage keeps of them, unless that is too little."""

import json
import random
import warnings

import numpy as np
import pandas as pd
import pytest
from ax.api.client import Client
from ax.core.data import Data
from ax.core.data_utils import ExperimentData
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.encoder import object_to_json
from ax_problems import BOX, branin
from botorch.exceptions import BotorchWarning

from botorch_sparse.ax import sparse_generation_strategy
from botorch_sparse.ax.transforms import AsStored


def experiment_data(means: np.ndarray, sems: np.ndarray) -> ExperimentData:
    index = pd.MultiIndex.from_arrays(
        [range(len(means)), [f"{i}_0" for i in range(len(means))]],
        names=["trial_index", "arm_name"],
    )
    columns = pd.MultiIndex.from_tuples([("mean", "f"), ("sem", "f")])
    frame = pd.DataFrame(np.stack([means, sems], -1), index=index, columns=columns)
    return ExperimentData(arm_data=pd.DataFrame(index=index), observation_data=frame)


def as_stored(means: np.ndarray, sems: np.ndarray) -> np.ndarray:
    transform = AsStored()
    data = transform.transform_experiment_data(experiment_data(means, sems))
    return data.observation_data.to_numpy()


def saved_and_loaded(means: np.ndarray) -> np.ndarray:
    """What Ax's JSON storage makes of outcomes."""
    rows = [
        {
            "trial_index": i,
            "arm_name": f"{i}_0",
            "metric_name": "f",
            "metric_signature": "f",
            "mean": mean,
            "sem": 0.1,
        }
        for i, mean in enumerate(means)
    ]
    text = json.dumps(object_to_json(Data(df=pd.DataFrame(rows))))
    return object_from_json(json.loads(text)).df["mean"].to_numpy()


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e8])
def test_the_same_before_and_after_saving(scale):
    means = scale * np.random.default_rng(0).standard_normal(50)
    sems = np.full(50, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("error", BotorchWarning)
        found = as_stored(means, sems)
        again = as_stored(saved_and_loaded(means), sems)
    assert np.array_equal(found, again, equal_nan=True)
    assert np.allclose(found[:, 0], means, atol=5e-11, rtol=1e-15)


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_small_values_are_not_rounded(offset):
    means = offset + 1e-11 * np.arange(1.0, 9.0)
    with pytest.warns(BotorchWarning, match="'f' differ by so little"):
        found = as_stored(means, np.full(8, 3e-12))
    assert np.array_equal(found[:, 0], means)
    assert (found[:, 1] == 3e-12).all()


@pytest.mark.parametrize("means", [[0.12345678901234], [0.12345678901234] * 3, []])
def test_there_is_nothing_to_lose_without_a_spread(means):
    with warnings.catch_warnings():
        warnings.simplefilter("error", BotorchWarning)
        found = as_stored(np.array(means), np.full(len(means), np.nan))
    assert found[:, 0].tolist() == [0.1234567890] * len(means)


def test_candidates_do_not_depend_on_the_unit(make_client, attach, fast):
    """A thousand billionth of the outcome leads to the same candidate, nearly."""
    asked = []
    for unit in (1.0, 2.0**-43):
        strategy = sparse_generation_strategy(5, seed=0, optimizer_options=fast)
        client: Client = make_client(strategy)
        rng, trials = random.Random(0), []
        for _ in range(12):
            point = {name: rng.uniform(*bounds) for name, bounds in BOX.items()}
            trials.append((point, {"f": unit * branin(**point)}))
        attach(client, trials)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (parameters,) = client.get_next_trials(1).values()
            client.get_next_trials(1)
        said = [str(w.message) for w in caught if "ten decimals" in str(w.message)]
        assert len(said) == (unit < 1)
        asked.append(list(parameters.values()))
    assert asked[0] == pytest.approx(asked[1], abs=0.05)
