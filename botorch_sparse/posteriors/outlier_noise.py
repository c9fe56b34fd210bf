r"""Extra noise for observations that the others contradict [Ament2024]_.

An observation may have a variance :math:`\rho_i \geq 0` besides its noise. Given all
others, whose prediction is :math:`N(\mu_{-i}, v_i)` with the noise, the likelihood is
largest at

.. math::
    \rho_i = \max(0, e_i^2 - v_i), \qquad e_i = y_i - \mu_{-i},

which gains :math:`\tfrac12 (t_i - 1 - \log t_i)` with :math:`t_i = e_i^2 / v_i`. An
outlier is an observation that gains more than :math:`2 \log n`. One :math:`\log n` is
what it takes to name one of `n`. The other is for functions that are no sample of their
prior: errors at their peaks are larger than normal ones.

Outliers hide each other, and make their neighbours look wrong. So they are found in
stages, the worst first. After each stage all variances are computed anew, and what no
longer gains enough is no outlier.
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor

from botorch_sparse.posteriors.nystrom import Moments

# What the median of a squared standard normal variable is.
MEDIAN_OF_SQUARE = 0.4549
# Of an outlier, in logarithms of the number of observations. With 1 a model of 200
# points of Hartmann's function took its peak away; with 3 it kept 20 outliers of 200.
PRICE = 2.0
# How often all variances are computed at most.
STAGES = 12
# A stage takes those whose ratio is at least this share of the largest.
SHARE_OF_WORST = 0.1
# Values farther from the quartiles than so many interquartile ranges say nothing of the
# scale of the others.
FAR = 10.0
TINY = 1e-12


def price_of_outlier(num: int) -> float:
    """What the log likelihood has to gain for one outlier among `num` observations."""
    return PRICE * log(max(num, 2))


def outlier_noise(
    left_out: Callable[[Tensor], Moments],
    Y: Tensor,
    noise: Tensor,
    *,
    num: int,
    least_scale: float | None = 1.0,
    start: Tensor | None = None,
) -> Tensor:
    """Extra noise variances, zero for all but outliers.

    Where most errors are larger than the predictions say, all count in units of what is
    usual: a model that fits badly has no outliers for it.

    Args:
        left_out: From extra variances, `batch_shape x n`, to the leave-one-out moments
            of each observation, without noise, when all others have these variances.
        Y: `batch_shape x n` observations.
        noise: `batch_shape x n` noise variances.
        num: The number of observations from which outliers are named.
        least_scale: The least of that unit, a ratio of variances; below 1 where
            predictions may be too wide, as those of hyperparameters that were fitted to
            the outliers as well. None for errors in units of the predictions, where
            most of the observations may be outliers.
        start: Extra variances to begin with, `batch_shape x n`, zero by default. Many
            gross outliers would make all errors large, and then none is unusual.

    Returns:
        `batch_shape x n`. Cost: that of `left_out`, some five times.
    """
    rho, price = torch.zeros_like(Y) if start is None else start, price_of_outlier(num)
    for _ in range(STAGES):
        loo = left_out(rho)
        variance = loo.variance + noise
        square = (Y - loo.mean).square()
        ratio = square / variance
        t = ratio
        if least_scale is not None:
            usual = ratio.median(dim=-1, keepdim=True).values / MEDIAN_OF_SQUARE
            t = ratio / usual.clamp_min(max(least_scale, TINY))
        before = rho > 0
        is_outlier = (t > 1) & (0.5 * (t - 1 - t.log()) > price)
        worst = ratio.where(is_outlier & ~before, 0.0).amax(-1, keepdim=True)
        is_outlier &= before | (ratio >= SHARE_OF_WORST * worst)
        rho = (square - variance).clamp_min(0.0).where(is_outlier, 0.0)
        if torch.equal(rho > 0, before):
            break
    return rho


def is_far(Y: Tensor, dim: int) -> Tensor:
    """Which values are so far from all quartiles that they hide the others' scale.

    None where half of the values are the same.
    """
    quarters = torch.tensor([0.25, 0.75]).to(Y)
    low, high = Y.quantile(quarters, dim=dim, keepdim=True).unbind(0)
    width = FAR * (high - low)
    return ((Y < low - width) | (Y > high + width)) & (width > 0)
