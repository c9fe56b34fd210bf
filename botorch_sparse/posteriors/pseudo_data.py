r"""A Nystrom posterior as an exact GP that observed pseudo-data at the inducing points.

With :math:`G = K_{SX} D^{-1} K_{XS}` the variance of `NystromPosterior` is

.. math::
    \mathrm{var}(x) = k(x, x) - k_S(x)^\top \big( K_{SS}^{-1} - (K_{SS} + G)^{-1} \big)
    k_S(x) = k(x, x) - k_S(x)^\top (K_{SS} + K_{SS} G^{-1} K_{SS})^{-1} k_S(x),

the variance of a GP with observations at `S` of noise covariance
:math:`K_{SS} G^{-1} K_{SS}`. One forward substitution replaces the two of the features
`phi` and `w`; for a few points those are more accurate, and keep the two parts of the
variance apart.
"""

import warnings

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from botorch_sparse.posteriors.nystrom import NystromPosterior


@torch.no_grad()
def pseudo_data(
    posterior: NystromPosterior, *, is_awaited: bool = True
) -> tuple[Tensor, Tensor]:
    r"""Factor of their covariance (`m x m`), whitened observations (`m`). Cost: O(m^3).

    The factor `F` is the lower one of :math:`K_{SS} + K_{SS} G^{-1} K_{SS}`. Since
    :math:`K_{SS}^{-1} - (K_{SS} + G)^{-1} = L^{-\top} (I - B^{-1}) L^{-1}`, it is
    :math:`L R^{-1}` with a lower triangular `R`, :math:`R^\top R = I - B^{-1}`: the
    Cholesky factor with rows and columns in reverse. If not `is_awaited`, the host does
    not wait to see whether that needs jitter, and where it does both are NaN. With the
    observations `z` the mean is :math:`c(x) + z^\top F^{-1} k_S(x)`, where
    :math:`R^\top z = L_B^{-\top} a`.
    """
    L_B = posterior.chol_inner
    eye = torch.eye(len(L_B), dtype=L_B.dtype, device=L_B.device)
    M = (eye - torch.cholesky_inverse(L_B)).flip(0, 1)
    # Eigenvalues are at least 0; directions without data, or with data that say hardly
    # anything, round to either side of it.
    reverse, info = torch.linalg.cholesky_ex(M)
    if not is_awaited:
        reverse = torch.where(info == 0, reverse, torch.nan)
    elif bool(info):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=NumericalWarning)
            jitter = torch.finfo(M.dtype).eps
            reverse = psd_safe_cholesky(M, jitter=jitter, max_tries=6)
    R = reverse.flip(0, 1).mT
    F = torch.linalg.solve_triangular(
        R, posterior.chol_inducing, upper=False, left=False
    )
    a = posterior.weights.unsqueeze(-1)
    beta = torch.linalg.solve_triangular(L_B.mT, a, upper=True)
    z = torch.linalg.solve_triangular(R.mT, beta, upper=True)
    return F, z.squeeze(-1)


@torch.no_grad()
def whitening_matrix(posterior: NystromPosterior) -> Tensor:
    """The matrix `L_B^-1 L^-1` that turns `k_S(x)` into `w(x)`, `m x m`. O(m^3)."""
    L, L_B = posterior.chol_inducing, posterior.chol_inner
    eye = torch.eye(len(L), dtype=L.dtype, device=L.device)
    inverse = torch.linalg.solve_triangular(L, eye, upper=False)
    return torch.linalg.solve_triangular(L_B, inverse, upper=False)
