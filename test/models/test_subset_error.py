"""Error bounds of a subset against the exact GP on all data."""

from typing import Any

import pytest
import torch
from botorch.exceptions import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log
from subset_model_cases import exact_on_subset, make_data, make_model
from torch import Tensor

from botorch_sparse.models import SubsetSingleTaskGP

NOISES = (0.02, 0.2, 1.0)


def exact_on_all(model: SubsetSingleTaskGP, data: Any) -> SingleTaskGP:
    """The GP on all data, in their order and in transformed units."""
    present = model.subset_indices
    model.set_subset(torch.arange(model.num_observations))
    exact = exact_on_subset(model, data)
    model.set_subset(present)
    return exact


def theorem_posterior(exact: SingleTaskGP, subset: Tensor, T: Tensor) -> Any:
    """Mean and variance of Theorem 5.1's approximation, each `q x m`."""
    means, variances = [], []
    m = exact.num_outputs
    for i in range(m):
        pick = (lambda A: A) if m == 1 else (lambda A, i=i: A[i])
        kernel = exact.covar_module if m == 1 else exact.covar_module[i]
        X, y = pick(exact.train_inputs[0]), pick(exact.train_targets)
        prior = exact.likelihood(exact.forward(exact.train_inputs[0]))
        noise = pick(prior.variance) - kernel(X, diag=True)
        eigenvalues, V = torch.linalg.eigh(kernel(X[subset]).to_dense())
        keep = eigenvalues > 1e-13 * eigenvalues[-1]
        basis = V[:, keep] / eigenvalues[keep].sqrt()
        features = kernel(X, X[subset]).to_dense() @ basis
        A = features @ features.T + noise.diag()
        k, error = kernel(T, X).to_dense(), y - pick(prior.mean)
        means.append(k @ torch.linalg.solve(A, error) + pick(prior.mean)[0])
        explained = (k * torch.linalg.solve(A, k.T).T).sum(-1)
        variances.append(kernel(T, diag=True) - explained)
    return torch.stack(means, -1).detach(), torch.stack(variances, -1).detach()


@pytest.mark.parametrize("approximation", ["subset", "theorem"])
@pytest.mark.parametrize("selection", ["random", "gradient"])
@pytest.mark.parametrize("seed", range(6))
def test_bounds_hold_on_random_problems(seed, selection, approximation, double):
    m, fixed_noise = 1 + seed % 2, seed % 3 == 2
    data = make_data(40 + seed, m, fixed_noise, **double)
    options = {"subset_size": (12, 25, 38)[seed % 3], "seed": seed}
    model = make_model(data, seed % 2 == 0, selection=selection, **options)
    model.covar_module.lengthscale = 0.5 + 0.2 * seed
    if not fixed_noise:
        model.likelihood.noise = NOISES[seed // 2]
    generator = torch.Generator().manual_seed(seed)
    T = 3 * torch.rand(100, 2, generator=generator).to(**double)
    bounds = model.error_bounds(T, approximation=approximation)
    Z, octf = model.transform_inputs(T), model.outcome_transform
    subset = model.subset_indices
    in_use = exact_on_subset(model, data).posterior(Z)
    full = exact_on_all(model, data)
    exact = full.posterior(Z)
    if approximation == "subset":
        mean, variance = in_use.mean, in_use.variance
    else:
        mean, variance = theorem_posterior(full, subset, Z)
    difference = (exact.mean - mean).abs() * octf.stdvs
    lost = (variance - exact.variance) * octf.stdvs**2
    lost = lost if approximation == "subset" else -lost
    assert (difference <= bounds.mean + 1e-9).all()
    assert (lost >= -1e-9).all()
    assert (lost <= bounds.variance + 1e-9).all()
    assert bounds.mean.shape == (100, m)
    assert bounds.spectral_error.shape == (m,)
    if approximation == "subset":
        # Not vacuous: the bound on the variance is below the variance, and reached.
        assert (bounds.variance < variance * octf.stdvs**2).all()
        assert (lost / bounds.variance).max() > 0.3


def test_all_rows_leave_no_error(double):
    data = make_data(20, **double)
    model = make_model(data, subset_size=None)
    bounds = model.error_bounds(data[0][:3])
    assert (bounds.mean == 0).all()
    assert (bounds.variance == 0).all()
    assert bounds.spectral_error.item() == 0
    assert bounds.failure_probability == 0
    nearly = make_model(data, subset_size=19).error_bounds(data[0][:3])
    few = make_model(data, subset_size=5).error_bounds(data[0][:3])
    assert (nearly.spectral_error < few.spectral_error).all()


def test_errors(double):
    X, Y, _ = make_data(20, **double)
    logged = make_model((X, Y.exp(), None), outcome_transform=Log())
    with pytest.raises(UnsupportedError, match="Got a Log outcome transform"):
        logged.error_bounds(X)
    batch = SubsetSingleTaskGP(X.expand(2, -1, -1), Y.expand(2, -1, -1), subset_size=9)
    with pytest.raises(UnsupportedError, match="batch shape"):
        batch.error_bounds(X)
