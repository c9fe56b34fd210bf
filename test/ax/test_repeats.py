"""Whether arms are evaluated again."""

import random
from typing import Any

import pytest
import torch
from ax.api.configs import ChoiceParameterConfig
from ax.exceptions.core import SearchSpaceExhausted
from botorch.models import ModelListGP, SingleTaskGP

from botorch_sparse.ax import bbkb_generation_strategy, sparse_generation_strategy
from botorch_sparse.ax.sparse_acquisition import is_noisy

GRID = [
    ChoiceParameterConfig(
        name=name, values=[1.0, 2.0, 3.0], parameter_type="float", is_ordered=True
    )
    for name in ("a", "b")
]

ARMS = [{"a": float(a), "b": float(b)} for a in (1, 2, 3) for b in (1, 2, 3)]


def value(a: float, b: float) -> float:
    return -((a - 2.0) ** 2) - (b - 3.0) ** 2


def number(asked: list[dict[str, Any]]) -> int:
    return len({tuple(sorted(parameters.items())) for parameters in asked})


@pytest.mark.parametrize("allow", [True, None])
def test_noisy_arms_are_evaluated_again(allow, make_client, attach):
    """Nine arms, eleven evaluations; the noise is known to be large."""
    strategy = bbkb_generation_strategy(5, allow_repeats=allow, seed=0)
    client, rng = make_client(strategy, GRID), random.Random(0)
    attach(
        client,
        [(arm, {"f": (value(**arm) + rng.gauss(0.0, 1.5), 1.5)}) for arm in ARMS],
    )
    for _ in range(2):
        ((index, parameters),) = client.get_next_trials(1).items()
        client.complete_trial(index, raw_data={"f": (value(**parameters), 1.5)})
        assert parameters in ARMS


@pytest.mark.parametrize("allow", [False, None])
def test_without_noise_the_arms_run_out(allow, make_client, attach, evaluate):
    strategy = sparse_generation_strategy(4, allow_repeats=allow, seed=0)
    client = make_client(strategy, GRID)
    known = ARMS[:3] + ARMS[4:7]
    attach(client, [(arm, {"f": value(**arm)}) for arm in known])
    asked = evaluate(client, 3, value, noise=0.0)
    assert number([*known, *asked]) == 9
    with pytest.raises(SearchSpaceExhausted, match="allow_repeats=True"):
        evaluate(client, 1, value, noise=0.0)


def test_noise_that_is_worth_repeats():
    X = torch.linspace(0, 1, 6, dtype=torch.double).unsqueeze(-1)
    model = SingleTaskGP(X, X.sin())
    for noise, expected in ((0.04, False), (0.06, True)):
        model.likelihood.noise = noise
        assert is_noisy(model) is expected
        assert is_noisy(ModelListGP(model)) is expected
    known = SingleTaskGP(X, X.sin(), train_Yvar=torch.full_like(X, 1e-6))
    assert not is_noisy(known)


# Candidates equal to known points make joint covariances singular.
@pytest.mark.filterwarnings(
    "ignore:A not p.d.:linear_operator.utils.warnings.NumericalWarning"
)
def test_rounded_candidates_that_are_known_lead_to_sobol(make_client, evaluate, fast):
    """Unordered choices are searched as fractions and rounded."""
    choices = [
        ChoiceParameterConfig(
            name=name, values=["a", "b", "c"], parameter_type="str", is_ordered=False
        )
        for name in ("kind", "other")
    ]
    strategy = sparse_generation_strategy(3, optimizer_options=fast, seed=0)
    client = make_client(strategy, choices)

    def score(kind: str, other: str) -> float:
        return float(kind == "b") + 0.3 * float(other == "c")

    asked = evaluate(client, 8, score, noise=0.0)
    assert number(asked) == 8
