"""Leave-one-out predictions of this package's models in Ax's plots and analyses.

Ax's `cross_validate` calls `botorch.cross_validation.loo_cv`, which forms the exact GP
of the training data: dense `n x n` matrices, and not the predictions of a sparse model.
Ax has no hook for a model's own leave-one-out predictions.
"""

import ax.adapter.cross_validation as ax_cross_validation
import torch
from botorch.cross_validation import CVResults
from botorch.models.gpytorch import GPyTorchModel
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse import models
from botorch_sparse.models import SubsetSingleTaskGP


def use_sparse_loo_cv() -> None:
    """Let Ax's `cross_validate` call `loo_cv` of this module.

    That hands models of other packages on to BoTorch's function, with the same
    arguments. Nothing in BoTorch changes.
    """
    ax_cross_validation.loo_cv = loo_cv


def loo_cv(
    model: GPyTorchModel, observation_noise: bool = True, untransform: bool = True
) -> CVResults:
    """Leave-one-out predictions; see `botorch_sparse.models.loo_cv`.

    Those of a `SubsetSingleTaskGP` are of all its data: the rows that it does not use
    are left out as it is.
    """
    results = models.loo_cv(model, observation_noise, untransform)
    if not isinstance(model, SubsetSingleTaskGP) or not untransform:
        return results
    return _of_all_rows(model, results, observation_noise)


@torch.no_grad()
def _of_all_rows(
    model: SubsetSingleTaskGP, results: CVResults, observation_noise: bool
) -> CVResults:
    """Results for the subset, and predictions for the rows that are not in it."""
    used, n = model.subset_indices, model.num_observations
    rest = torch.ones(n, dtype=torch.bool, device=used.device)
    rest[used] = False
    shape = (n, model.num_outputs)
    mean, variance = (results.posterior.mean.new_empty(shape) for _ in range(2))
    mean[used] = results.posterior.mean.squeeze(-2)
    variance[used] = results.posterior.variance.squeeze(-2)
    if rest.any():
        X = model.all_train_X[rest].unsqueeze(-2)
        posterior = model.posterior(X, observation_noise=observation_noise)
        mean[rest] = posterior.mean.squeeze(-2)
        variance[rest] = posterior.variance.squeeze(-2)
    Yvar = model.all_train_Yvar
    return CVResults(
        model=model,
        posterior=_independent(mean, variance),
        observed_Y=model.all_train_Y.unsqueeze(-2),
        observed_Yvar=None if Yvar is None else Yvar.unsqueeze(-2),
    )


def _independent(mean: Tensor, variance: Tensor) -> GPyTorchPosterior:
    """A posterior over `n x 1 x m` from `n x m` moments."""
    outputs = [
        MultivariateNormal(m.unsqueeze(-1), DiagLinearOperator(v.unsqueeze(-1)))
        for m, v in zip(mean.T, variance.T, strict=True)
    ]
    if len(outputs) == 1:
        return GPyTorchPosterior(outputs[0])
    return GPyTorchPosterior(MultitaskMultivariateNormal.from_independent_mvns(outputs))
