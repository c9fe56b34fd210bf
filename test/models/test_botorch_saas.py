"""Cases of BoTorch's `test_map_saas.py`, written anew for sparse models."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from botorch.fit import fit_gpytorch_mll, get_fitted_map_saas_model
from botorch.models import map_saas
from botorch.models.map_saas import (
    get_additive_map_saas_covar_module,
    get_gaussian_likelihood_with_gamma_prior,
    get_mean_module_with_normal_prior,
)
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import AppendFeatures, FilterFeatures
from botorch.optim.utils import sample_all_priors
from gpytorch.mlls import ExactMarginalLogLikelihood
from sparse_model_cases import sine_data
from torch import Size

from botorch_sparse.models import SparseSingleTaskGP

close = torch.testing.assert_close
pytestmark = pytest.mark.filterwarnings("ignore")  # BoTorch's, of so few data


@pytest.fixture(params=[None, 5], ids=["exact", "sparse"])
def saas(request, monkeypatch):
    """BoTorch's functions with the class that they build replaced."""

    class Replaced(SparseSingleTaskGP):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs, max_inducing_points=request.param)

    monkeypatch.setattr(map_saas, "SingleTaskGP", Replaced)
    return Replaced


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("noise", "tau"), [(None, None), (None, 0.1), (0.01, None)])
def test_sparse_axes(noise, tau, saas):
    """`test_get_saas_model`: one input plays a role, whatever the units are."""
    X, _ = sine_data(12, 3)
    Y = (1 + 2 * X[:, :1]).sin()
    Yvar = None if noise is None else torch.full_like(Y, noise)
    model = get_fitted_map_saas_model(
        1 + 2 * X,
        Y,
        Yvar,
        input_transform=Normalize(d=3),
        outcome_transform=Standardize(m=1),
        tau=tau,
    )
    assert isinstance(model, saas)
    first, *others = model.covar_module.base_kernel.lengthscale.flatten().tolist()
    assert first < 10 and min(others) > 100
    low, span = X.amin(0), X.amax(0) - X.amin(0)
    scale = Y.std()
    plain = get_fitted_map_saas_model(
        (X - low) / span,
        (Y - Y.mean()) / scale,
        None if Yvar is None else Yvar / scale**2,
        tau=tau,
    )
    Z = torch.rand(5, 3, dtype=X.dtype, generator=torch.Generator().manual_seed(1))
    found, known = model.posterior(1 + 2 * Z), plain.posterior((Z - low) / span)
    # Both fits end where L-BFGS-B does, at 1e-5 of the loss or its gradient.
    close(found.mean, Y.mean() + scale * known.mean, rtol=1e-3, atol=1e-3)
    close(found.variance, scale**2 * known.variance, rtol=1e-2, atol=1e-3)


def test_sparse_axes_of_several_outputs(saas):
    """`test_batch_model_fitting`: the fit of each output."""
    X, _ = sine_data(12, 3)
    Y = torch.cat([(2 * X[:, :1]).sin(), (2 * X[:, 1:2]).cos()], dim=-1)
    both = get_fitted_map_saas_model(X, Y, tau=0.1)
    kernel = both.covar_module
    assert kernel.base_kernel.lengthscale.shape == (2, 1, 3)
    assert both.likelihood.noise.shape == (2, 1)
    for t in range(2):
        lengthscale = kernel.base_kernel.lengthscale[t].squeeze()
        assert lengthscale[t] < 10
        assert lengthscale[[i for i in range(3) if i != t]].min() > 100


def test_inputs_that_are_left_out_or_appended(saas):
    """`test_filterfeatures_input_transform`, `test_input_transform_in_train`."""
    X, Y = sine_data(12, 3)
    chosen = FilterFeatures(torch.tensor([0, 2]))
    options = {"optimizer_kwargs": {"options": {"maxiter": 5}}}
    model = get_fitted_map_saas_model(X, Y, input_transform=chosen, **options)
    close(model.train_inputs[0], X[:, [0, 2]])
    assert model.covar_module.base_kernel.lengthscale.shape == (1, 2)
    assert model.posterior(X[:3]).mean.shape == (3, 1)
    features = torch.rand(4, 1, dtype=X.dtype)
    appended = AppendFeatures(feature_set=features).eval()
    with patch.object(saas, "_validate_tensor_args") as check:
        get_fitted_map_saas_model(X, Y, input_transform=appended, **options)
        assert check.call_args.kwargs["X"].equal(X)


@pytest.mark.parametrize("size", [None, 5], ids=["exact", "sparse"])
@pytest.mark.parametrize(
    ("batch", "num_outputs", "noise"),
    [((), 1, None), ((5,), 1, 0.1), ((), 2, None), ((3,), 2, 0.1)],
)
def test_sums_of_kernels_with_sparse_axes(batch, num_outputs, noise, size):
    """`TestAdditiveMapSaasSingleTaskGP`: its modules, in a model of ours."""
    X, Y = sine_data(10, 4, batch)
    Y = Y.repeat(*(1 for _ in batch), 1, num_outputs)
    outputs = (num_outputs,) if num_outputs > 1 else ()
    shape = Size((*batch, *outputs))
    torch.manual_seed(0)  # of the kernels' sparsity
    kernel = get_additive_map_saas_covar_module(4, num_taus=2, batch_shape=shape)
    model = SparseSingleTaskGP(
        X,
        Y,
        None if noise is None else torch.full_like(Y, noise),
        covar_module=kernel.to(X),
        mean_module=get_mean_module_with_normal_prior(batch_shape=shape).to(X),
        likelihood=get_gaussian_likelihood_with_gamma_prior(batch_shape=shape).to(X)
        if noise is None
        else None,
        max_inducing_points=size,
    )
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 3}})
    posterior = model.posterior(torch.rand(13, 4, dtype=X.dtype))
    assert posterior.mean.shape == posterior.variance.shape == (*batch, 13, num_outputs)
    assert posterior.rsample().isfinite().all()
    sample_all_priors(model.train())
    assert model.posterior(X[..., :2, :]).mean.isfinite().all()
