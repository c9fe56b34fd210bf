"""A look at whether tensors are finite, which makes the host wait for a device."""

from collections.abc import Mapping

import torch
from torch import Tensor


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of those with NaN or infinity, at least one tensor, for one wait."""
    flags = torch.stack([values.isfinite().all() for values in tensors.values()])
    pairs = zip(tensors, flags.tolist(), strict=True)
    return [name for name, is_finite in pairs if not is_finite]
