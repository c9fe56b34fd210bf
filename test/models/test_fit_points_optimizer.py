"""The optimizer of learned inducing points."""

import warnings
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
LOGARITHMS = "fit_gpytorch_mll_in_logarithms"


def data(n: int = 80, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    Y = (9 * X[:, :1]).sin() + X[:, 1:]
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def objective(X: Tensor, Y: Tensor, **options: Any) -> MarginalLogLikelihood:
    """An objective whose points are parameters, for good."""
    model = SparseSingleTaskGP(
        X, Y, inducing_points=X[:5], learn_inducing_points=True, **options
    )
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    mll.opened = points_as_parameters(model)
    mll.opened.__enter__()
    return mll


def loss_and_slope(mll: MarginalLogLikelihood) -> tuple[float, Tensor]:
    points = dict(mll.named_parameters())[NAME]
    loss, (slope,) = get_loss_closure_with_grads(mll, {NAME: points})()
    return loss.item(), slope.clone()


class TestUnits:
    def test_scales_of_the_columns_do_not_matter(self, double: dict[str, Any]) -> None:
        X, Y = data(**double)
        scale = torch.tensor([1.0, 2.0**13], **double)  # which rounds nothing
        bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **double)
        found = []
        for c in (torch.ones_like(scale), scale):
            mll = objective(c * X, Y, input_transform=Normalize(2, bounds=c * bounds))
            result = fit_points_and_hyperparameters(mll, options={"maxiter": 12})
            found.append((result.fval, dict(mll.named_parameters())[NAME] / c))
        assert found[0][0] == pytest.approx(found[1][0], rel=1e-8)
        close(*(points for _, points in found), rtol=1e-6, atol=1e-6)

    def test_a_column_that_does_not_vary(self, double: dict[str, Any]) -> None:
        X, Y = data(**double)
        X = torch.cat([X, torch.full_like(X[:, :1], 0.5)], dim=-1)
        mll = objective(X, Y)
        assert learned_points.units_of_points(mll)[NAME].isfinite().all()
        before, _ = loss_and_slope(mll)
        assert fit_points_and_hyperparameters(mll).fval < before - 0.1

    def test_bounds_hold_for_the_points_themselves(
        self, double: dict[str, Any]
    ) -> None:
        mll = objective(*data(**double))
        for lower in (0.0, 1e-3):
            fit_points_and_hyperparameters(mll, bounds={NAME: (lower, 1.0)})
            points = dict(mll.named_parameters())[NAME]
            assert (points >= lower).all() and (points <= 1).all()
            assert points.amax() > 0.5


class TestEnd:
    def test_begins_anew_where_scipy_ends_too_soon(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs: list[None] = []
        run = learned_points.fit_gpytorch_mll_in_logarithms

        def counted(*args: Any, **kwargs: Any) -> OptimizationResult:
            runs.append(None)
            return run(*args, **kwargs)

        monkeypatch.setattr(learned_points, LOGARITHMS, counted)
        loose = {"ftol": 1e-2}  # asked for, it ends the search
        once = fit_points_and_hyperparameters(objective(*data(**double)), options=loose)
        assert len(runs) == 1
        monkeypatch.setattr(
            learned_points, "OPTIONS", {**learned_points.OPTIONS, **loose}
        )
        result = fit_points_and_hyperparameters(objective(*data(**double)))
        assert len(runs) > 3
        assert result.fval < once.fval - 0.01

    def test_ends_where_little_is_gained(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(learned_points, "EVALUATIONS", 7)
        monkeypatch.setattr(learned_points, "GAIN", 1e3)
        mll = objective(*data(**double))
        before, _ = loss_and_slope(mll)
        result = fit_points_and_hyperparameters(mll)
        assert result.step == 8
        assert result.fval < before
        after, _ = loss_and_slope(mll)
        assert after == pytest.approx(result.fval, rel=1e-12)

    def test_limits_are_those_of_all_runs(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits: list[tuple[int, float]] = []
        run = learned_points.fit_gpytorch_mll_in_logarithms

        def counted(mll: MarginalLogLikelihood, *args: Any, **kwargs: Any) -> Any:
            limits.append((kwargs["options"]["maxiter"], kwargs["timeout_sec"]))
            return run(mll, *args, **kwargs)

        monkeypatch.setattr(learned_points, LOGARITHMS, counted)
        loose = {**learned_points.OPTIONS, "ftol": 1e-2}
        monkeypatch.setattr(learned_points, "OPTIONS", loose)
        fit_points_and_hyperparameters(
            objective(*data(**double)), options={"maxiter": 500}, timeout_sec=1e4
        )
        iterations, seconds = zip(*limits, strict=True)
        assert iterations[0] == 500 and seconds[0] < 1e4
        assert all(a > b for a, b in pairwise(iterations))
        assert all(a > b for a, b in pairwise(seconds))
        short = fit_points_and_hyperparameters(
            objective(*data(**double)), timeout_sec=0.0
        )
        assert short.step < 30

    def test_best_evaluation_is_kept(self, double: dict[str, Any]) -> None:
        """Whatever is evaluated afterwards, NaN included."""
        mll = objective(*data(**double))
        search = learned_points._Search(mll, can_stall=True)
        points = dict(mll.named_parameters())[NAME]
        values = (float("nan"), 3.0, 1.0, 2.0, float("nan"))
        for i, value in enumerate(values):
            with torch.no_grad():
                points.fill_(float(i))
            search.note(torch.tensor(value))
        search.restore()
        assert (points == 2.0).all()
        assert search.best[1:] == [3.0, 1.0, 1.0, 1.0]
        assert search.has_gained(since=1)
        assert not search.has_gained(since=2)


class TestFailure:
    @pytest.mark.parametrize("num_good", [0, 1])
    @pytest.mark.parametrize("how", ["warns", "raises"])
    def test_is_told_where_nothing_was_gained(
        self,
        how: str,
        num_good: int,
        double: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        runs: list[None] = []
        run = learned_points.fit_gpytorch_mll_in_logarithms

        def fails_at_last(mll: MarginalLogLikelihood, *args: Any, **kwargs: Any) -> Any:
            runs.append(None)
            if len(runs) <= num_good:
                kwargs["options"] |= {"ftol": 1e-2}
                return run(mll, *args, **kwargs)
            if how == "raises":
                raise NotPSDError("no")
            warnings.warn("abnormal", OptimizationWarning, stacklevel=1)
            return OptimizationResult(
                step=1, fval=0.0, status=OptimizationStatus.FAILURE
            )

        monkeypatch.setattr(learned_points, LOGARITHMS, fails_at_last)
        mll = objective(*data(**double))
        before, _ = loss_and_slope(mll)
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
        assert has_failed or loss_and_slope(mll)[0] < before - 0.1
        told = [w for w in caught if issubclass(w.category, OptimizationWarning)]
        assert len(told) == (how == "warns") * (1 - num_good)

    def test_a_closure_of_ones_own(self, double: dict[str, Any]) -> None:
        mll = objective(*data(**double))
        parameters = {
            n: p for n, p in mll.named_parameters() if n.endswith("raw_noise")
        }
        points = dict(mll.named_parameters())[NAME].clone()
        closure = get_loss_closure_with_grads(mll, parameters)
        result = fit_points_and_hyperparameters(mll, parameters, closure=closure)
        assert result.status is OptimizationStatus.SUCCESS
        assert torch.equal(dict(mll.named_parameters())[NAME], points)
