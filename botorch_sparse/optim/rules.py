r"""What ends a batch: bounds on the ratio of variances `var_fb(x) / var_t(x)`.

Inside a batch the variances shrink while mean and inducing set stand still. A batch
goes on while the bound is at most the threshold, and the point that crosses it belongs
to the batch.

References:
    [Calandriello2020]_ Lemma 1 (global), Lemma 3 and Appendix B.3 (local);
    [Desautels2014]_ Eq. 20 (product).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from botorch_sparse.acquisition.ratios import (
    LocalBound,
    validate_local_bound,
)


class BatchView(Protocol):
    """What a rule looks at: a batch on a table or on a box.

    Attributes:
        size: Points in the batch, pending ones included.
        noise: Noise variance lambda of one evaluation.
        variances: `var_fb(x_s)` of its points.
        variances_before: `var_{s-1}(x_s)` of its points.
        sum_ratio: The bound of the sum rule.
        sum_ratio_before: The same without the last point.
        product_ratio: The bound of the product rule.
    """

    noise: float
    sum_ratio: float
    sum_ratio_before: float
    product_ratio: float

    @property
    def size(self) -> int:
        """See the attributes."""
        ...

    @property
    def variances(self) -> Sequence[float]:
        """See the attributes."""
        ...

    @property
    def variances_before(self) -> Sequence[float]:
        """See the attributes."""
        ...

    def local_ratio(self, covariance: LocalBound, threshold: float) -> float | Tensor:
        """The largest local bound, or a bound of it that is at most `threshold`."""
        ...


class Rule(Protocol):
    """A frozen dataclass of its options, whose repr is what saved states know it by.

    Attributes:
        ratio_threshold: Largest ratio of variances allowed, at least one.
    """

    @property
    def ratio_threshold(self) -> float:
        """See the attributes."""
        ...

    def bound(self, batch: BatchView) -> float | Tensor:
        """The batch is over once this is above `ratio_threshold`."""
        ...


@dataclass(frozen=True)
class Global:
    r"""The sum rule of Lemma 1: :math:`1 + \sum_s \mathrm{var}_{fb}(x_s) / \lambda`."""

    ratio_threshold: float = 2.0

    def bound(self, batch: BatchView) -> float:
        """See `Rule`."""
        return batch.sum_ratio


@dataclass(frozen=True)
class Product:
    r"""That of GP-BUCB: :math:`\prod_s (1 + \mathrm{var}_{s-1}(x_s) / \lambda)`."""

    ratio_threshold: float = 2.0

    def bound(self, batch: BatchView) -> float:
        """See `Rule`."""
        return batch.product_ratio


@dataclass(frozen=True)
class Local:
    """The global bound until it crosses the threshold, then the local one.

    Args:
        ratio_threshold: Largest ratio of variances allowed, at least one.
        covariance: `"both"`, `"embedded"`, or `"paper"` for the published batches: the
            full sum, looked at from the first point after the global bound crossed.
    """

    ratio_threshold: float = 2.0
    covariance: LocalBound = "both"

    def __post_init__(self) -> None:
        validate_local_bound(self.covariance)

    def bound(self, batch: BatchView) -> float | Tensor:
        """See `Rule`."""
        threshold, is_paper = self.ratio_threshold, self.covariance == "paper"
        watched = batch.sum_ratio_before if is_paper else batch.sum_ratio
        if watched <= threshold:
            return min(batch.sum_ratio, threshold)
        return batch.local_ratio(self.covariance, threshold)
