r"""Factorization of the covariance of the inducing points.

`K_SS` is the badly conditioned matrix of the method: smooth kernels, repeated
points and finite-rank kernels make it singular to rounding. The papers use its
pseudo-inverse; a pivoted Cholesky that leaves out the inducing points whose
residual vanishes is that pseudo-inverse, and needs no jitter.
"""

import warnings
from dataclasses import dataclass
from functools import cache

import torch
from botorch.exceptions import BotorchWarning, InputDataError
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NotPSDError
from scipy.linalg.lapack import dpstrf, spstrf
from threadpoolctl import ThreadpoolController
from torch import Tensor

# An inducing point is left out when the others explain all but this fraction of
# k(x, x). Measured against exact posteriors (m up to 900): 1e-12 costs 10 times the
# error of 1e-14, since other points' residuals feel what is left out; 1e-16 is
# rounding, and the variances are wrong.
RELATIVE_RESIDUAL = {torch.float64: 1e-14, torch.float32: 1e-6}
# The same while hyperparameters are fitted. What is left out between the two sizes is
# rounding for the objective, and rounding there makes L-BFGS give up: of eight smooth
# functions with little noise (560 points of two dimensions), four fits ended so at
# 1e-14 and none at 1e-11.
RELATIVE_RESIDUAL_OF_FITS = {torch.float64: 1e-11, torch.float32: 1e-6}
# First jitter, relative to k(x, x), when a factorization fails in spite of that.
RELATIVE_JITTER = {torch.float64: 1e-14, torch.float32: 1e-7}


@dataclass(frozen=True)
class InducingFactor:
    """Factors of a batch, padded to a common size.

    Attributes:
        chol: `batch_shape x p x p`, lower triangular; a unit row for a point left out.
        index: `batch_shape x p`, the points in pivot order, those left out at the end.
        kept: `batch_shape x p`, False for a point left out; None if there is none.
    """

    chol: Tensor
    index: Tensor
    kept: Tensor | None


def factorize_inducing_covariance(
    covariance: Tensor, relative_residual: float | None = None
) -> tuple[Tensor, Tensor]:
    r"""Pivoted Cholesky factor of `K_SS` without the redundant inducing points.

    .. math:: K_{PP} = L L^\top, \quad P \subseteq S

    where each point of `S` outside of the pivots `P` has a residual below
    `1e-14 k(x, x)` (float64; `1e-6` in float32). On the CPU this is LAPACK's `pstrf`.
    On CUDA a plain Cholesky is tried first, and only when its smallest pivot is below
    that threshold the `m x m` matrix visits the host, which for the sizes in question
    costs less than an eigendecomposition on the device. Cost: O(m^3).

    Args:
        covariance: An `m x m` tensor; see `factorize_batch` for more.
        relative_residual: The threshold, if not the above.

    Returns:
        The lower triangular factor, `p x p`, differentiable in `covariance`, and the
        `p` indices of the points kept, in pivot order.

    Raises:
        InputDataError: If `covariance` has entries that are not finite.
    """
    if covariance.shape[-1] == 0:
        return covariance, torch.arange(0, device=covariance.device)
    correlation, scale = _correlation(covariance.detach())
    tolerance = relative_residual or RELATIVE_RESIDUAL[correlation.dtype]
    if _is_regular(correlation, tolerance):
        everything = torch.arange(len(covariance), device=covariance.device)
        return _scaled_cholesky(covariance, scale), everything
    L, pivots = _pivoted_cholesky(correlation, tolerance)
    if covariance.requires_grad:
        return _scaled_cholesky(covariance[pivots][:, pivots], scale[pivots]), pivots
    return L * scale[pivots].unsqueeze(-1), pivots


def factorize_batch(
    covariance: Tensor, relative_residual: float | None = None
) -> InducingFactor:
    """`factorize_inducing_covariance` for each element of a batch.

    Elements leave out different points. So they are padded to the largest `p`: a point
    left out gets a unit row, and its feature is to be set to zero.

    Args:
        covariance: A `batch_shape x m x m` tensor.
        relative_residual: As in `factorize_inducing_covariance`.

    Returns:
        The factors, as accurate as one by one. Cost: O(m^3) for each element.

    Raises:
        InputDataError: If `covariance` has entries that are not finite.
    """
    if covariance.dim() == 2:
        L, pivots = factorize_inducing_covariance(covariance, relative_residual)
        return InducingFactor(L, pivots, kept=None)
    batch_shape, m = covariance.shape[:-2], covariance.shape[-1]
    correlation, scale = _correlation(covariance.detach())
    tolerance = relative_residual or RELATIVE_RESIDUAL[correlation.dtype]
    if m == 0 or _is_regular(correlation, tolerance):
        everything = torch.arange(m, device=covariance.device)
        L = _scaled_cholesky(covariance, scale) if m > 0 else covariance
        return InducingFactor(L, everything.expand(*batch_shape, m), None)
    factors = [
        _pivoted_cholesky(element, tolerance)
        for element in correlation.reshape(-1, m, m)
    ]
    rank = max(len(pivots) for _, pivots in factors)
    index = torch.stack([_completed(pivots, m)[:rank] for _, pivots in factors])
    ranks = torch.tensor([len(pivots) for _, pivots in factors], device=index.device)
    kept = torch.arange(rank, device=index.device) < ranks.unsqueeze(-1)
    index, kept = (t.reshape(*batch_shape, rank) for t in (index, kept))
    scale = torch.where(kept, scale.take_along_dim(index, -1), 1.0)
    if covariance.requires_grad:
        L = _scaled_cholesky(_padded(covariance, index, kept), scale)
    else:
        padded = [_bordered_by_eye(L, rank) for L, _ in factors]
        L = torch.stack(padded).reshape(*batch_shape, rank, rank)
        L = L * scale.unsqueeze(-1)
    return InducingFactor(L, index, None if kept.all() else kept)


def _correlation(K: Tensor) -> tuple[Tensor, Tensor]:
    """`K` scaled to a unit diagonal, and the scale: the square root of its diagonal."""
    if not K.isfinite().all():
        raise InputDataError(
            "The kernel returned NaN or infinity between inducing points. Check the "
            "inputs for NaN and the kernel's lengthscale and outputscale for zeros."
        )
    scale = K.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return K / scale.unsqueeze(-1) / scale.unsqueeze(-2), scale


def _is_regular(correlation: Tensor, tolerance: float) -> bool:
    """Whether a plain Cholesky on the device shows that no point is redundant."""
    if not correlation.is_cuda:
        return False
    L, info = torch.linalg.cholesky_ex(correlation)
    pivots = L.diagonal(dim1=-2, dim2=-1).square()
    is_regular = ~info.any() & (pivots.min() > tolerance)
    return bool(is_regular)


def _completed(pivots: Tensor, m: int) -> Tensor:
    """The pivots and then the other indices below `m`."""
    left_out = torch.ones(m, dtype=torch.bool, device=pivots.device)
    left_out[pivots] = False
    return torch.cat([pivots, left_out.nonzero().squeeze(-1)])


def _padded(K: Tensor, index: Tensor, kept: Tensor) -> Tensor:
    """Rows and columns of `K` at `index`, the identity where they are not kept."""
    K = K.take_along_dim(index.unsqueeze(-1), -2)
    K = K.take_along_dim(index.unsqueeze(-2), -1)
    both = kept.unsqueeze(-1) & kept.unsqueeze(-2)
    return torch.where(both, K, torch.eye(K.shape[-1], dtype=K.dtype, device=K.device))


def _bordered_by_eye(L: Tensor, size: int) -> Tensor:
    """`L` in the upper left corner of an identity matrix of the given size."""
    return torch.block_diag(L, torch.eye(size - len(L), dtype=L.dtype, device=L.device))


def independent_points(schur: Tensor, prior_variance: Tensor) -> Tensor:
    """Points that neither the present inducing points nor one another explain.

    Args:
        schur: `p x p`, the covariance of the points given the present inducing points.
        prior_variance: `p`, their prior variances, the scale of what counts.

    Returns:
        Indices of the points to keep, in pivot order. Cost: O(p^3).
    """
    scale = prior_variance.detach().clamp_min(torch.finfo(schur.dtype).tiny).sqrt()
    correlation = schur.detach() / scale.unsqueeze(-1) / scale
    return _pivoted_cholesky(correlation, RELATIVE_RESIDUAL[schur.dtype])[1]


def _pivoted_cholesky(correlation: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """LAPACK's pivoted Cholesky; the factor and the pivots whose residual counts."""
    pstrf = dpstrf if correlation.dtype == torch.float64 else spstrf
    K = correlation.cpu().numpy()
    with _openblas().limit(limits=1):
        factor, pivots, rank, _ = pstrf(K, tol=threshold, lower=1)
    if rank > 0 and factor[0, 0] ** 2 <= threshold:
        rank = 0  # LAPACK never holds the first pivot against the tolerance.
    L = torch.from_numpy(factor[:rank, :rank].copy()).to(correlation).tril()
    index = torch.from_numpy(pivots[:rank].astype("int64") - 1)
    return L, index.to(correlation.device)


@cache
def _openblas() -> ThreadpoolController:
    """The threads of SciPy's OpenBLAS, beside those of PyTorch.

    After each call they spin for a while, on the cores that PyTorch needs next: that
    doubled the time of a fit objective with m = 300.
    """
    return ThreadpoolController().select(internal_api="openblas")


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
