r"""The radius of batch budgeted kernelized bandits.

References:
    [Calandriello2020]_ Theorem 2 and its proof (appendix C.2).
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from botorch_sparse.acquisition.confidence.radius import (
    NormBoundRadius,
    RadiusStatistics,
)
from botorch_sparse.argument_checks import check_choice

Inflation = Literal["default", "sqrt", "paper"]


@dataclass(frozen=True)
class BBKBRadius(NormBoundRadius):
    r"""The radius of [Calandriello2020]_ Theorem 2, and its authors' smaller one.

    With :math:`v_s = \mathrm{var}_{fb}(x_s)/\lambda` taken at the start of each batch,

    .. math::
        \text{theory:}\quad & c \Bigl( 2 \xi \sqrt{\textstyle\sum_s \log(1 + 3 v_s)
            + \log(1/\delta)} + (1 + \sqrt 2) \sqrt\lambda F \Bigr) \\
        \text{practical:}\quad & c \Bigl( \xi \sqrt{\tilde C \textstyle\sum_s
            \log(1 + v_s) + \log(1/\delta)} + \sqrt\lambda F \Bigr).

    Inside a batch the deviation shrinks and the mean stands still, hence c. The paper
    takes :math:`\tilde C`; that bounds a ratio of variances, so :math:`\sqrt{\tilde C}`
    is enough. The practical radius, no theorem, has it inside the root already.

    *Posterior*: BBKB's DTC posterior, inducing points drawn at oversampling
    :math:`72 \tilde C \log(4t/\delta)` or more, noise :math:`\xi`-sub-Gaussian. The
    exact posterior (GP-UCB, GP-BUCB) too, with the 3 and the :math:`\sqrt 2` to spare:
    when each :math:`v_s` is conditioned on all points before `x_s`,
    :math:`\sum_s \log(1 + v_s) = \log\det(I + K/\lambda)` by the chain rule, and
    variances frozen over a batch only give more.

    The theorem states :math:`\lambda \ge 1`, which its proof needs for regret, batches
    and inducing points but not for this radius: with a smaller :math:`\lambda` the
    interval holds, while those bounds grow with :math:`\max k(x,x)/\lambda` and early
    batches have one point.

    Args (after `NormBoundRadius`):
        inflation: The factor c: `"sqrt"`, `"paper"`, None (1), or `"default"`: `"sqrt"`
            with theory constants and None with practical ones.
    """

    _: KW_ONLY
    inflation: Inflation | None = "default"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("inflation", self.inflation, (*get_args(Inflation), None))

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """Theorem 2's alpha, or the practical one."""
        threshold, bias = statistics.ratio_threshold, self._bias(statistics)
        if self.constants == "theory":
            width = 2 * self._width(statistics.log_det_sum_inflated)
            return self._factor(threshold) * (width + (1 + math.sqrt(2)) * bias)
        width = self._width(threshold * statistics.log_det_sum)
        return self._factor(threshold) * (width + bias)

    def _factor(self, threshold: float) -> float:
        """The factor c."""
        default = "sqrt" if self.constants == "theory" else None
        inflation = default if self.inflation == "default" else self.inflation
        return {"sqrt": math.sqrt(threshold), "paper": threshold, None: 1.0}[inflation]
