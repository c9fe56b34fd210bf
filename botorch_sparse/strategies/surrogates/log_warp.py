r"""A scale for values that differ by powers of ten.

Down a steep valley values fall from millions to ones. A stationary process of such a
range takes what is left at its bottom for noise. The logarithms of how much worse
values are than the best one may be such a process. The likelihood of the data says
which scale is better, as in a warped Gaussian process [Snelson2003]_.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LogWarp:
    r"""A scale that is logarithmic below the best known value `b`.

    .. math:: w(y) = b - s \log(1 + (b - y) / s) \quad (y < b),

    and :math:`w(y) = y` from there on. It rises with a slope that is continuous, and
    moves with the unit and the zero of the values.

    Attributes:
        best: `b`.
        unit: `s`, the distance from the best value at which the slope is one half.
    """

    best: float
    unit: float

    @classmethod
    def of(cls, Y: Tensor) -> "LogWarp | None":
        """The scale for `n` values, whose unit is the median distance from the best.

        None where half of them are as good as the best one.
        """
        leads = Y.max() - Y
        warp = cls(float(Y.max()), float(leads.median()))
        widest = float(leads.max())
        if not (warp.unit > 0 and math.isfinite(widest / warp.unit)):
            return None
        return warp

    def __call__(self, Y: Tensor) -> Tensor:
        """Values on this scale."""
        lead = (self.best - Y).clamp_min(0.0) / self.unit
        return torch.where(Y < self.best, self.best - self.unit * lead.log1p(), Y)

    def inverse(self, W: Tensor) -> Tensor:
        """From this scale."""
        lead = (self.best - W).clamp_min(0.0) / self.unit
        return torch.where(W < self.best, self.best - self.unit * lead.expm1(), W)

    def inverse_slope(self, W: Tensor) -> Tensor:
        """The derivative of `inverse`: one or more."""
        return ((self.best - W).clamp_min(0.0) / self.unit).exp()

    def log_slope(self, Y: Tensor) -> Tensor:
        """The logarithm of the derivative: zero or less."""
        return -((self.best - Y).clamp_min(0.0) / self.unit).log1p()
