r"""The factor of `B`, whose eigenvalues are at least one."""

import torch
from torch import Tensor


def inner_cholesky(B: Tensor) -> Tensor:
    r"""Cholesky factor of :math:`B = I + \Phi D^{-1} \Phi^\top`.

    It fails only where the signal is `1 / eps` times the noise, or where noise or
    kernel are not what they should be. Jitter would be lost in the rounding of such a
    matrix.

    Args:
        B: `batch_shape x m x m`.

    Returns:
        The factor; on a device NaN for a matrix that has none, which would have to be
        waited for otherwise.

    Raises:
        LinAlgError: On the host, if a matrix has none.
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
