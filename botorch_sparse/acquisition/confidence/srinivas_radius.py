r"""The radii of GP-UCB: Bayesian on finite and compact domains, and agnostic.

References:
    [Srinivas2010]_ Theorems 1, 2 and 3 (and 6, in the appendix).
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import get_args

from botorch.exceptions import InputDataError

from botorch_sparse.acquisition.confidence.radius import (
    Constants,
    NormBoundRadius,
    RadiusStatistics,
    VarianceRadius,
    check_gain,
    require,
    require_integers,
)
from botorch_sparse.argument_checks import check_choice

# The authors divide their beta by this in all their experiments (Section 6).
PRACTICAL_DIVISOR = 5.0


@dataclass(frozen=True)
class SrinivasFiniteRadius(VarianceRadius):
    r"""The beta of [Srinivas2010]_ Theorem 1: a finite domain and a Bayesian function.

    .. math:: \beta_t = 2 \log(|X| t^2 \pi^2 / (6 \delta)), \qquad t = n + 1

    after n evaluations; the width is :math:`\beta_t^{1/2} \sigma`. The practical one
    is a fifth of it, as in the authors' experiments.

    *Posterior*: the exact one of a function drawn from the prior, Gaussian noise of
    variance lambda, all points of the domain and all t at once; points may be chosen
    as one likes.

    Args:
        num_candidates: Size :math:`|X|` of the domain, at least 1.
        delta: Probability of failure, in (0, 1).
        constants: `"practical"` or `"theory"`.
    """

    num_candidates: int
    delta: float
    _: KW_ONLY
    constants: Constants = "practical"

    def __post_init__(self) -> None:
        require_integers(self, num_candidates="len(candidates)")
        require(self, "(0, 1)", delta="0.1")
        check_choice("constants", self.constants, get_args(Constants))

    def paper_value(self, statistics: RadiusStatistics) -> float:
        r""":math:`\beta_t`."""
        t = statistics.num_evaluations + 1
        beta = 2 * math.log(self.num_candidates * t**2 * math.pi**2 / (6 * self.delta))
        return _scaled(beta, self.constants)


@dataclass(frozen=True)
class SrinivasCompactRadius(VarianceRadius):
    r"""The beta of [Srinivas2010]_ Theorem 2: a compact domain, a Bayesian function.

    On :math:`[0, s]^d`, for sample paths whose partial derivatives exceed L with
    probability at most :math:`a e^{-L^2 / b^2}`,

    .. math::
        \beta_t = 2 \log \frac{2 \pi^2 t^2}{3 \delta}
            + 2 d \log \Bigl( t^2 d b s \sqrt{\log(4 d a / \delta)} \Bigr),
        \qquad t = n + 1

    after n evaluations; the width is :math:`\beta_t^{1/2} \sigma`. The practical one is
    a fifth of it.

    *Posterior*: the exact one, as in `SrinivasFiniteRadius`. The interval holds at the
    points chosen and on a grid of :math:`\tau_t^d` points (the second logarithm
    counts them); between them f differs from its value at the nearest grid
    point by at most :math:`1/t^2`.

    Args:
        dim: Dimension d, at least 1.
        delta: Probability of failure, in (0, 1).
        side: Longest side s of the domain, positive.
        gradient_amplitude: The constant a, positive.
        gradient_scale: The constant b, positive.
        constants: `"practical"` or `"theory"`.
    """

    dim: int
    delta: float
    _: KW_ONLY
    side: float = 1.0
    gradient_amplitude: float = 1.0
    gradient_scale: float = 1.0
    constants: Constants = "practical"

    def __post_init__(self) -> None:
        require_integers(self, dim="bounds.shape[-1]")
        require(self, "(0, 1)", delta="0.1")
        require(self, "(0, inf)", side="1", gradient_amplitude="1", gradient_scale="1")
        check_choice("constants", self.constants, get_args(Constants))

    def paper_value(self, statistics: RadiusStatistics) -> float:
        r""":math:`\beta_t`."""
        t = statistics.num_evaluations + 1
        beta = 2 * math.log(2 * math.pi**2 * t**2 / (3 * self.delta))
        return _scaled(beta + 2 * self.dim * self._log_grid(t), self.constants)

    def _log_grid(self, t: int) -> float:
        r""":math:`\log \tau_t`: grid points along a side, at least one."""
        d, a = self.dim, self.gradient_amplitude
        slope = math.sqrt(max(0.0, math.log(4 * d * a / self.delta)))
        return math.log(max(1.0, t**2 * d * self.gradient_scale * self.side * slope))


@dataclass(frozen=True)
class SrinivasAgnosticRadius(VarianceRadius, NormBoundRadius):
    r"""The beta of [Srinivas2010]_ Theorem 3: a function of bounded RKHS norm.

    .. math:: \beta_t = 2 F^2 + 300 \gamma_t \log^3(t / \delta), \qquad t = n + 1

    after n evaluations; the width is :math:`\beta_t^{1/2} \sigma`. The practical one is
    a fifth of it. `ChowdhuryGopalanRadius` is far smaller and asks for less.

    *Posterior*: the exact one, for noise of absolute value at most
    :math:`\sqrt\lambda`, so `noise_variance` is the square of its bound and must not
    exceed :math:`\lambda`.

    The theorem's :math:`\gamma_t` is the largest information gain of any t points.
    Without `max_information_gain` we take the running gain of the evaluated ones and
    the most that one more point adds, :math:`\frac12 \log(1 + \kappa^2 / \lambda)`:
    less than :math:`\gamma_t`, and not what is proved.

    Args (after `NormBoundRadius`):
        kernel_bound: :math:`\kappa^2 = \max_x k(x, x)`, positive.
        max_information_gain: From t to :math:`\gamma_t` in nats.
    """

    _: KW_ONLY
    kernel_bound: float = 1.0
    max_information_gain: Callable[[int], float] | None = field(
        default=None, repr=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "(0, inf)", kernel_bound="the outputscale")
        check_gain(self.max_information_gain)

    def paper_value(self, statistics: RadiusStatistics) -> float:
        r""":math:`\beta_t`."""
        if self.noise_variance > statistics.lam * (1 + 1e-12):
            raise InputDataError(
                f"Got noise_variance={self.noise_variance} above lam={statistics.lam}; "
                "this radius needs noise of absolute value at most sqrt(lam). Raise "
                "lam, or use ChowdhuryGopalanRadius."
            )
        t = statistics.num_evaluations + 1
        beta = 2 * self.norm_bound**2
        beta += 300 * self._gain(statistics, t) * math.log(t / self.delta) ** 3
        return _scaled(beta, self.constants)

    def _gain(self, statistics: RadiusStatistics, t: int) -> float:
        r""":math:`\gamma_t`."""
        if self.max_information_gain is not None:
            return self.max_information_gain(t)
        one_more = 0.5 * math.log1p(self.kernel_bound / statistics.lam)
        return statistics.information_gain + one_more


def _scaled(beta: float, constants: Constants) -> float:
    """The beta of the theorem or of the experiments."""
    return beta / PRACTICAL_DIVISOR if constants == "practical" else beta
