"""The sum rule."""

from torch import Tensor

from botorch_sparse.acquisition.frozen import FrozenPoints
from botorch_sparse.acquisition.ratio_bound import RatioBound
from botorch_sparse.acquisition.ratios import sum_ratio


class GlobalRatioBound(RatioBound):
    r"""The sum rule of Lemma 1 [Calandriello2020]_, the same for all `x`.

    .. math:: 1 + \sum_s \mathrm{var}_{fb}(x_s) / d_s

    It needs no maximization and holds on any domain; the local bound is tighter.
    Arguments as in `RatioBound`. Cost: O(s).
    """

    def _ratio(self, points: FrozenPoints) -> Tensor:
        ratio = sum_ratio(self.frozen.variance, self.frozen.noise)
        # A constant with a gradient of zero, which optimizers ask for.
        return ratio.unsqueeze(-1) + 0.0 * points.variance

    def constant(self) -> float:
        """See `RatioBound`."""
        return self.global_bound()
