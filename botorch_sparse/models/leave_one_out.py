"""Models scored by observations that are left out."""

from math import pi
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.posteriors.leave_one_out import leave_one_out


def training_noise(model: Any, X: Tensor | None = None) -> Tensor:
    """Noise variances of a model's observations, of the shape of its targets.

    Args:
        model: The model.
        X: The training inputs as the likelihood sees them; by default as they are now.
    """
    Y = model.train_targets
    noiseless = MultivariateNormal(Y, DiagLinearOperator(torch.zeros_like(Y)))
    covariance = model.likelihood(noiseless, model.train_inputs[0] if X is None else X)
    return covariance.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)


@torch.no_grad()
def leave_one_out_score(model: Any, rows: Tensor) -> Tensor:
    """Mean log predictive density of some observations, each left out, noise included.

    Args:
        model: A `SparseSingleTaskGP` in eval mode, with fewer inducing points than
            data or not.
        rows: Which observations, indices.

    Returns:
        A scalar in the units of the transformed outcomes, averaged over the elements of
        a batch. Cost: O(n m^2) for the posterior, O(m^2) for each row.
    """
    X, Y = model._transformed_train_X()[..., rows, :], model.train_targets[..., rows]
    noise = training_noise(model)[..., rows]
    loo = leave_one_out(model.nystrom_posterior(), X, Y, noise)
    variance = loo.variance + noise
    error = (Y - loo.mean).square() / variance
    return -0.5 * ((2 * pi * variance).log() + error).mean()
