"""The exact likelihood of a few observations as a rival of the collapsed bound."""

import math
import warnings
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchWarning, ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import Warp
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import StudentTLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP, fit_on_few, loo_cv
from botorch_sparse.models.leave_one_out import leave_one_out_score

close = torch.testing.assert_close
SHORT = {"options": {"maxiter": 4}}


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
        fit(model, optimizer_kwargs=SHORT)
        expected, points = seen[int(few_is_better)]
        other = seen[1 - int(few_is_better)][0]
        for name, value in hyperparameters(model).items():
            assert torch.equal(value, expected[name])
        assert any(not torch.equal(other[name], expected[name]) for name in other)
        assert torch.equal(model.inducing_points, points)

    def test_it_is_the_exact_fit_of_random_rows(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fit_on_few, "EXACT_SIZE", 200)
        X, Y = rough(620, 0.1, **double)
        model = SparseSingleTaskGP(X, Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        few = model._fit_on_few(mll, {})
        assert few is not None
        rows = model._shuffled_rows()[:200]
        assert len(rows.unique()) == 200
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
        few = fit_on_few.on_rows(mll.train(), rows := model._shuffled_rows()[:500])
        noise = model.likelihood.noise
        assert torch.equal(few.model.likelihood.noise, noise[rows])
        assert noise.shape == (620,)
        fit(model, optimizer_kwargs={"options": {"maxiter": 3}})
        assert model.posterior(X[:3]).mean.isfinite().all()


class TestCopy:
    def test_is_exact_whatever_the_cap(self, double: dict[str, Any]) -> None:
        X, Y = rough(540, 0.1, **double)
        for options in ({"max_inducing_points": 9}, {"max_memory": 10**6}):
            model = SparseSingleTaskGP(X, Y, **options)
            mll = ExactMarginalLogLikelihood(model.likelihood, model)
            with warnings.catch_warnings():
                warnings.simplefilter("error", BotorchWarning)
                few = fit_on_few.on_rows(mll.train(), model._shuffled_rows()[:500])
                assert few.model.is_exact
                assert few.model.num_inducing == 500

    def test_keeps_what_a_transform_learned(self, double: dict[str, Any]) -> None:
        """One far point that is not among the few must not change their scale."""
        X, Y = rough(540, 0.1, **double)
        model = SparseSingleTaskGP(X, Y, input_transform=Normalize(6))
        far = model._shuffled_rows()[-1]
        X = X.index_fill(0, far, 50.0)
        model = SparseSingleTaskGP(X, Y, input_transform=Normalize(6))
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        few = fit_on_few.on_rows(mll.train(), model._shuffled_rows()[:500]).model
        expected = model.input_transform(X)[model._shuffled_rows()[:500]]
        close(few.input_transform(few.train_inputs[0]), expected)
        assert model.input_transform.learn_coefficients

    def test_modules_with_history(self, double: dict[str, Any]) -> None:
        """What cannot be copied is fitted by the bound alone."""

        class Keeps(RBFKernel):
            def forward(self, *args: Any, **kwargs: Any) -> Any:
                self.last = super().forward(*args, **kwargs)
                return self.last

        X, Y = rough(540, 0.1, **double)
        model = SparseSingleTaskGP(X, Y, covar_module=Keeps().to(**double))
        model.covar_module(X[:3], X[:3]).to_dense()
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        assert model._fit_on_few(mll, {}) is None


class TestFailures:
    def test_few_stand_in_for_the_bound(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*args: Any) -> None:
            raise ModelFittingError("no")

        monkeypatch.setattr(SparseSingleTaskGP, "_fit_in_rounds", fails)
        X, Y = rough(540, 0.1, **double)
        model = SparseSingleTaskGP(X, Y)
        before = hyperparameters(model)
        fit(model, optimizer_kwargs=SHORT)
        assert all(
            (value != before[k]).any() for k, value in hyperparameters(model).items()
        )
        assert not model.training
        with pytest.raises(ModelFittingError):
            fit(SparseSingleTaskGP(X, Y), rounds=1)

    @pytest.mark.parametrize("failing", [0, 1])
    @pytest.mark.parametrize("how", ["nan", "raises"])
    def test_what_cannot_be_scored_loses(
        self,
        failing: int,
        how: str,
        double: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        seen: list[dict[str, Tensor]] = []

        def score(model: Any, rows: Tensor) -> Tensor:
            seen.append(hyperparameters(model))
            if len(seen) != failing + 1:
                return torch.tensor(0.0)
            if how == "raises":
                raise NotPSDError("no")
            return torch.tensor(math.nan)

        monkeypatch.setattr(fit_on_few, "leave_one_out_score", score)
        X, Y = rough(540, 0.1, **double)
        model = SparseSingleTaskGP(X, Y)
        fit(model, optimizer_kwargs=SHORT)
        for name, value in hyperparameters(model).items():
            assert torch.equal(value, seen[1 - failing][name])

    def test_learned_transforms_follow_the_choice(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The training inputs are those of the warping that was kept."""
        scores = iter([0.0, 1.0])
        monkeypatch.setattr(
            fit_on_few, "leave_one_out_score", lambda *_: torch.tensor(next(scores))
        )
        X, Y = rough(540, 0.1, **double)
        warp = Warp(
            d=6,
            indices=[0, 1],
            concentration0_prior=None,
            concentration1_prior=None,
        )
        model = SparseSingleTaskGP(X, Y, input_transform=warp.to(**double))
        fit(model, optimizer_kwargs=SHORT)
        kept = model.train_inputs[0].clone()
        model.train()
        model.eval()
        assert torch.equal(model.train_inputs[0], kept)

    def test_smooth_functions_with_little_noise(self, double: dict[str, Any]) -> None:
        """Where rounding in the objective once ended half of the fits."""
        for seed in (0, 1, 2):
            generator = torch.Generator().manual_seed(seed)
            X = torch.rand(560, 2, generator=generator, dtype=torch.float64)
            noise = torch.randn(560, 1, generator=generator, dtype=torch.float64)
            Y = (6 * X**3).sin().sum(-1, True) + 0.02 * noise
            model = SparseSingleTaskGP(X.to(**double), Y.to(**double))
            fit(model, max_attempts=1, rounds=1)
            assert 0.01 < model.likelihood.noise.sqrt() * Y.std() < 0.03


class TestWhen:
    @pytest.mark.parametrize("num_outputs", [1, 2])
    def test_only_by_default(self, num_outputs: int, double: dict[str, Any]) -> None:
        X, Y = rough(510, 0.1, **double)
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
        model = SparseSingleTaskGP(X, Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        assert model._fit_on_few(mll, {"timeout_sec": 9.0}) is None
        bounds: dict[str, Any] = {"optimizer_kwargs": {"bounds": {}}}
        assert model._fit_on_few(mll, bounds) is None

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
        assert not fit_on_few.is_divisible(StudentTLikelihood())

    def test_a_failure_leaves_the_other_fit(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*args: Any, **kwargs: Any) -> None:
            raise ModelFittingError("no")

        monkeypatch.setattr(fit_on_few, "fit_once", fails)
        X, Y = rough(540, 0.1, **double)
        default, alone = SparseSingleTaskGP(X, Y), SparseSingleTaskGP(X, Y)
        for model, rounds in ((default, {}), (alone, {"rounds": 2})):
            fit(model, optimizer_kwargs={"options": {"maxiter": 25}}, **rounds)
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
