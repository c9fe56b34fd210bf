"""Fits of a robust model: hyperparameters and outliers in turn.

A fit to data with outliers explains them by noise, and then they are none. So they are
looked for by errors in units of the usual error, the hyperparameters are fitted again
with the extra noise of those that were found, and so on. For this search fits of a few
random rows will do. Then all data are fitted, with the extra noise. In the end outliers
count in units of what the model predicts, and the model without any is kept unless they
are worth their price in log likelihood.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models.fit.candidate_fits import (
    Fitted,
    Options,
    fit_once,
    in_few_steps,
    loss_of,
    shuffled_rows,
)
from botorch_sparse.models.fit.exact_fit import is_divisible, on_random_rows
from botorch_sparse.models.outliers import far_noise
from botorch_sparse.models.summary import LikelihoodGap
from botorch_sparse.posteriors.outlier_noise import price_of_outlier

# Rows that are fitted in the search, and how often after the first time at most.
SEARCH_ROWS, REFITS = 500, 3
# What a fit of all data does not gain over that of `SEARCH_ROWS`, for an observation.
# On the functions of `benchmarks.outliers`, 600 to 4,000 points, it was 0.09 or less.
MOST_GAIN = 0.25

Fit = Callable[[], LikelihoodGap | None]


def fit_robustly(
    mll: MarginalLogLikelihood, fit: Fit, options: Options
) -> LikelihoodGap | None:
    """Fit by `fit` with the extra noise of outliers, which the model has then.

    Where there are none it is the plain fit, to the bit. Cost: O(SEARCH_ROWS^3 + n m^2)
    a few times, and one fit of all data; two where it is not clear from few rows
    whether outliers pay.
    """
    model = mll.model
    start, state = _values(mll), model._state
    model.outlier_noise = far = far_noise(model.train_targets)

    def plain() -> LikelihoodGap | None:
        _give(start, mll)
        model._state = state
        model.outlier_noise = torch.zeros_like(far)
        return fit()

    search = _fit_of_few(mll, options) if is_divisible(mll, options) else fit
    losses = list[float]()
    for _ in range(1 + REFITS):
        search()
        losses.append(_total_loss(mll))
        before = model.outlier_noise > 0
        model.outlier_noise = model._found_outliers(least_scale=0.0)
        if torch.equal(model.outlier_noise > 0, before):
            break
    if not model._found_outliers().any():
        return plain()
    gap = fit()
    model.outlier_noise = extra = model._found_outliers()
    if far.any():
        return gap
    num, n = int((extra > 0).sum()), far.shape[-1]
    loss, robust = _total_loss(mll) + num * price_of_outlier(n), Fitted.of(mll)
    if num > 0 and loss < losses[0] - MOST_GAIN * far.numel():
        return gap
    plain_gap = plain()
    if num == 0 or loss >= _total_loss(mll):
        return plain_gap
    robust.give(mll)
    model.outlier_noise = extra
    return gap


def _fit_of_few(mll: MarginalLogLikelihood, options: Options) -> Callable[[], None]:
    """Fits of some random rows, from where the last one ended.

    All data have the hyperparameters then, and as few inducing points.
    """
    model, part = mll.model, on_random_rows(mll, SEARCH_ROWS)
    points = model._points()
    if points.are_drawn_freely:
        cap = min(SEARCH_ROWS, points.max_inducing_points or SEARCH_ROWS)
        points = replace(points, max_inducing_points=cap)
    rows, options = shuffled_rows(model)[:SEARCH_ROWS], in_few_steps(options)

    def fit() -> None:
        part.train().model.outlier_noise = model.outlier_noise[..., rows]
        fit_once(part, options)
        replace(Fitted.of(part), chosen=model._inducing_set()).give(mll)
        model._take(model._draw(points))

    return fit


def _values(mll: MarginalLogLikelihood) -> dict[str, Tensor]:
    """A copy of the parameters of an objective."""
    return {name: p.detach().clone() for name, p in mll.named_parameters()}


@torch.no_grad()
def _give(values: dict[str, Tensor], mll: MarginalLogLikelihood) -> None:
    """Set the parameters of an objective, in train mode."""
    for name, parameter in mll.train().named_parameters():
        parameter.copy_(values[name])


def _total_loss(mll: MarginalLogLikelihood) -> float:
    """The objective of all data, negated."""
    return float(loss_of(mll).sum()) * mll.model.train_targets.shape[-1]
