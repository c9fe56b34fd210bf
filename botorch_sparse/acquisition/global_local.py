"""The sum rule, then the local one."""

from copy import copy
from typing import Any

from botorch.models.model import Model
from torch import Tensor

from botorch_sparse.acquisition.frozen import FrozenPoints
from botorch_sparse.acquisition.local_ratio import LocalRatioBound
from botorch_sparse.acquisition.ratios import (
    LocalBound,
    sum_ratio,
    validate_ratio_threshold,
)


class GlobalLocal(LocalRatioBound):
    r"""The global bound until it crosses the threshold, then the local one.

    As long as the global bound is at most `ratio_threshold` so is the local one, and
    nothing has to be maximized ([Calandriello2020]_ Section 4): the batch is the local
    rule's, at the global rule's cost for most of its points.

    Args:
        model: As in `RatioBound`.
        X_batch: As in `RatioBound`.
        ratio_threshold: Where the switch is, at least one.
        covariance: As in `LocalRatioBound`.
        noise: As in `RatioBound`.
    """

    def __init__(
        self,
        model: Model,
        X_batch: Tensor | None = None,
        ratio_threshold: float = 2.0,
        covariance: LocalBound = "both",
        noise: Tensor | None = None,
    ) -> None:
        validate_ratio_threshold(ratio_threshold)
        super().__init__(model, X_batch, covariance, noise)
        self.ratio_threshold = ratio_threshold

    def constant(self) -> float | None:
        """See `RatioBound`."""
        exceeds = self.frozen.global_exceeds(self.ratio_threshold)
        return None if exceeds else self.global_bound()

    def bound(self, ratio_threshold: float, **domain: Any) -> float:
        """See `RatioBound`; the switch is at the threshold given."""
        rule = copy(self)
        rule.ratio_threshold = ratio_threshold
        return super(GlobalLocal, rule).bound(ratio_threshold, **domain)

    def _ratio(self, points: FrozenPoints) -> Tensor:
        if self.constant() is None:
            return super()._ratio(points)
        ratio = sum_ratio(self.frozen.variance, self.frozen.noise)
        return ratio.unsqueeze(-1) + 0.0 * points.variance
