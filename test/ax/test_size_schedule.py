"""Fits happen at scheduled sizes, and what they give is a function of the data."""

import math
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import torch
from ax.core.data_utils import ExperimentData
from ax_problems import CAPPED

from botorch_sparse.ax import sparse_generation_strategy
from botorch_sparse.ax.size_schedule import scheduled_size
from botorch_sparse.ax.transforms import scheduled_data
from botorch_sparse.models import SparseSingleTaskGP

pytestmark = CAPPED

OPTIONS = {"model_options": {"max_inducing_points": 20}, "seed": 0}


def test_sizes_are_all_up_to_fifty_and_then_grow_by_the_factor():
    sizes = sorted({scheduled_size(n) for n in range(1, 2001)})
    assert sizes[:50] == list(range(1, 51))
    assert all(b == math.ceil(1.2 * a) for a, b in pairwise(sizes[49:]))
    assert all(0 < n - scheduled_size(n) <= n / 6 + 1 for n in (55, 200, 1000, 1999))
    assert [scheduled_size(n, growth=1.0) for n in (3, 77, 500)] == [3, 77, 500]


def test_constants_of_outcomes_come_from_the_schedule_of_each_metric():
    import pandas as pd

    n = 70
    index = pd.MultiIndex.from_arrays(
        [range(n), [f"{i}_0" for i in range(n)]], names=["trial_index", "arm_name"]
    )
    f, g = np.arange(n, dtype=float), np.arange(n, dtype=float)
    g[::2] = np.nan
    columns = pd.MultiIndex.from_product([["mean", "sem"], ["f", "g"]])
    values = np.stack([f, g, 0 * f, 0 * g], axis=1)
    frame = pd.DataFrame(values, index=index, columns=columns)
    data = ExperimentData(arm_data=pd.DataFrame(index=index), observation_data=frame)
    kept = scheduled_data(data, growth=1.2).observation_data["mean"]
    assert kept["f"].dropna().tolist() == list(range(60))  # 50 * 1.2
    assert kept["g"].dropna().tolist() == list(range(1, n, 2))  # 35: all of them
    assert frame["mean", "f"].notna().all()


def fitted_model(client: Any) -> SparseSingleTaskGP:
    strategy = client._generation_strategy
    return strategy.fit(client._experiment).generator.surrogate.model


def count_fits(client: Any) -> tuple[SparseSingleTaskGP, int]:
    name = "ax.generators.torch.botorch_modular.surrogate.fit_botorch_model"
    from ax.generators.torch.botorch_modular.surrogate import fit_botorch_model

    with mock.patch(name, side_effect=fit_botorch_model) as fit:
        model = fitted_model(client)
    return model, fit.call_count


def test_fits_at_scheduled_sizes_only(make_client, attach):
    client = make_client(sparse_generation_strategy(5, **OPTIONS))
    attach(client, 50)
    fits, models = {}, {}
    for n in range(50, 63):
        models[n], fits[n] = count_fits(client)
        attach(client, 1)
    assert {n for n, count in fits.items() if count} == {50, 60}
    lengthscales = [models[n].covar_module.lengthscale for n in (50, 59, 60, 62)]
    assert torch.equal(lengthscales[0], lengthscales[1])
    assert torch.equal(lengthscales[2], lengthscales[3])
    assert not torch.equal(lengthscales[1], lengthscales[2])
    # The outcomes of the first observations stay as they are between two sizes.
    assert torch.equal(models[50].train_targets, models[59].train_targets[:50])
    assert not torch.equal(models[50].train_targets, models[60].train_targets[:50])
    assert models[59].train_targets.shape[-1] == 59


def test_a_model_is_a_function_of_its_data(make_client, attach):
    """One that grew trial by trial and one from scratch are the same, bit for bit."""
    grown = make_client(sparse_generation_strategy(5, **OPTIONS))
    for first in (50, 7):
        attach(grown, first)
        fitted_model(grown)
    fresh = make_client(sparse_generation_strategy(5, **OPTIONS))
    attach(fresh, 57)
    models = [fitted_model(client) for client in (grown, fresh)]
    states = [model.state_dict() for model in models]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert torch.equal(models[0].inducing_points, models[1].inducing_points)
    assert 20 < models[0].num_inducing <= 24 and not models[0].is_exact


def test_data_that_come_late_are_taken_into_the_fit(make_client, attach):
    """A trial completed after later ones belongs to the first observations."""
    client = make_client(sparse_generation_strategy(5, **OPTIONS))
    (late,) = client.get_next_trials(1)
    attach(client, 54)
    before = fitted_model(client)
    client.complete_trial(late, raw_data={"f": -200.0})
    model, num_fits = count_fits(client)
    assert num_fits == 1 and model.train_targets.shape[-1] == 55
    assert not torch.equal(
        before.covar_module.lengthscale, model.covar_module.lengthscale
    )
