"""Sample paths of the sparse posterior: moments, batches, consumers."""

from typing import Any

import pytest
import torch
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.exceptions import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling.pathwise import (
    draw_kernel_feature_paths,
    draw_matheron_paths,
    gaussian_update,
)
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sparse_model_cases import make_model, random_data
from torch import Size, Tensor

from botorch_sparse.models import SparseSingleTaskGP


def sparse_model(
    batch_shape: tuple[int, ...] = (), num_outputs: int = 1, **tkwargs: Any
) -> tuple[SparseSingleTaskGP, Tensor]:
    """A model of few data with 6 inducing points, and test points around them."""
    aug = Size(batch_shape + ((num_outputs,) if num_outputs > 1 else ()))
    kernel = ScaleKernel(MaternKernel(batch_shape=aug, ard_num_dims=2), batch_shape=aug)
    options = {"covar_module": kernel.to(**tkwargs)}
    model = make_model(
        batch_shape, num_outputs, transform="normalize", options=options, **tkwargs
    )
    return model, 1.3 * random_data((), 1, n=7, seed=2, **tkwargs)[0] - 0.15


def zero_prior(model: Any, sample_shape: Size) -> Any:
    """The prior's mean in the place of its draws."""
    return draw_kernel_feature_paths(
        model, sample_shape=sample_shape, weight_generator=torch.zeros
    )


@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("batch_shape", [(), (3,)])
@torch.no_grad()
def test_mean_is_the_posterior_mean(num_outputs, batch_shape, tkwargs, monkeypatch):
    """With the draws of the prior and of the update at their means."""
    model, Z = sparse_model(batch_shape, num_outputs, **tkwargs)
    monkeypatch.setattr(torch, "randn", torch.zeros)
    model.mean_module.raw_constant.fill_(0.7)
    paths = draw_matheron_paths(model, Size([4]), prior_sampler=zero_prior)
    got = paths(Z)
    expected = model.posterior(Z).mean
    expected = expected.movedim(-1, -2) if num_outputs > 1 else expected.squeeze(-1)
    assert got.dtype == Z.dtype
    tol = {"rtol": 1e-4, "atol": 1e-4} if Z.dtype == torch.float32 else {}
    torch.testing.assert_close(got, expected.expand_as(got), **tol)


@torch.no_grad()
def test_covariance_given_the_features(double, monkeypatch):
    """Paths are linear in normal weights: their covariance is `J J'`, exactly.

    The Jacobian is read off with unit weights. With the prior's features the
    covariance is that of the posterior with `r` of the features' kernel.
    """
    model, Z = sparse_model(**double)
    del model.outcome_transform
    posterior = model.nystrom_posterior()
    X = model.input_transform(Z)
    torch.manual_seed(0)
    prior = draw_kernel_feature_paths(model, sample_shape=Size([]), num_features=64)
    features = prior.feature_map
    S = posterior.inducing_points

    def unit_prior(model: Any, sample_shape: Size) -> Any:
        path = draw_kernel_feature_paths(model, sample_shape=Size([]), num_features=64)
        path.feature_map, path.weight = features, torch.eye(64).to(Z)
        return path

    mean = posterior.mean(X)
    monkeypatch.setattr(torch, "randn", torch.zeros)
    paths = draw_matheron_paths(model, Size([64]), prior_sampler=unit_prior)
    from_prior = paths(Z) - mean
    monkeypatch.setattr(torch, "randn", lambda shape: torch.eye(6))
    paths = draw_matheron_paths(model, Size([6]), prior_sampler=zero_prior)
    from_noise = paths(Z) - mean
    F, F_S = features(X), features(S)
    phi = posterior.features(X)
    P = phi @ torch.linalg.solve_triangular(posterior.chol_inducing, F_S, upper=False)
    residual = (F - P) @ (F - P).mT
    w = posterior.whiten(phi)
    got = from_prior.mT @ from_prior + from_noise.mT @ from_noise
    torch.testing.assert_close(got, residual + w @ w.mT)
    torch.testing.assert_close(from_noise.mT @ from_noise, w @ w.mT)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("num_outputs", [1, 2])
@torch.no_grad()
def test_monte_carlo_moments(num_outputs, double):
    """4000 paths over 40 draws of 1024 features each, against the closed form.

    The error of a sampled covariance has standard deviation below
    `sqrt(2 / 4000) = 0.022` of the prior variance, that of the features' kernel below
    `1 / sqrt(1024 * 40) = 0.005`. Five of them, for 28 entries and 2 outputs: a false
    alarm has odds below 1e-4 (and the seed is fixed).
    """
    model, Z = sparse_model((), num_outputs, **double)
    torch.manual_seed(1)
    draws = torch.cat([draw_matheron_paths(model, Size([100]))(Z) for _ in range(40)])
    draws = draws.reshape(4000, num_outputs, 7)
    posterior = model.posterior(Z)
    covariance = posterior.distribution.covariance_matrix
    for t in range(num_outputs):
        own = slice(7 * t, 7 * t + 7)
        y, scale = draws[:, t], posterior.variance[:, t].max()
        error = y.mean(0) - posterior.mean[:, t]
        assert error.abs().max() <= 5 * (scale / 4000).sqrt()
        error = y.mT.cov() - covariance[own, own]
        assert error.abs().max() <= 5 * 0.028 * scale


@torch.no_grad()
def test_smooth_kernel_does_not_blow_up(tkwargs):
    """`K_SS` singular to rounding: paths stay near the mean where the data are."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(600, 2, generator=g, dtype=torch.float64).to(**tkwargs)
    Y = (6 * X).sin().sum(-1, keepdim=True)
    kernel = RBFKernel().to(**tkwargs)
    kernel.lengthscale = 1.0
    model = SparseSingleTaskGP(X, Y, covar_module=kernel, inducing_points=X[:300])
    model.likelihood.noise = 1e-3
    torch.manual_seed(0)
    paths = draw_matheron_paths(model.eval(), Size([20]))
    posterior = model.posterior(X)
    error = (paths(X) - posterior.mean.squeeze(-1)).abs()
    assert error.max() <= 8 * posterior.variance.max().sqrt() + 1e-3


@torch.no_grad()
def test_batched_inputs(double):
    model, Z = sparse_model(**double)
    torch.manual_seed(0)
    path = draw_matheron_paths(model, Size([]))
    many = torch.stack([Z, Z + 0.1, Z - 0.1])
    torch.testing.assert_close(path(many), torch.stack([path(z) for z in many]))


def test_gradients(double):
    model, Z = sparse_model(**double)
    torch.manual_seed(0)
    path = draw_matheron_paths(model, Size([2]))
    assert torch.autograd.gradcheck(path, Z.requires_grad_())


@torch.no_grad()
def test_thompson_sampling(double):
    model, Z = sparse_model(**double)
    assert PathwiseThompsonSampling(model)(Z.unsqueeze(-2)).shape == (7,)


@torch.no_grad()
@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.filterwarnings("ignore:The inducing points reached their cap")
def test_paths_that_are_drawn_in_train_mode(size, double):
    """Where they are evaluated teaches the input transform nothing."""
    X = torch.rand(12, 2, **double)
    Y = X.sum(-1, keepdim=True)
    transform = Normalize(d=2)
    model = SparseSingleTaskGP(
        X, Y, input_transform=transform, max_inducing_points=size
    )
    path = draw_matheron_paths(model, Size([]))
    torch.testing.assert_close(path(X[:3]), path(X)[:3])
    path(100 * X[:3])
    torch.testing.assert_close(transform.bounds, torch.stack([X.amin(0), X.amax(0)]))


@torch.no_grad()
def test_exact_model_draws_exact_paths(double):
    """With all points as inducing points the dispatch is BoTorch's."""
    X = torch.rand(12, 2, **double)
    Y = X.sum(-1, keepdim=True)
    draws = []
    for model in (SparseSingleTaskGP(X, Y), SingleTaskGP(X, Y)):
        torch.manual_seed(0)
        draws.append(draw_matheron_paths(model.eval(), Size([3]))(X))
    torch.testing.assert_close(*draws)


def test_errors(double):
    model, _ = sparse_model(**double)
    with pytest.raises(UnsupportedError, match=r"Got target_values; the paths"):
        gaussian_update(
            model, torch.zeros(6, **double), target_values=torch.zeros(6, **double)
        )
