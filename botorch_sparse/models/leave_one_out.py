r"""Leave-one-out predictions of a Nystrom posterior, without refits.

With :math:`v_i = w(x_i)^\top w(x_i)`, the leverage :math:`h_i = v_i / d_i` and
:math:`e_i = y_i - c(x_i)`, the posterior of all observations but the `i`-th, with the
same hyperparameters and inducing points, has

.. math::
    \mu_{-i} = c(x_i) + \frac{w(x_i)^\top a - h_i e_i}{1 - h_i}, \qquad
    \sigma^2_{-i} = r(x_i, x_i) + \frac{v_i}{1 - h_i},

since leaving out is a rank-one update of `B` downwards.
"""

from math import pi

import torch
from torch import Tensor

from botorch_sparse.models.training_data import TrainingData
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.batching import inner_rows
from botorch_sparse.posteriors.nystrom import Moments


def leave_one_out(
    posterior: NystromPosterior, X: Tensor, Y: Tensor, noise: Tensor
) -> Moments:
    """Mean and variance (without noise) at each point, given all other observations.

    Args:
        posterior: The posterior of all observations, those asked for among them.
        X: `batch_shape x n x d` inputs.
        Y: `batch_shape x n` observations.
        noise: `batch_shape x n` noise variances.

    Returns:
        Moments, `batch_shape x n` each, in the dtype of `Y`. Cost: O(n m^2) time,
        O(chunk_size m) memory.
    """
    dtype = posterior.inducing_points.dtype
    size = posterior.chunk_size
    means, variances = [], []
    for x, y, d in zip(
        X.to(dtype).split(size, dim=-2),
        Y.to(dtype).split(size, dim=-1),
        noise.to(dtype).split(size, dim=-1),
        strict=True,
    ):
        phi = posterior.features(x)
        w = posterior.whiten(phi)
        c = posterior.mean_module(x)
        v = w.square().sum(-1)
        h = v / d
        means.append(c + (inner_rows(w, posterior.weights) - h * (y - c)) / (1 - h))
        variances.append(posterior.residual(x, phi) + v / (1 - h))
    return Moments(torch.cat(means, -1).to(Y), torch.cat(variances, -1).to(Y))


@torch.no_grad()
def leave_one_out_score(
    posterior: NystromPosterior, data: TrainingData, rows: Tensor
) -> Tensor:
    """Mean log predictive density of some observations, each left out, noise included.

    Args:
        posterior: The posterior of all observations.
        data: These.
        rows: Which observations, indices.

    Returns:
        A scalar in the units of the transformed outcomes, averaged over the elements of
        a batch. Cost: O(m^2) for each row.
    """
    X, Y, noise = data.X[..., rows, :], data.Y[..., rows], data.noise[..., rows]
    loo = leave_one_out(posterior, X, Y, noise)
    variance = loo.variance + noise
    error = (Y - loo.mean).square() / variance
    return -0.5 * ((2 * pi * variance).log() + error).mean()
