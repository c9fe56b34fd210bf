"""Noise variances of observations that came without a standard error."""

import warnings

import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP

# With fewer observations of unknown noise than this, it is inferred from all.
MIN_OBSERVATIONS = 10
# The fit is to the last so many of them.
MAX_OBSERVATIONS = 300


def has_unknown_noise(dataset: SupervisedDataset) -> bool:
    """Whether noise variances are known for some observations and not for others."""
    return dataset.Yvar is not None and bool(dataset.Yvar.isnan().any())


def inferred_noise(dataset: SupervisedDataset, bounds: Tensor) -> Tensor:
    """For each outcome, the noise variance of observations without a standard error.

    A GP is fitted to those observations alone, where there are at least ten. It is NaN
    for an outcome whose variances are all known. `bounds` (`2 x d`) scale the inputs.
    Cost: one fit of an exact GP to at most 300 points for each outcome.
    """
    X = (dataset.X - bounds[0]) / (bounds[1] - bounds[0]).clamp_min(1e-12)
    noise = []
    for Y, variance in zip(dataset.Y.T, dataset.Yvar.T, strict=True):
        rows = variance.isnan()
        if not rows.any():
            noise.append(variance.new_tensor(float("nan")))
            continue
        if rows.sum() < MIN_OBSERVATIONS:
            rows = torch.ones_like(rows)
        kept = rows.nonzero().squeeze(-1)[-MAX_OBSERVATIONS:]
        noise.append(_fitted_noise(X[kept], Y[kept], variance))
    return torch.stack(noise)


def with_noise(dataset: SupervisedDataset, noise: Tensor) -> SupervisedDataset:
    """The data with `m` noise variances in place of the unknown ones."""
    return SupervisedDataset(
        X=dataset.X,
        Y=dataset.Y,
        Yvar=torch.where(dataset.Yvar.isnan(), noise, dataset.Yvar),
        feature_names=dataset.feature_names,
        outcome_names=dataset.outcome_names,
        group_indices=dataset.group_indices,
    )


def _fitted_noise(X: Tensor, Y: Tensor, known: Tensor) -> Tensor:
    """The noise variance of a GP; where it cannot be fitted, the median of others."""
    scale = Y.std() if len(Y) > 1 and Y.std() > 0 else Y.new_ones(())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SparseSingleTaskGP(
                X, ((Y - Y.mean()) / scale).unsqueeze(-1), outcome_transform=None
            )
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except ModelFittingError:
        return known.nanmedian()
    return model.likelihood.noise.detach().squeeze() * scale.square()
