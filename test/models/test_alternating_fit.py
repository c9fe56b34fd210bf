"""`fit_gpytorch_mll`: its objective, rounds, warm starts, options and failures."""

import copy
import math
import warnings
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchWarning, ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim.closures import get_loss_closure_with_grads
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel
from gpytorch.priors import GammaPrior
from sparse_model_cases import make_mll
from torch import Tensor

from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit import alternating_fit
from botorch_sparse.models.fit.candidate_fits import with_optimizer

FAST = {"options": {"maxiter": 8}}


def make_data(n: int = 60, d: int = 2, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n + d)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    Y = (5 * X).sin().sum(-1, keepdim=True)
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


class Recorder:
    """An optimizer that stands in for L-BFGS and notes what it is given."""

    def __init__(self, fails_at: int | None = None, error: Any = None) -> None:
        self.sizes: list[int] = []
        self.fails_at, self.error = fails_at, error

    def __call__(self, mll: Any, closure: Any = None, **kwargs: Any) -> None:
        self.sizes.append(mll.model.num_inducing)
        is_failing = len(self.sizes) == self.fails_at
        with torch.no_grad():
            mll.model.mean_module.raw_constant.add_(math.nan if is_failing else 1.0)
        if is_failing and self.error is not None:
            raise self.error


def drawing(*sizes: int) -> Any:
    """A sampler that draws so many of the first points, one number after the other."""
    left = iter(sizes)
    return lambda *_, **__: torch.arange(next(left))


def test_priors_are_counted_once(double):
    """And divided by `n`, as in the exact GP, which all points as inducing ones are."""
    X, Y = make_data(n=20, d=1, **double)
    kernel = MaternKernel(0.5, lengthscale_prior=GammaPrior(3.0, 6.0)).to(**double)
    losses = []
    for each in (
        SparseSingleTaskGP(X, Y, covar_module=kernel, inducing_points=X),
        SingleTaskGP(X, Y, covar_module=kernel),
    ):
        mll = make_mll(each).train()
        parameters = dict(mll.named_parameters())
        losses.append(get_loss_closure_with_grads(mll, parameters)()[0])
    torch.testing.assert_close(*losses, rtol=1e-9, atol=0)


class TestRounds:
    """How many fits, with which inducing points, and when to stop."""

    @pytest.mark.parametrize(
        ("drawn", "options", "rounds"),
        [
            ((20, 19), {"rounds": 1}, 1),
            ((20, 19, 18, 17), {"rounds": 3}, 3),
            ((60, 61, 61), {}, 1),  # by default nearly the same points end the fit
            ((1, 61, 61), {}, 2),  # and far better ones call for another
            (None, {"rounds": 5}, 1),  # as do points that are given
        ],
    )
    def test_how_many(self, drawn, options, rounds, double):
        """Points are drawn in between, and those of the last fit stay."""
        X, Y = make_data(n=80, d=1, **double)
        draws = drawn or (9,)
        points = {"inducing_sampler": drawing(*draws)}
        points = points if drawn else {"inducing_points": X[:9]}
        model, optimizer = SparseSingleTaskGP(X, Y, **points), Recorder()
        mll = fit_gpytorch_mll(make_mll(model), optimizer=optimizer, **options)
        assert optimizer.sizes == [*draws[:rounds]]
        assert not options or model.num_inducing == optimizer.sizes[-1]
        assert not mll.training and not model.training

    @pytest.mark.parametrize("drawn", [False, True])
    def test_few_points_in_the_fit_and_many_after(self, drawn, double):
        X, Y = make_data(n=700, d=3, **double)
        model, optimizer = SparseSingleTaskGP(X, Y, max_inducing_points=20), Recorder()
        if drawn:
            model.posterior(X[:2])
        mll = make_mll(model)
        fit_gpytorch_mll(mll, optimizer=optimizer, max_fit_inducing_points=10)
        assert set(optimizer.sizes) == {10}
        assert model.num_inducing == 20

    def test_an_exact_model_is_fitted_exactly(self, double):
        """Also one with more points than a fit takes inducing points."""
        X, Y = make_data(n=290, **double)
        sparse, exact = SparseSingleTaskGP(X, Y), SingleTaskGP(X, Y)
        for model in (sparse, exact):
            fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
        for p, q in zip(sparse.parameters(), exact.parameters(), strict=True):
            torch.testing.assert_close(p, q)

    def test_improves_and_is_deterministic(self, double):
        def value(model: SparseSingleTaskGP) -> float:
            mll = make_mll(model.train())
            return mll(model(*model.train_inputs), model.train_targets).item()

        data = make_data(n=120, d=1, **double)
        first, again = (
            SparseSingleTaskGP(*data, inducing_sampler=RecursiveRLSSampler(0.1))
            for _ in range(2)
        )
        before = value(first)
        for model in (first, again):
            fit_gpytorch_mll(make_mll(model))
        for p, q in zip(first.parameters(), again.parameters(), strict=True):
            assert torch.equal(p, q)
        assert torch.equal(first.inducing_points, again.inducing_points)
        assert value(first) > before + 0.1


class TestOptions:
    def test_optimizer(self, double, monkeypatch):
        """Logarithms where no other is asked for; BoTorch's where exact or batched."""
        X, Y = make_data(**double)
        ours, theirs, own = Recorder(), Recorder(), Recorder()
        monkeypatch.setattr(alternating_fit, "fit_gpytorch_mll_in_logarithms", ours)
        monkeypatch.setattr(alternating_fit, "fit_in_closed_form", theirs)
        sparse = SparseSingleTaskGP(X, Y, inducing_points=X[:9])
        pair = [t.expand(2, *t.shape) for t in (X, Y)]
        batch = SparseSingleTaskGP(*pair, inducing_points=X[:9])
        exact = SparseSingleTaskGP(X, Y)
        cases: list[tuple[Any, Recorder, dict[str, Any]]] = [
            (sparse, ours, {}),
            (sparse, ours, {"optimizer_kwargs": FAST}),
            (sparse, own, {"optimizer": own}),
            (exact, theirs, {}),
            (batch, theirs, {}),
        ]
        for model, expected, options in cases:
            before = len(expected.sizes)
            fit_gpytorch_mll(make_mll(model), rounds=1, **options)
            assert len(expected.sizes) == before + 1
        method = {"optimizer_kwargs": {"method": "SLSQP"}}
        assert with_optimizer(method, ours) == method

    def test_closure_and_its_options(self, double):
        X, Y = make_data(**double)
        model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(0.1))
        seen: list[str] = []

        def optimizer(mll: Any, closure: Any = None, **kwargs: Any) -> None:
            seen.append(kwargs["tag"])
            closure()

        fit_gpytorch_mll(
            make_mll(model),
            closure=lambda tag: seen.append(tag),
            closure_kwargs={"tag": "closure"},
            optimizer_kwargs={"tag": "optimizer"},
            optimizer=optimizer,
            rounds=1,
        )
        assert seen == ["optimizer", "closure"]


@pytest.mark.slow
def test_a_warm_fit_starts_where_it_ended(double):
    X, Y = make_data(n=150, **double)
    counts: list[int] = []

    def counted(*_: Any) -> None:
        counts[-1] += 1

    def fit(model: SparseSingleTaskGP) -> SparseSingleTaskGP:
        counts.append(0)
        options: Any = {"optimizer_kwargs": {"callback": counted}}
        fit_gpytorch_mll(make_mll(model), optimizer=fit_gpytorch_mll_scipy, **options)
        return model

    first = fit(SparseSingleTaskGP(X[:140], Y[:140], inducing_points=X[:30]))
    more, cold = (SparseSingleTaskGP(X, Y, inducing_points=X[:30]) for _ in range(2))
    more.load_state_dict(first.state_dict())
    means = [fit(model).posterior(X[:5]).mean for model in (more, cold)]
    assert counts[1] < 0.7 * counts[2]
    torch.testing.assert_close(*means, rtol=0, atol=2e-2)


class TestFailure:
    """A failed fit raises with a hint and changes nothing."""

    @pytest.mark.parametrize("was_training", [False, True])
    @pytest.mark.parametrize(
        "error",
        [None, ValueError("mine"), torch.linalg.LinAlgError("not positive")],
        ids=["nan", "own", "factorization"],
    )
    def test_model_is_as_it_was(self, error, was_training, double):
        X, Y = make_data(**double)
        sampler = RecursiveRLSSampler(0.05)
        model = SparseSingleTaskGP(
            X, Y, input_transform=Normalize(2), inducing_sampler=sampler
        )
        mll, points = make_mll(model), model.inducing_points
        model.posterior(X[:2])
        mll.train(was_training)
        state = copy.deepcopy(model.state_dict())
        optimizer = Recorder(fails_at=2, error=error)
        model.inducing_sampler = drawing(19, 18)
        kind = ValueError if isinstance(error, ValueError) else ModelFittingError
        match = "mine" if kind is ValueError else "as it was before.*Normalize"
        with pytest.raises(kind, match=match):
            fit_gpytorch_mll(mll, optimizer=optimizer, rounds=2)
        assert len(optimizer.sizes) == 2
        assert mll.training == model.training == was_training
        assert torch.equal(model.inducing_points, points)
        for name, value in model.state_dict().items():
            assert torch.equal(value, state[name]), name

    def test_a_real_failure(self, double):
        """A kernel that is NaN beyond where it starts."""
        X, Y = make_data(**double)

        class Broken(MaternKernel):
            def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Tensor:
                moved = (self.raw_lengthscale != 0).any()
                value = super().forward(x1, x2, **params)
                return value * float("nan") if moved else value

        kernel = Broken(lengthscale_constraint=Interval(0.1, 1.0))
        model = SparseSingleTaskGP(X, Y, covar_module=kernel, inducing_points=X[:9])
        before = model.eval().covar_module.lengthscale.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ModelFittingError, match="kernel returned NaN"):
                fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
        assert torch.equal(model.covar_module.lengthscale, before)
        assert not model.training
        assert model.posterior(X[:3]).mean.isfinite().all()

    def test_a_warning_is_said_once(self, double):
        X, Y = make_data(**double)
        model = SparseSingleTaskGP(X, Y, inducing_points=X[:9])

        def optimizer(mll: Any, closure: Any = None) -> None:
            for evaluation in range(3):
                warnings.warn(f"jitter {evaluation}", BotorchWarning, stacklevel=1)
            warnings.warn("another", BotorchWarning, stacklevel=1)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit_gpytorch_mll(make_mll(model), optimizer=optimizer)
        assert [str(w.message) for w in caught] == ["jitter 0", "another"]
