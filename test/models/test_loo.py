"""Leave-one-out predictions against models conditioned without the observation."""

from functools import partial
from typing import Any

import pytest
import torch
from botorch.cross_validation import loo_cv as botorch_loo_cv
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from gpytorch.kernels import MaternKernel
from gpytorch.means import ConstantMean
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP, loo_cv
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.leave_one_out import leave_one_out


def dense_loo(
    K: Tensor, k_S: Tensor, K_SS: Tensor, y: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """`n` DTC posteriors, each without its observation, in closed form."""
    means, variances = [], []
    for i in range(len(y)):
        rest = torch.arange(len(y)) != i
        C, s = k_S[:, rest] / noise[rest], k_S[:, i]
        A = K_SS + C @ k_S[:, rest].mT  # (K_SS + G): Titsias' form of DTC
        solved = torch.linalg.solve(A, s)
        means.append(solved @ (C @ y[rest]))
        Q = s @ torch.linalg.solve(K_SS, s)
        variances.append(K[i, i] - Q + s @ solved)
    return torch.stack(means), torch.stack(variances)


def data(n: int = 30, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=g, dtype=torch.float64)
    Y = (5 * X).sin().sum(-1, keepdim=True)
    Y = Y + 0.1 * torch.randn(n, 1, generator=g, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def dense_of(model: SparseSingleTaskGP, S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Latent mean, variance and noise of the model's transformed space, densely."""
    X, y = model.train_inputs[0], model.train_targets
    noise = model.likelihood.noise.expand_as(y)
    c = model.mean_module(X)
    kernel = model.covar_module
    K, k_S = kernel(X).to_dense(), kernel(S, X).to_dense()
    mean, variance = dense_loo(K, k_S, kernel(S).to_dense(), y - c, noise)
    return mean + c, variance, noise


@torch.no_grad()
@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("with_noise", [False, True])
def test_closed_form(
    fixed_noise: bool, with_noise: bool, tkwargs: dict[str, Any]
) -> None:
    X, Y = data(**tkwargs)
    Yvar = 0.01 + 0.05 * X[:, :1] if fixed_noise else None
    model = SparseSingleTaskGP(X, Y, Yvar, inducing_points=X[:8])
    model.mean_module.constant = torch.tensor(0.3, **tkwargs)
    got = loo_cv(model, observation_noise=with_noise, untransform=False)
    assert got.model is model and not model.training
    assert got.posterior.mean.shape == got.observed_Y.shape == (30, 1, 1)
    mean, variance, noise = dense_of(model.double().eval(), model.inducing_points)
    tol = {"rtol": 1e-3, "atol": 1e-3} if Y.dtype == torch.float32 else {}
    expected = variance + noise if with_noise else variance
    for value, truth in (
        (got.posterior.mean, mean),
        (got.posterior.variance, expected),
    ):
        torch.testing.assert_close(value.flatten().double(), truth, **tol)
    torch.testing.assert_close(got.observed_Y.flatten(), model.train_targets.to(Y))
    if fixed_noise:
        torch.testing.assert_close(got.observed_Yvar.flatten().double(), noise)
    else:
        assert got.observed_Yvar is None


@torch.no_grad()
def test_separately_conditioned_models(double: dict[str, Any]) -> None:
    """In the original space, through transforms; repeats are left out one by one."""
    X, Y = data(**double)
    X, Y = torch.cat([10 * X, 10 * X[:5]]), torch.cat([Y, Y[:5] + 0.2])
    S = X[:10]
    transform = Normalize(2, bounds=torch.tensor([[0.0, 0.0], [10.0, 10.0]], **double))
    model = SparseSingleTaskGP(X, Y, inducing_points=S, input_transform=transform)
    got = loo_cv(model)
    scale = model.outcome_transform
    for i in (0, 3, 12, 31):
        rest = torch.arange(35) != i
        part = SparseSingleTaskGP(
            X[rest],
            (Y[rest] - scale.means) / scale.stdvs,
            inducing_points=S,
            input_transform=transform,
            outcome_transform=None,
        )
        posterior = part.eval().posterior(X[i : i + 1], observation_noise=True)
        mean = posterior.mean * scale.stdvs + scale.means
        torch.testing.assert_close(got.posterior.mean[i], mean)
        variance = posterior.variance * scale.stdvs.square()
        torch.testing.assert_close(got.posterior.variance[i], variance)
    torch.testing.assert_close(got.observed_Y.squeeze(-1), Y)


@torch.no_grad()
def test_nonlinear_outcome_transform(double: dict[str, Any]) -> None:
    X, Y = data(**double)
    model = SparseSingleTaskGP(
        X, Y.exp(), inducing_points=X[:9], outcome_transform=Log()
    )
    torch.testing.assert_close(loo_cv(model).observed_Y.squeeze(-1), Y.exp())


@torch.no_grad()
@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("batch_shape", [[], [2], [2, 3]])
def test_batches_and_outputs(
    num_outputs: int, batch_shape: list[int], double: dict[str, Any]
) -> None:
    X = torch.rand(*batch_shape, 25, 2, **double)
    Y = torch.randn(*batch_shape, 25, num_outputs, **double)
    model = SparseSingleTaskGP(
        X, Y, inducing_points=X[..., :7, :], outcome_transform=None
    )
    got = loo_cv(model)
    assert got.posterior.mean.shape == (*batch_shape, 25, 1, num_outputs)
    assert got.observed_Y.shape == (*batch_shape, 25, 1, num_outputs) or (
        len(batch_shape) > 0  # BoTorch's own layout there
    )
    for index in torch.cartesian_prod(*map(torch.arange, (*batch_shape, 1))).view(
        -1, len(batch_shape) + 1
    ):
        i = tuple(index[:-1].tolist())
        for t in range(num_outputs):
            alone = SparseSingleTaskGP(
                X[i],
                Y[i][:, t : t + 1],
                inducing_points=X[i][:7],
                outcome_transform=None,
            )
            expected = loo_cv(alone).posterior
            for moment in ("mean", "variance"):
                torch.testing.assert_close(
                    getattr(got.posterior, moment)[i][..., t],
                    getattr(expected, moment)[..., 0],
                )


@torch.no_grad()
def test_all_points_are_inducing_points(double: dict[str, Any]) -> None:
    """The formulas at `S = X` give BoTorch's; the model itself uses BoTorch's."""
    X, Y = data(**double)
    model = SparseSingleTaskGP(X, Y)
    exact = SingleTaskGP(X, Y)
    expected = botorch_loo_cv(exact.eval(), untransform=False).posterior
    got = loo_cv(model, untransform=False).posterior
    torch.testing.assert_close(got.mean, expected.mean)
    torch.testing.assert_close(got.variance, expected.variance)
    noise = exact.likelihood.noise.expand(30)
    posterior = NystromPosterior.from_data(
        exact.covar_module, X, exact.train_targets, noise, X
    )
    loo = leave_one_out(posterior, X, exact.train_targets, noise)
    torch.testing.assert_close(loo.mean, expected.mean.flatten(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(loo.variance + noise, expected.variance.flatten())
    plain = loo_cv(exact).posterior.mean
    torch.testing.assert_close(plain, botorch_loo_cv(exact).posterior.mean)


@torch.no_grad()
def test_nothing_of_size_n_by_n(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 3000
    X, Y = data(n, dtype=torch.float64)
    model = SparseSingleTaskGP(
        X, Y, inducing_points=X[:10], outcome_transform=Standardize(1)
    )
    shapes: list[torch.Size] = []
    forward = type(model.covar_module).forward

    def record(self: Any, x1: Tensor, x2: Tensor, **params: Any) -> Tensor:
        out = forward(self, x1, x2, **params)
        shapes.append(out.shape)
        return out

    monkeypatch.setattr(type(model.covar_module), "forward", record)
    assert loo_cv(model).posterior.mean.shape == (n, 1, 1)
    assert max(shape.numel() for shape in shapes) <= 10 * n


@torch.no_grad()
@pytest.mark.parametrize("ratio", [1e-3, 1e-12])
def test_a_leverage_of_nearly_one(ratio: float, double: dict[str, Any]) -> None:
    """Against the model of the other observations, which is well conditioned."""
    X, Y = data(**double)
    y, noise = Y.squeeze(-1), torch.full_like(Y[:, 0], 0.1)
    noise[3] = ratio
    kernel, S = MaternKernel(nu=2.5).to(**double), X[:8]
    posterior = NystromPosterior.from_data(kernel, X, y, noise, S)
    rest = torch.arange(len(y), device=X.device) != 3
    others = NystromPosterior.from_data(kernel, X[rest], y[rest], noise[rest], S)
    expected, loo = others.moments(X), leave_one_out(posterior, X, y, noise)
    # h is known to m ulp, so that 1 - h = d / (d + s) is known to m ulp over itself.
    s = others.variance(X[3:4]).item()
    error = 8 * 8 * torch.finfo(X.dtype).eps * (ratio + s) / ratio
    close = partial(torch.testing.assert_close, rtol=0.0, atol=error + 1e-12)
    close(loo.variance[3], expected.variance[3])
    close(loo.mean[3], expected.mean[3])


@torch.no_grad()
@pytest.mark.parametrize("ratio", [1e-13, 1e-15, 1e-17, 1e-18, 1e-20])
def test_a_leverage_of_one_to_rounding(ratio: float, double: dict[str, Any]) -> None:
    """The prior predicts what the posterior of all observations has lost."""
    X, Y = data(**double)
    y, noise = Y.squeeze(-1), torch.full_like(Y[:, 0], 0.1)
    noise[0] = ratio
    kernel, mean = MaternKernel(nu=2.5).to(**double), ConstantMean().to(**double)
    mean.initialize(constant=0.3)
    posterior = NystromPosterior.from_data(kernel, X, y, noise, X[:8], mean_module=mean)
    loo, variance = leave_one_out(posterior, X, y, noise), posterior.variance(X)
    assert (loo.variance <= 1 + 1e-12).all()
    assert (loo.variance >= (1 - 1e-9) * variance).all()
    assert loo.mean.abs().max() < 10 * y.abs().max()
    if ratio < 1e-16:
        torch.testing.assert_close(loo.mean[0], mean(X)[0])
        torch.testing.assert_close(loo.variance[0], torch.ones_like(loo.mean[0]))
