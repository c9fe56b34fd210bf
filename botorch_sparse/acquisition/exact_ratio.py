"""The ratio that the other rules bound."""

from torch import Tensor

from botorch_sparse.acquisition.frozen import FrozenPoints
from botorch_sparse.acquisition.ratio_bound import RatioBound


class ExactRatio(RatioBound):
    r"""The ratio of variances of this posterior with its inducing set frozen.

    .. math:: \mathrm{var}_{fb}(x) / \mathrm{var}_t(x)

    For tests and plots. It says nothing about the exact GP where the model is a
    Nystrom posterior; `LocalRatioBound` with `covariance="both"` does. Arguments as in
    `RatioBound`. Cost: O(m^2) for the features of `x`, O(m) for each pending point.
    """

    def _ratio(self, points: FrozenPoints) -> Tensor:
        return points.variance / points.reduced_variance
