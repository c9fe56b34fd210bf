"""The optimizer of learned inducing points."""

import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.models.transforms import Normalize
from botorch.optim.closures import get_loss_closure_with_grads
from botorch.optim.core import OptimizationResult, OptimizationStatus
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit import learned_points
from botorch_sparse.models.fit.learned_points import (
    fit_points_and_hyperparameters,
    points_as_parameters,
)

close = torch.testing.assert_close
NAME = "model.learned_points"


def data(n: int = 80, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    Y = (9 * X[:, :1]).sin() + X[:, 1:]
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def objective(X: Tensor, Y: Tensor, **options: Any) -> MarginalLogLikelihood:
    """An objective whose points are parameters, for good."""
    options |= {"inducing_points": X[:5], "learn_inducing_points": True}
    model = SparseSingleTaskGP(X, Y, **options)
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    mll.opened = points_as_parameters(model)
    mll.opened.__enter__()
    return mll


def loss_of(mll: MarginalLogLikelihood) -> float:
    points = mll.model.learned_points
    return get_loss_closure_with_grads(mll, {NAME: points})()[0].item()


def noted_runs(
    monkeypatch: pytest.MonkeyPatch, instead: Callable[..., Any] | None = None
) -> list[dict[str, Any]]:
    """A list that grows by the options of each run of L-BFGS, or what stands in."""
    seen: list[dict[str, Any]] = []
    run = learned_points.fit_gpytorch_mll_in_logarithms

    def noted(*args: Any, **kwargs: Any) -> OptimizationResult:
        seen.append(kwargs)
        result = instead and instead(len(seen), kwargs)
        return result or run(*args, **kwargs)

    monkeypatch.setattr(learned_points, run.__name__, noted)
    return seen


class TestUnits:
    def test_scales_of_the_columns_do_not_matter(self, double):
        X, Y = data(**double)
        scale = torch.tensor([1.0, 2.0**13], **double)  # which rounds nothing
        bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **double)
        found = []
        for c in (torch.ones_like(scale), scale):
            mll = objective(c * X, Y, input_transform=Normalize(2, bounds=c * bounds))
            result = fit_points_and_hyperparameters(mll, options={"maxiter": 12})
            found.append((result.fval, mll.model.learned_points / c))
        assert found[0][0] == pytest.approx(found[1][0], rel=1e-8)
        close(*(points for _, points in found), rtol=1e-6, atol=1e-6)

    def test_a_column_that_does_not_vary(self, double):
        X, Y = data(**double)
        X = torch.cat([X, torch.full_like(X[:, :1], 0.5)], dim=-1)
        mll = objective(X, Y)
        assert learned_points.units_of_points(mll)[NAME].isfinite().all()
        before = loss_of(mll)
        assert fit_points_and_hyperparameters(mll).fval < before - 0.1

    def test_bounds_hold_for_the_points_themselves(self, double):
        mll = objective(*data(**double))
        for lower in (0.0, 1e-3):
            fit_points_and_hyperparameters(mll, bounds={NAME: (lower, 1.0)})
            points = mll.model.learned_points
            assert (points >= lower).all() and (points <= 1).all()
            assert points.amax() > 0.5


class TestEnd:
    def test_begins_anew_where_scipy_ends_too_soon(self, double, monkeypatch):
        """The limits are those of all runs together."""
        loose, runs = {"ftol": 1e-2}, noted_runs(monkeypatch)
        once = fit_points_and_hyperparameters(objective(*data(**double)), options=loose)
        assert len(runs) == 1  # asked for, it ends the search
        options = {**learned_points.OPTIONS, **loose}
        monkeypatch.setattr(learned_points, "OPTIONS", options)
        mll, maxiter = objective(*data(**double)), {"maxiter": 500}
        result = fit_points_and_hyperparameters(mll, options=maxiter, timeout_sec=1e4)
        assert len(runs) > 4
        assert result.fval < once.fval - 0.01
        assert runs[1]["options"]["maxiter"] == 500 and runs[1]["timeout_sec"] < 1e4
        for before, after in pairwise(runs[1:]):
            assert after["options"]["maxiter"] < before["options"]["maxiter"]
            assert after["timeout_sec"] < before["timeout_sec"]

    def test_a_limit_of_no_time(self, double):
        mll = objective(*data(**double))
        assert fit_points_and_hyperparameters(mll, timeout_sec=0.0).step < 30

    def test_ends_where_little_is_gained(self, double, monkeypatch):
        monkeypatch.setattr(learned_points, "EVALUATIONS", 7)
        monkeypatch.setattr(learned_points, "GAIN", 1e3)
        mll = objective(*data(**double))
        before = loss_of(mll)
        result = fit_points_and_hyperparameters(mll)
        assert result.step == 8
        assert result.fval < before
        assert loss_of(mll) == pytest.approx(result.fval, rel=1e-12)

    def test_best_evaluation_is_kept(self, double, monkeypatch):
        """Whatever is evaluated afterwards, NaN included."""
        mll = objective(*data(**double))

        @torch.no_grad()
        def evaluate(number: int, kwargs: dict[str, Any]) -> OptimizationResult:
            for i, value in enumerate((math.nan, 3.0, 1.0, 2.0, math.nan)):
                mll.model.learned_points.fill_(float(i))
                kwargs["on_evaluation"](torch.tensor(value))
            return OptimizationResult(5, 2.0, status=OptimizationStatus.STOPPED)

        noted_runs(monkeypatch, evaluate)
        result = fit_points_and_hyperparameters(mll)
        assert (mll.model.learned_points == 2.0).all()
        assert (result.step, result.fval) == (5, 1.0)


class TestFailure:
    @pytest.mark.one_in(2)
    @pytest.mark.parametrize("num_good", [0, 1])
    @pytest.mark.parametrize("how", ["warns", "raises"])
    def test_is_told_where_nothing_was_gained(self, how, num_good, double, monkeypatch):
        def fails_at_last(number: int, kwargs: dict[str, Any]) -> Any:
            if number <= num_good:
                kwargs["options"] |= {"ftol": 1e-2}
                return None
            if how == "raises":
                raise NotPSDError("no")
            warnings.warn("abnormal", OptimizationWarning, stacklevel=1)
            return OptimizationResult(1, 0.0, status=OptimizationStatus.FAILURE)

        runs = noted_runs(monkeypatch, fails_at_last)
        mll = objective(*data(**double))
        before = loss_of(mll)
        if how == "raises" and num_good == 0:
            with pytest.raises(NotPSDError):
                fit_points_and_hyperparameters(mll)
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = fit_points_and_hyperparameters(mll)
        assert len(runs) == num_good + 1
        has_failed = result.status is OptimizationStatus.FAILURE
        assert has_failed == (num_good == 0)
        assert has_failed or loss_of(mll) < before - 0.1
        told = [w for w in caught if issubclass(w.category, OptimizationWarning)]
        assert len(told) == (how == "warns") * (1 - num_good)

    def test_a_closure_of_ones_own(self, double):
        mll = objective(*data(**double))
        noise = "likelihood.noise_covar.raw_noise"
        parameters = {noise: mll.get_parameter(noise)}
        points = mll.model.learned_points.clone()
        closure = get_loss_closure_with_grads(mll, parameters)
        result = fit_points_and_hyperparameters(mll, parameters, closure=closure)
        assert result.status is OptimizationStatus.SUCCESS
        assert torch.equal(mll.model.learned_points, points)
