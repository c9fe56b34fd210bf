"""Fits of a robust model: hyperparameters and outliers in turn.

A fit to data with outliers explains them by noise, and then they are none. So they are
looked for by errors in units of the usual error, the hyperparameters are fitted again
with the extra noise of those that were found, and so on. Where there are many data,
fits of some random rows will do for this search, and all data are fitted once, with the
extra noise. In the end outliers count in units of what the model predicts, and the
plain fit is kept unless they are worth their price in log likelihood.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models.fit.candidate_fits import (
    NUMERICAL_ERRORS,
    Fitted,
    Options,
    fit_once,
    in_few_steps,
    loss_of,
    shuffled_rows,
)
from botorch_sparse.models.fit.exact_fit import (
    FEW_ROWS,
    is_divisible,
    num_exact_rows,
    on_random_rows,
)
from botorch_sparse.models.outliers import far_noise
from botorch_sparse.models.summary import LikelihoodGap
from botorch_sparse.posteriors.outlier_noise import price_of_outlier

# Fits in the search at most, after the first one.
REFITS = 3
# Outliers that gain so many times their price in a search by `FEW_ROWS` need no plain
# fit of all data to compare with.
CLEARLY = 2.0

Fit = Callable[[], LikelihoodGap | None]


def fit_robustly(
    mll: MarginalLogLikelihood, fit: Fit, options: Options
) -> LikelihoodGap | None:
    """Fit by `fit` with the extra noise of outliers, which the model has then.

    Where there are none it is the plain fit, to the bit. Cost: one or two fits of all
    data, and up to four of `FEW_ROWS`; up to five of all data where these are as few,
    or where the objective can't be had for some of them.
    """
    model, start = mll.model, _Kept.of(mll)
    none = torch.zeros_like(model.train_targets)
    far, plain = far_noise(model.train_targets), None
    is_clear = bool(far.any())

    def from_start(extra: Tensor) -> _Kept:
        replace(start, outlier_noise=extra).give(mll)
        return _Kept.of(mll, fit())

    if (found := _search_few_rows(mll, far, options)) is not None:
        extra, gain = found
        gap = from_start(extra).gap
        if not extra.any():
            return gap
        is_clear |= gain >= CLEARLY
    else:
        first = from_start(far)
        gap, plain = first.gap, None if is_clear else first
        for _ in range(REFITS):
            if not _finds_others(mll):
                break
            gap = fit()
    model.outlier_noise = model._found_outliers()
    num = int((model.outlier_noise > 0).sum())
    if num and is_clear:
        return gap
    robust, price = _Kept.of(mll, gap), num * price_of_outlier(none.shape[-1])
    loss = _total_loss(mll) + price if num else torch.inf
    plain = plain or from_start(none)
    plain.give(mll)
    if loss >= _total_loss(mll):
        return plain.gap
    robust.give(mll)
    return gap


def _finds_others(mll: MarginalLogLikelihood) -> bool:
    """Look for outliers under the present fit; say whether they are others."""
    model, before = mll.model, mll.model.outlier_noise > 0
    model.outlier_noise = model._found_outliers(least_scale=0.0)
    return not torch.equal(model.outlier_noise > 0, before)


def _search_few_rows(
    mll: MarginalLogLikelihood, far: Tensor, options: Options
) -> tuple[Tensor, float] | None:
    """Look for outliers by fits of some random rows, `far` ones to begin with.

    The model has the hyperparameters of these fits then.

    Returns:
        The extra noise of all data, and what outliers among these rows gain, in
        multiples of their price, zero if they have none. None where all rows are as
        few, or some can't be fitted.
    """
    model, n = mll.model, far.shape[-1]
    num_rows = min(FEW_ROWS, num_exact_rows(model))
    if n <= num_rows or model.learn_inducing_points or not is_divisible(mll, options):
        return None
    points = model._points()
    if points.are_drawn_freely:
        cap = min(num_rows, points.max_inducing_points or num_rows)
        points = replace(points, max_inducing_points=cap)
    rows, losses = shuffled_rows(model)[:num_rows], list[float]()
    model.outlier_noise = far
    try:
        part = on_random_rows(mll, num_rows)
        for _ in range(1 + REFITS):
            part.train().model.outlier_noise = model.outlier_noise[..., rows]
            fit_once(part, in_few_steps(options))
            losses.append(_total_loss(part))
            replace(Fitted.of(part), chosen=None).give(mll)
            model._take(model._draw(points))
            if not _finds_others(mll):
                break
    except NUMERICAL_ERRORS:
        return None
    num = int((part.model.outlier_noise > 0).sum())
    gain = (losses[0] - losses[-1]) / (num * price_of_outlier(n)) if num else 0.0
    return model.outlier_noise, gain


@dataclass(frozen=True, eq=False)
class _Kept:
    """A fit, with what a robust model has besides."""

    fitted: Fitted
    learned_points: Tensor | None
    outlier_noise: Tensor
    gap: LikelihoodGap | None

    @classmethod
    def of(cls, mll: MarginalLogLikelihood, gap: LikelihoodGap | None = None) -> Self:
        """That of a model as it is."""
        model = mll.model
        return cls(Fitted.of(mll), model.learned_points, model.outlier_noise, gap)

    def give(self, mll: MarginalLogLikelihood) -> None:
        """Set it, in train mode."""
        mll.model.learned_points = self.learned_points
        self.fitted.give(mll)
        mll.model.outlier_noise = self.outlier_noise


def _total_loss(mll: MarginalLogLikelihood) -> float:
    """The objective of all data, negated."""
    return float(loss_of(mll).sum()) * mll.model.train_targets.shape[-1]
