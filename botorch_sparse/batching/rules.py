r"""Rules that end a batch, and the batch that grows until then.

A rule is a number that a batch must keep below a threshold.

Inside a batch the variances shrink while mean and inducing set stand still. The rules
of the papers bound the ratio :math:`\mathrm{var}_{fb}(x) / \mathrm{var}_t(x)` for all
`x`; a batch goes on while the bound is at most `ratio_threshold`, and the point that
crosses it belongs to the batch. All variances are Bayesian, hence the divisions by
lambda; the formulas are in `acquisition/ratios.py`.

References:
    [Calandriello2020]_ Lemma 1 (global), Lemma 3 and Appendix B.3 (local);
    [Desautels2014]_ Eq. 20 (product). The first prints standard deviations where its
    proofs have variances.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.acquisition.ratios import (
    LocalBound,
    validate_local_bound,
    validate_ratio_threshold,
)
from botorch_sparse.argument_checks import check_whole

# Where a batch ends at the latest: points without variance add nothing to any bound. On
# a box earlier by default, since each point is an optimization.
MAX_BATCH_SIZE, MAX_BOX_BATCH = 10_000, 256


class BatchView(Protocol):
    r"""What a rule sees of a batch, on a table or on a box.

    Points that were pending at its start are in it.

    Attributes:
        noise: Lambda, the noise variance of an evaluation.
        variances: :math:`\mathrm{var}_{fb}(x_s)`, at the batch's start.
        variances_before: :math:`\mathrm{var}_{s-1}(x_s)`, just before each point.
        sum_ratio: The sum bound, :math:`1 + \sum_s \mathrm{var}_{fb}(x_s) / \lambda`.
        sum_ratio_before: The same without the last point.
        product_ratio: :math:`\prod_s (1 + \mathrm{var}_{s-1}(x_s) / \lambda)`.
    """

    noise: float
    variances: list[float]
    variances_before: list[float]
    sum_ratio: float
    sum_ratio_before: float
    product_ratio: float

    @property
    def size(self) -> int:
        """Points of the batch."""
        ...

    def local_ratio(self, covariance: LocalBound, threshold: float) -> float | Tensor:
        """The largest local bound over the domain, or a bound of it.

        Args:
            covariance: As in `Local`.
            threshold: Where a cheaper upper bound is at most that, it is the answer, or
                where a cheaper lower bound, at the batch's own points, is above it.

        Returns:
            A number; a scalar tensor where an accelerator holds it, not read yet.
        """
        ...


@runtime_checkable
class Rule(Protocol):
    """Ends a batch once `bound` is above `ratio_threshold`.

    A frozen dataclass best: saved states know it by its class and its fields.

    Attributes:
        ratio_threshold: Largest ratio of variances allowed, at least one.

    Example:
        >>> @dataclass(frozen=True)
        ... class OnePlate:
        ...     wells: int
        ...     ratio_threshold: float = 2.0
        ...
        ...     def bound(self, batch: BatchView) -> float | Tensor:
        ...         is_full = batch.size >= self.wells
        ...         return math.inf if is_full else batch.sum_ratio
        >>> isinstance(OnePlate(96), Rule)
        True
    """

    @property
    def ratio_threshold(self) -> float:
        """See the attributes."""
        ...

    def bound(self, batch: BatchView) -> float | Tensor:
        """What must not be above the threshold; called after each point."""
        ...


@dataclass(frozen=True)
class Global:
    r"""The sum rule of Lemma 1: :math:`1 + \sum_s \mathrm{var}_{fb}(x_s) / \lambda`.

    Args:
        ratio_threshold: Largest ratio of variances allowed, at least one.
    """

    ratio_threshold: float = 2.0

    def __post_init__(self) -> None:
        validate_ratio_threshold(self.ratio_threshold)

    def bound(self, batch: BatchView) -> float | Tensor:
        """The sum. Cost: O(1)."""
        return batch.sum_ratio


@dataclass(frozen=True)
class Product(Global):
    r"""The rule of GP-BUCB: :math:`\prod_s (1 + \mathrm{var}_{s-1}(x_s) / \lambda)`.

    For the exact GP it is `det(I + K_batch / lam)` under the posterior at the batch's
    start, hence never below the sum rule, one plus the trace of the same matrix.

    Args:
        ratio_threshold: Largest ratio of variances allowed, at least one.
    """

    def bound(self, batch: BatchView) -> float | Tensor:
        """The product. Cost: O(1)."""
        return batch.product_ratio


@dataclass(frozen=True)
class Local(Global):
    r"""The sum rule until it crosses the threshold, then the local one.

    .. math:: 1 + \max_x \frac{\max\{\sum_s \mathrm{cov}_{fb}(x, x_s)^2,
        \sum_s (w(x)^\top w(x_s))^2\}}{\lambda \, \mathrm{var}_{fb}(x)}

    The sum of embedded covariances bounds the ratio of this posterior with its inducing
    set frozen; the sum of full ones (Lemma 3 of [Calandriello2020]_ as its code has it)
    stands for the exact GP's ratio, up to Lemma 2's factor. The full sum alone is not a
    bound on this posterior's ratio, since residual covariances may be negative.

    Neither is above the sum rule's bound, so that nothing is maximized before.

    Args:
        ratio_threshold: Largest ratio of variances allowed, at least one.
        covariance: `"both"` for the maximum of the two sums, `"embedded"` for the
            second alone (larger batches), `"paper"` for the published batches: the full
            sum, looked at from the first point after the sum rule crossed.
        large_enough: Points of a batch that the sum rule may end: the local bound is
            looked at in smaller ones alone ([Calandriello2020]_ Section 4), such as
            those that leave workers idle. A batch then has as many points as by the
            sum rule, or as by the local one but at most these. None: it always is.
    """

    covariance: LocalBound = "both"
    large_enough: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_local_bound(self.covariance)
        if self.large_enough is not None:
            need = "need at least 1, a whole number of points, or None."
            check_whole("large_enough", self.large_enough, 1, need)

    def bound(self, batch: BatchView) -> float | Tensor:
        """The sum or the local bound. Cost: O(1), or a pass over the domain."""
        threshold, waits = self.ratio_threshold, self.covariance == "paper"
        watched = batch.sum_ratio_before if waits else batch.sum_ratio
        if watched <= threshold:
            return min(batch.sum_ratio, threshold)
        if self.large_enough is not None and batch.size >= self.large_enough:
            return batch.sum_ratio
        return batch.local_ratio(self.covariance, threshold)


@dataclass(frozen=True)
class FixedSize:
    """Batches of one size; theorems cover a size of one alone.

    Args:
        size: Points in each batch.
        ratio_threshold: What the confidence radius knows of the batches.
    """

    size: int
    ratio_threshold: float = 1.0

    def __post_init__(self) -> None:
        validate_ratio_threshold(self.ratio_threshold)
        need = "need a size of at least 1, a whole one."
        check_whole("batch_size", self.size, 1, need)

    def bound(self, batch: BatchView) -> float:
        """Above every threshold once the batch has its size."""
        return math.inf if batch.size >= self.size else 1.0


@dataclass(frozen=True)
class Single:
    """Batches of one point.

    Args:
        ratio_threshold: What the confidence radius knows of the batches.
    """

    ratio_threshold: float = 1.0

    def __post_init__(self) -> None:
        validate_ratio_threshold(self.ratio_threshold)

    def bound(self, batch: BatchView) -> float:
        """Above every threshold from the first point on."""
        return FixedSize(1).bound(batch)


@dataclass(frozen=True)
class UntilHalved(Single):
    r"""One point, evaluated until its variance is half of what it was.

    After `c` evaluations it is :math:`v / (1 + c v / \lambda)`, and by Lemma 1 of
    [Calandriello2020]_ no variance anywhere has shrunk more.

    Args:
        ratio_threshold: What the confidence radius knows of the batches.
    """

    def evaluations(self, variance: float, noise: float, limit: int) -> int:
        """How often the point is evaluated, at most `limit` times.

        Args:
            variance: Its variance `v` before.
            noise: Lambda.
            limit: The largest number.
        """
        if variance * limit <= noise:
            return limit
        return min(limit, int(-(-noise // variance)))


DEFAULT_THRESHOLD = 2.0
SHORT_NAMES: dict[str, Callable[[float, LocalBound], Rule]] = {
    "single": lambda threshold, covariance: Single(),
    "global": lambda threshold, covariance: Global(threshold),
    "global-local": Local,
    "product": lambda threshold, covariance: Product(threshold),
}


def rule_of(
    rule: str | Rule,
    ratio_threshold: float = DEFAULT_THRESHOLD,
    covariance: LocalBound = "both",
) -> Rule:
    """A rule by its short name, or a rule as it is.

    Args:
        rule: `"single"`, `"global"`, `"global-local"`, `"product"`, or an object.
        ratio_threshold: For a name; an object has its own, which this may repeat.
        covariance: As in `Local`, for `"global-local"`.

    Raises:
        InputDataError: If it is neither a short name nor a rule, or a rule of another
            threshold than the one that is given.
    """
    if isinstance(rule, str) and rule in SHORT_NAMES:
        return SHORT_NAMES[rule](ratio_threshold, covariance)
    is_other = isinstance(rule, str | type | RatioBound)  # a bound has a model
    if is_other or not isinstance(rule, Rule) or not callable(rule.bound):
        raise InputDataError(
            f"Got rule={rule!r}; need one of {tuple(SHORT_NAMES)}, or an object with "
            "`bound` and `ratio_threshold` such as Local(2.0)."
        )
    validate_ratio_threshold(own := rule.ratio_threshold)
    if ratio_threshold not in (DEFAULT_THRESHOLD, own):
        raise InputDataError(
            f"Got ratio_threshold={ratio_threshold} with a rule whose threshold is "
            f"{own}; leave it out, or give it to the rule."
        )
    return rule


# Called with the number of points chosen so far; whether to choose another one.
ContinueFunction: TypeAlias = Callable[[int], bool]


def always_continue(num_points: int) -> bool:
    """Go on whatever was chosen."""
    return True


class AskLimit:
    """Says after each point of a batch whether the next one is chosen.

    No further point is begun after `max_seconds`; `is_over` then. `progress` is called
    with the number of points so far, where there are more.
    """

    def __init__(
        self,
        max_seconds: float | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> None:
        seconds = float("inf") if max_seconds is None else max_seconds
        self._end = time.perf_counter() + seconds
        self._progress = progress
        self._shown = 0
        self.is_over = False

    def __call__(self, num_points: int) -> bool:
        """Whether to choose another point."""
        self.show(num_points)
        self.is_over = time.perf_counter() >= self._end
        return not self.is_over

    def show(self, num_points: int) -> None:
        """Call `progress`, if it has not heard of so many points."""
        if self._progress is not None and num_points > self._shown:
            self._shown = num_points
            self._progress(num_points)


# By how much, relative to the threshold, bounds at a batch's own points must exceed it
# to end the batch: more than rounding may change between them and a pass.
MARGIN = 1e-3


class GrowingBatch(ABC):
    """What a rule looks at (a `BatchView`), and maximizers one after the other.

    The rule may be None; `rows` are the numbers of the points that were appended.
    """

    def __init__(self, noise: float, rule: Rule | None) -> None:
        self.noise = noise
        self.rule = rule
        self.rows: list[int] = []
        self.variances: list[float] = []
        self.variances_before: list[float] = []
        self.sum_ratio = self.sum_ratio_before = self.product_ratio = 1.0
        # The largest local bound when it was last looked for, and the sum rule's then.
        self._last_local: dict[LocalBound, tuple[float | Tensor, float]] = {}

    @property
    def size(self) -> int:
        """Points in the batch."""
        return len(self.variances)

    @abstractmethod
    def argmax(self) -> int:
        """The number of the point of largest value; ties go to the lowest."""

    @abstractmethod
    def append(self, row: int) -> None:
        """Make a point pending: it counts in the values and for the rule."""

    @property
    def is_exhausted(self) -> bool:
        """Whether another point would be in vain."""
        return False

    def is_over(self) -> bool:
        """Whether the rule ends the batch; never without points or a rule."""
        if self.rule is None or not self.size:
            return False
        bound = self.rule.bound(self)
        return not float(bound) <= self.rule.ratio_threshold  # NaN ends it too

    def choose(
        self, limit: int, continues: ContinueFunction = always_continue
    ) -> list[int]:
        """At least one and at most `limit` maximizers, until the batch is over.

        All are appended but maybe the last; none comes where the batch is over already.
        After each, `continues` is asked; see `AskLimit`.
        """
        chosen: list[int] = []
        while len(chosen) < limit and not self.is_over():
            chosen.append(self.argmax())
            if not continues(len(chosen)):
                break
            if len(chosen) < limit:
                self.append(chosen[-1])
                if self.is_exhausted:
                    break
        return chosen

    def local_ratio(self, covariance: LocalBound, threshold: float) -> float | Tensor:
        """The largest local bound, or a bound of it on the same side of `threshold`.

        By Cauchy-Schwarz a point raises it by at most `var_fb(x_s) / lam`, so that
        looking for it, which on a table costs O(A m) and all variances, is put off
        until it matters. The bounds at the batch's own points are lower bounds: where
        they are above the threshold, the batch is over, and the answer is the largest
        of them. It may be a scalar on the device that is not read yet.
        """
        known, total = self._last_local.get(covariance, (1.0, 1.0))
        raised = self.sum_ratio - total
        bound = float(known) + raised
        if bound <= threshold or not raised:
            return bound
        lower = self.local_at_own(covariance)
        if lower > threshold * (1.0 + MARGIN):
            return lower
        largest = self._largest_local(covariance, threshold)
        self._last_local[covariance] = largest, self.sum_ratio
        return largest

    def local_at_own(self, covariance: LocalBound) -> float:
        """The largest local bound at the batch's own points; one if it is not known."""
        return 1.0

    @abstractmethod
    def _largest_local(
        self, covariance: LocalBound, threshold: float
    ) -> float | Tensor:
        """The largest local bound over the domain, or a lower one above a threshold."""
