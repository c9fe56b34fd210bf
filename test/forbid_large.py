"""A limit on the size of tensors."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class ForbidLarge(TorchDispatchMode):
    """Raises as soon as a tensor of more than `limit` entries is made."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(value, torch.Tensor) and value.numel() > self.limit:
                raise AssertionError(f"{func} made {tuple(value.shape)}")
        return result
