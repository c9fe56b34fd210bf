"""With all training points as inducing points it is SingleTaskGP."""

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.sampling import IIDNormalSampler
from gpytorch.kernels import RBFKernel
from sparse_model_cases import FAST, make_data, make_mll

from botorch_sparse.models import NystromPrior, SparseSingleTaskGP

close = torch.testing.assert_close


@pytest.mark.parametrize("lam", [1e-4, 1e-2])
@pytest.mark.parametrize("nystrom_path", [True, False])
def test_posterior(lam, nystrom_path, double, monkeypatch):
    X, Y, _ = make_data(n=60, **double)
    kernel = RBFKernel(ard_num_dims=2)
    kernel.lengthscale = 0.5
    args = (X, Y, torch.full_like(Y, lam * Y.var().item()))
    sparse = SparseSingleTaskGP(*args, covar_module=kernel, inducing_points=X)
    exact = SingleTaskGP(*args, covar_module=kernel)
    if nystrom_path:
        monkeypatch.setattr(type(sparse), "is_exact", False)
    X_test = 2 * torch.rand(3, 5, 2, **double)
    ours, theirs = sparse.posterior(X_test), exact.posterior(X_test)
    assert (sparse.prediction_strategy is None) == nystrom_path
    close(ours.mean, theirs.mean, rtol=0.0, atol=1e-6)
    covariances = [p.distribution.covariance_matrix for p in (ours, theirs)]
    close(*covariances, rtol=0.0, atol=1e-6)


def test_few_points_are_exact_through_a_fit(double):
    X, Y, _ = make_data(n=25, repeats=3, **double)
    sparse, exact = SparseSingleTaskGP(X, Y), SingleTaskGP(X, Y)
    for model in (sparse, exact):
        fit_gpytorch_mll(make_mll(model), optimizer_kwargs=FAST)
    X_test = torch.rand(4, 1, 2, **double)
    assert sparse.num_inducing == 22
    close(sparse.posterior(X_test).variance, exact.posterior(X_test).variance)
    new = torch.rand(2, 2, **double), torch.rand(2, 1, **double)
    ours, theirs = (m.condition_on_observations(*new) for m in (sparse, exact))
    close(ours.posterior(X_test).mean, theirs.posterior(X_test).mean)
    fantasies = sparse.fantasize(X_test, IIDNormalSampler(torch.Size([3])))
    assert fantasies.posterior(X_test).mean.shape == (3, 4, 1, 1)


def test_many_repeats_are_folded(double):
    """600 observations of 12 points: nothing is of the size of the data."""
    X = torch.rand(12, 2, **double).repeat(50, 1)
    model = SparseSingleTaskGP(X, X.sum(-1, keepdim=True).sin())
    assert model.num_inducing == 12
    assert isinstance(model(*model.train_inputs), NystromPrior)


@pytest.mark.parametrize("lengthscale", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("repeats", [1, 20])
@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_float32(lengthscale, repeats, device):
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
    exact, ours = posteriors
    close(ours.mean.double(), exact.mean, rtol=1e-3, atol=1e-3)
    close(ours.variance.double(), exact.variance, rtol=1e-3, atol=0)
