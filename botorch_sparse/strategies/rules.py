"""What ends a batch, on tables and on continuous domains."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from botorch.exceptions import InputDataError
from botorch.models.model import Model

from botorch_sparse.acquisition.global_local import GlobalLocal
from botorch_sparse.acquisition.global_ratio import GlobalRatioBound
from botorch_sparse.acquisition.product_ratio import ProductRatioBound
from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.acquisition.ratios import LocalBound, validate_local_bound
from botorch_sparse.optim.choosable import Choosable
from botorch_sparse.optim.rules import Global, Local, Product, Rule

RuleName = Literal["single", "global", "global-local", "product"]
Repeat = Literal["until-uncertainty-halves"]


@dataclass(frozen=True)
class BatchRule:
    """A rule by name.

    Args:
        name: `"single"` for batches of one point, `"global"` for the sum rule,
            `"global-local"`, or `"product"` for that of GP-BUCB.
        ratio_threshold: Largest ratio of variances within a batch, at least one.
        local_bound: See `Local`.
        repeat: None, or `"until-uncertainty-halves"`: a batch is one point with the
            number of evaluations that halves its variance, whatever the name.
        size: Points in each batch, whatever the name; None leaves it to the rule.
    """

    name: RuleName
    ratio_threshold: float = 1.0
    local_bound: LocalBound = "both"
    repeat: Repeat | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        validate_local_bound(self.local_bound)
        if self.repeat not in (None, *get_args(Repeat)):
            raise InputDataError(
                f"Got repeat={self.repeat!r}; need one of {get_args(Repeat)} or None."
            )
        if self.size is not None and (self.size < 1 or self.repeat is not None):
            raise InputDataError(
                f"Got batch_size={self.size} and repeat={self.repeat!r}; need a size "
                "of at least 1, and one of them."
            )

    @property
    def is_single(self) -> bool:
        """Whether a batch has one point, be it repeated."""
        is_single = self.name == "single" and self.size is None
        return is_single or self.repeat is not None

    def on_table(self) -> Rule | None:
        """The rule for a new batch on a pool; None where its size is known."""
        threshold = self.ratio_threshold
        if self.is_single or self.size is not None:
            return None
        if self.name == "global":
            return Global(threshold)
        if self.name == "product":
            return Product(threshold)
        return Local(threshold, self.local_bound)

    def on_model(self, model: Model) -> RatioBound:
        """The bound whose maximum over a domain ends a batch."""
        if self.name == "global":
            return GlobalRatioBound(model)
        if self.name == "product":
            return ProductRatioBound(model)
        return GlobalLocal(
            model, ratio_threshold=self.ratio_threshold, covariance=self.local_bound
        )

    def evaluations(self, variance: float, lam: float, limit: int) -> int:
        r"""How often to evaluate a point: until its variance is half of what it was.

        After `c` evaluations it is :math:`v / (1 + c v / \lambda)`, and by Lemma 1 of
        [Calandriello2020]_ no variance anywhere has shrunk more.

        Args:
            variance: Its variance `v` before.
            lam: Noise variance of an evaluation.
            limit: The largest number.
        """
        if self.repeat is None or variance * limit <= lam:
            return 1 if self.repeat is None else limit
        return min(limit, int(-(-lam // variance)))


@dataclass(frozen=True)
class BatchRequest:
    """What a surrogate needs to choose a batch.

    Attributes:
        multiplier: What multiplies the Bayesian standard deviation.
        rule: What ends the batch.
        pending: Numbers of pending points.
        limit: Largest size.
        excluded: Numbers of points that may not be chosen.
        once: Whether a point may be chosen only once.
    """

    multiplier: float
    rule: BatchRule
    pending: list[int]
    limit: int
    excluded: Sequence[int] = ()
    once: bool = False

    @property
    def size(self) -> int:
        """Points of a batch whose size is known."""
        size = self.rule.size
        return self.limit if size is None else min(self.limit, size)

    def choosable(self, device: torch.device) -> Choosable:
        """The same of the rows of a table that is on a device."""
        if not self.excluded:
            return Choosable(once=self.once)
        excluded = torch.tensor(self.excluded, dtype=torch.long)
        return Choosable(excluded.to(device), self.once)
