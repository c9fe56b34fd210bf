"""The product rule."""

from torch import Tensor

from botorch_sparse.acquisition.frozen import FrozenPoints
from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.acquisition.ratios import product_ratio


class ProductRatioBound(RatioBound):
    r"""The product rule of GP-BUCB [Desautels2014]_, the same for all `x`.

    .. math:: \prod_s (1 + \mathrm{var}_{s-1}(x_s) / d_s)

    For the exact GP it is the determinant of :math:`I + D^{-1/2} C D^{-1/2}`, `C` the
    batch's covariance at its start, hence never below the sum rule, one plus the trace
    of the same matrix: `GlobalRatioBound` gives larger batches. Arguments as in
    `RatioBound`. Cost: O(s).
    """

    def _ratio(self, points: FrozenPoints) -> Tensor:
        ratio = product_ratio(self.frozen.variance_before, self.frozen.noise)
        return ratio.unsqueeze(-1) + 0.0 * points.variance

    def constant(self) -> float:
        """See `RatioBound`."""
        return float(
            product_ratio(self.frozen.variance_before, self.frozen.noise).max()
        )
