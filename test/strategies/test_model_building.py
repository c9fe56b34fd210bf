"""The noise of a kernel that was given, where it is fitted."""

from typing import Any

import pytest
import torch
from box_table import BOUNDS, TABLE
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from botorch_sparse.models.refit_schedule import RefitSchedule


def noise_free(X: Tensor) -> Tensor:
    return torch.sin(2 * X[:, 0]) * torch.cos(3 * X[:, 1])


def kernel(outputscale: float) -> ScaleKernel:
    """Its hyperparameters may be fitted."""
    covar_module = ScaleKernel(RBFKernel(ard_num_dims=2)).double()
    covar_module.outputscale = outputscale
    return covar_module


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
    assert strategy.surrogate.builder.min_noise == pytest.approx(least)
    assert 0.999 * least <= noise < 1.5 * least  # GPyTorch keeps the limit in float32
    assert strategy.statistics.lam == noise


def test_a_noise_that_is_not_fitted_has_none() -> None:
    """A given lambda is taken as it is, to the bit that it always had."""
    strategy: Any = TABLE["bbkb-global-local"](lam=1e-9)
    strategy.tell(BOUNDS, noise_free(BOUNDS))
    strategy.ask()
    assert strategy.model.likelihood.noise.item() == pytest.approx(1e-9, rel=1e-6)
