"""The noise of a kernel that was given, and the kernels that are inferred."""

import math
from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
)
from botorch.optim.utils import sample_all_priors
from box_table import BOUNDS, TABLE
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from strategy_table import make_candidates
from torch import Tensor

from botorch_sparse.models.fit.candidate_fits import in_few_steps
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPUCB,
    ExpectedImprovement,
    ThompsonSampling,
)
from botorch_sparse.strategies.surrogates.inferred_kernels import (
    few_data_kernel,
    fingerprint_kernel,
    matern_kernel,
)


def noise_free(X: Tensor) -> Tensor:
    return torch.sin(2 * X[:, 0]) * torch.cos(3 * X[:, 1])


def kernel(outputscale: float) -> ScaleKernel:
    """Its hyperparameters may be fitted."""
    covar_module = ScaleKernel(RBFKernel(ard_num_dims=2)).double()
    covar_module.outputscale = outputscale
    return covar_module


@pytest.mark.parametrize("dim", [1, 24])
def test_the_kernel_for_few_data_has_botorchs_mode(dim: int) -> None:
    """And less spread: by the largest of both densities on a grid."""
    own = few_data_kernel(dim)
    usual = get_covar_module_with_dim_scaled_prior(dim, use_rbf_kernel=False)
    grid = torch.logspace(-2, 2, 20_001)
    modes = []
    for kernel in (own, usual):
        density = kernel.lengthscale_prior.log_prob(grid)
        modes.append(float(grid[density.argmax()]))
        assert kernel.nu == 2.5 and kernel.ard_num_dims == dim
    assert modes[0] == pytest.approx(modes[1], rel=2e-3)
    assert own.lengthscale.flatten().tolist() == pytest.approx([modes[0]] * dim, 2e-3)
    assert own.lengthscale_prior.stddev < usual.lengthscale_prior.stddev


@pytest.mark.parametrize("dim", [1, 6])
def test_the_kernel_of_a_part_of_the_box(dim: int) -> None:
    """The same function of inputs in units of that part: values, bound and prior."""
    whole, part = matern_kernel(dim).double(), matern_kernel(dim, 0.05).double()
    X = torch.rand(7, dim, generator=torch.Generator().manual_seed(0)).double()
    of_part = part(0.05 * X).to_dense()
    torch.testing.assert_close(of_part, whole(X).to_dense(), rtol=1e-6, atol=1e-6)
    density = whole.lengthscale_prior.log_prob(X)
    scaled = part.lengthscale_prior.log_prob(0.05 * X)
    torch.testing.assert_close(scaled, density - math.log(0.05), rtol=1e-5, atol=1e-5)
    bounds = [k.raw_lengthscale_constraint.lower_bound.item() for k in (part, whole)]
    assert bounds[0] == pytest.approx(0.05 * bounds[1])


def test_few_data_have_it_by_expected_improvement_alone() -> None:
    X = torch.rand(20, 3, generator=torch.Generator().manual_seed(0)).double()
    for cls, scale in ((ExpectedImprovement, 1.2), (ThompsonSampling, 3**0.5)):
        strategy = cls(X, batch_size=4)
        strategy.run(lambda X: X.sum(-1), 8, progress=False)
        model = strategy.surrogate.parts[0].view.prior.covar_module
        assert float(model.lengthscale_prior.scale) == pytest.approx(scale)


@pytest.mark.parametrize(
    ("outputscale", "lam", "least"),
    [(1.0, 1e-2, 1e-4), (100.0, 1e-1, 1e-2), (1.0, 1e-6, 5e-7)],
)
def test_fitted_noise_has_a_floor(outputscale: float, lam: float, least: float) -> None:
    """Without noise in the data the fit would go down to zero."""
    strategy = TABLE["bbkb-global-local"](
        covar_module=kernel(outputscale),
        lam=lam,
        refit=RefitSchedule(every=15),
    )
    X = BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * torch.quasirandom.SobolEngine(2).draw(
        30, dtype=torch.float64
    )
    strategy.tell(X, outputscale**0.5 * noise_free(X))
    strategy.ask()
    noise = strategy.model.likelihood.noise.item()
    assert strategy.surrogate.source.min_noise == pytest.approx(least)
    assert 0.999 * least <= noise < 1.5 * least  # GPyTorch keeps the limit in float32
    assert strategy.statistics.lam == noise


@pytest.mark.parametrize(
    "cls",
    [
        BBKB,
        ThompsonSampling,
        *(pytest.param(c, marks=pytest.mark.slow) for c in (BKB, GPUCB)),
    ],
)
def test_a_kernel_that_is_fitted_on_a_table_does_not_collapse(cls: Any) -> None:
    """One value alone has no scale, and fits begin where the last one ended."""
    covar_module = ScaleKernel(RBFKernel()).double()
    strategy = cls(make_candidates(), covar_module, 1e-2, refit=RefitSchedule())
    X = strategy.candidates[:1]
    strategy.tell(X, noise_free(X))
    history = strategy.run(noise_free, 40, progress=False, batch_size=5)
    assert strategy.surrogate.view.prior.covar_module.outputscale > 1e-3
    best = float(noise_free(strategy.candidates).max())
    assert float(history.Y.max()) > best - 0.01 and history.num_unique > 4


@pytest.mark.parametrize("num", [40, 150])
def test_weights_of_fingerprints_are_fitted_to_their_ends(num: int) -> None:
    """Of three the first matters alone; BoTorch's retries draw weights from a prior."""
    g = torch.Generator().manual_seed(0)
    X = (torch.rand(num, 48, generator=g) < 0.3).double()
    Y = X[:, :16] @ torch.randn(16, 1, generator=g).double()
    kernel = fingerprint_kernel(torch.arange(48).split(16), 48).double()
    model = SingleTaskGP(X, Y, covar_module=kernel)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, **in_few_steps({}))
    weight = kernel.base_kernel.weight
    assert weight[0] > 0.3 and weight[1:].max() < 0.05
    for _ in range(20):
        sample_all_priors(model)
        assert 0.0 <= kernel.base_kernel.weight.min()
        assert kernel.base_kernel.weight.max() <= 1.0


def test_a_mean_that_is_given_is_not_fitted() -> None:
    for domain in ({"candidates": make_candidates()}, {"bounds": BOUNDS}):
        mean_module = ConstantMean().double()
        strategy = BBKB(
            covar_module=kernel(1.0),
            lam=1e-2,
            mean_module=mean_module,
            refit=RefitSchedule(every=5),
            **domain,
        )
        X = make_candidates()[:20]
        strategy.tell(X, noise_free(X) + 2.0)
        fitted = strategy.posterior if strategy.box is None else strategy.model
        assert float(fitted.mean_module.constant.detach()) == 0.0
        assert mean_module.raw_constant.requires_grad
