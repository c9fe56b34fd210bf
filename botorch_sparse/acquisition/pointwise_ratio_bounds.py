"""The ratio of variances and its local bounds, for each `x`.

Rules whose bound is the same for all `x` are in `batching/rules.py` alone.
"""

from copy import copy
from typing import Any

import torch
from botorch.models.model import Model
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.frozen import Features, FrozenPosterior
from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.acquisition.ratios import (
    LocalBound,
    local_ratio,
    local_sum,
    sum_ratio,
    validate_local_bound,
    validate_ratio_threshold,
)


class ExactRatio(RatioBound):
    r"""The ratio of variances of this posterior with its inducing set frozen.

    .. math:: \mathrm{var}_{fb}(x) / \mathrm{var}_t(x)

    For tests and plots. It says nothing about the exact GP where the model is a
    Nystrom posterior; `LocalRatioBound` with `covariance="both"` does. Arguments as in
    `RatioBound`. Cost: O(m^2) for the features of `x`, O(m) for each pending point.
    """

    def _ratio(self, f: Features) -> Tensor:
        before, after = self.frozen.initial_variance(f), self.frozen.present_variance(f)
        return _above_rounding(before, f) / _above_rounding(after, f)


class LocalRatioBound(RatioBound):
    r"""The local rule of Lemma 3 and Appendix B.3 [Calandriello2020]_.

    .. math:: 1 + \frac{\max\{\sum_s \mathrm{cov}_{fb}(x, x_s)^2 / d_s,
        \sum_s (w(x)^\top w(x_s))^2 / d_s\}}{\mathrm{var}_{fb}(x)}

    The embedded sum certifies the ratio of this posterior with its inducing set frozen,
    which the validity of the confidence bounds needs; the full sum certifies, up to
    Lemma 2's factor, the exact GP's ratio. By Cauchy-Schwarz neither is above
    the sum rule's. For an exact GP both sums are the same.

    Cost: O(m^2) for the features of `x`, O(m) for each pair with a batch's point.

    Args:
        model: As in `RatioBound`.
        X_batch: As in `RatioBound`.
        covariance: `"both"`; `"embedded"` for the second sum alone (larger batches);
            `"paper"` for the first alone, as in the published code: not a bound on
            this posterior's ratio, since residual covariances may be negative.
        noise: As in `RatioBound`.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.rand(8, 2, dtype=torch.float64)
        >>> model = SingleTaskGP(X, X.sum(-1, keepdim=True).sin())
        >>> bound = LocalRatioBound(model, X_batch=torch.rand(2, 2).to(X))
        >>> bound(torch.rand(5, 1, 2).to(X)).shape
        torch.Size([5])
    """

    def __init__(
        self,
        model: Model | FrozenPosterior,
        X_batch: Tensor | None = None,
        covariance: LocalBound = "both",
        noise: Tensor | None = None,
    ) -> None:
        validate_local_bound(covariance)
        super().__init__(model, X_batch, noise)
        self.covariance = covariance

    def _ratio(self, f: Features) -> Tensor:
        sums = local_sum(*self.frozen.squared_sums(f), self.covariance)
        variance = self.frozen.initial_variance(f)
        return local_ratio(sums, _above_rounding(variance, f))


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
        model: Model | FrozenPosterior,
        X_batch: Tensor | None = None,
        ratio_threshold: float = 2.0,
        covariance: LocalBound = "both",
        noise: Tensor | None = None,
    ) -> None:
        validate_ratio_threshold(ratio_threshold)
        super().__init__(model, X_batch, covariance, noise)
        self.ratio_threshold = ratio_threshold

    @property
    def _is_global(self) -> bool:
        """Whether the global bound is at most the threshold."""
        return self.global_bound() <= self.ratio_threshold

    @override
    def maximum(self, **domain: Any) -> float:
        return self.global_bound() if self._is_global else super().maximum(**domain)

    @override
    def bound(self, ratio_threshold: float, **domain: Any) -> float:
        """The switch from the global bound is at the threshold given."""
        rule = copy(self)
        rule.ratio_threshold = ratio_threshold
        return super(GlobalLocal, rule).bound(ratio_threshold, **domain)

    def _ratio(self, f: Features) -> Tensor:
        if not self._is_global:
            return super()._ratio(f)
        total = sum_ratio(self.frozen.variance, self.frozen.noise)
        # A constant with a gradient of zero, which optimizers ask for.
        return total.unsqueeze(-1) + 0.0 * f.phi.sum(-1)


def _above_rounding(variance: Tensor, f: Features) -> Tensor:
    """The variance where it is more than a rounding error, `aug x N`."""
    # A kernel is known to eps; a ratio of less is one of rounding errors.
    eps = torch.finfo(variance.dtype).eps
    return torch.maximum(variance, eps * f.prior_variance)
