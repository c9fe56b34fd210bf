r"""Per-sample gradients of the log likelihood of a Gaussian process.

The gradient with respect to the observations is :math:`-K_y^{-1} (y - c)` with
:math:`K_y = K + D` ([Wei2025]_ Eq. 3). What belongs to a sample is read in three ways:

| reading | gradient of sample i | |
|---|---|---|
| `"contribution"` | :math:`-K_y^{-1} e_i (y_i - c_i)` | these sum to the gradient |
| `"column"` | :math:`-K_y^{-1} e_i` | its derivatives, up to a factor |
| `"scalar"` | :math:`-e_i^\top K_y^{-1} (y - c)` | Eq. 3 as printed: only a sign |

References:
    [Wei2025]_ Section 4.1 (see `botorch_sparse.inducing.gradient_diversity`).
"""

from typing import Literal, get_args

import torch
from botorch.exceptions import BotorchTensorDimensionError
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_choice,
    check_finite,
    check_kind,
    check_tensors,
)
from botorch_sparse.inducing.gradient_factors import GradientFactors
from botorch_sparse.kernels import in_double
from botorch_sparse.linear_operators import UpdatableCholeskyLinearOperator
from botorch_sparse.posteriors import NystromFeatures
from botorch_sparse.posteriors.features import solve_rows

Reading = Literal["contribution", "column", "scalar"]
READINGS: tuple[str, ...] = get_args(Reading)


@torch.no_grad()
def exact_gradients(
    covar_module: Kernel,
    X: Tensor,
    error: Tensor,
    noise: Tensor,
    *,
    reading: str = "contribution",
) -> Tensor:
    r"""Gradients under the exact :math:`K_y`: the reference, in O(n^3).

    Args:
        covar_module: The kernel.
        X: `batch_shape x n x d` inputs.
        error: `batch_shape x n`, the observations less the prior mean, `y - c`.
        noise: `batch_shape x n` noise variances, the diagonal of `D`.
        reading: What belongs to a sample; see the module.

    Returns:
        `n x (batch p)`, one row for each sample, with `p = n`, or 1 for `"scalar"`.

    Raises:
        InputDataError: If the reading is unknown.
    """
    _validate(covar_module, X, error, noise, reading)
    K = in_double(covar_module, X.dtype)(X.double()).to_dense()
    L = psd_safe_cholesky(K + torch.diag_embed(noise.double()))
    y = error.double().unsqueeze(-1)
    if reading == "scalar":
        return _by_samples(-torch.cholesky_solve(y, L))
    inverse = torch.cholesky_inverse(L)
    return _by_samples(-inverse * (y if reading == "contribution" else 1.0))


@torch.no_grad()
def pilot_gradients(
    covar_module: Kernel,
    X: Tensor,
    error: Tensor,
    noise: Tensor,
    subset: Tensor,
    *,
    reading: str = "contribution",
) -> Tensor | GradientFactors:
    r"""Gradients under the Nystrom approximation on a subset of `M` samples.

    With the features :math:`\Phi` of the subset and :math:`W = L_B^{-1} \Phi`, by
    Woodbury

    .. math::
        \hat K_y^{-1} = (\Phi^\top \Phi + D)^{-1} = D^{-1} - D^{-1} W^\top W D^{-1}.

    Args:
        covar_module: The kernel.
        X: `batch_shape x n x d` inputs.
        error: `batch_shape x n`, the observations less the prior mean, `y - c`.
        noise: `batch_shape x n` noise variances, positive.
        subset: `M` indices of the present subset.
        reading: What belongs to a sample; see the module.

    Returns:
        Factors of the gradients, or an `n x batch` matrix for `"scalar"`. Cost:
        O(n M^2) time, O(n M) memory.

    Raises:
        InputDataError: If the reading is unknown.
    """
    _validate(covar_module, X, error, noise, reading)
    check_tensors(subset=subset)
    covar_module, X = in_double(covar_module, X.dtype), X.double()
    y, noise = error.double(), noise.double().expand_as(error)
    precision = noise.reciprocal()
    U = precision.unsqueeze(-1) * _whitened_features(covar_module, X, noise, subset)
    if reading == "scalar":
        fit = U @ (U.mT @ y.unsqueeze(-1))
        return _by_samples(fit - (precision * y).unsqueeze(-1))
    scale = -y if reading == "contribution" else -torch.ones_like(y)
    return GradientFactors(precision, U, scale)


def _whitened_features(
    covar_module: Kernel, X: Tensor, noise: Tensor, subset: Tensor
) -> Tensor:
    """The matrix `W'` of the Nystrom posterior on the subset, `batch_shape x n x M`."""
    phi = NystromFeatures.of(covar_module, X.index_select(-2, subset)).features(X)
    return solve_rows(_inner_factor(phi / noise.sqrt().unsqueeze(-1)), phi)


def _inner_factor(scaled: Tensor) -> Tensor:
    r"""The factor of :math:`B = I + V^\top V` for `batch_shape x n x M` V; O(n M^2).

    Where rounding leaves B without one, the QR factorization of V and I has it.
    """
    inner = scaled.mT @ scaled
    inner.diagonal(dim1=-2, dim2=-1).add_(1.0)
    L, info = torch.linalg.cholesky_ex(inner)
    if not bool(info.any()):
        return L
    eye = torch.eye(scaled.shape[-1], dtype=scaled.dtype, device=scaled.device)
    return UpdatableCholeskyLinearOperator(eye).add_low_rank(scaled.mT).chol


def _by_samples(gradients: Tensor) -> Tensor:
    """A `batch_shape x n x p` tensor as an `n x (batch p)` matrix."""
    n, p = gradients.shape[-2:]
    return torch.cat(list(gradients.reshape(-1, n, p)), dim=-1)


def _validate(
    covar_module: object, X: Tensor, error: Tensor, noise: Tensor, reading: str
) -> None:
    """Check kinds, shapes and, on the host, values."""
    validate_reading(reading)
    check_kind("covar_module", covar_module, Kernel, "a GPyTorch kernel")
    check_finite(X=X, error=error, noise=noise)
    fits = noise.shape[-1:] in {(1,), error.shape[-1:], ()}
    if X.dim() < 2 or X.shape[:-1] != error.shape or not fits:
        raise BotorchTensorDimensionError(
            f"Got X of shape {tuple(X.shape)}, error of shape {tuple(error.shape)} and "
            f"noise of shape {tuple(noise.shape)}; need `batch_shape x n x d` and "
            "twice `batch_shape x n`."
        )


def validate_reading(reading: str) -> None:
    """Refuse an unknown reading."""
    check_choice("reading", reading, READINGS)
