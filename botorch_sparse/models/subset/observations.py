"""All observations of a subset model, as its kernel sees them."""

from typing import NamedTuple

import torch
from botorch.exceptions import UnsupportedError
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.models.subset.full_data import FullData
from botorch_sparse.models.subset.given_rows import GivenRowsSingleTaskGP


class Observations(NamedTuple):
    """What the likelihood of all data is made of, after the transforms.

    Attributes:
        X: `batch_shape x (m) x n x d` inputs.
        error: `batch_shape x (m) x n`, the observations less the prior mean, `y - c`.
        noise: Noise variances, which broadcast to the errors.
    """

    X: Tensor
    error: Tensor
    noise: Tensor


def all_observations(model: GivenRowsSingleTaskGP) -> Observations:
    """All observations of a model, in use or not.

    Raises:
        UnsupportedError: For input transforms that make more rows.
    """
    full, X = model.subset.full, model.subset.full.inputs()
    if hasattr(model, "input_transform"):  # which learns nothing here
        X = model.input_transform.preprocess_transform(X)
    if X.shape[-2] != len(full):
        raise UnsupportedError(
            f"The input transform makes {X.shape[-2]} rows of {len(full)}; their "
            "gradients cannot be compared. Use transform_on_train=False, or "
            'selection="random".'
        )
    noise = _noise(model.likelihood, full, X)
    return Observations(X, full.targets - model.mean_module(X), noise)


def _noise(likelihood: Likelihood, full: FullData, X: Tensor) -> Tensor:
    """Noise variances of all targets, known or inferred."""
    zero = torch.zeros_like(full.targets)
    known = {} if full.noise is None else {"noise": full.noise}
    noisy = likelihood(MultivariateNormal(zero, DiagLinearOperator(zero)), X, **known)
    return noisy.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
