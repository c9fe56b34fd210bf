"""S-BPE on a box: the constant of Assumption 3.6, against the grid that it counts."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel

from botorch_sparse.acquisition import FixedBeta, SBPEContinuousRadius
from botorch_sparse.strategies import SBPE, UncertaintyReduction

BOX = torch.tensor([[-1.0, 0.0], [2.0, 0.01]], dtype=torch.float64)
LENGTHSCALES = torch.tensor([[0.5, 4.0]], dtype=torch.float64)
MAKERS: list[Callable[..., Any]] = [
    partial(SBPE, num_evaluations=50, raw_samples=16),
    UncertaintyReduction,
]


def kernel(base: Kernel) -> Kernel:
    """With an outputscale of 2, and lengthscales of which one is longer than needed."""
    base.double().lengthscale = LENGTHSCALES
    scaled = ScaleKernel(base).double().requires_grad_(False)
    scaled.outputscale = 2.0
    return scaled


def radius_of(make: Callable[..., Any], *args: Any, **options: Any) -> Any:
    radius = make(*args, bounds=BOX, **options).radius
    assert isinstance(radius, SBPEContinuousRadius)
    return radius


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("nu", [1.5, 2.5, None])
def test_the_grid_of_the_constant_is_fine_enough(make: Any, nu: float | None) -> None:
    """It has at most `c (C n)^d` points, of which one is near to every point.

    Near is where no function of norm C differs by more than 1/n: the largest difference
    is `C |k_x - k_x'|`. The farthest point of a cell is its corner, as seen from the
    center. The second side needs one point alone.
    """
    options: Any = {"ard_num_dims": 2}
    k = kernel(RBFKernel(**options) if nu is None else MaternKernel(nu, **options))
    radius = radius_of(make, covar_module=k)
    c = radius.discretization
    assert radius.kernel_bound == pytest.approx(2.0)
    one = radius_of(make, covar_module=k, discretization=1.0)
    assert one.discretization == 1.0 < c  # misses what a short lengthscale needs
    slope = {None: 1.0, 2.5: 5 / 3, 1.5: 3.0}[nu]
    expected = 3.0 / 0.5 * math.sqrt(2 * slope) * math.sqrt(2)
    assert c == pytest.approx(expected, rel=1e-12)
    C, n = 1.7, 4
    most = c * (C * n) ** 2
    first = int(most / (C * n))
    assert first * math.floor(C * n) <= most
    half = 0.5 * (BOX[1] - BOX[0]) / torch.tensor([first, math.floor(C * n)])
    apart = k(torch.zeros(1, 2).double(), half.unsqueeze(0)).to_dense()
    assert C * math.sqrt(2 * (2.0 - float(apart))) <= 1 / n


@pytest.mark.parametrize("make", MAKERS)
def test_a_kernel_without_a_constant_is_announced_once(make: Any) -> None:
    rough = kernel(MaternKernel(0.5, ard_num_dims=2))
    with pytest.warns(InputDataWarning, match="Assumption 3.6") as caught:
        radius = radius_of(make, covar_module=rough)
    assert len(caught) == 1 and radius.discretization == 1.0
    # None of these says anything of the grid; warnings are errors.
    assert radius_of(make, covar_module=rough, discretization=3.0).discretization == 3.0
    radius_of(make, covar_module=rough, constants="practical")
    make(BOX, rough)
    MAKERS[0](covar_module=rough, bounds=BOX, radius=FixedBeta(4.0)).ask()


def test_where_the_kernel_is_inferred_a_constant_is_the_least() -> None:
    """Before a fit the lengthscales are the model's own; afterwards the fitted ones."""
    strategy = SBPE(bounds=BOX, num_evaluations=40)
    own = strategy.radius.discretization
    assert SBPE(bounds=BOX, num_evaluations=40, discretization=1e6).radius == (
        type(strategy.radius)(**(vars(strategy.radius) | {"discretization": 1e6}))
    )
    small = SBPE(bounds=BOX, num_evaluations=40, discretization=1e-3)
    assert small.radius.discretization == own >= 1.0


@pytest.mark.parametrize("make", MAKERS)
def test_a_constant_that_is_none_is_refused(make: Any) -> None:
    k = kernel(RBFKernel(ard_num_dims=2))
    with pytest.raises(InputDataError, match="discretization=0"):
        make(covar_module=k, bounds=BOX, discretization=0.0)
