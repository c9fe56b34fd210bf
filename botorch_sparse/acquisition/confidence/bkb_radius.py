r"""The radius of budgeted kernelized bandits.

References:
    [Calandriello2019]_ Theorem 2 and its proof (Theorem 9).
"""

import math
from dataclasses import KW_ONLY, dataclass

from botorch_sparse.acquisition.confidence.radius import (
    NormBoundRadius,
    RadiusStatistics,
    require,
)


@dataclass(frozen=True)
class BKBRadius(NormBoundRadius):
    r"""The radius of [Calandriello2019]_ Theorem 2, and its authors' smaller one.

    With the current :math:`u_s = \mathrm{var}_t(x_s)/\lambda`, repeats counted, and
    :math:`\alpha = (1 + \varepsilon)/(1 - \varepsilon)`,

    .. math::
        \text{theory:}\quad & 2 \xi \sqrt{\alpha\, \ell_t \textstyle\sum_s u_s
            + \log(1/\delta)} + (1 + 1/\sqrt{1 - \varepsilon}) \sqrt\lambda F \\
        \text{practical:}\quad & \xi \sqrt{\log(t) \textstyle\sum_s u_s
            + \log(1/\delta)} + \sqrt\lambda F.

    The paper prints :math:`\ell_t = \log(\kappa^2 t)` for any :math:`\lambda > 0`. Its
    proof drops :math:`\lambda` from Eq. 6, so that this is proved, and used here, for
    :math:`\lambda \ge 1` and :math:`\kappa^2 t \ge 4`. Elsewhere it may be too small,
    and where :math:`(1 + \log(1 + \kappa^2 t/\lambda))/2`, which Eq. 6 gives, is larger
    we take that.

    *Posterior*: BKB's DTC posterior (no batches), inducing points drawn at oversampling
    :math:`6 \alpha \log(4T/\delta)/\varepsilon^2` or more, noise
    :math:`\xi`-sub-Gaussian; the exact posterior too. `BBKBRadius` has no logarithm
    before its sum.

    Args (after `NormBoundRadius`):
        kernel_bound: :math:`\kappa^2 = \max_x k(x, x)`, positive; theory only.
        accuracy: :math:`\varepsilon` in (0, 1); theory only.
    """

    _: KW_ONLY
    kernel_bound: float = 1.0
    accuracy: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "(0, inf)", kernel_bound="the outputscale")
        require(self, "(0, 1)", accuracy="0.5")

    @property
    def needs_leverage_sum(self) -> bool:
        """It does: the gain of the evaluated points."""
        return True

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """Theorem 2's beta, or the practical one."""
        num_evaluations = max(1, statistics.num_evaluations)
        gain, bias = statistics.leverage_sum, self._bias(statistics)
        if self.constants == "practical":
            return self._width(math.log(num_evaluations) * gain) + bias
        trace = self.kernel_bound * num_evaluations  # bounds tr K
        log = max(math.log(trace), 0.5 * (1 + math.log1p(trace / statistics.lam)))
        alpha = (1 + self.accuracy) / (1 - self.accuracy)
        width = 2 * self._width(alpha * log * gain)
        return width + (1 + 1 / math.sqrt(1 - self.accuracy)) * bias
