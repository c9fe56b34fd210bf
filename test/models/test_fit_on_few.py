"""The exact likelihood of a few observations as a rival of the collapsed bound."""

import math
from typing import Any

import pytest
import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.likelihoods import StudentTLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP, fit_on_few, loo_cv
from botorch_sparse.models.leave_one_out import leave_one_out_score

close = torch.testing.assert_close


def rough(n: int, noise: float, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    """A function of six inputs that few inducing points cannot follow."""
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(n, 6, generator=generator, dtype=torch.float64)
    Y = (-4 * (X - 0.6).square().sum(-1, True)).exp() + 0.5 * (5 * X[:, :3]).sin().prod(
        -1, keepdim=True
    )
    Y = (Y - Y.mean()) / Y.std()
    Y = Y + noise * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def fit(model: SingleTaskGP, **options: Any) -> Any:
    return fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model), **options
    )


def hyperparameters(model: SingleTaskGP) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


class TestChoice:
    def test_small_noise_is_found(self, double: dict[str, Any]) -> None:
        X, Y = rough(600, 0.01, **double)
        alone, default = SparseSingleTaskGP(X, Y), SparseSingleTaskGP(X, Y)
        fit(alone, rounds=2)
        fit(default)
        noises = [m.likelihood.noise.item() for m in (alone, default)]
        assert noises[1] < 0.2 * noises[0]
        rows = torch.arange(len(X))
        scores = [leave_one_out_score(m.eval(), rows) for m in (alone, default)]
        assert scores[1] > scores[0] + 0.2

    @pytest.mark.parametrize("few_is_better", [False, True])
    def test_the_better_one_is_kept(
        self,
        few_is_better: bool,
        double: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """With scores that are made up, the hyperparameters follow them."""
        X, Y = rough(520, 0.3, **double)
        seen: list[tuple[dict[str, Tensor], Tensor]] = []

        def score(model: Any, rows: Tensor) -> Tensor:
            seen.append((hyperparameters(model), model.inducing_points))
            return torch.tensor(
                float(len(seen) == 2) if few_is_better else -1.0 * len(seen)
            )

        monkeypatch.setattr(fit_on_few, "leave_one_out_score", score)
        model = SparseSingleTaskGP(X, Y)
        fit(model)
        expected, points = seen[int(few_is_better)]
        other = seen[1 - int(few_is_better)][0]
        for name, value in hyperparameters(model).items():
            assert torch.equal(value, expected[name])
        assert any(not torch.equal(other[name], expected[name]) for name in other)
        assert torch.equal(model.inducing_points, points)

    def test_it_is_the_exact_fit_of_500_rows(self, double: dict[str, Any]) -> None:
        X, Y = rough(620, 0.1, **double)
        model = SparseSingleTaskGP(X, Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        few = model._fit_on_few(mll, {})
        assert few is not None
        rows = model._random_rows(500)
        assert len(rows.unique()) == 500
        targets = model.outcome_transform(Y)[0]
        exact = SingleTaskGP(X[rows], targets[rows], outcome_transform=None)
        fit(exact)
        names = {name.removeprefix("model."): name for name in few}
        for name, value in exact.named_parameters():
            close(few[names[name]], value.detach(), rtol=5e-2, atol=5e-2)
        assert model.train_inputs[0].shape == X.shape

    def test_given_noise_goes_with_the_rows(self, double: dict[str, Any]) -> None:
        X, Y = rough(620, 0.1, **double)
        Yvar = torch.linspace(0.01, 0.1, 620, **double).unsqueeze(-1)
        model = SparseSingleTaskGP(X, Y, Yvar)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        few = fit_on_few._on_rows(mll.train(), rows := model._random_rows(500))
        noise = model.likelihood.noise
        assert torch.equal(few.model.likelihood.noise, noise[rows])
        assert noise.shape == (620,)
        fit(model, optimizer_kwargs={"options": {"maxiter": 3}})
        assert model.posterior(X[:3]).mean.isfinite().all()


class TestWhen:
    @pytest.mark.parametrize("num_outputs", [1, 2])
    def test_only_by_default(self, num_outputs: int, double: dict[str, Any]) -> None:
        X, Y = rough(540, 0.1, **double)
        Y = Y.expand(-1, num_outputs)
        short = {"options": {"maxiter": 2}}
        calls: list[int] = []

        class Counted(SparseSingleTaskGP):
            def _fit_on_few(self, *args: Any) -> Any:
                calls.append(1)
                return super()._fit_on_few(*args)

        options: list[dict[str, Any]]
        for options in ({"rounds": 1}, {"max_fit_inducing_points": 30}):
            fit(Counted(X, Y), optimizer_kwargs=short, **options)
        assert not calls
        fit(Counted(X, Y), optimizer_kwargs=short)
        assert calls == [1]

    def test_nothing_for_given_points_and_exact_models(
        self, double: dict[str, Any]
    ) -> None:
        X, Y = rough(540, 0.1, **double)
        for model in (
            SparseSingleTaskGP(X, Y, inducing_points=X[:9]),
            SparseSingleTaskGP(X[:80], Y[:80]),
        ):
            mll = ExactMarginalLogLikelihood(model.likelihood, model)
            assert model._fit_on_few(mll, {}) is None
        assert not fit_on_few._is_divisible(StudentTLikelihood())

    def test_a_failure_leaves_the_other_fit(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*args: Any, **kwargs: Any) -> None:
            raise ModelFittingError("no")

        monkeypatch.setattr(fit_on_few, "fit_once", fails)
        X, Y = rough(540, 0.1, **double)
        default, alone = SparseSingleTaskGP(X, Y), SparseSingleTaskGP(X, Y)
        fit(default)
        fit(alone, rounds=2)
        close(default.likelihood.noise, alone.likelihood.noise, rtol=1e-2, atol=0.0)


def test_score_against_loo_cv(double: dict[str, Any]) -> None:
    X, Y = rough(90, 0.2, **double)
    model = SparseSingleTaskGP(X, Y, inducing_points=X[:20]).eval()
    results = loo_cv(model, untransform=False)
    variance = results.posterior.variance.squeeze()
    error = results.observed_Y.squeeze() - results.posterior.mean.squeeze()
    density = -0.5 * ((2 * math.pi * variance).log() + error.square() / variance)
    rows = torch.tensor([3, 50, 7], device=X.device)
    close(leave_one_out_score(model, rows), density[rows].mean())
