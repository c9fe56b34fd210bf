r"""Leave-one-out cross-validation of a sparse model without refits.

`botorch.cross_validation.loo_cv` rebuilds the exact GP from `forward`, with dense
`n x n` matrices throughout; its formulas need the inverse of one covariance matrix,
which the Nystrom posterior's residual variance is no part of. The function here gives
the sparse model's own predictions.
"""

import torch
from botorch.cross_validation import CVResults
from botorch.cross_validation import loo_cv as botorch_loo_cv
from botorch.exceptions import UnsupportedError
from botorch.models import ModelList
from botorch.models.gpytorch import GPyTorchModel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

from botorch_sparse.argument_checks import check_kind
from botorch_sparse.models.fantasy import SparseFantasyModel
from botorch_sparse.models.sparse_gp import SparseGP
from botorch_sparse.models.training_data import TrainingData, outputs_in_batch
from botorch_sparse.posteriors.leave_one_out import leave_one_out
from botorch_sparse.private_names import (
    build_loo_posterior,
    reshape_to_loo_cv_format,
    untransform_loo_results,
)


def loo_cv(
    model: GPyTorchModel, observation_noise: bool = True, untransform: bool = True
) -> CVResults:
    """Leave-one-out predictions of a fitted model, by `leave_one_out`.

    Each is by the model that has seen all other observations, with the same
    hyperparameters and inducing points: an inducing point stays one when the
    observation there is left out. Of repeated observations one is left out at a time.

    Args:
        model: A fitted model. Anything but a `SparseSingleTaskGP` with outliers, or
            with fewer inducing points than data, goes to
            `botorch.cross_validation.loo_cv`.
        observation_noise: Whether the variances include the noise.
        untransform: Whether to undo the outcome transform.

    Returns:
        The results as BoTorch gives them: a posterior of shape
        `batch_shape x n x 1 x m`. Cost: O(n m^2) time, O(chunk_size m) memory.

    Raises:
        UnsupportedError: For a `SparseFantasyModel`, and for a list of models.

    Example:
        >>> from botorch_sparse.models import SparseSingleTaskGP
        >>> X = torch.linspace(0, 1, 40, dtype=torch.double).unsqueeze(-1)
        >>> model = SparseSingleTaskGP(X, (6 * X).sin(), inducing_points=X[::4])
        >>> loo_cv(model).posterior.mean.shape
        torch.Size([40, 1, 1])
    """
    check_kind("model", model, GPyTorchModel, "a fitted model")
    model.eval()
    if isinstance(model, SparseFantasyModel):
        raise UnsupportedError(
            "Got a SparseFantasyModel, whose data are put together for nobody; "
            "cross-validate the model that it comes from."
        )
    if isinstance(model, ModelList):
        raise UnsupportedError(
            f"Got a {type(model).__name__}, whose models may have different data; "
            "cross-validate each of model.models."
        )
    is_plain = True
    if isinstance(model, SparseGP):
        model.sparsify()
        is_plain = model.is_exact and not bool(model.outlier_noise.any())
    if is_plain:
        return botorch_loo_cv(model, observation_noise, untransform)
    m = outputs_in_batch(model)
    with torch.no_grad():
        data = TrainingData.of(model)
        Y, noise = data.Y, data.noise
        loo = leave_one_out(model.nystrom_posterior(), data.X, Y, noise)
    variance = loo.variance + noise if observation_noise else loo.variance
    posterior = build_loo_posterior(
        loo.mean.unsqueeze(-1), variance.unsqueeze(-1), num_outputs=m
    )
    observed = reshape_to_loo_cv_format(Y, m)
    has_fixed_noise = isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
    Yvar = reshape_to_loo_cv_format(noise, m) if has_fixed_noise else None
    if untransform and hasattr(model, "outcome_transform"):
        posterior, observed, Yvar = untransform_loo_results(
            model, posterior, observed, Yvar
        )
    return CVResults(
        model=model, posterior=posterior, observed_Y=observed, observed_Yvar=Yvar
    )
