"""SparseSingleTaskGP against dense closed forms, SingleTaskGP, and its contracts."""

import copy
import itertools
import math
from typing import Any

import gpytorch
import pytest
import torch
from botorch import settings
from botorch.exceptions import (
    BotorchTensorDimensionError,
    BotorchWarning,
    InputDataError,
    UnsupportedError,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Warp
from botorch.models.transforms.input import ChainedInputTransform
from botorch.sampling import IIDNormalSampler
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.models import NystromPrior, SparseSingleTaskGP

FAST = {"options": {"maxiter": 15}}


def make_data(
    n: int = 40, d: int = 2, repeats: int = 12, **tkwargs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs in [0, 2]^d with repeated rows, observations, and noise variances."""
    generator = torch.Generator().manual_seed(n + d)
    X = 2 * torch.rand(n, d, generator=generator, dtype=torch.float64)
    X[n - repeats :] = X[:repeats]
    Y = (2 * X).sin().sum(-1, keepdim=True)
    Y = Y + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    Yvar = 0.02 + 0.1 * torch.rand(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs), Yvar.to(**tkwargs)


def make_transform(name: str | None, double: dict[str, Any]) -> Any:
    if name is None:
        return None
    normalize = Normalize(2)
    if name == "normalize":
        return normalize
    warp = Warp(
        d=2,
        indices=[0, 1],
        concentration0_prior=LogNormalPrior(0.0, 0.5),
        concentration1_prior=LogNormalPrior(0.0, 0.5),
    )
    warp._set_concentration(0, torch.tensor([1.4, 0.8]))
    return ChainedInputTransform(normalize=normalize, warp=warp).to(**double)


def make_mll(model: SingleTaskGP) -> ExactMarginalLogLikelihood:
    return ExactMarginalLogLikelihood(model.likelihood, model)


def noise_of(model: SingleTaskGP) -> Tensor:
    return model.likelihood.noise.expand(len(model.train_targets))


def dense_posterior(model: SparseSingleTaskGP, X_test: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and joint covariance, before untransforming, from unfolded data."""
    model.eval()
    k = lambda A, B: model.covar_module(A, B).to_dense()  # noqa: E731
    X, y = model.train_inputs[0], model.train_targets
    S, T = model.transform_inputs(model.inducing_points), X_test
    T = model.transform_inputs(T)
    D_inv = noise_of(model).reciprocal().diag()
    precision = k(S, S) + k(S, X) @ D_inv @ k(X, S)
    error = y - model.mean_module(X)
    mean = k(T, S) @ torch.linalg.solve(precision, k(S, X) @ D_inv @ error)
    residual = k(T, T) - k(T, S) @ torch.linalg.solve(k(S, S), k(S, T))
    covariance = residual + k(T, S) @ torch.linalg.solve(precision, k(S, T))
    return model.mean_module(T) + mean, covariance


def dense_objective(model: SparseSingleTaskGP) -> Tensor:
    """What ExactMarginalLogLikelihood should return in train mode."""
    X = model.transform_inputs(model.train_inputs[0])
    S = model.inducing_points
    if hasattr(model, "input_transform"):
        S = model.input_transform.preprocess_transform(S)
    k = lambda A, B: model.covar_module(A, B).to_dense()  # noqa: E731
    Q = k(X, S) @ torch.linalg.solve(k(S, S), k(S, X))
    d, e = noise_of(model), model.train_targets - model.mean_module(X)
    A = Q + d.diag()
    value = e @ torch.linalg.solve(A, e) + A.logdet() + len(e) * math.log(2 * math.pi)
    value = -0.5 * value
    if model.objective == "elbo":
        value = value - 0.5 * ((k(X, X) - Q).diagonal() / d).sum()
    for _, module, prior, closure, _ in model.named_priors():
        value = value + prior.log_prob(closure(module)).sum()
    return value / len(e)


@pytest.mark.parametrize("transform", [None, "normalize", "warp"])
@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("standardize", [True, False])
class TestDense:
    """Posterior and objective against the closed forms."""

    def make(
        self,
        transform: str | None,
        fixed_noise: bool,
        standardize: bool,
        double: dict[str, Any],
        **kwargs: Any,
    ) -> SparseSingleTaskGP:
        X, Y, Yvar = make_data(**double)
        if not standardize:
            kwargs["outcome_transform"] = None
        model = SparseSingleTaskGP(
            X,
            Y,
            Yvar if fixed_noise else None,
            covar_module=ScaleKernel(MaternKernel(ard_num_dims=2)),
            input_transform=make_transform(transform, double),
            inducing_points=X[2:24:2],
            **kwargs,
        )
        model.mean_module.initialize(constant=0.2)
        model.covar_module.base_kernel.lengthscale = 0.6
        return model

    def test_posterior(
        self,
        transform: str | None,
        fixed_noise: bool,
        standardize: bool,
        double: dict[str, Any],
    ) -> None:
        model = self.make(transform, fixed_noise, standardize, double)
        X_test = 2 * torch.rand(6, 2, **double)
        posterior = model.posterior(X_test)
        noisy = model.posterior(X_test, observation_noise=True)
        mean, covariance = dense_posterior(model, X_test)
        noise = model.likelihood.noise.mean() * torch.eye(6, **double)
        scale, shift = 1.0, 0.0
        if standardize:
            scale = model.outcome_transform.stdvs.item()
            shift = model.outcome_transform.means.item()
        close = {"rtol": 1e-8, "atol": 1e-8}
        mean, covariance = shift + scale * mean, scale**2 * covariance
        torch.testing.assert_close(posterior.mean.squeeze(-1), mean, **close)
        torch.testing.assert_close(
            posterior.distribution.covariance_matrix, covariance, **close
        )
        torch.testing.assert_close(
            noisy.distribution.covariance_matrix, covariance + scale**2 * noise, **close
        )

    @pytest.mark.parametrize("objective", ["elbo", "dtc"])
    def test_objective_and_gradients(
        self,
        objective: str,
        transform: str | None,
        fixed_noise: bool,
        standardize: bool,
        double: dict[str, Any],
    ) -> None:
        model = self.make(
            transform, fixed_noise, standardize, double, objective=objective
        )
        prior = model(*model.train_inputs)
        assert isinstance(prior, NystromPrior)
        value = make_mll(model)(prior, model.train_targets)
        expected = dense_objective(model)
        parameters = list(model.parameters())
        torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(
            torch.autograd.grad(value, parameters),
            torch.autograd.grad(expected, parameters),
            rtol=1e-8,
            atol=1e-8,
        )


class TestExactLimit:
    """With all training points as inducing points it is SingleTaskGP."""

    @pytest.mark.parametrize("lam", [1e-4, 1e-2])
    @pytest.mark.parametrize("nystrom_path", [True, False])
    def test_posterior(
        self,
        lam: float,
        nystrom_path: bool,
        double: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        X, Y, _ = make_data(n=60, **double)
        kernel = RBFKernel(ard_num_dims=2)
        kernel.lengthscale = 0.5
        args = (X, Y, torch.full_like(Y, lam * Y.var().item()))
        sparse = SparseSingleTaskGP(*args, covar_module=kernel, inducing_points=X)
        exact = SingleTaskGP(*args, covar_module=kernel)
        if nystrom_path:
            monkeypatch.setattr(sparse, "_is_exact", lambda: False)
        X_test = 2 * torch.rand(3, 5, 2, **double)
        ours, theirs = sparse.posterior(X_test), exact.posterior(X_test)
        assert (sparse.prediction_strategy is None) == nystrom_path
        tolerance = {"rtol": 0.0, "atol": 1e-6}
        torch.testing.assert_close(ours.mean, theirs.mean, **tolerance)
        torch.testing.assert_close(
            ours.distribution.covariance_matrix,
            theirs.distribution.covariance_matrix,
            **tolerance,
        )

    def test_few_points_are_exact_through_a_fit(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(n=25, repeats=3, **double)
        sparse, exact = SparseSingleTaskGP(X, Y), SingleTaskGP(X, Y)
        for model in (sparse, exact):
            fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
        X_test = torch.rand(4, 1, 2, **double)
        assert sparse.num_inducing == 22
        torch.testing.assert_close(
            sparse.posterior(X_test).variance, exact.posterior(X_test).variance
        )
        new_X, new_Y = torch.rand(2, 2, **double), torch.rand(2, 1, **double)
        ours = sparse.condition_on_observations(new_X, new_Y)
        theirs = exact.condition_on_observations(new_X, new_Y)
        torch.testing.assert_close(
            ours.posterior(X_test).mean, theirs.posterior(X_test).mean
        )
        fantasies = sparse.fantasize(X_test, IIDNormalSampler(torch.Size([3])))
        assert fantasies.posterior(X_test).mean.shape == (3, 4, 1, 1)

    def test_conditioning_stays_exact(self, double: dict[str, Any]) -> None:
        """Given points that cover the data do not cover the new observation."""
        X, Y, _ = make_data(n=30, **double)
        new_X, new_Y = torch.rand(1, 2, **double), torch.rand(1, 1, **double)
        means = []
        for model in (SparseSingleTaskGP(X, Y, inducing_points=X), SingleTaskGP(X, Y)):
            model.posterior(X[:2])
            conditioned = model.condition_on_observations(new_X, new_Y)
            means.append(conditioned.posterior(X[:5] + 0.1).mean)
        torch.testing.assert_close(*means)

    def test_nystrom_objective_is_the_exact_likelihood(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, Y, _ = make_data(n=30, **double)
        sparse = SparseSingleTaskGP(X, Y, inducing_points=X)
        mll = make_mll(sparse)
        exact = mll(sparse(*sparse.train_inputs), sparse.train_targets)
        monkeypatch.setattr(sparse, "_is_exact", lambda: False)
        ours = mll(sparse(*sparse.train_inputs), sparse.train_targets)
        torch.testing.assert_close(ours, exact, rtol=1e-6, atol=1e-6)

    def test_many_repeats_are_folded(self, double: dict[str, Any]) -> None:
        """600 observations of 12 points: nothing is of the size of the data."""
        X = torch.rand(12, 2, **double).repeat(50, 1)
        model = SparseSingleTaskGP(X, X.sum(-1, keepdim=True).sin())
        assert model.num_inducing == 12
        assert isinstance(model(*model.train_inputs), NystromPrior)


class TestEvalMode:
    """Shapes, gradients, caches and costs of the posterior."""

    def make(self, n: int = 40, **kwargs: Any) -> SparseSingleTaskGP:
        tkwargs = {k: kwargs.pop(k) for k in ("dtype", "device") if k in kwargs}
        X, Y, _ = make_data(n=n, **tkwargs)
        return SparseSingleTaskGP(X, Y, inducing_points=X[:15], **kwargs)

    @pytest.mark.parametrize("batch", [(), (1,), (5,), (3, 2), (2, 1, 4)])
    def test_batches_agree_with_single_points(
        self, batch: tuple[int, ...], double: dict[str, Any]
    ) -> None:
        model = self.make(**double)
        X = torch.rand(*batch, 3, 2, **double)
        posterior = model.posterior(X)
        assert posterior.mean.shape == (*batch, 3, 1)
        assert posterior.distribution.covariance_matrix.shape == (*batch, 3, 3)
        for index in itertools.product(*(range(b) for b in batch)):
            single = model.posterior(X[index]).distribution
            joint = posterior.distribution.covariance_matrix[index]
            torch.testing.assert_close(joint, single.covariance_matrix)

    def test_gradcheck(self, double: dict[str, Any]) -> None:
        model = self.make(input_transform=Normalize(2), **double)
        model.covar_module.lengthscale = 0.3
        X = torch.rand(2, 3, 2, requires_grad=True, **double)

        def moments(X: Tensor) -> tuple[Tensor, Tensor]:
            posterior = model.posterior(X)
            return posterior.mean, posterior.distribution.covariance_matrix

        assert torch.autograd.gradcheck(moments, (X,))

    def test_propagate_grads(self, double: dict[str, Any]) -> None:
        model = self.make(**double)
        X = torch.rand(3, 2, **double)
        parameters = [p for p in model.parameters() if p.requires_grad]
        with settings.propagate_grads(True):
            ours = model.posterior(X).mean.sum()
            direct = model(X).mean.sum()  # without the settings of `posterior`
        constant = model.mean_module.raw_constant
        by_constant = torch.autograd.grad(direct, constant, retain_graph=True)[0]
        assert by_constant.abs() < 2.9  # detached caches would give one per point
        assert model._cached_posterior is None
        mean, _ = dense_posterior(model, X)
        scale, shift = model.outcome_transform.stdvs, model.outcome_transform.means
        expected = (shift + scale * mean).sum()
        torch.testing.assert_close(
            torch.autograd.grad(ours, parameters),
            torch.autograd.grad(expected, parameters),
            rtol=1e-6,
            atol=1e-8,
        )
        model.posterior(X)
        assert model._cached_posterior is not None
        assert not model._cached_posterior.weights.requires_grad

    def test_warm_posterior_touches_nothing_of_the_size_of_the_data(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = self.make(n=200, **double)
        X = torch.rand(4, 1, 2, **double)
        model.posterior(X)
        shapes: list[int] = []
        forward = RBFKernel.forward

        def record(self: Any, x1: Tensor, x2: Tensor, **kwargs: Any) -> Any:
            shapes.extend([x1.shape[-2], x2.shape[-2]])
            return forward(self, x1, x2, **kwargs)

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("A warm posterior factorizes nothing.")

        monkeypatch.setattr(RBFKernel, "forward", record)
        monkeypatch.setattr(torch.linalg, "cholesky", refuse)
        monkeypatch.setattr(torch.linalg, "cholesky_ex", refuse)
        model.posterior(X)
        assert shapes and max(shapes) <= 15

    def test_nothing_square_in_the_data(
        self, double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """From the draw of the inducing points through a fit to the posterior."""
        n = 700
        X, Y, _ = make_data(n=n, **double)
        sizes: list[int] = []
        pairs: list[int] = []
        forward = RBFKernel.forward

        def record(self: Any, x1: Tensor, x2: Tensor, **kwargs: Any) -> Any:
            if not kwargs.get("diag", False):
                pairs.append(x1.shape[-2] * x2.shape[-2])
            return forward(self, x1, x2, **kwargs)

        def watch(name: str) -> None:
            factorize = getattr(torch.linalg, name)

            def wrapped(A: Tensor, *args: Any, **kwargs: Any) -> Any:
                sizes.append(A.shape[-1])
                return factorize(A, *args, **kwargs)

            monkeypatch.setattr(torch.linalg, name, wrapped)

        monkeypatch.setattr(RBFKernel, "forward", record)
        watch("cholesky")
        watch("cholesky_ex")
        model = SparseSingleTaskGP(X, Y, max_inducing_points=50)
        with pytest.warns(BotorchWarning, match="cap of 50"):
            fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
        model.posterior(X[:5])
        assert model.num_inducing == 50
        assert max(sizes) <= 50
        assert max(pairs) <= 50 * n

    def test_prior_mode_and_no_data(self, double: dict[str, Any]) -> None:
        model = self.make(**double)
        X = torch.rand(3, 2, **double)
        model.eval()
        prior_variance = torch.ones(3, **double)
        with gpytorch.settings.prior_mode(True):
            torch.testing.assert_close(model(X).variance, prior_variance)
        model.posterior(X)
        model.train_inputs = model.train_targets = None
        torch.testing.assert_close(model(X).variance, prior_variance)

    @pytest.mark.parametrize("transform", [None, "normalize"])
    def test_caches_are_dropped(
        self, transform: str | None, double: dict[str, Any]
    ) -> None:
        input_transform = make_transform(transform, double)
        model = self.make(input_transform=input_transform, **double)
        state = copy.deepcopy(model.state_dict())
        X = torch.rand(3, 2, **double)
        before = model.posterior(X).mean
        model.covar_module.lengthscale = 0.2
        model.train()
        changed = model.posterior(X).mean
        assert not torch.allclose(before, changed)
        targets = model.train_targets + 1.0
        model.set_train_data(targets=targets, strict=False)
        assert not torch.allclose(changed, model.posterior(X).mean)
        model.load_state_dict(state)
        assert model._cached_posterior is None

    def test_new_inputs_draw_new_inducing_points(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(n=80, **double)
        model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(0.1))
        first = model.inducing_points
        model.train().eval()
        assert torch.equal(first, model.inducing_points)
        model.set_train_data(X[:50] + 1.0, Y[:50, 0], strict=False)
        assert model.inducing_points.min() >= 1.0

    def test_moves_between_dtypes(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(n=80, **double)
        for eval_first in (False, True):
            model = SparseSingleTaskGP(
                X, Y, input_transform=Normalize(2), max_inducing_points=10
            )
            with pytest.warns(BotorchWarning, match="cap of 10"):
                points = model.inducing_points
            expected = model.posterior(X[:4]).mean
            if not eval_first:
                model.train()
            model.float()
            assert model.inducing_points.dtype == torch.float32
            torch.testing.assert_close(model.inducing_points, points.float())
            torch.testing.assert_close(
                model.posterior(X[:4].float()).mean,
                expected.float(),
                atol=1e-3,
                rtol=1e-3,
            )
            model.train()
            assert model(*model.train_inputs).mean.dtype == torch.float32

    def test_first_call_in_inference_mode(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(n=80, **double)
        model = SparseSingleTaskGP(X, Y, inducing_sampler=RecursiveRLSSampler(0.1))
        with torch.inference_mode():
            model.posterior(X[:3])
        X_test = X[:3].clone().requires_grad_()
        model.posterior(X_test).mean.sum().backward()
        assert X_test.grad is not None
        model.train()
        make_mll(model)(model(*model.train_inputs), model.train_targets).backward()


class TestInputTransforms:
    """Inducing points are kept as raw inputs."""

    def test_points_follow_a_learned_transform(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(n=60, **double)
        model = SparseSingleTaskGP(
            X,
            Y,
            input_transform=make_transform("warp", double),
            inducing_sampler=RecursiveRLSSampler(0.1),
        )
        points = model.inducing_points
        model.posterior(X[:2])
        model.train()
        model.input_transform["warp"]._set_concentration(0, torch.tensor([2.0, 0.5]))
        assert torch.equal(points, model.inducing_points)
        model.eval()
        torch.testing.assert_close(
            model(model.transform_inputs(X[:3])).mean,
            dense_posterior(model, X[:3])[0],
            rtol=1e-7,
            atol=1e-7,
        )

    def test_given_points_do_not_teach_normalize(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(**double)
        model = SparseSingleTaskGP(
            X, Y, input_transform=Normalize(2), inducing_points=5 * X[:9]
        )
        bounds = model.input_transform.bounds.clone()
        model(*model.train_inputs)
        assert torch.equal(bounds, model.input_transform.bounds)


@pytest.mark.parametrize("lengthscale", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("repeats", [1, 20])
def test_float32(lengthscale: float, repeats: int, device: torch.device) -> None:
    """Mean and variance within 1e-3, relative, of float64 on the same numbers.

    Also near the data, where variances are small, with few inducing points.
    """
    X, Y, _ = make_data(n=80, dtype=torch.float32, device=device)
    X, Y = X.repeat(repeats, 1), Y.repeat(repeats, 1)
    Yvar = torch.full_like(Y, 1e-2 * Y.var().item())
    posteriors = []
    for dtype in (torch.float64, torch.float32):
        data = [tensor.to(dtype) for tensor in (X, Y, Yvar)]
        model = SparseSingleTaskGP(*data, inducing_points=data[0][:30])
        model.covar_module.lengthscale = lengthscale
        posteriors.append(model.posterior(data[0][:80:3].unsqueeze(1) + 0.01))
        assert posteriors[-1].mean.dtype == posteriors[-1].variance.dtype == dtype
    mean, variance = posteriors[0].mean, posteriors[0].variance
    close = torch.testing.assert_close
    close(posteriors[1].mean.double(), mean, rtol=1e-3, atol=1e-3)
    close(posteriors[1].variance.double(), variance, rtol=1e-3, atol=0)


class TestErrors:
    """What is refused at the door."""

    @pytest.mark.parametrize(
        ("options", "error", "match"),
        [
            ({"inducing_points": torch.rand(4)}, BotorchTensorDimensionError, "m x 2"),
            ({"inducing_points": torch.rand(4, 3)}, BotorchTensorDimensionError, "m x"),
            ({"inducing_points": torch.rand(0, 2)}, InputDataError, "at least one row"),
            ({"inducing_points": torch.rand(4, 2).float()}, InputDataError, "float32"),
            (
                {"inducing_points": torch.full((4, 2), float("nan")).double()},
                InputDataError,
                "must be finite",
            ),
            ({"objective": "vfe"}, InputDataError, "objective='vfe'"),
            ({"max_inducing_points": 0}, InputDataError, "max_inducing_points=0"),
        ],
    )
    def test_options(
        self,
        options: dict[str, Any],
        error: type[Exception],
        match: str,
        double: dict[str, Any],
    ) -> None:
        X, Y, _ = make_data(**double)
        with pytest.raises(error, match=match):
            SparseSingleTaskGP(X, Y, **options)

    def test_several_outputs_and_batches(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(**double)
        with pytest.raises(UnsupportedError, match="ModelListGP"):
            SparseSingleTaskGP(X, torch.cat([Y, Y], dim=-1))
        with pytest.raises(UnsupportedError, match="`n x d`"):
            SparseSingleTaskGP(X.expand(2, -1, -1), Y.expand(2, -1, -1))

    def test_conditioning_a_sparse_model(self, double: dict[str, Any]) -> None:
        X, Y, _ = make_data(**double)
        model = SparseSingleTaskGP(X, Y, inducing_points=X[:5])
        model.posterior(X[:2])
        with pytest.raises(UnsupportedError, match="5 inducing points"):
            model.condition_on_observations(X[:2], Y[:2])
