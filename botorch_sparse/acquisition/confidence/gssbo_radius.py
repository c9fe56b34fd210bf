r"""The radius of gradient-based subset selection, with the error that was measured.

References:
    [Wei2025]_ Theorems 5.1 and 5.2, Eq. 19 (GSSBO).
"""

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, get_args

from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import BotorchWarning

from botorch_sparse.acquisition.confidence.radius import (
    RadiusStatistics,
    StandardDeviationRadius,
    require,
)
from botorch_sparse.acquisition.confidence.srinivas_radius import SrinivasCompactRadius
from botorch_sparse.argument_checks import check_choice

GSSBOConstants = Literal["practical", "theory", "paper"]
Penalty = Literal["multiplier", "offset"]


@dataclass(frozen=True, kw_only=True)
class SubsetStatistics(RadiusStatistics):
    r"""What `GSSBORadius` needs beside `RadiusStatistics`.

    `lambda_max` is the measured spectral error :math:`\|K - \hat K\| / \lambda`.

    Args:
        feedback_norm: :math:`\|y - c\|` of all data, c the prior mean.
        cross_covariance_norm: A bound on :math:`\|k_X(x)\|` over the domain; without it
            :math:`\kappa^2 \sqrt n`.
        min_std: The smallest posterior standard deviation in the domain, for
            `penalty="multiplier"` and `constants="paper"`.
    """

    feedback_norm: float
    cross_covariance_norm: float | None = None
    min_std: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "[0, inf)", feedback_norm="Y.norm()", min_std="the smallest std")
        if self.cross_covariance_norm is not None:
            require(self, "[0, inf)", cross_covariance_norm="None")


@dataclass(frozen=True)
class GSSBORadius(StandardDeviationRadius):
    r"""The radius of [Wei2025]_ Eq. 19 and Theorem 5.2 for a GP with an approximation.

    Theorem 5.1 bounds how far mean and standard deviation of an approximate posterior
    lie from the exact ones. With :math:`E = \|K - \hat K\|` *measured* (the paper
    bounds it through an eigenvalue and an unknown constant) and
    :math:`\|(K + \lambda)^{-1}\| \|(\hat K + \lambda)^{-1}\| \le \lambda^{-2}`,

    .. math::
        |\Delta\mu| &\le A = \|k_X(x)\| \|y\| E / \lambda^2, \\
        |\Delta\sigma| &\le B = \|k_X(x)\| \sqrt E / \lambda.

    With :math:`\beta_n` the square of `SrinivasCompactRadius` with theory constants and
    :math:`s = \beta_n^{1/2}`, the factor of the standard deviation is

    .. math::
        \text{theory (Eq. 19):}\quad & s + (A + s B) / \sigma_{\min} \\
        \text{paper (Theorem 5.2):}\quad &
            (\sigma_{\min} \beta_n - A) / (\sigma_{\min} + B) \\
        \text{practical:}\quad & s \text{ with the practical } \beta_n

    Theorem 5.2 subtracts the penalty that Eq. 19 adds, so its radius may be negative:
    it is then 0, with a warning. It also multiplies the deviation by :math:`\beta_n`
    where its lemmas, and Eq. 19 here, use the root.

    `penalty="offset"` adds :math:`A + s B` as it is, in units of Y, which is never
    wider and needs no :math:`\sigma_{\min}`.

    A and B grow like :math:`n E / \lambda^2`: they are of use when the approximation is
    close to exact.

    *Posterior*: mean :math:`k_X(x)^\top (\hat K + \lambda)^{-1} y` and variance
    :math:`k(x, x) - k_X(x)^\top (\hat K + \lambda)^{-1} k_X(x)`, clamped at 0, for a
    function drawn from the prior, on the grid of `SrinivasCompactRadius`. That is
    neither the exact GP of a subset alone nor the Nystrom posterior: for these no
    theorem of the paper gives a radius.

    Args:
        dim: See `SrinivasCompactRadius`, as the others up to `gradient_scale`.
        delta: Probability of failure, in (0, 1).
        side: See there.
        gradient_amplitude: See there.
        gradient_scale: See there.
        kernel_bound: :math:`\kappa^2 = \max_x k(x, x)`, positive.
        penalty: Where Eq. 19's penalty goes, `"multiplier"` or `"offset"`.
        constants: `"theory"`, `"paper"` or `"practical"`.
    """

    needs_lambda_max: ClassVar[bool] = True

    dim: int
    delta: float
    _: KW_ONLY
    side: float = 1.0
    gradient_amplitude: float = 1.0
    gradient_scale: float = 1.0
    kernel_bound: float = 1.0
    penalty: Penalty = "multiplier"
    constants: GSSBOConstants = "theory"

    def __post_init__(self) -> None:
        require(self, "(0, inf)", kernel_bound="the outputscale")
        check_choice("penalty", self.penalty, get_args(Penalty))
        check_choice("constants", self.constants, get_args(GSSBOConstants))
        self._exact()

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """The factor of the standard deviation."""
        beta = self._exact().paper_value(statistics)
        s = math.sqrt(beta)
        if self.constants == "practical" or (
            self.constants == "theory" and self.penalty == "offset"
        ):
            return s
        A, B, sigma = *self._errors(statistics), _min_std(statistics)
        if self.constants == "theory":
            return s + (A + s * B) / sigma
        return _clamped((sigma * beta - A) / (sigma + B))

    def offset(self, statistics: RadiusStatistics) -> float:
        """`A + s B` with `penalty="offset"` and theory constants, otherwise 0."""
        if self.constants != "theory" or self.penalty != "offset":
            return 0.0
        A, B = self._errors(statistics)
        return A + self.paper_value(statistics) * B

    def _exact(self) -> SrinivasCompactRadius:
        """The radius of the exact posterior."""
        names = ("dim", "delta", "side", "gradient_amplitude", "gradient_scale")
        arguments: dict[str, Any] = {name: getattr(self, name) for name in names}
        constants: Literal["practical", "theory"] = (
            "practical" if self.constants == "practical" else "theory"
        )
        return SrinivasCompactRadius(**arguments, constants=constants)

    def _errors(self, statistics: RadiusStatistics) -> tuple[float, float]:
        """The bounds A and B."""
        if not isinstance(statistics, SubsetStatistics):
            raise InputDataError(
                f"Got {type(statistics).__name__}; the theorem needs the norm of the "
                "feedback. Pass SubsetStatistics."
            )
        k = statistics.cross_covariance_norm
        if k is None:
            k = self.kernel_bound * math.sqrt(statistics.num_evaluations)
        error = statistics.lambda_max / statistics.lam  # E / lam^2
        return k * statistics.feedback_norm * error, k * math.sqrt(error)


def _min_std(statistics: RadiusStatistics) -> float:
    """The smallest standard deviation, positive."""
    sigma = getattr(statistics, "min_std", 0.0)
    if not sigma > 0:
        raise InputDataError(
            f"Got min_std={sigma}; Eq. 19 and Theorem 5.2 divide by it. Give the "
            'smallest standard deviation in the domain, or take penalty="offset".'
        )
    return float(sigma)


def _clamped(value: float) -> float:
    """At least 0, with a warning."""
    if value < 0:
        warnings.warn(
            "The radius of GSSBO's Theorem 5.2 is negative and was set to 0: the error "
            'of the approximation outweighs it. Take constants="theory".',
            BotorchWarning,
            stacklevel=3,
        )
    return max(0.0, value)
