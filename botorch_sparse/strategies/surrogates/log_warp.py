r"""A scale for values that differ by powers of ten.

Runtimes differ so, and down a steep valley values fall from millions to ones. A
stationary process of such a range takes what is left near the best value for noise. The
logarithms of how much worse values are than the best one may be such a process. The
likelihood of the data says which scale is better, as in a warped Gaussian process
[Snelson2003]_; see `PriorSource.on_better_scale`.
"""

from dataclasses import dataclass

import torch
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors import Posterior, TransformedPosterior
from torch import Tensor
from typing_extensions import override

# The largest distance from the best value, in medians: `inverse` has room beyond it.
LARGEST_GAP = 1e100


@dataclass(frozen=True)
class LogWarp:
    r"""A scale whose zero is the best known value `b`, logarithmic below it.

    .. math:: w(y) = -s \log(1 + (b - y) / s) \quad (y < b),

    and :math:`w(y) = y - b` from there on. It rises, and its slope is continuous. With
    data in other units, :math:`w(a y + c) = a w(y)` for their scale and this one.

    Attributes:
        best: `b`.
        unit: `s`, the distance from the best value at which the slope is one half.
    """

    best: float
    unit: float

    @classmethod
    def of(cls, Y: Tensor) -> "LogWarp | None":
        """The scale for `n` values, whose unit is the median distance from the best.

        None of no values, where half of them are as good as the best one, and where the
        worst one is 1e100 times as far away as the median.
        """
        if not len(Y):
            return None
        gaps = Y.max() - Y
        unit = float(gaps.median())
        if not float(gaps.max()) < LARGEST_GAP * unit:
            return None
        return cls(float(Y.max()), unit)

    def __call__(self, Y: Tensor) -> Tensor:
        """Values on this scale."""
        above = Y - self.best
        return torch.where(above < 0, self.unit * self.log_slope(Y), above)

    def inverse(self, W: Tensor) -> Tensor:
        """From this scale."""
        below = W.clamp_max(0.0)
        gap = (below / -self.unit).expm1_() * self.unit
        return (W - below).add_(self.best).sub_(gap)

    def inverse_slope(self, W: Tensor) -> Tensor:
        """The derivative of `inverse`: one or more."""
        return (W.clamp_max(0.0) / -self.unit).exp()

    def log_slope(self, Y: Tensor) -> Tensor:
        """The logarithm of the derivative: zero or less."""
        return -((self.best - Y).clamp_min(0.0) / self.unit).log1p()


class LogWarpTransform(OutcomeTransform):
    """A `LogWarp` as BoTorch's models take it.

    Means in units of the feedback are medians, standard deviations to first order. The
    scale is part of the state dict.

    Args:
        warp: The scale.
    """

    best: Tensor
    unit: Tensor

    def __init__(self, warp: LogWarp) -> None:
        super().__init__()
        for name in ("best", "unit"):
            value = torch.tensor(getattr(warp, name), dtype=torch.double)
            self.register_buffer(name, value)

    @property
    def warp(self) -> LogWarp:
        """The scale."""
        return LogWarp(float(self.best), float(self.unit))

    @override
    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        slope = self.warp.log_slope(Y).exp()
        return self.warp(Y), None if Yvar is None else Yvar * slope.square()

    @override
    def untransform(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        slope = self.warp.inverse_slope(Y)
        return self.warp.inverse(Y), None if Yvar is None else Yvar * slope.square()

    @override
    def untransform_posterior(
        self, posterior: Posterior, X: Tensor | None = None
    ) -> Posterior:
        warp = self.warp
        return TransformedPosterior(
            posterior,
            sample_transform=warp.inverse,
            mean_transform=lambda mean, variance: warp.inverse(mean),
            variance_transform=lambda mean, variance: (
                variance * warp.inverse_slope(mean).square()
            ),
        )
