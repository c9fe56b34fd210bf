"""What the optimizers of acquisition functions are asked for."""

from typing import Any
from unittest import mock

import pytest
from ax.api.client import Client
from ax.generators.torch.botorch_modular import acquisition as ax_acquisition
from ax_problems import BOX, floats

from botorch_sparse.ax import bbkb_generation_strategy, sparse_generation_strategy


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "factory", [sparse_generation_strategy, bbkb_generation_strategy]
)
@pytest.mark.parametrize("constraints", [[], ["x1 <= x2"]])
def test_limits_of_the_search(factory, constraints, attach, fast):
    """Few steps along a line for L-BFGS-B, not for SLSQP; what the user gave stays."""
    # The walk through a polytope to the first random points is the longest part.
    walk = {"n_burnin": 10}
    asked: list[dict[str, Any]] = []
    for given in ({}, {"ftol": 1e-3, "init_batch_limit": 8}):
        optimizer_options = {**fast, "options": {**walk, **given}}
        strategy = factory(5, seed=0, optimizer_options=optimizer_options)
        client = Client()
        client.configure_experiment(
            name="test", parameters=floats(BOX), parameter_constraints=constraints
        )
        client.configure_optimization(objective="f")
        client.set_generation_strategy(strategy)
        attach(client, 6)
        with mock.patch.object(
            ax_acquisition, "optimize_acqf", side_effect=ax_acquisition.optimize_acqf
        ) as optimize:
            client.get_next_trials(1)
        asked.append(optimize.call_args.kwargs["options"])
    assert all(each["maxiter"] == 20 for each in asked)
    assert [each["init_batch_limit"] for each in asked] == [128, 8]
    assert [each.get("maxls") for each in asked] == [None if constraints else 5] * 2
    assert [each.get("ftol") for each in asked] == [None if constraints else 1e-5, 1e-3]
