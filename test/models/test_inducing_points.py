"""Inducing points: exact for few data, then as many as the data and the caps say."""

import copy
import warnings
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.utils.datasets import SupervisedDataset
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from sparse_model_cases import FAST, make_data, make_mll
from torch import Tensor

from botorch_sparse.inducing import CertifiedSampler, PosteriorVarianceSampler
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models import inducing_points as memory
from botorch_sparse.models.fit import alternating_fit as rounds
from botorch_sparse.models.inducing_points import (
    EXACT_SIZE,
    MOST_EXACT,
    MOST_INDUCING_POINTS,
    affordable_inducing_points,
)


def make(n: int, lengthscale: float = 0.4, d: int = 2, **options: Any) -> Any:
    """A model of `n` different points in [0, 2]^d, with a noise of 0.02."""
    tkwargs = {k: options.pop(k) for k in ("dtype", "device") if k in options}
    X, Y, _ = make_data(n, d, repeats=0, **tkwargs)
    return with_hyperparameters(SparseSingleTaskGP(X, Y, **options), lengthscale)


def with_hyperparameters(model: SingleTaskGP, lengthscale: float = 0.4) -> Any:
    model.covar_module.lengthscale = lengthscale
    model.likelihood.noise = 0.02
    return model


def first(m: int) -> Any:
    """A sampler of the first `m` points."""
    return lambda k, X, noise, **_: torch.arange(m, device=X.device)


def true_lambda_max(model: SparseSingleTaskGP) -> float:
    """Largest eigenvalue of (K - Q) / noise, dense."""
    X, S = model.train_inputs[0], model.inducing_points
    k = lambda A, B: model.covar_module(A, B).to_dense()  # noqa: E731
    K_SS, K_SX = k(S, S).detach().cpu(), k(S, X).detach().cpu()
    Q = K_SX.mT @ torch.linalg.lstsq(K_SS, K_SX, driver="gelsd").solution
    residual = k(X, X).detach().cpu() - Q
    return torch.linalg.eigvalsh(residual).max().item() / model.likelihood.noise.item()


class TestSwitch:
    """No surprise at the number of points where the model stops being exact."""

    @pytest.mark.parametrize("n", [EXACT_SIZE, EXACT_SIZE + 1])
    def test_both_sides(self, n, double):
        """An exact model is BoTorch's own; the other keeps its certificate."""
        X, Y, _ = make_data(n, repeats=0, **double)
        X_test = 2 * torch.rand(200, 2, **double)
        exact = with_hyperparameters(SingleTaskGP(X, Y)).posterior(X_test)
        auto = make(n, **double)
        assert auto.is_exact == (n <= EXACT_SIZE)
        posterior, certificate = auto.posterior(X_test), auto.certificate()
        if auto.is_exact:
            torch.testing.assert_close(posterior.mean, exact.mean)
            torch.testing.assert_close(posterior.variance, exact.variance)
            return
        assert certificate.is_certified and not certificate.is_capped
        assert certificate.num_inducing < n // 2
        assert true_lambda_max(auto) <= certificate.lambda_max <= 1.0
        ratio = posterior.variance / exact.variance
        assert ratio.max() <= certificate.alpha
        assert ratio.min() >= 1 / certificate.alpha


class TestNearlyAll:
    """Where nearly all points would be drawn, all are the better choice."""

    def test_it_predicts_what_the_exact_gp_does(self, double):
        n = EXACT_SIZE + 60
        X, Y, _ = make_data(n, repeats=0, **double)
        exact = with_hyperparameters(SingleTaskGP(X, Y), 0.15)
        ours = make(n, 0.15, **double)
        X_test = 2 * torch.rand(50, 2, **double)
        theirs, posterior = exact.posterior(X_test), ours.posterior(X_test)
        torch.testing.assert_close(posterior.mean, theirs.mean)
        torch.testing.assert_close(posterior.variance, theirs.variance)
        assert ours.num_inducing == n and not ours.is_exact  # by our code, O(m^2)

    @pytest.mark.parametrize("option", ["max_inducing_points", "inducing_sampler"])
    def test_not_where_points_were_asked_for(self, option, double):
        n = EXACT_SIZE + 60
        given = {"max_inducing_points": n - 1, "inducing_sampler": first(n - 1)}
        model = make(n, 0.02, **{option: given[option]}, **double)
        assert model.num_inducing == n - 1

    @pytest.mark.slow_sim
    def test_not_beyond_the_memory_or_the_limit(self, double):
        n = EXACT_SIZE + 60
        budget = 6 * 10**7
        few = memory.affordable_inducing_points(budget)
        assert n / 2 < few < n
        small = make(n, 0.15, max_memory=budget, **double)
        with pytest.warns(BotorchWarning, match=f"cap of {few}"):
            small.posterior(small.train_inputs[0][:1])
        assert small.num_inducing == few
        X, Y, _ = make_data(n, repeats=0, **double)
        assert 28 * n**2 < MOST_EXACT**2 < 29 * n**2
        many = with_hyperparameters(SparseSingleTaskGP(X, Y.repeat(1, 29)), 0.15)
        assert n / 3**0.5 < many.num_inducing < n

    @pytest.mark.slow_sim
    def test_fits_draw_few_points_all_the_same(self, double, monkeypatch):
        """Also the next fit of a model whose points are all."""
        model, seen = make(EXACT_SIZE + 60, 0.02, **double), list[int]()
        bound = rounds.fit_bound
        model.posterior(model.train_inputs[0][:1])
        assert model.num_inducing == EXACT_SIZE + 60

        def watched(mll: Any, *args: Any, **options: Any) -> Any:
            seen.append(mll.model.num_inducing)
            return bound(mll, *args, **options)

        monkeypatch.setattr(rounds, "fit_bound", watched)
        fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST, rounds=1)
        assert seen == [model.max_fit_inducing_points]


class TestGrowth:
    """The number of inducing points follows the data and the tolerance."""

    def test_tolerance(self, double):
        sizes = []
        for tolerance in (10.0, 1.0, 0.1):
            sampler = CertifiedSampler(tolerance=tolerance)
            model = make(600, 0.8, d=3, inducing_sampler=sampler, **double)
            certificate = model.certificate()
            assert true_lambda_max(model) <= certificate.lambda_max <= tolerance
            assert certificate.tolerance == tolerance
            sizes.append(certificate.num_inducing)
        assert sizes[0] < sizes[1] < sizes[2]

    def test_follows_the_data(self, double):
        """A rougher function needs more; the same points again need no more."""
        smooth, rough = (make(600, scale, **double) for scale in (2.0, 0.3))
        X, Y, _ = make_data(600, repeats=0, **double)
        repeated = SparseSingleTaskGP(X.repeat(3, 1), Y.repeat(3, 1))
        repeated = with_hyperparameters(repeated, 2.0)
        assert rough.num_inducing > 2 * smooth.num_inducing
        assert repeated.num_inducing < 2 * smooth.num_inducing

    def test_default_is_deterministic(self, double):
        model, other = make(900, **double), make(900, **double)
        assert torch.equal(model.inducing_points, other.inducing_points)
        again = model.resparsify(torch.Generator().manual_seed(7)).inducing_points
        assert again.shape != other.inducing_points.shape or not torch.equal(
            again, other.inducing_points
        )


class TestDraw:
    """What a sampler is told, which rows its indices are, and when it is called."""

    def test_looking_keeps_nothing(self, double, recwarn):
        """Neither points, nor caches, nor a notice; a call of the model does."""
        num_calls = 0

        def sampler(k: Any, X: Tensor, noise: Tensor, **_: Any) -> Tensor:
            nonlocal num_calls
            num_calls += 1
            return torch.arange(3 + num_calls, device=X.device)

        sampler.uses_variance = False  # type: ignore[attr-defined]
        model = make(60, inducing_sampler=sampler, **double)
        assert [model.num_inducing for _ in range(3)] == [4, 5, 6]
        assert not model.is_exact and num_calls == 4
        model.posterior(model.train_inputs[0][:2])
        assert num_calls == 5
        assert model.inducing_points.shape == (8, 2) and not model.is_exact
        model.train()
        assert model.num_inducing == 8 and num_calls == 5
        capped = make(60, max_inducing_points=5, **double)
        assert capped.num_inducing == 5
        learner = make(60, input_transform=Normalize(2), **double)
        learner.set_train_data(3 * learner.train_inputs[0], strict=False)
        before = learner.input_transform.coefficient.clone()
        assert learner.is_exact
        assert torch.equal(learner.input_transform.coefficient, before)
        learner.sparsify()
        assert not torch.equal(learner.input_transform.coefficient, before)
        assert not [w for w in recwarn if "cap of 5" in str(w.message)]

    def test_variance_and_noise_of_different_points(self, double):
        X, Y, _ = make_data(n=100, **double)
        model = SparseSingleTaskGP(X, Y, inducing_sampler=PosteriorVarianceSampler(2.0))
        assert 1 <= model.num_inducing < 100
        seen: dict[str, Tensor] = {}

        def sampler(k: Any, X: Tensor, noise: Tensor, **kwargs: Any) -> Tensor:
            seen["variance"], seen["noise"] = kwargs["variance"], noise
            return torch.arange(5, device=X.device)

        model.eval()
        expected = model(X[:88]).variance  # the others repeat the first
        model.inducing_sampler = sampler
        assert model.resparsify() is model
        torch.testing.assert_close(seen["variance"], expected)
        counts = torch.tensor([2.0] * 12 + [1.0] * 76, **double)
        torch.testing.assert_close(
            seen["noise"] * counts, model.likelihood.noise.expand(88)
        )
        assert torch.equal(model.inducing_points, X[:5])
        # not from the caches of the previous inducing points
        assert model.nystrom_posterior().num_inducing <= 5

    def test_indices_are_those_of_training_rows(self, double):
        X, Y, _ = make_data(n=20, repeats=0, **double)
        model = SparseSingleTaskGP(
            X.repeat_interleave(2, dim=0),
            Y.repeat_interleave(2, dim=0),
            inducing_sampler=lambda k, X, noise, **_: torch.arange(4, 9),
        )
        assert torch.equal(model.inducing_points, X[4:9])


class TestCaps:
    """Caps bound what is drawn, and are reported once; given points are not drawn."""

    def test_cap_is_reported_once(self, double, recwarn):
        model = make(600, 0.3, max_inducing_points=12, **double)
        certificate = model.certificate()
        assert certificate.is_capped and certificate.cap == 12
        assert certificate.num_inducing == 12 and not certificate.is_certified
        assert "the cap of 12 is reached" in str(model.resparsify().summary())
        assert not [w for w in recwarn.list if w.category is BotorchWarning]

    def test_cap_of_a_sampler(self, double, recwarn):
        sampler = CertifiedSampler(max_inducing_points=12)
        model = make(600, 0.3, inducing_sampler=sampler, **double)
        model.resparsify().resparsify()
        (said,) = (str(w.message) for w in recwarn.list if w.category is BotorchWarning)
        assert "cap of 12" in said and "max_inducing_points" in said

    def test_max_memory(self, double):
        model = make(600, 0.2, max_memory=500_000, **double)
        with pytest.warns(BotorchWarning, match="max_memory"):
            model.resparsify()
        assert model.num_inducing == affordable_inducing_points(500_000) == 7

    @pytest.mark.parametrize("max_memory", [1, 10**6, 10**9, 10**12])
    def test_budget_is_used_up(self, max_memory):
        m = affordable_inducing_points(max_memory)
        spent = [
            8 * (memory.PER_PAIR * k**2 + memory.PER_POINT * k) for k in (m, m + 1)
        ]
        assert spent[1] > max_memory
        assert spent[0] <= max_memory or m == 1

    def test_no_cap_depends_on_the_machine(self, double):
        """A sampler without a cap gets a constant one."""
        model = make(600, inducing_sampler=first(600), **double)
        assert model.inducing_cap == MOST_INDUCING_POINTS
        assert make(600, **double).inducing_cap == 1000

    def test_given_points_win(self, double):
        S = torch.rand(4, 2, **double)
        caps = {"max_inducing_points": 2, "max_memory": 1}
        model = make(30, inducing_points=S, **caps, **double)
        certificate = model.certificate()
        assert certificate.num_inducing == 4
        assert certificate.cap is None and not certificate.is_capped
        assert torch.equal(copy.deepcopy(model).float().inducing_points, S.float())
        fit_gpytorch_mll(make_mll(model.train()), optimizer_kwargs=FAST)
        assert torch.equal(model.resparsify().inducing_points, S)


def test_options_of_ax(double):
    """What it passes to every model beside them is ignored."""
    X, Y, Yvar = make_data(**double)
    names = {"feature_names": ["a", "b"], "outcome_names": ["y"]}
    data = SupervisedDataset(X, Y, Yvar=Yvar, **names)
    options = {"max_inducing_points": 6, "objective": "dtc"}
    inputs = SparseSingleTaskGP.construct_inputs(
        data, categorical_features=[], **options
    )
    model = SparseSingleTaskGP(**inputs)
    assert (model.objective, model.max_inducing_points) == ("dtc", 6)
    assert isinstance(model.likelihood, FixedNoiseGaussianLikelihood)


def clustered(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Fifty clusters in float32, points 1e-4 apart."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.rand(50, 3, generator=generator)
    cluster = torch.randint(50, (n,), generator=generator)
    X = centers[cluster] + 1e-4 * torch.randn(n, 3, generator=generator)
    X = X.clamp(0, 1)
    Y = (5 * X).sin().sum(-1, keepdim=True)
    return X.to(device), (Y + 0.01 * torch.randn(n, 1, generator=generator)).to(device)


# Where many points are, variances are below the 1e-6 that GPyTorch holds for rounding.
@pytest.mark.filterwarnings("ignore:Negative variance values detected")
@pytest.mark.slow
@pytest.mark.parametrize("n", [1500, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("given", [False, True])
def test_clusters_in_float32(given, n, device):
    """A fit and predictions without NaN, and jitter reported once if at all."""
    X, Y = clustered(n, device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = SparseSingleTaskGP(X, Y, inducing_points=X[:200] if given else None)
        fit_gpytorch_mll(make_mll(model), optimizer_kwargs={"options": {"maxiter": 30}})
        posteriors = [model.posterior(Z) for Z in (X[:300], torch.rand_like(X[:300]))]
    for posterior in posteriors:
        assert posterior.mean.isfinite().all()
        assert posterior.variance.isfinite().all() and (posterior.variance >= 0).all()
    error = (posteriors[0].mean - Y[:300]).square().mean().sqrt()
    assert error < 0.02  # the noise is 0.01
    assert sum("Jitter" in str(w.message) for w in caught) <= 1


def test_doubles_are_free_of_jitter(double):
    X, Y = (values.to(**double) for values in clustered(800, torch.device("cpu")))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*[Jj]itter")
        model = SparseSingleTaskGP(X, Y)
        fit_gpytorch_mll(make_mll(model), optimizer_kwargs={"options": {"maxiter": 5}})
        assert model.posterior(X[:5]).mean.isfinite().all()
