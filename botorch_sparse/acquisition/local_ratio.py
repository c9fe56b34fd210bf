"""The local rule."""

from botorch.models.model import Model
from torch import Tensor

from botorch_sparse.acquisition.frozen import FrozenPoints
from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.acquisition.ratios import (
    LocalBound,
    local_ratio,
    local_sum,
    validate_local_bound,
)


class LocalRatioBound(RatioBound):
    r"""The local rule of Lemma 3 and Appendix B.3 [Calandriello2020]_.

    .. math:: 1 + \frac{\max\{\sum_s \mathrm{cov}_{fb}(x, x_s)^2 / d_s,
        \sum_s (w(x)^\top w(x_s))^2 / d_s\}}{\mathrm{var}_{fb}(x)}

    The embedded sum certifies the ratio of this posterior with its inducing set frozen,
    which the validity of the confidence bounds needs; the full sum certifies, up to
    Lemma 2's factor, the exact GP's ratio. By Cauchy-Schwarz neither is above
    `GlobalRatioBound`. For an exact GP both sums are the same.

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
        model: Model,
        X_batch: Tensor | None = None,
        covariance: LocalBound = "both",
        noise: Tensor | None = None,
    ) -> None:
        validate_local_bound(covariance)
        super().__init__(model, X_batch, noise)
        self.covariance = covariance

    def _ratio(self, points: FrozenPoints) -> Tensor:
        full, embedded = points.sums()
        return local_ratio(local_sum(full, embedded, self.covariance), points.variance)
