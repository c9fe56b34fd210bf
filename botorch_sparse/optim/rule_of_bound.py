"""Acquisition functions that bound ratios, as rules."""

from copy import copy
from dataclasses import dataclass

from botorch_sparse.acquisition.pointwise_rules import (
    GlobalLocal,
    GlobalRatioBound,
    LocalRatioBound,
    ProductRatioBound,
)
from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.optim.frozen_batch import FrozenBatch
from botorch_sparse.optim.rules import BatchView, Global, Local, Product, Rule


@dataclass(frozen=True, eq=False)
class Pointwise:
    """The largest value of a `RatioBound` over the domain of a batch.

    Args:
        of_points: The bound; its posterior is replaced by the batch's.
        ratio_threshold: Largest ratio of variances allowed, at least one.
    """

    of_points: RatioBound
    ratio_threshold: float

    def bound(self, batch: BatchView) -> float:
        """The maximum, or the global bound while that is at most the threshold."""
        assert isinstance(batch, FrozenBatch)  # `rule_of_bound` says so
        bound = copy(self.of_points)
        bound.frozen = batch.frozen
        return bound.bound(self.ratio_threshold, **batch.domain)


def rule_of_bound(bound: RatioBound, ratio_threshold: float) -> Rule:
    """The rule whose pointwise form a bound is; `Pointwise` for those of a user.

    `Pointwise` needs a `FrozenBatch`, the others any `BatchView`.

    Args:
        bound: The bound.
        ratio_threshold: Largest ratio of variances allowed, at least one.
    """
    if type(bound) is GlobalRatioBound:
        return Global(ratio_threshold)
    if type(bound) is ProductRatioBound:
        return Product(ratio_threshold)
    is_local = type(bound) in (LocalRatioBound, GlobalLocal)
    # As a rule `"paper"` waits for one more point; as a bound it does not.
    if is_local and isinstance(bound, LocalRatioBound) and bound.covariance != "paper":
        return Local(ratio_threshold, bound.covariance)
    return Pointwise(bound, ratio_threshold)
