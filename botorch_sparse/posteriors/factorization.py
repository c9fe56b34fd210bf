r"""The two factors of a Nystrom posterior: of `K_SS` and of `B`.

`K_SS`, the covariance of the inducing points, is the badly conditioned matrix of the
method. Smooth kernels, repeated points and finite-rank kernels make it singular to
rounding. The papers use its pseudo-inverse. A pivoted Cholesky that leaves out the
inducing points whose residual vanishes is that pseudo-inverse, and needs no jitter. The
eigenvalues of `B` are at least one: a plain Cholesky will do.
"""

import warnings
from dataclasses import dataclass

import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    BotorchWarning,
    InputDataError,
)
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NotPSDError
from scipy.linalg.lapack import dpstrf, spstrf
from torch import Tensor

from botorch_sparse.argument_checks import DTYPES, check_number, check_tensors
from botorch_sparse.threads import one_openblas_thread

# An inducing point is left out when the others explain all but this fraction of
# k(x, x). Measured against exact posteriors (m up to 900): 1e-12 costs 10 times the
# error of 1e-14, since other points' residuals feel what is left out; 1e-16 is
# rounding, and the variances are wrong.
RELATIVE_RESIDUAL = {torch.float64: 1e-14, torch.float32: 1e-6}
# The same while hyperparameters are fitted. What is left out between the two sizes is
# rounding for the objective, and rounding there makes L-BFGS give up: of eight smooth
# functions with little noise (560 points of two dimensions), four fits ended so at
# 1e-14 and none at 1e-11.
RELATIVE_RESIDUAL_OF_FITS = 1e-11
# First jitter, relative to k(x, x), when a factorization fails in spite of that.
RELATIVE_JITTER = {torch.float64: 1e-14, torch.float32: 1e-7}


@dataclass(frozen=True)
class InducingFactor:
    """Factors of a batch, padded to a common size."""

    chol: Tensor  # `batch_shape x p x p`; a unit row for a point left out
    index: Tensor  # `batch_shape x p` in pivot order, points left out at the end
    kept: Tensor | None  # False for a point left out; None if none is


def factorize_inducing_covariance(
    covariance: Tensor, relative_residual: float | None = None
) -> tuple[Tensor, Tensor]:
    r"""Pivoted Cholesky factor of `K_SS` without the redundant inducing points.

    .. math:: K_{PP} = L L^\top, \quad P \subseteq S

    where each point of `S` outside of the pivots `P` has a residual below
    `1e-14 k(x, x)` (float64; `1e-6` in float32). On the CPU this is LAPACK's `pstrf`.
    On a device a plain Cholesky is tried first, and only when its smallest pivot is
    below that threshold the `m x m` matrix visits the host, which for the sizes in
    question costs less than an eigendecomposition on the device. Cost: O(m^3).

    Args:
        covariance: An `m x m` tensor; see `factorize_batch` for more.
        relative_residual: The threshold, if not the above.

    Returns:
        The lower triangular factor, `p x p`, differentiable in `covariance`, and the
        `p` indices of the points kept, in pivot order.

    Raises:
        BotorchTensorDimensionError: If `covariance` is not square.
        InputDataError: If it has entries that are not finite, or is not positive
            semidefinite; if the threshold is not in [0, 1).
    """
    _validate(covariance, relative_residual)
    factor = factorize_batch(covariance, relative_residual)
    _refuse_indefinite(covariance.detach(), factor)
    return factor.chol, factor.index


def _validate(covariance: Tensor, relative_residual: float | None) -> None:
    """Check what `factorize_inducing_covariance` is called with."""
    check_tensors(covariance=covariance)
    shape = tuple(covariance.shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise BotorchTensorDimensionError(
            f"Got a covariance of shape {shape}; need `m x m`."
        )
    if covariance.dtype not in DTYPES:
        raise InputDataError(
            f"Got a covariance of dtype {covariance.dtype}; need float32 or float64."
        )
    if relative_residual is not None:
        check_number("relative_residual", relative_residual, "[0, 1)")


def _refuse_indefinite(K: Tensor, factor: InducingFactor) -> None:
    """Refuse a matrix of which points left out have a negative residual; O(m p^2)."""
    if len(factor.index) == len(K):
        return
    cross = K.index_select(0, factor.index)
    rows = torch.linalg.solve_triangular(factor.chol.detach(), cross, upper=False)
    diagonal = K.diagonal()
    residual = diagonal - rows.square().sum(0)
    slack = torch.finfo(K.dtype).eps ** 0.5 * diagonal.abs().max()
    if residual.min() < -slack:
        raise InputDataError(
            f"Got a covariance that is not positive semidefinite: of the diagonal "
            f"{residual.min().item():.3g} is left. Check the kernel; need one whose "
            "matrices have no negative eigenvalues."
        )


def factorize_batch(
    covariance: Tensor,
    relative_residual: float | None = None,
    *,
    is_singular: bool = False,
) -> InducingFactor:
    """`factorize_inducing_covariance` for a batch, `batch_shape x m x m`.

    Elements leave out different points. So they are padded to the largest `p`: a point
    left out gets a unit row, and its feature is to be set to zero. `is_singular` says
    that `plain_factor` is known not to do. Cost: O(m^3) for each element, and on a
    device one wait of the host, two where a point is redundant.
    """
    if covariance.shape[-1] == 0:
        return InducingFactor(covariance, _all_points(covariance), None)
    if not (covariance.is_cpu or is_singular):
        factor, is_regular = plain_factor(covariance, relative_residual)
        if is_regular:
            return factor
    batch_shape, m = covariance.shape[:-2], covariance.shape[-1]
    correlation, scale = _correlation(covariance.detach())
    tolerance = relative_residual or RELATIVE_RESIDUAL[correlation.dtype]
    factor = _pivoted_cholesky(correlation.reshape(-1, m, m), tolerance)
    L, index, kept = factor.chol, factor.index, factor.kept
    index = index.reshape(*batch_shape, index.shape[-1])
    L = L.reshape(*batch_shape, *L.shape[-2:])
    scale = scale.take_along_dim(index, -1)
    if kept is not None:
        kept = kept.reshape(index.shape)
        scale = torch.where(kept, scale, 1.0)
    if covariance.requires_grad:
        L = _scaled_cholesky(_padded(covariance, index, kept), scale)
    else:
        L = L * scale.unsqueeze(-1)
    return InducingFactor(L, index, kept)


def plain_factor(
    covariance: Tensor, relative_residual: float | None = None
) -> tuple[InducingFactor, Tensor]:
    """The Cholesky factor of all points in their order, and whether it will do.

    That is a boolean of no dimension on the device. It says that no entry is NaN or
    infinite and no point of the `batch_shape x m x m` tensor is redundant. The host
    does not wait for it.
    """
    correlation, scale = _correlation(covariance)
    tolerance = relative_residual or RELATIVE_RESIDUAL[correlation.dtype]
    L, info = torch.linalg.cholesky_ex(correlation)
    pivots = L.detach().diagonal(dim1=-2, dim2=-1).square()
    is_regular = ((pivots > tolerance) & (info == 0).unsqueeze(-1)).all()
    index = _all_points(covariance)
    return InducingFactor(L * scale.unsqueeze(-1), index, None), is_regular


def _all_points(K: Tensor) -> Tensor:
    return torch.arange(K.shape[-1], device=K.device).expand(K.shape[:-1])


def _correlation(K: Tensor) -> tuple[Tensor, Tensor]:
    """`K` scaled to a unit diagonal, and the scale: the square root of its diagonal."""
    scale = K.detach().diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    return K / scale.unsqueeze(-1) / scale.unsqueeze(-2), scale


def _padded(K: Tensor, index: Tensor, kept: Tensor | None) -> Tensor:
    """Rows and columns of `K` at `index`, the identity where they are not kept."""
    K = K.take_along_dim(index.unsqueeze(-1), -2)
    K = K.take_along_dim(index.unsqueeze(-2), -1)
    if kept is None:
        return K
    both = kept.unsqueeze(-1) & kept.unsqueeze(-2)
    return torch.where(both, K, torch.eye(K.shape[-1], dtype=K.dtype, device=K.device))


def _pivoted_cholesky(correlation: Tensor, threshold: float) -> InducingFactor:
    """LAPACK's pivoted Cholesky of `b` matrices; one copy to the host, one back."""
    on_host = correlation.cpu()
    if not on_host.isfinite().all():
        raise InputDataError(
            "The kernel returned NaN or infinity between inducing points. Check the "
            "inputs for NaN and the kernel's lengthscale and outputscale for zeros."
        )
    pairs = [_pstrf(matrix, threshold) for matrix in on_host]
    m, ranks = correlation.shape[-1], [len(L) for L, _ in pairs]
    rank = max(ranks)
    chol = torch.stack([_bordered_by_eye(L, rank) for L, _ in pairs])
    index = torch.stack([_completed(pivots, m)[:rank] for _, pivots in pairs])
    kept = torch.arange(rank) < torch.tensor(ranks).unsqueeze(-1)
    if not correlation.is_cpu:
        # Indices of matrices that fit in memory are exact in either dtype.
        columns = [t.to(chol).unsqueeze(-1) for t in (index, kept)]
        packed = torch.cat([chol, *columns], -1).to(correlation.device)
        chol, index, kept = packed[..., :rank], packed[..., rank], packed[..., -1]
    return InducingFactor(chol, index.long(), kept > 0 if min(ranks) < rank else None)


def _completed(pivots: Tensor, m: int) -> Tensor:
    """The pivots and then the other indices below `m`."""
    left_out = torch.ones(m, dtype=torch.bool)
    left_out[pivots] = False
    return torch.cat([pivots, left_out.nonzero().squeeze(-1)])


def _bordered_by_eye(L: Tensor, size: int) -> Tensor:
    """`L` in the upper left corner of an identity matrix of the given size."""
    if len(L) == size:
        return L
    return torch.block_diag(L, torch.eye(size - len(L), dtype=L.dtype))


def _pstrf(K: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """The factor of one matrix, and the pivots whose residual counts."""
    pstrf = dpstrf if K.dtype == torch.float64 else spstrf
    with one_openblas_thread():
        factor, pivots, rank, _ = pstrf(K.numpy(), tol=threshold, lower=1)
    if rank > 0 and factor[0, 0] ** 2 <= threshold:
        rank = 0  # LAPACK never holds the first pivot against the tolerance.
    L = torch.from_numpy(factor[:rank, :rank].copy()).tril()
    return L, torch.from_numpy(pivots[:rank].astype("int64") - 1)


def _scaled_cholesky(covariance: Tensor, scale: Tensor) -> Tensor:
    """Differentiable Cholesky factor of `covariance`; jitter only on failure."""
    correlation = covariance / scale.unsqueeze(-1) / scale.unsqueeze(-2)
    L, info = torch.linalg.cholesky_ex(correlation)
    if info.any():
        jitter = RELATIVE_JITTER[correlation.dtype]
        try:
            L = psd_safe_cholesky(correlation, jitter=jitter, max_tries=8)
        except NotPSDError as error:
            raise NotPSDError(
                f"{error} The covariance of the inducing points is indefinite beyond "
                "rounding: check that the kernel is positive semi-definite."
            ) from error
        warnings.warn(
            f"Jitter from {jitter:.0e} k(x, x) was added to the covariance of the "
            "inducing points, because its Cholesky factorization failed.",
            BotorchWarning,
            stacklevel=4,
        )
    return L * scale.unsqueeze(-1)


def product_with_transpose(L: Tensor) -> Tensor:
    """`L L'` of a lower triangular factor; O(m^2) where it is diagonal, on the host.

    That of a posterior without data is the identity.
    """
    if L.is_cpu and not L.requires_grad and not L.tril(-1).any():
        return L.diagonal(dim1=-2, dim2=-1).square().diag_embed()
    return L @ L.mT


def inner_cholesky(B: Tensor) -> Tensor:
    r"""Cholesky factor of :math:`B = I + \Phi D^{-1} \Phi^\top`, `batch_shape x m x m`.

    It fails only where the signal is `1 / eps` times the noise, or where noise or
    kernel are not what they should be: with a `LinAlgError` on the host, and with NaN
    on a device. Jitter would be lost in the rounding of such a matrix.
    """
    L, info = torch.linalg.cholesky_ex(B)
    if not B.is_cpu:
        return torch.where((info == 0)[..., None, None], L, torch.nan)
    if info.any():
        diagonal = B.detach().diagonal(dim1=-2, dim2=-1)
        raise torch.linalg.LinAlgError(
            f"Got a matrix I + Phi D^-1 Phi' of shape {tuple(B.shape)} that is not "
            f"positive definite, with a diagonal from {diagonal.min():.3g} to "
            f"{diagonal.max():.3g}; need noise variances that are positive and above "
            f"{torch.finfo(B.dtype).eps:.0e} of the signal's, and a kernel without "
            "NaN. Try larger noise variances, or Standardize the outcomes."
        )
    return L
