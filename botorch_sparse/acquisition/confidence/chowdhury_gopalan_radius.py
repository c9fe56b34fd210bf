r"""The radius of improved GP-UCB.

References:
    .. [Chowdhury2017]
        S. R. Chowdhury and A. Gopalan. On kernelized multi-armed bandits. ICML 2017.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from botorch_sparse.acquisition.confidence.radius import (
    NormBoundRadius,
    RadiusStatistics,
    StandardDeviationRadius,
    check_gain,
)


@dataclass(frozen=True)
class ChowdhuryGopalanRadius(StandardDeviationRadius, NormBoundRadius):
    r"""The beta of [Chowdhury2017]_ Theorem 2 (IGP-UCB).

    After n evaluations, as a factor of the standard deviation,

    .. math::
        \text{theory:}\quad & F + \frac{\xi}{\sqrt\lambda}
            \sqrt{2 (\gamma_n + 1 + \log(1/\delta))} \\
        \text{practical:}\quad & F + \frac{\xi}{\sqrt\lambda}
            \sqrt{2 (\gamma_n + \log(1/\delta))}.

    The theorem is stated for :math:`\lambda = 1 + 2/T`. Dividing function and noise by
    a constant carries it to any :math:`\lambda`. Its 1 pays for the 2/T, which can be
    made as small as one likes: by continuity the practical radius holds just as well.
    The name says only that it is the smaller one; it is not the authors'.

    *Posterior*: the exact one, :math:`\xi`-sub-Gaussian noise, all points and all n at
    once; points may be chosen as one likes. The proof needs no worst case over sets:
    the information gain of the evaluated points is enough, and running sums bound it.
    For a posterior with fewer inducing points use `BBKBRadius`.

    Args (after `NormBoundRadius`):
        max_information_gain: From n to :math:`\gamma_n` in nats, in place of the
            running gain.
    """

    _: KW_ONLY
    max_information_gain: Callable[[int], float] | None = field(
        default=None, repr=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gain(self.max_information_gain)

    def paper_value(self, statistics: RadiusStatistics) -> float:
        r""":math:`\beta_t`, with t - 1 evaluations."""
        gain = statistics.information_gain
        if self.max_information_gain is not None:
            gain = self.max_information_gain(statistics.num_evaluations)
        slack = 1.0 if self.constants == "theory" else 0.0
        width = math.sqrt(2) * self._width(gain + slack)
        return self.norm_bound + width / math.sqrt(statistics.lam)
