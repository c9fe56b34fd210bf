"""What a search of S-BPE starts from: a kernel of points as they come, noise, units."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import check_kind, check_number
from botorch_sparse.kernels import in_double
from botorch_sparse.kernels.lipschitz import lipschitz_constants
from botorch_sparse.strategies.data.domain import Domain, refuse_large_inputs

Values = TypeVar("Values", float, Tensor)


NEED_LAM = "need a positive noise variance, such as noise_std ** 2."


@dataclass(frozen=True)
class OutcomeScale:
    """Feedback in units of its own: `(Y - center) / scale`.

    Attributes:
        center: What counts as zero, in units of Y.
        scale: What counts as one, positive.
    """

    center: float = 0.0
    scale: float = 1.0

    def standardize(self, Y: Values) -> Values:
        """From units of Y."""
        return (Y - self.center) / self.scale

    def restore(self, values: Values) -> Values:
        """Back to units of Y."""
        return self.center + self.scale * values


UNITS_OF_Y = OutcomeScale()


@dataclass(frozen=True, eq=False)
class SearchPrior:
    """What a search and its radius start from.

    Attributes:
        covar_module: The kernel of points as they come, for float64.
        lam: The regularizer, as the noise variance of one observation, in `units`.
        noise_variance: The square of R, in `units`.
        units: Of the feedback.
        discretization: The constant c of `SBPEContinuousRadius`; None where it is not
            known, and on a table.

    Raises:
        InputDataError: If `lam` is not positive and finite.
    """

    covar_module: Kernel
    lam: float
    noise_variance: float
    units: OutcomeScale = UNITS_OF_Y
    discretization: float | None = None

    def __post_init__(self) -> None:
        check_number("lam", self.lam, "(0, inf)", NEED_LAM)

    @classmethod
    def given(
        cls,
        domain: Domain,
        covar_module: Kernel,
        lam: float,
        noise_std: float,
        discretization: float | None,
    ) -> "SearchPrior":
        """The prior of a kernel that is given, in units of Y."""
        refuse_large_inputs(domain)
        kernel = in_double(covar_module, domain.dtype)
        if discretization is None and domain.box is not None:
            discretization = grid_constant(kernel, domain.ranges)
        return cls(kernel, lam, noise_std**2, discretization=discretization)


def grid_constant(covar_module: Kernel, bounds: Tensor) -> float | None:
    r"""The constant c of [Vakili2022]_ Assumption 3.6 for a kernel on a box.

    With :math:`g_i` of `lipschitz_constants` and sides :math:`s_i`: a function of
    norm C changes by :math:`C (\sum_i g_i^2 \delta_i^2)^{1/2}` at most. A grid of
    :math:`\lceil s_i g_i \sqrt d \, C n / 2 \rceil` points along each side has cells
    within :math:`|\delta_i| \le 1/(g_i \sqrt d \, C n)` of their centers, where that is
    1/n, and for :math:`C n \ge 1` at most :math:`c (C n)^d` points,

    .. math:: c = \prod_i \max(1, s_i g_i \sqrt d).

    Args:
        covar_module: The kernel.
        bounds: `2 x d`.

    Returns:
        None where the kernel's slopes are not known; see `lipschitz_constants`.
    """
    sides, dim = bounds[1] - bounds[0], bounds.shape[-1]
    if (slopes := lipschitz_constants(covar_module, dim)) is None:
        return None
    per_side = sides.double().cpu() * slopes.squares.cpu().sqrt() * math.sqrt(dim)
    return float(per_side.clamp_min(1.0).prod())


def validate_prior(
    covar_module: object,
    lam: object,
    noise_std: object,
    discretization: object,
    *,
    is_needed: bool = False,
) -> None:
    """Check what a prior is given with; None for what is inferred.

    Raises:
        InputDataError: If one is of another type, or out of its range.
    """
    if covar_module is not None or is_needed:
        need = "a GPyTorch kernel, such as RBFKernel()"
        check_kind("covar_module", covar_module, Kernel, need)
    if lam is not None or is_needed:
        check_number("lam", lam, "(0, inf)", NEED_LAM)
    if noise_std is not None or is_needed:
        check_number("noise_std", noise_std, "[0, inf)")
    if discretization is not None:
        check_number("discretization", discretization, "(0, inf)")


class InputsKernel(Kernel):
    """A kernel of what is made of points, such as some columns scaled to [0, 1].

    Args:
        base_kernel: The kernel.
        inputs: From `n x d` points to those that it takes.
    """

    def __init__(self, base_kernel: Kernel, inputs: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.base_kernel = base_kernel
        self.inputs = inputs

    @property
    def is_stationary(self) -> bool:
        """Whether it depends on differences alone."""
        return self.base_kernel.is_stationary

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor:
        """The base kernel of these inputs."""
        x1, x2 = self.inputs(x1), self.inputs(x2)
        return self.base_kernel.forward(x1, x2, diag=diag, **params)
