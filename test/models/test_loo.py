"""Leave-one-out predictions against models conditioned without the observation."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from botorch.cross_validation import loo_cv as botorch_loo_cv
from botorch.exceptions import UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.means import ConstantMean
from sparse_model_cases import Observed, dtc, make_model, observed, random_data
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP, loo_cv
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.leave_one_out import leave_one_out

close = torch.testing.assert_close


def dense_loo(model: SparseSingleTaskGP) -> tuple[Tensor, Tensor]:
    """`n` latent means and variances, each the closed form of the other data."""
    X, y, d = observed(model)
    moments = []
    for i in range(len(X)):
        rest = torch.arange(len(X), device=X.device) != i
        others = Observed(X[rest], y[rest], d[rest])
        mean, covariance = dtc(model, others, X[i : i + 1])
        moments.append(torch.stack([mean[0], covariance[0, 0]]))
    mean, variance = torch.stack(moments, dim=-1)
    return mean, variance


def few_data(n: int = 30, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    return random_data((), 1, n=n, **tkwargs)[:2]


@torch.no_grad()
@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("with_noise", [False, True])
@pytest.mark.parametrize("untransform", [False, True])
def test_closed_form(fixed_noise, with_noise, untransform, tkwargs):
    """In either space; repeats are left out one by one."""
    options = {"transform": "normalize", "n": 30, "m": 8, "repeats": 5}
    model = make_model((), 1, fixed_noise, **options, **tkwargs)
    model.mean_module.constant = torch.tensor(0.3, **tkwargs)
    octf = model.outcome_transform
    scale, shift = (octf.stdvs, octf.means) if untransform else (1.0, 0.0)
    got = loo_cv(model, observation_noise=with_noise, untransform=untransform)
    assert got.model is model and not model.training
    assert got.posterior.mean.shape == got.observed_Y.shape == (30, 1, 1)
    observed_Y = shift + scale * model.train_targets.view(30, 1, 1)
    close(got.observed_Y, observed_Y.to(got.observed_Y))
    noise = model.double().eval().likelihood.noise.expand(30)
    mean, variance = (moment.view(30, 1, 1) for moment in dense_loo(model))
    variance = variance + with_noise * noise.view(30, 1, 1)
    single = tkwargs["dtype"] == torch.float32
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if single else {}
    close(got.posterior.mean.double(), shift + scale * mean, **tolerance)
    close(got.posterior.variance.double(), scale**2 * variance, **tolerance)
    if fixed_noise:
        observed_noise = scale**2 * noise.view(30, 1, 1)
        close(got.observed_Yvar.double(), observed_noise, **tolerance)
    else:
        assert got.observed_Yvar is None


@torch.no_grad()
def test_nonlinear_outcome_transform(double):
    X, Y = few_data(**double)
    model = SparseSingleTaskGP(
        X, Y.exp(), inducing_points=X[:9], outcome_transform=Log()
    )
    close(loo_cv(model).observed_Y.squeeze(-1), Y.exp())


@torch.no_grad()
@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("batch_shape", [[], [2], [2, 3]])
def test_batches_and_outputs(num_outputs, batch_shape, double):
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
    for i in itertools.product(*map(range, batch_shape)):
        for t in range(num_outputs):
            alone = SparseSingleTaskGP(
                X[i], Y[i][:, [t]], inducing_points=X[i][:7], outcome_transform=None
            )
            expected = loo_cv(alone).posterior
            close(got.posterior.mean[i][..., t], expected.mean[..., 0])
            close(got.posterior.variance[i][..., t], expected.variance[..., 0])


@torch.no_grad()
def test_all_points_are_inducing_points(double):
    """The formulas at `S = X` give BoTorch's; the model itself uses BoTorch's."""
    X, Y = few_data(**double)
    model = SparseSingleTaskGP(X, Y)
    exact = SingleTaskGP(X, Y)
    expected = botorch_loo_cv(exact.eval(), untransform=False).posterior
    got = loo_cv(model, untransform=False).posterior
    close(got.mean, expected.mean)
    close(got.variance, expected.variance)
    noise = exact.likelihood.noise.expand(30)
    posterior = NystromPosterior.from_data(
        exact.covar_module, X, exact.train_targets, noise, X
    )
    loo = leave_one_out(posterior, X, exact.train_targets, noise)
    close(loo.mean, expected.mean.flatten(), rtol=1e-5, atol=1e-7)
    close(loo.variance + noise, expected.variance.flatten())
    plain = loo_cv(exact).posterior.mean
    close(plain, botorch_loo_cv(exact).posterior.mean)


def test_a_list_of_models_is_refused(double):
    models = ModelListGP(*(SparseSingleTaskGP(*few_data(n, **double)) for n in (8, 9)))
    with pytest.raises(UnsupportedError, match="Got a ModelListGP, whose models"):
        loo_cv(models)


@torch.no_grad()
@pytest.mark.parametrize("ratio", [1e-3, 1e-12])
def test_a_leverage_of_nearly_one(ratio, double):
    """Against the model of the other observations, which is well conditioned."""
    X, Y = few_data(**double)
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
    tolerance = {"rtol": 0.0, "atol": error + 1e-12}
    close(loo.variance[3], expected.variance[3], **tolerance)
    close(loo.mean[3], expected.mean[3], **tolerance)


@torch.no_grad()
def test_a_leverage_that_rounds_above_its_bound(double):
    """A factor off by 2.5e-7 halves `1 - h`; the bound keeps variance and mean."""
    X = torch.zeros(1, 1, **double)
    y, noise = torch.ones_like(X[0]), torch.full_like(X[0], 1e-6)
    posterior = NystromPosterior.from_data(RBFKernel().to(**double), X, y, noise, X)
    off = replace(posterior, chol_inner=posterior.chol_inner * (1 - 2.5e-7))
    left = 1 - off.variance(X) / noise
    assert 0.4e-6 < left.item() < 0.6e-6  # and not 1e-6
    loo = leave_one_out(off, X, y, noise)
    close(loo.variance, torch.ones_like(y), rtol=1e-5, atol=0)
    # w'a - h e = - 2.5e-7 e, over the bound 1e-6
    close(loo.mean, -0.25 * y, rtol=1e-2, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("ratio", [1e-13, 1e-15, 1e-17, 1e-18, 1e-20])
def test_a_leverage_of_one_to_rounding(ratio, double):
    """The prior predicts what the posterior of all observations has lost."""
    X, Y = few_data(**double)
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
        close(loo.mean[0], mean(X)[0])
        close(loo.variance[0], torch.ones_like(loo.mean[0]))
    for scale in torch.linspace(1, 2, 30).tolist():  # 1 - h rounds to either side
        noise[0] = 1e-17 * scale
        posterior = NystromPosterior.from_data(kernel, X, y, noise, X[:8])
        loo = leave_one_out(posterior, X, y, noise)
        close(loo.variance[0], torch.ones_like(loo.mean[0]))
        assert loo.mean[0] == 0
