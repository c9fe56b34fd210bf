r"""Leave-one-out cross-validation of a sparse model without refits.

`botorch.cross_validation.loo_cv` rebuilds the exact GP from `forward`, with dense
`n x n` matrices throughout; its formulas need the inverse of one covariance matrix,
which the Nystrom posterior's residual variance is no part of. The function here gives
the sparse model's own predictions.
"""

import torch
from botorch.cross_validation import (
    CVResults,
    _build_loo_posterior,
    _reshape_to_loo_cv_format,
    _untransform_loo_results,
)
from botorch.cross_validation import loo_cv as botorch_loo_cv
from botorch.models.gpytorch import GPyTorchModel
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.models.sparse_single_task_gp import SparseSingleTaskGP
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.batching import inner_rows
from botorch_sparse.posteriors.nystrom import Moments


def loo_cv(
    model: GPyTorchModel, observation_noise: bool = True, untransform: bool = True
) -> CVResults:
    r"""Leave-one-out predictions of a fitted model.

    With :math:`v_i = w(x_i)^\top w(x_i)`, the leverage :math:`h_i = v_i / d_i` and
    :math:`e_i = y_i - c(x_i)`, the model that has seen all observations but the `i`-th,
    with the same hyperparameters and inducing points, predicts

    .. math::
        \mu_{-i} = c(x_i) + \frac{w(x_i)^\top a - h_i e_i}{1 - h_i}, \qquad
        \sigma^2_{-i} = r(x_i, x_i) + \frac{v_i}{1 - h_i},

    since leaving out is a rank-one update of `B` downwards. An inducing point stays one
    when the observation there is left out. Of repeated observations one is left out at
    a time.

    Args:
        model: A fitted model. Anything but a `SparseSingleTaskGP` with fewer inducing
            points than data goes to `botorch.cross_validation.loo_cv`.
        observation_noise: Whether the variances include the noise.
        untransform: Whether to undo the outcome transform.

    Returns:
        The results as BoTorch gives them: a posterior of shape
        `batch_shape x n x 1 x m`. Cost: O(n m^2) time, O(chunk_size m) memory.

    Example:
        >>> X = torch.linspace(0, 1, 40, dtype=torch.double).unsqueeze(-1)
        >>> model = SparseSingleTaskGP(X, (6 * X).sin(), inducing_points=X[::4])
        >>> loo_cv(model).posterior.mean.shape
        torch.Size([40, 1, 1])
    """
    model.eval()
    if not isinstance(model, SparseSingleTaskGP) or model.is_exact:
        return botorch_loo_cv(model, observation_noise, untransform)
    Y, m = model.train_targets, model.num_outputs
    with torch.no_grad():
        X, noise = model._transformed_train_X(), _noise(model)
        loo = leave_one_out(model.nystrom_posterior(), X, Y, noise)
    variance = loo.variance + noise if observation_noise else loo.variance
    posterior = _build_loo_posterior(
        loo.mean.unsqueeze(-1), variance.unsqueeze(-1), num_outputs=m
    )
    observed = _reshape_to_loo_cv_format(Y, m)
    has_fixed_noise = isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
    Yvar = _reshape_to_loo_cv_format(noise, m) if has_fixed_noise else None
    if untransform and hasattr(model, "outcome_transform"):
        posterior, observed, Yvar = _untransform_loo_results(
            model, posterior, observed, Yvar
        )
    return CVResults(
        model=model, posterior=posterior, observed_Y=observed, observed_Yvar=Yvar
    )


def leave_one_out(
    posterior: NystromPosterior, X: Tensor, Y: Tensor, noise: Tensor
) -> Moments:
    """Mean and variance (without noise) at each point, given all other observations.

    Args:
        posterior: The posterior of all observations.
        X: `batch_shape x n x d` inputs.
        Y: `batch_shape x n` observations.
        noise: `batch_shape x n` noise variances.

    Returns:
        Moments, `batch_shape x n` each, in the dtype of `Y`.
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


def _noise(model: SparseSingleTaskGP) -> Tensor:
    """Noise variances of the observations, of the shape of the targets."""
    Y = model.train_targets
    noiseless = MultivariateNormal(Y, DiagLinearOperator(torch.zeros_like(Y)))
    covariance = model.likelihood(noiseless, model.train_inputs[0])
    return covariance.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
