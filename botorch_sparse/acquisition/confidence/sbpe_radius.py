r"""Radii for points that were chosen without looking at their feedback.

References:
    .. [Vakili2022]
        S. Vakili, J. Scarlett, D.-s. Shiu and A. Bernacchia. Improved convergence
        rates for sparse approximation methods in kernel-based learning. ICML 2022.
"""

import math
import sys
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, get_args

from botorch.exceptions import InputDataError

from botorch_sparse.acquisition.confidence.radius import (
    Constants,
    NormBoundRadius,
    RadiusStatistics,
    StandardDeviationRadius,
    require,
    require_integers,
)
from botorch_sparse.argument_checks import check_choice, check_number, check_whole

Bias = Literal["paper", "sharp"]


@dataclass(frozen=True)
class SBPERadius(StandardDeviationRadius, NormBoundRadius):
    r"""The radius of [Vakili2022]_ Theorem 3.5, and of E.2 for light-tailed noise.

    With `r` the certified :math:`\lambda_{\max} / \lambda`, :math:`\delta' = \delta /`
    `num_intervals` and :math:`L = \log(1/\delta')`, the factor of the standard
    deviation is

    .. math::
        \beta = b(r) F + \xi \sqrt{2 L / \lambda}, \qquad
        b(r) = 2 + \sqrt r \text{ (paper)}, \quad \sqrt{1 + r} \text{ (sharp)},

    and with light tails :math:`\max\{\xi^2, 2 L / h_0^2\}` replaces :math:`\xi^2`.

    The sharp bias is proved by the same decomposition (Eq. 22): write
    :math:`\bar\sigma^2 = v_1 + v_2 + v_3` for the terms of Theorem 3.2 and split `f`
    into its part in the span of the inducing points and the rest. The first two
    errors are at most :math:`F \sqrt{v_1 + v_2}`, since the parts are orthogonal, and
    the third at most :math:`F \sqrt{r v_3}`; Cauchy-Schwarz adds them. For an exact
    posterior it is F, where the printed one is 2 F.

    *Posterior*: the Nystrom posterior, whatever its inducing points, of points that
    were chosen independently of the noise in their own feedback; each one-sided bound
    holds at one point with probability :math:`1 - \delta'`. Ask for
    `num_intervals = 2 |X|` to hold both on a finite domain, and Eq. 13 takes
    :math:`4 B |X|` for B batches.

    The paper has no experiments. The practical radius here is the sharp one without
    the union bound (`num_intervals = 1`).

    Args (after `NormBoundRadius`):
        constants: `"theory"` (default) or `"practical"`.
        num_intervals: What `delta` is divided by, at least 1; theory only.
        bias: `"paper"` for the printed bias, `"sharp"` for the smaller one; theory
            only.
        mgf_radius: :math:`h_0`, positive: the noise's moment generating function is
            bounded by :math:`\exp(h^2 \xi^2 / 2)` for :math:`|h| \le h_0`. Infinite for
            sub-Gaussian noise.
    """

    needs_lambda_max: ClassVar[bool] = True

    _: KW_ONLY
    constants: Constants = "theory"
    num_intervals: float = 1.0
    bias: Bias = "paper"
    mgf_radius: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "[1, inf)", num_intervals="2 * num_candidates")
        require(self, "(0, inf]", mgf_radius="inf for sub-Gaussian noise")
        check_choice("bias", self.bias, get_args(Bias))

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """The factor of the standard deviation."""
        L = self._log_inverse_delta(statistics)
        noise = self._deviation(L) / math.sqrt(statistics.lam)
        return self._bias_factor(statistics.lambda_max) * self.norm_bound + noise

    def _bias_factor(self, r: float) -> float:
        """The factor `b(r)` of the norm."""
        if self.bias == "paper" and self.constants == "theory":
            return 2 + math.sqrt(r)
        return math.sqrt(1 + r)

    def _log_inverse_delta(self, statistics: RadiusStatistics) -> float:
        r""":math:`\log(1/\delta')` of one interval."""
        if self.constants == "practical":
            return -math.log(self.delta)
        return math.log(self.num_intervals) - math.log(self.delta)

    def _deviation(self, L: float) -> float:
        """Deviation of a unit combination of noise terms with probability `exp(-L)`."""
        variance = max(self.noise_variance, 2 * L / self.mgf_radius**2)
        return math.sqrt(2 * variance * L)


@dataclass(frozen=True)
class SBPEContinuousRadius(SBPERadius):
    r"""The uniform radius of [Vakili2022]_ Corollary 3.7 on a compact domain.

    The interval is :math:`\bar\mu \pm (\tilde\beta \bar\sigma + o)` with

    .. math::
        \tilde\beta &= \beta(\delta' / (2 \Gamma_n)), &
        o &= \frac{2}{n} + \frac{2 \tilde\beta}{\sqrt n}, \\
        \Gamma_n &= c\, (C_n n)^d, &
        C_n &= F \Bigl(1 + \kappa \sqrt{n / \lambda}\Bigr)
            + \sqrt{n / \lambda}\, \xi \sqrt{2 \log(4 n / \delta')},

    where n counts the evaluations that the posterior has seen (for n = 0 we take 1: the
    theorem's n is the fineness of a grid). `c` is the constant of Assumption 3.6: a
    grid of :math:`c (C n)^d` points leaves no function of norm C with a change above
    1/n between a point and its nearest grid point. `discretization_constant` computes
    it, and `SBPE` does from its kernel; the default 1 holds on the unit cube when the
    kernel's Lipschitz constant times :math:`\sqrt d` is at most one (Gaussian kernel:
    lengthscale :math:`\sqrt d`).

    Two slips of the proof are mended, which matters only for small numbers: Lemma F.1
    bounds a residual by :math:`F k_{\max}` where the reproducing property gives
    :math:`F k_{\max}^{1/2}`, so that :math:`\kappa = \max(k_{\max}, k_{\max}^{1/2})`;
    and Lemma F.2 applies the grid to functions of norm
    :math:`\kappa \max(1, \sqrt{n / \lambda})`, so that :math:`C_n` takes
    :math:`\max(F, 1)`.

    Eq. 15 takes `num_intervals = 4 B`. The practical radius has neither the grid nor
    the offset.

    *Posterior*: as for `SBPERadius`, uniformly on the domain.

    Args (after `SBPERadius`):
        dim: Dimension d of the domain.
        kernel_bound: :math:`k_{\max} = \max_x k(x, x)`, positive.
        discretization: The constant c, positive.
    """

    _: KW_ONLY
    dim: int
    kernel_bound: float = 1.0
    discretization: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integers(self, dim="bounds.shape[-1]")
        require(self, "(0, inf)", kernel_bound="the outputscale")
        require(self, "(0, inf)", discretization="discretization_constant(...)")

    def offset(self, statistics: RadiusStatistics) -> float:
        r""":math:`2/n + 2 \tilde\beta / \sqrt n`."""
        if self.constants == "practical":
            return 0.0
        n = max(1, statistics.num_evaluations)
        return 2 / n + 2 * self.paper_value(statistics) / math.sqrt(n)

    def _log_inverse_delta(self, statistics: RadiusStatistics) -> float:
        r""":math:`\log(2 \Gamma_n / \delta')`."""
        L = super()._log_inverse_delta(statistics)
        if self.constants == "practical":
            return L
        return L + math.log(2) + self._log_grid_size(statistics, L)

    def _log_grid_size(self, statistics: RadiusStatistics, L: float) -> float:
        r""":math:`\log \Gamma_n`, in logarithms since it overflows for large d."""
        n = max(1, statistics.num_evaluations)
        scale = math.sqrt(n / statistics.lam)
        kappa = max(self.kernel_bound, math.sqrt(self.kernel_bound))
        noise = scale * self._deviation(L + math.log(4 * n))
        norm = max(self.norm_bound, 1.0) * (1 + scale * kappa) + noise
        return math.log(self.discretization) + self.dim * math.log(norm * n)


def discretization_constant(
    dim: int, lipschitz_constant: float, side: float = 1.0
) -> float:
    r"""The constant c of [Vakili2022]_ Assumption 3.6 on a cube.

    A function of norm C changes by at most :math:`C \ell \|x - x'\|` where
    :math:`\ell^2 = -k''(0)` in the steepest direction. A grid whose cells have
    half-diagonals of :math:`1/(C \ell n)` then has at most
    :math:`\max(1, s \ell \sqrt d)^d (C n)^d` points for :math:`C n \ge 1`.

    Args:
        dim: Dimension d.
        lipschitz_constant: :math:`\ell`: the root of the outputscale, over the smallest
            lengthscale, times 1 for the Gaussian kernel, :math:`\sqrt{5/3}` for
            Matern-5/2 and :math:`\sqrt 3` for Matern-3/2.
        side: Longest side s of the domain.

    Returns:
        The constant.

    Raises:
        InputDataError: If it is beyond float64.

    Example:
        >>> round(discretization_constant(2, 5.0), 6)
        50.0
    """
    check_whole("dim", dim)
    check_number("lipschitz_constant", lipschitz_constant, "(0, inf)")
    check_number("side", side, "(0, inf)")
    factor = max(1.0, side * lipschitz_constant * math.sqrt(dim))
    if dim * math.log(factor) > math.log(sys.float_info.max):
        raise InputDataError(
            f"Got a grid of {factor:.4g}^{dim} points for dim={dim}, which is beyond "
            "float64, and a radius of which nothing follows; need fewer features, a "
            "longer lengthscale, or constants='practical', which have no grid."
        )
    return factor**dim
