"""A constant beta."""

import math
from dataclasses import dataclass

from botorch_sparse.acquisition.confidence.base import (
    ConfidenceRadius,
    RadiusStatistics,
    require,
)


@dataclass(frozen=True)
class FixedBeta(ConfidenceRadius):
    """BoTorch's constant beta, `mean + sqrt(beta) * sigma`; proved for no posterior.

    Args:
        beta: The squared factor of the Bayesian standard deviation, non-negative.
    """

    beta: float

    def __post_init__(self) -> None:
        require(self, "[0, inf)", beta="4")

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """The same on the papers' scale."""
        return math.sqrt(self.beta * statistics.lam)

    def botorch_beta(self, statistics: RadiusStatistics) -> float:
        """Exactly `beta`."""
        return self.beta
