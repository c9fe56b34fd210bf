"""The gap between the best upper and the best lower confidence bound."""

from typing import Any

import pytest
import torch
from batch_oracles import assert_close
from botorch.exceptions import InputDataError
from botorch.models import SingleTaskGP

from botorch_sparse.acquisition import (
    ConfidenceGapStopping,
    LowerConfidenceBound,
    confidence_gap,
    model_confidence_gap,
)


def fitted(n: int, **tkwargs: Any) -> tuple[SingleTaskGP, torch.Tensor]:
    X = torch.linspace(0, 1, n, **tkwargs).unsqueeze(-1)
    model = SingleTaskGP(X, (6 * X).sin() + 3)
    model.likelihood.noise = 1e-3
    return model.eval(), X


def test_gap_of_arrays(tkwargs):
    mean = torch.tensor([[0.0, 1.0, 0.5], [2.0, 2.0, 2.0]], **tkwargs)
    width = torch.tensor([[3.0, 0.5, 0.1], [0.0, 0.0, 0.0]], **tkwargs)
    assert_close(confidence_gap(mean, width), [3.0 - 0.5, 0.0])
    assert not ConfidenceGapStopping(2.4).should_stop(mean[0], width[0])
    assert ConfidenceGapStopping(2.5).should_stop(mean[0], width[0])


def test_gap_bounds_the_simple_regret(double):
    """Whatever the function within its bounds, the best lower bound's point is good."""
    g = torch.Generator().manual_seed(0)
    mean, width, where = torch.rand(3, 200, 30, generator=g).to(**double)
    f = mean + (2 * where - 1) * width
    best = (mean - width).argmax(-1, keepdim=True)
    regret = f.amax(-1) - f.gather(-1, best).squeeze(-1)
    assert (regret <= confidence_gap(mean, width) + 1e-12).all()


@pytest.mark.parametrize("maximize", [True, False])
def test_gap_of_a_model(maximize, double):
    model, _ = fitted(8, **double)
    choices = torch.linspace(0, 1, 401, **double).unsqueeze(-1)
    posterior = model.posterior(choices)
    mean = posterior.mean.squeeze(-1) * (1 if maximize else -1)
    width = 2 * posterior.variance.squeeze(-1).sqrt()
    expected = confidence_gap(mean, width).item()
    kwargs: dict[str, Any] = {"beta": 4.0, "maximize": maximize}
    on_choices = model_confidence_gap(model, choices=choices, **kwargs)
    assert on_choices == pytest.approx(expected, rel=1e-8)
    box = torch.tensor([[0.0], [1.0]], **double)
    options = {"num_restarts": 4, "raw_samples": 32, "options": {"seed": 0}}
    state = torch.random.get_rng_state()
    on_box = model_confidence_gap(
        model, bounds=box, optimizer_options=options, **kwargs
    )
    assert torch.equal(state, torch.random.get_rng_state())
    assert on_box == pytest.approx(expected, abs=1e-3)


def test_stops_once_the_function_is_known(double):
    rule = ConfidenceGapStopping(tolerance=0.2)
    choices = torch.linspace(0, 1, 101, **double).unsqueeze(-1)
    stops = [
        rule.should_stop_model(fitted(n, **double)[0], 4.0, choices=choices)
        for n in (3, 20)
    ]
    assert stops == [False, True]


def test_lower_confidence_bound(double):
    model, X = fitted(8, **double)
    posterior = model.posterior(X.unsqueeze(-2))
    expected = posterior.mean.view(-1) - 2 * posterior.variance.view(-1).sqrt()
    value = LowerConfidenceBound(model, 4.0)(X.unsqueeze(-2))
    assert_close(value, expected, rtol=1e-10)


def test_errors(double):
    with pytest.raises(InputDataError, match="Give either choices or bounds"):
        model_confidence_gap(fitted(3, **double)[0], 1.0)
