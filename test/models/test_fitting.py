"""`custom_fit`: its objective, rounds, warm starts, options and failures."""

import math
import warnings
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchWarning, InputDataError, ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim.closures import get_loss_closure_with_grads
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior
from torch import Tensor

from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.log_parameters import fit_gpytorch_mll_in_logarithms

FAST = {"options": {"maxiter": 8}}


def make_data(n: int = 60, d: int = 2, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n + d)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    Y = (5 * X).sin().sum(-1, keepdim=True)
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def make_mll(model: SingleTaskGP) -> ExactMarginalLogLikelihood:
    return ExactMarginalLogLikelihood(model.likelihood, model)


class Recorder:
    """An optimizer that stands in for L-BFGS and notes what it is given."""

    def __init__(self, fails_at: int | None = None, error: Any = None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.fails_at, self.error = fails_at, error

    def __call__(self, mll: Any, closure: Any = None, **kwargs: Any) -> None:
        self.calls.append(kwargs)
        with torch.no_grad():
            mll.model.mean_module.raw_constant.add_(1.0)
            if len(self.calls) == self.fails_at:
                if self.error is None:
                    mll.model.mean_module.raw_constant.fill_(float("nan"))
                else:
                    raise self.error


class TestObjective:
    """Priors are counted once, and divided by `n` like the likelihood."""

    def test_by_hand(self, double: dict[str, Any]) -> None:
        X, Y = make_data(n=20, d=1, **double)
        prior = GammaPrior(3.0, 6.0)
        kernel = ScaleKernel(RBFKernel(lengthscale_prior=prior))
        S = X[:4]
        model = SparseSingleTaskGP(
            X,
            Y,
            covar_module=kernel,
            mean_module=ZeroMean(),
            outcome_transform=None,
            inducing_points=S,
        )
        mll = make_mll(model).train()
        parameters = {n: p for n, p in mll.named_parameters() if p.requires_grad}
        loss, _ = get_loss_closure_with_grads(mll, parameters=parameters)()

        ell, variance = kernel.base_kernel.lengthscale.item(), kernel.outputscale.item()
        k = lambda A, B: variance * (-((A - B.T) ** 2) / (2 * ell**2)).exp()  # noqa: E731
        noise = model.likelihood.noise.item()
        Q = k(X, S) @ torch.linalg.solve(k(S, S), k(S, X))
        A = Q + noise * torch.eye(20, **double)
        y = Y.squeeze(-1)
        fit = y @ torch.linalg.solve(A, y) + A.logdet() + 20 * math.log(2 * math.pi)
        trace = (20 * variance - Q.trace()) / noise
        log_gamma = 3 * math.log(6.0) - math.lgamma(3.0) + 2 * math.log(ell) - 6 * ell
        # BoTorch's noise prior is LogNormal(-4, 1).
        z = math.log(noise) + 4
        log_normal = -math.log(noise) - 0.5 * math.log(2 * math.pi) - 0.5 * z * z
        expected = 0.5 * (fit + trace) - log_gamma - log_normal
        torch.testing.assert_close(loss, expected / 20)


class TestRounds:
    """How many fits, with which inducing points, and when to stop."""

    @pytest.mark.parametrize("rounds", [1, 2, 3])
    def test_as_many_as_asked(self, rounds: int, double: dict[str, Any]) -> None:
        model = SparseSingleTaskGP(
            *make_data(**double), inducing_sampler=RecursiveRLSSampler(0.05)
        )
        sizes = iter([20, 19, 18, 17])
        model.inducing_sampler = lambda *_, **__: torch.arange(next(sizes))
        optimizer = Recorder()
        model.custom_fit(make_mll(model), optimizer=optimizer, rounds=rounds)
        assert len(optimizer.calls) == rounds

    @pytest.mark.parametrize("gain", [False, True])
    def test_default_asks_for_a_gain(self, gain: bool, double: dict[str, Any]) -> None:
        """Nearly the same points end the fit; far better ones call for another."""
        X, Y = make_data(n=80, d=1, **double)
        model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(1.0))
        assert model.num_inducing > 1
        first = 60 if not gain else 1
        draws = iter([torch.arange(first), torch.arange(61), torch.arange(61)])
        model.inducing_sampler = lambda *_, **__: next(draws)
        model.resparsify()
        optimizer = Recorder()
        mll = model.custom_fit(make_mll(model), optimizer=optimizer)
        assert len(optimizer.calls) == 1 + gain
        assert not mll.training and not model.training

    def test_given_points_need_one_round(self, double: dict[str, Any]) -> None:
        X, Y = make_data(**double)
        model, optimizer = SparseSingleTaskGP(X, Y, inducing_points=X[:9]), Recorder()
        model.custom_fit(make_mll(model), optimizer=optimizer, rounds=5)
        assert len(optimizer.calls) == 1

    @pytest.mark.parametrize("drawn", [False, True])
    def test_few_points_in_the_fit_and_many_after(
        self, drawn: bool, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, Y = make_data(n=700, d=3, **double)
        model = SparseSingleTaskGP(X, Y, max_inducing_points=20)
        during: set[int] = set()
        forward = SparseSingleTaskGP.forward

        def record(self: SparseSingleTaskGP, x: Tensor) -> Any:
            if self.training:
                during.add(self.num_inducing)
            return forward(self, x)

        monkeypatch.setattr(SparseSingleTaskGP, "forward", record)
        with pytest.warns(BotorchWarning, match="cap of 20"):
            assert not drawn or model.num_inducing == 20
            model.custom_fit(
                make_mll(model), optimizer_kwargs=FAST, max_fit_inducing_points=10
            )
        assert during == {10}
        assert model.num_inducing == 20

    def test_small_data_stay_exact(self, double: dict[str, Any]) -> None:
        model = SparseSingleTaskGP(*make_data(n=40, **double))
        optimizer = Recorder()
        model.custom_fit(
            make_mll(model), optimizer=optimizer, max_fit_inducing_points=5
        )
        assert model.is_exact and len(optimizer.calls) == 1

    def test_an_exact_model_is_fitted_exactly(self, double: dict[str, Any]) -> None:
        """Also one with more points than a fit takes inducing points."""
        X, Y = make_data(n=290, **double)
        sparse, exact = SparseSingleTaskGP(X, Y), SingleTaskGP(X, Y)
        for model in (sparse, exact):
            fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
        for p, q in zip(sparse.parameters(), exact.parameters(), strict=True):
            torch.testing.assert_close(p, q)


class TestOptimizer:
    """Logarithms where nothing else was asked for; BoTorch's where exact or batched."""

    def seen(self, model: SparseSingleTaskGP, monkeypatch: Any, **kwargs: Any) -> Any:
        seen: list[Any] = []
        monkeypatch.setattr(
            "botorch_sparse.models.fitting.fit_once",
            lambda mll, **kwargs: seen.append(kwargs),
        )
        model.custom_fit(make_mll(model), rounds=1, **kwargs)
        return seen[0].get("optimizer"), seen[0]["optimizer_kwargs"]

    def test_choice(self, double: dict[str, Any], monkeypatch: Any) -> None:
        X, Y = make_data(**double)
        sparse = SparseSingleTaskGP(X, Y, inducing_points=X[:9])
        ours, theirs = fit_gpytorch_mll_in_logarithms, Recorder()
        assert self.seen(sparse, monkeypatch) == (ours, None)
        given = self.seen(sparse, monkeypatch, optimizer_kwargs=FAST)
        assert given == (ours, FAST)
        other = {"method": "SLSQP"}
        given = self.seen(sparse, monkeypatch, optimizer_kwargs=other)
        assert given == (None, other)
        given = self.seen(sparse, monkeypatch, optimizer=theirs)
        assert given == (theirs, None)
        assert self.seen(SparseSingleTaskGP(X, Y), monkeypatch) == (None, None)
        two = SparseSingleTaskGP(X, torch.cat([Y, Y], -1), inducing_points=X[:9])
        assert self.seen(two, monkeypatch) == (None, None)


class TestWarmRefit:
    """A fit starts from the present hyperparameters."""

    def test_starts_where_it_ended(self, double: dict[str, Any]) -> None:
        X, Y = make_data(n=150, **double)
        counts: list[int] = []
        model = SparseSingleTaskGP(X[:140], Y[:140], inducing_points=X[:30])
        self.fit(model, counts)
        more = SparseSingleTaskGP(X, Y, inducing_points=X[:30])
        more.load_state_dict(model.state_dict())
        self.fit(more, counts)
        cold = SparseSingleTaskGP(X, Y, inducing_points=X[:30])
        self.fit(cold, counts)
        assert counts[1] < 0.7 * counts[2]
        torch.testing.assert_close(
            more.posterior(X[:5]).mean, cold.posterior(X[:5]).mean, rtol=0, atol=2e-2
        )

    def fit(self, model: SparseSingleTaskGP, counts: list[int]) -> None:
        mll = make_mll(model)
        evaluate = get_loss_closure_with_grads(
            mll.train(), {n: p for n, p in mll.named_parameters() if p.requires_grad}
        )
        counts.append(0)

        def closure() -> Any:
            counts[-1] += 1
            return evaluate()

        fit_gpytorch_mll(mll, closure=closure)


class TestFailure:
    """A failed fit raises with a hint and changes nothing."""

    @pytest.mark.parametrize("was_training", [False, True])
    @pytest.mark.parametrize(
        "error",
        [None, ValueError("mine"), torch.linalg.LinAlgError("not positive")],
        ids=["nan", "own", "factorization"],
    )
    def test_model_is_as_it_was(
        self, error: Exception | None, was_training: bool, double: dict[str, Any]
    ) -> None:
        X, Y = make_data(**double)
        model = SparseSingleTaskGP(
            X,
            Y,
            input_transform=Normalize(2),
            inducing_sampler=RecursiveRLSSampler(0.05),
        )
        mll = make_mll(model)
        mll.train(was_training)
        points = model.inducing_points
        state = {name: value.clone() for name, value in model.state_dict().items()}
        optimizer = Recorder(fails_at=2, error=error)
        sizes = iter([20, 19])
        model.inducing_sampler = lambda *_, **__: torch.arange(next(sizes))
        kind = ValueError if isinstance(error, ValueError) else ModelFittingError
        match = "mine" if kind is ValueError else "as it was before.*Normalize"
        with pytest.raises(kind, match=match):
            model.custom_fit(mll, optimizer=optimizer, rounds=2)
        assert len(optimizer.calls) == 2
        assert mll.training == model.training == was_training
        assert torch.equal(model.inducing_points, points)
        for name, value in model.state_dict().items():
            assert torch.equal(value, state[name]), name

    def test_a_real_failure(self, double: dict[str, Any]) -> None:
        """A kernel that is NaN beyond where it starts."""
        X, Y = make_data(**double)

        class Broken(MaternKernel):
            def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Tensor:
                moved = (self.raw_lengthscale != 0).any()
                value = super().forward(x1, x2, **params)
                return value * float("nan") if moved else value

        kernel = Broken(lengthscale_constraint=Interval(0.1, 1.0))
        model = SparseSingleTaskGP(X, Y, covar_module=kernel, inducing_points=X[:9])
        before = model.covar_module.lengthscale.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ModelFittingError, match="kernel returned NaN"):
                fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
        assert torch.equal(model.covar_module.lengthscale, before)
        assert model.posterior(X[:3]).mean.isfinite().all()

    def test_a_warning_is_said_once(self, double: dict[str, Any]) -> None:
        X, Y = make_data(**double)
        model = SparseSingleTaskGP(X, Y, inducing_points=X[:9])

        def optimizer(mll: Any, closure: Any = None) -> None:
            for evaluation in range(3):
                warnings.warn(f"jitter {evaluation}", BotorchWarning, stacklevel=1)
            warnings.warn("another", BotorchWarning, stacklevel=1)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.custom_fit(make_mll(model), optimizer=optimizer)
        assert [str(w.message) for w in caught] == ["jitter 0", "another"]

    @pytest.mark.parametrize("bad", [0, -1, 1.5, True])
    def test_arguments(self, bad: Any, double: dict[str, Any]) -> None:
        model = SparseSingleTaskGP(*make_data(**double))
        for name in ("rounds", "max_fit_inducing_points"):
            with pytest.raises(InputDataError, match=f"{name}={bad!r}; need an int"):
                model.custom_fit(make_mll(model), **{name: bad})
