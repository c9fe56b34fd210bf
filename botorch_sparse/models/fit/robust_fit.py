"""Fits of a robust model: hyperparameters and outliers in turn.

A fit to data with outliers explains them by noise, and then they are none. So they are
looked for by errors in units of the usual error, the hyperparameters are fitted again
with the extra noise of those that were found, and so on. In the end outliers count in
units of what the model predicts, and the model without any is kept unless they are
worth their price in log likelihood.
"""

from collections.abc import Callable

import torch
from gpytorch.mlls import MarginalLogLikelihood

from botorch_sparse.models.fit.candidate_fits import Fitted, loss_of
from botorch_sparse.models.outliers import far_noise
from botorch_sparse.models.summary import LikelihoodGap
from botorch_sparse.posteriors.outlier_noise import price_of_outlier

# Fits after the first one at most, each from where the last one ended.
REFITS = 3

Fit = Callable[[], LikelihoodGap | None]


def fit_robustly(mll: MarginalLogLikelihood, fit: Fit) -> LikelihoodGap | None:
    """Fit by `fit` with the extra noise of outliers, which the model has then.

    Where it finds none the first fit is kept, to the bit. Cost: that of one to five
    fits where there are some.
    """
    model = mll.model
    Y = model.train_targets
    model.outlier_noise = far = far_noise(Y)
    gap = fit()
    plain = None if far.any() else (Fitted.of(mll), gap, _total_loss(mll))
    for _ in range(REFITS):
        before = model.outlier_noise > 0
        model.outlier_noise = model._found_outliers(least_scale=0.0)
        if torch.equal(model.outlier_noise > 0, before):
            break
        gap = fit()
    model.outlier_noise = model._found_outliers()
    num = int((model.outlier_noise > 0).sum())
    if plain is not None:
        fitted, plain_gap, loss = plain
        price = num * price_of_outlier(Y.shape[-1])
        if num == 0 or _total_loss(mll) + price >= loss:
            fitted.give(mll)
            model.outlier_noise = torch.zeros_like(Y)
            gap = plain_gap
    return gap


def _total_loss(mll: MarginalLogLikelihood) -> float:
    """The objective of all data, negated."""
    return float(loss_of(mll).sum()) * mll.model.train_targets.shape[-1]
