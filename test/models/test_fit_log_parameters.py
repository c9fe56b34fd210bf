"""The fit over logarithms finds BoTorch's optimum, in fewer evaluations."""

import warnings
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.models import SingleTaskGP
from botorch.optim.closures import get_loss_closure_with_grads
from botorch.optim.core import OptimizationResult, OptimizationStatus
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.constraints import Interval
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import UniformPrior
from torch import Tensor

from botorch_sparse.models.fit import log_parameters, newton
from botorch_sparse.models.fit.log_parameters import (
    GAIN,
    fit_gpytorch_mll_in_logarithms,
)


def objective(**tkwargs: Any) -> ExactMarginalLogLikelihood:
    """Lengthscales of different size and a small noise."""
    generator = torch.Generator().manual_seed(5)
    X = torch.rand(40, 4, dtype=torch.float64, generator=generator).to(**tkwargs)
    Y = (7 * X[:, :1]).sin() + 0.3 * X[:, 1:2].square() + 0.05 * X[:, 2:3]
    noise = torch.randn(40, 1, dtype=torch.float64, generator=generator).to(**tkwargs)
    model = SingleTaskGP(X, Y + 0.01 * noise)
    return ExactMarginalLogLikelihood(model.likelihood, model).train()


def test_an_optimum_in_fewer_evaluations(double):
    """BoTorch's fit ends no lower, wherever rounding ends it, and finds no more."""
    plain, ours = objective(**double), objective(**double)
    evaluated = Mock(side_effect=plain.forward)
    plain.forward = evaluated
    options, losses = {"ftol": 1e-10, "gtol": 1e-7}, list[Tensor]()
    expected = fit_gpytorch_mll_scipy(plain, options=options)
    result = fit_gpytorch_mll_in_logarithms(
        ours, options=options, on_evaluation=losses.append
    )
    assert result.fval <= expected.fval + 1e-6
    assert 0 < len(losses) < 0.8 * evaluated.call_count
    found = [p.detach().clone() for p in ours.parameters()]
    loss, _ = get_loss_closure_with_grads(ours, dict(ours.named_parameters()))()
    assert loss.item() == pytest.approx(result.fval, abs=1e-12)
    assert fit_gpytorch_mll_scipy(ours, options=options).fval > result.fval - 1e-6
    for p, q in zip(found, ours.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("bounds", [(0.3, 0.7), (0.05, 0.1)])
@pytest.mark.parametrize("as_tensors", [False, True])
def test_bounds_hold_to_the_bit(bounds, as_tensors, tkwargs):
    """The second pair is outside of itself where it is rounded to float32."""
    mll = objective(**tkwargs)
    name = "model.covar_module.raw_lengthscale"
    lower, upper = (torch.tensor(b, **tkwargs) for b in bounds)
    limits: Any = (lower, upper) if as_tensors else bounds
    fit_gpytorch_mll_in_logarithms(mll, bounds={name: limits})
    lengthscale = dict(mll.named_parameters())[name]
    assert (lengthscale >= lower).all() and (lengthscale <= upper).all()
    assert lengthscale.amax() > 0.99 * upper


def test_constraints_without_a_positive_lower_bound(double):
    """A transformed constraint's raw parameter is not positive, and stays."""
    ours, plain = objective(**double), objective(**double)
    for mll in (ours, plain):
        kernel = mll.model.covar_module
        kernel.register_constraint("raw_lengthscale", Interval(0.01, 5.0))
        mll.likelihood.noise_covar.raw_noise.requires_grad_(False)
    result = fit_gpytorch_mll_in_logarithms(ours)
    assert result.fval == fit_gpytorch_mll_scipy(plain).fval


@pytest.mark.parametrize("step, ends", [(1e-9, True), (1e-2, False)])
def test_a_line_search_that_fails(step, ends, double, monkeypatch):
    """Among values that differ by rounding alone it has found the optimum."""

    def searched(evaluate: Any, variables: Any, *_: Any) -> OptimizationResult:
        for _ in range(6):
            loss, _ = evaluate()
            for variable in variables.values():
                variable += step
        failure = OptimizationStatus.FAILURE
        return OptimizationResult(1, float(loss), failure, message="ABNORMAL")

    monkeypatch.setattr(log_parameters, "scipy_minimize", searched)
    mll = objective(**double)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = fit_gpytorch_mll_in_logarithms(mll)
    assert (result.status is OptimizationStatus.SUCCESS) is ends
    assert any(w.category is OptimizationWarning for w in told) is not ends


def test_some_parameters_alone(double):
    mll, name = objective(**double), "likelihood.noise_covar.raw_noise"
    before = {n: p.detach().clone() for n, p in mll.named_parameters()}
    fit_gpytorch_mll_in_logarithms(mll, {name: mll.get_parameter(name)})
    for n, parameter in mll.named_parameters():
        assert torch.equal(parameter, before[n]) == (n != name)


def test_a_closure_of_ones_own_is_botorchs(double):
    ours, plain = objective(**double), objective(**double)
    closures = [
        get_loss_closure_with_grads(m, dict(m.named_parameters()))
        for m in (ours, plain)
    ]
    options = {"maxiter": 3}
    fit_gpytorch_mll_in_logarithms(ours, closure=closures[0], options=options)
    fit_gpytorch_mll_scipy(plain, closure=closures[1], options=options)
    for p, q in zip(ours.parameters(), plain.parameters(), strict=True):
        assert torch.equal(p, q)


def test_what_does_not_move_stays_to_the_last_bit(double):
    """In units in which its value rounds."""
    values = torch.arange(1.0, 30.0, **double)
    unit = torch.tensor(0.3, **double)
    rounds = values[values / unit * unit != values]
    assert len(rounds) > 0
    mll = objective(**double)
    mll.model.register_parameter("idle", torch.nn.Parameter(rounds.clone()))
    units = {"model.idle": unit.expand_as(rounds)}
    fit_gpytorch_mll_in_logarithms(mll, units=units, options={"maxiter": 3})
    assert torch.equal(mll.model.idle, rounds)


@pytest.mark.parametrize("bound", [None, 0.05])
def test_few_rows_lead_to_the_same_optimum(bound, double):
    """Here `few` are all: their curvature is right. A bound may hold what it can."""
    name = "likelihood.noise_covar.raw_noise"
    bounds = {} if bound is None else {name: (bound, None)}
    options = {"ftol": 1e-9, "gtol": 1e-7}
    plain, ours = objective(**double), objective(**double)
    expected = fit_gpytorch_mll_in_logarithms(plain, bounds=bounds, options=options)
    fit_gpytorch_mll_in_logarithms(ours, bounds=bounds, options={"ftol": 1e-3})
    losses = list[Tensor]()
    result = fit_gpytorch_mll_in_logarithms(
        ours,
        bounds=bounds,
        few=partial(objective, **double),
        on_evaluation=losses.append,
    )
    assert result.status == OptimizationStatus.SUCCESS
    assert result.message == log_parameters.NEWTON
    assert result.step == len(losses) - 1 <= 4
    assert result.fval == pytest.approx(expected.fval, abs=2 * GAIN)
    loss, _ = get_loss_closure_with_grads(ours, dict(ours.named_parameters()))()
    assert loss.item() == pytest.approx(result.fval, abs=1e-12)
    if bound is not None:
        assert ours.get_parameter(name).item() == pytest.approx(bound, rel=1e-12)


def test_where_few_rows_mislead_the_optimizer_goes_on(double, monkeypatch):
    """From the best that was found, to the same optimum."""
    plain, ours = objective(**double), objective(**double)
    options = {"ftol": 1e-9, "gtol": 1e-7}
    expected = fit_gpytorch_mll_in_logarithms(plain, options=options)
    monkeypatch.setattr(newton, "LONGEST", 50.0)
    monkeypatch.setattr(newton, "LEAST_CURVATURE", 1e-9)
    monkeypatch.setattr(newton, "_share", lambda *_: 1.0)
    flat = lambda evaluate, x, bounds: 1e-6 * np.eye(len(x))  # noqa: E731
    monkeypatch.setattr(log_parameters, "hessian", flat)
    losses = list[float]()
    result = fit_gpytorch_mll_in_logarithms(
        ours,
        few=partial(objective, **double),
        on_evaluation=lambda loss: losses.append(loss.item()),
        options=options,
    )
    assert result.message != log_parameters.NEWTON
    assert not min(losses[1:3]) < losses[0]  # both steps lose
    assert losses[3] == pytest.approx(losses[0], abs=1e-12)
    assert result.fval == pytest.approx(expected.fval, abs=1e-5)


def test_few_rows_are_asked_where_the_fit_is(double):
    """Within bounds; units are the same. Without a density there is no curvature."""
    few, ours = objective(**double), objective(**double)
    for mll in (few, ours):
        mean = mll.model.mean_module
        mean.register_prior("constant_prior", UniformPrior(-1.0, 0.3), "raw_constant")
        mll.model.idle = torch.nn.Parameter(torch.tensor([3.0], **double))
    ours.model.mean_module.raw_constant.data.fill_(0.3)
    few.model.idle.data.fill_(0.0)
    closure, idle = few.forward, list[float]()

    def seen(*args: Any) -> Any:
        idle.append(few.model.idle.item())
        return closure(*args)

    few.forward = seen
    name = "model.mean_module.raw_constant"
    losses = list[Tensor]()
    fit_gpytorch_mll_in_logarithms(
        ours,
        bounds={name: (-1.0, 0.3)},
        units={"model.idle": torch.tensor([2.0], **double)},
        few=lambda: few,
        on_evaluation=losses.append,
    )
    assert ours.get_parameter(name).item() <= 0.3
    assert set(idle) >= {3.0} and min(idle) == 3.0
    assert len(losses) > 1
    ours.model.mean_module.raw_constant.data.fill_(0.29)
    few.model.mean_module.register_prior(
        "narrow_prior", UniformPrior(0.28, 0.2901), "raw_constant"
    )
    result = fit_gpytorch_mll_in_logarithms(
        ours, bounds={name: (-1.0, 0.3)}, few=lambda: few
    )
    assert result.message != log_parameters.NEWTON
