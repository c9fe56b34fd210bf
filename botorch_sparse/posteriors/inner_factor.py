r"""The factor of `B`, whose eigenvalues are at least one."""

import torch
from torch import Tensor


def inner_cholesky(B: Tensor) -> Tensor:
    r"""Cholesky factor of :math:`B = I + \Phi D^{-1} \Phi^\top`.

    It fails only where the signal is `1 / eps` times the noise: an error on the host,
    NaN on a device, which would have to be waited for otherwise.

    Args:
        B: `batch_shape x m x m`.
    """
    if B.is_cpu:
        return torch.linalg.cholesky(B)
    L, info = torch.linalg.cholesky_ex(B)
    return torch.where((info == 0)[..., None, None], L, torch.nan)
