"""Where local searches on a box with linear constraints start."""

from typing import Any
from unittest import mock

import pytest
import torch
from botorch.optim import initializers
from box_table import OPTIONS, TABLE, objective

ONES = torch.ones(2, dtype=torch.float64)
LINE = [(torch.tensor([0, 1]), ONES, 0.5)]
# On the line x0 + x1 = 1/2.
X = torch.tensor([[0.5, 0.0], [0.25, 0.25], [0.0, 0.5], [-0.25, 0.75], [-0.5, 1.0]])


# BoTorch hands all options to SciPy, those of its sampler too.
@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:Unknown solver options")
@pytest.mark.parametrize("kind", ["inequality", "equality"])
@pytest.mark.parametrize(
    "name", ["bbkb-global", "gpbucb-sum", "gpucb", "thompson", "gssbo-known"]
)
def test_starts_are_drawn_by_a_short_walk(name: str, kind: str) -> None:
    """BoTorch's own, of 18,000 steps, would be the longest part of a batch."""
    for given, burnin in (({}, 128), ({"n_burnin": 32}, 32)):
        options: dict[str, Any] = OPTIONS | {"options": {"maxiter": 10, **given}}
        changes = {f"{kind}_constraints": LINE, "optimizer_options": options}
        strategy = TABLE[name](**changes)
        strategy.tell(X, objective(X))
        with mock.patch.object(
            initializers,
            "sample_q_batches_from_polytope",
            wraps=initializers.sample_q_batches_from_polytope,
        ) as walk:
            batch = strategy.ask(1)
        asked = [call.kwargs for call in walk.call_args_list]
        steps = {(each["n_burnin"], each["n_thinning"]) for each in asked}
        assert steps == {(burnin, 4)}
        assert strategy.box.is_feasible(batch.X).all()


@pytest.mark.parametrize("name", ["bbkb-global", "gssbo-known"])
def test_without_constraints_there_is_no_walk(name: str) -> None:
    """So that SciPy does not warn of options that it has not."""
    strategy = TABLE[name]()
    strategy.tell(X, objective(X))
    with mock.patch.object(initializers, "sample_q_batches_from_polytope") as walk:
        assert len(strategy.ask(1)) == 1
    assert not walk.called
