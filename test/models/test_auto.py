"""The default: exact for few points, then as many inducing points as data need."""

import warnings
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.inducing import CertifiedSampler
from botorch_sparse.models import SparseSingleTaskGP, memory
from botorch_sparse.models.inducing_points import EXACT_SIZE, MOST_INDUCING_POINTS
from botorch_sparse.models.memory import affordable_inducing_points


def make_data(n: int, d: int = 2, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n + d)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    Y = (5 * X).sin().sum(-1, keepdim=True)
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def with_hyperparameters(model: SingleTaskGP, lengthscale: float = 0.4) -> Any:
    model.covar_module.lengthscale = lengthscale
    model.likelihood.noise = 0.02
    return model


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
    def test_both_sides(
        self, n: int, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """S = X through the Nystrom code, the exact path, and BoTorch's own model."""
        X, Y = make_data(n, **double)
        X_test = torch.rand(5, 2, **double)
        auto = with_hyperparameters(SparseSingleTaskGP(X, Y))
        assert auto.is_exact == (n <= EXACT_SIZE)
        exact = with_hyperparameters(SingleTaskGP(X, Y)).posterior(X_test)
        given = with_hyperparameters(SparseSingleTaskGP(X, Y, inducing_points=X))
        models = [given] if n > EXACT_SIZE else [given, auto]
        for model in models:
            self.compare(model.posterior(X_test), exact)
        monkeypatch.setattr(SparseSingleTaskGP, "is_exact", False)
        given.train()
        self.compare(given.posterior(X_test), exact)

    def compare(self, ours: Any, exact: Any) -> None:
        torch.testing.assert_close(ours.mean, exact.mean, rtol=0, atol=1e-6)
        covariances = [p.distribution.covariance_matrix for p in (ours, exact)]
        torch.testing.assert_close(*covariances, rtol=0, atol=1e-6)

    def test_above_it_the_certificate_holds(self, double: dict[str, Any]) -> None:
        X, Y = make_data(EXACT_SIZE + 1, **double)
        X_test = torch.rand(200, 2, **double)
        auto = with_hyperparameters(SparseSingleTaskGP(X, Y))
        exact = with_hyperparameters(SingleTaskGP(X, Y)).posterior(X_test)
        certificate = auto.certificate()
        assert certificate.is_certified and not certificate.is_capped
        assert certificate.num_inducing < 200
        assert true_lambda_max(auto) <= certificate.lambda_max <= 1.0
        ratio = auto.posterior(X_test).variance / exact.variance
        assert ratio.max() <= certificate.alpha
        assert ratio.min() >= 1 / certificate.alpha


class TestGrowth:
    """The number of inducing points follows the data and the tolerance."""

    def test_tolerance(self, double: dict[str, Any]) -> None:
        X, Y = make_data(600, d=3, **double)
        sizes = []
        for tolerance in (10.0, 1.0, 0.1):
            sampler = CertifiedSampler(tolerance=tolerance)
            model = SparseSingleTaskGP(X, Y, inducing_sampler=sampler)
            certificate = with_hyperparameters(model).certificate()
            assert true_lambda_max(model) <= certificate.lambda_max <= tolerance
            assert certificate.tolerance == tolerance
            sizes.append(certificate.num_inducing)
        assert sizes[0] < sizes[1] < sizes[2]

    def test_follows_the_data(self, double: dict[str, Any]) -> None:
        """A rougher function needs more; the same points again need no more."""
        X, Y = make_data(600, **double)
        smooth, rough, repeated = (
            with_hyperparameters(SparseSingleTaskGP(*data), lengthscale)
            for data, lengthscale in (
                ((X, Y), 1.0),
                ((X, Y), 0.15),
                ((X.repeat(3, 1), Y.repeat(3, 1)), 1.0),
            )
        )
        assert rough.num_inducing > 2 * smooth.num_inducing
        assert repeated.num_inducing < 2 * smooth.num_inducing

    def test_cap_is_reported(self, double: dict[str, Any]) -> None:
        X, Y = make_data(600, **double)
        model = SparseSingleTaskGP(X, Y, max_inducing_points=12)
        with_hyperparameters(model, 0.15)
        with pytest.warns(BotorchWarning, match=r"cap of 12.*max_inducing_points"):
            certificate = model.certificate()
        assert certificate.is_capped and certificate.cap == 12
        assert certificate.num_inducing == 12 and not certificate.is_certified
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert "the cap of 12 is reached" in str(model.resparsify().summary())


class TestMemory:
    """`max_memory` bounds the number of inducing points, and nothing else."""

    def test_cap(self, double: dict[str, Any]) -> None:
        X, Y = make_data(600, **double)
        model = SparseSingleTaskGP(X, Y, max_memory=500_000)
        with_hyperparameters(model, 0.1)
        with pytest.warns(BotorchWarning, match="max_memory"):
            model.resparsify()
        assert model.num_inducing == affordable_inducing_points(500_000) == 7

    def test_given_points_win(self, double: dict[str, Any]) -> None:
        X, Y = make_data(600, **double)
        model = SparseSingleTaskGP(
            X, Y, inducing_points=X[:40], max_memory=1, max_inducing_points=3
        )
        certificate = with_hyperparameters(model).certificate()
        assert certificate.num_inducing == 40
        assert certificate.cap is None and not certificate.is_capped

    @pytest.mark.parametrize("max_memory", [1, 10**6, 10**9, 10**12])
    def test_budget_is_used_up(self, max_memory: int) -> None:
        m = affordable_inducing_points(max_memory)
        spent = [
            8 * (memory.PER_PAIR * k**2 + memory.PER_POINT * k) for k in (m, m + 1)
        ]
        assert spent[1] > max_memory
        assert spent[0] <= max_memory or m == 1

    def test_no_budget_depends_on_the_machine(self, double: dict[str, Any]) -> None:
        """A sampler without a cap gets a constant one."""
        X, Y = make_data(600, **double)
        sampler = lambda k, X, noise, **_: torch.arange(len(X))  # noqa: E731
        model = SparseSingleTaskGP(X, Y, inducing_sampler=sampler)
        assert model.inducing_cap == MOST_INDUCING_POINTS
        assert SparseSingleTaskGP(X, Y).inducing_cap == 1000


def clustered(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Fifty clusters in float32, points 1e-4 apart."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.rand(50, 3, generator=generator)
    cluster = torch.randint(50, (n,), generator=generator)
    X = centers[cluster] + 1e-4 * torch.randn(n, 3, generator=generator)
    X = X.clamp(0, 1)
    Y = (5 * X).sin().sum(-1, keepdim=True)
    return X.to(device), (Y + 0.01 * torch.randn(n, 1, generator=generator)).to(device)


@pytest.mark.parametrize("n", [1500, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("given", [False, True])
def test_clusters_in_float32(given: bool, n: int, device: torch.device) -> None:
    """A fit and predictions without NaN, and jitter reported once if at all."""
    X, Y = clustered(n, device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        points = X[:200] if given else None
        model = SparseSingleTaskGP(X, Y, inducing_points=points)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 30}})
        posteriors = [model.posterior(Z) for Z in (X[:300], torch.rand_like(X[:300]))]
    for posterior in posteriors:
        assert posterior.mean.isfinite().all()
        assert posterior.variance.isfinite().all() and (posterior.variance >= 0).all()
    error = (posteriors[0].mean - Y[:300]).square().mean().sqrt()
    assert error < 0.02  # the noise is 0.01
    jitter = [w for w in caught if "Jitter" in str(w.message)]
    assert len(jitter) <= 1


def test_doubles_are_free_of_jitter(double: dict[str, Any]) -> None:
    X, Y = (values.to(**double) for values in clustered(800, torch.device("cpu")))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*[Jj]itter")
        model = SparseSingleTaskGP(X, Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 5}})
        assert model.posterior(X[:5]).mean.isfinite().all()
