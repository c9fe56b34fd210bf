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
from typing import Any, Self

import torch
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models.fit.candidate_fits import (
    NUMERICAL_ERRORS,
    Options,
    fit_once,
    in_few_steps,
    loss_of,
    shuffled_rows,
)
from botorch_sparse.models.fit.exact_fit import (
    is_divisible,
    num_exact_rows,
    on_random_rows,
)
from botorch_sparse.models.outliers import far_noise
from botorch_sparse.models.summary import LikelihoodGap
from botorch_sparse.posteriors.outlier_noise import price_of_outlier

# Rows that are fitted in the search where there are more, and how often after the first
# time at most.
SEARCH_ROWS, REFITS = 500, 3
# Outliers that gain so many times their price in the search need no plain fit of all
# data to compare with.
CLEARLY = 2.0

Fit = Callable[[], LikelihoodGap | None]


def fit_robustly(
    mll: MarginalLogLikelihood, fit: Fit, options: Options
) -> LikelihoodGap | None:
    """Fit by `fit` with the extra noise of outliers, which the model has then.

    Where there are none it is the plain fit, to the bit. Cost: one or two fits of all
    data, and up to four of `SEARCH_ROWS`; up to five of all data where these are as
    few, or where the objective can't be had for some of them.
    """
    model, start = mll.model, _Kept.of(mll)
    far = far_noise(model.train_targets)
    model.outlier_noise = far
    plain: _Kept | None = None
    is_clear = bool(far.any())
    if (gain := _gain_of_few(mll, options)) is not None:
        is_clear |= gain >= CLEARLY
        extra = model.outlier_noise
        start.give(mll)
        model.outlier_noise = extra
        gap = fit()
        if not extra.any():
            return gap
    else:
        start.give(mll)
        model.outlier_noise = far
        gap = fit()
        plain = None if is_clear else _Kept.of(mll, gap)
        for _ in range(REFITS):
            if not _look(mll):
                break
            gap = fit()
    model.outlier_noise = model._found_outliers()
    num = int((model.outlier_noise > 0).sum())
    if num and is_clear:
        return gap
    robust, loss = _Kept.of(mll, gap), _total_loss(mll)
    if plain is None:
        start.give(mll)
        plain = _Kept.of(mll, fit())
    plain.give(mll)
    price = num * price_of_outlier(far.shape[-1])
    if num == 0 or loss + price >= _total_loss(mll):
        return plain.gap
    robust.give(mll)
    return gap


def _look(mll: MarginalLogLikelihood) -> bool:
    """Look for outliers under the present fit; say whether they are others."""
    model, before = mll.model, mll.model.outlier_noise > 0
    model.outlier_noise = model._found_outliers(least_scale=0.0)
    return not torch.equal(model.outlier_noise > 0, before)


def _gain_of_few(mll: MarginalLogLikelihood, options: Options) -> float | None:
    """Search by fits of some random rows; the model has what was found.

    Returns:
        What outliers among these rows gain, in multiples of their price; zero if they
        have none. None where all rows are as few, or some can't be fitted.
    """
    model = mll.model
    n, num_rows = model.train_targets.shape[-1], SEARCH_ROWS
    num_rows = min(num_rows, num_exact_rows(model))
    if n <= num_rows or model.learn_inducing_points or not is_divisible(mll, options):
        return None
    points = model._points()
    if points.are_drawn_freely:
        cap = min(num_rows, points.max_inducing_points or num_rows)
        points = replace(points, max_inducing_points=cap)
    rows, losses = shuffled_rows(model)[:num_rows], list[float]()
    try:
        part = on_random_rows(mll, num_rows)
        for _ in range(1 + REFITS):
            part.train().model.outlier_noise = model.outlier_noise[..., rows]
            fit_once(part, in_few_steps(options))
            losses.append(_total_loss(part))
            _give(dict(part.named_parameters()), mll)
            model._take(model._draw(points))
            if not _look(mll):
                break
    except NUMERICAL_ERRORS:
        return None
    num = int((part.model.outlier_noise > 0).sum())
    return (losses[0] - losses[-1]) / (num * price_of_outlier(n)) if num else 0.0


@dataclass(frozen=True, eq=False)
class _Kept:
    """All that a fit changes, and how far it is from the likelihood's optimum."""

    parameters: dict[str, Tensor]
    learned_points: Tensor | None
    state: Any
    outlier_noise: Tensor
    gap: LikelihoodGap | None

    @classmethod
    def of(cls, mll: MarginalLogLikelihood, gap: LikelihoodGap | None = None) -> Self:
        """Of a model as it is."""
        model = mll.model
        parameters = {n: p.detach().clone() for n, p in mll.named_parameters()}
        points, extra = model.learned_points, model.outlier_noise
        return cls(parameters, points, model._state, extra, gap)

    def give(self, mll: MarginalLogLikelihood) -> None:
        """Set it, in train mode."""
        model = mll.model
        model.learned_points = self.learned_points
        _give(self.parameters, mll)
        model._state = self.state
        model.outlier_noise = self.outlier_noise  # drops what was made with others


@torch.no_grad()
def _give(parameters: dict[str, Tensor], mll: MarginalLogLikelihood) -> None:
    """Set parameters by their names, in train mode."""
    for name, parameter in mll.train().named_parameters():
        parameter.copy_(parameters[name])


def _total_loss(mll: MarginalLogLikelihood) -> float:
    """The objective of all data, negated."""
    return float(loss_of(mll).sum()) * mll.model.train_targets.shape[-1]
