"""Counts what would be copied from an accelerator to the host, on any device."""

from collections.abc import Callable
from typing import Any, Self
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# Operations that make the host wait for the device.
WAITING = {
    aten._local_scalar_dense,
    aten.nonzero,
    aten.masked_select,
    aten._unique2,
    aten.unique_dim,
    aten._linalg_check_errors,
    aten.repeat_interleave,
}
# Methods that copy without an operation, where the tensor is on the host anyway.
METHODS = ("tolist", "numpy", "cpu", "__array__")


class HostCopies(TorchDispatchMode):
    """Use it as a context, and read `count` at its end.

    Attributes:
        count: The copies.
        places: What each of them was.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []
        self._is_inside = False
        self._patches = [
            patch.object(Tensor, name, self._counted(name, getattr(Tensor, name)))
            for name in METHODS
        ]

    @property
    def count(self) -> int:
        return len(self.places)

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                return method(tensor, *args, **kwargs)
            self.places.append(name)
            self._is_inside = True
            try:
                return method(tensor, *args, **kwargs)
            finally:
                self._is_inside = False

        return counted

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        op = func.overloadpacket
        waits = op in WAITING or (op is aten.equal and args[0].shape == args[1].shape)
        if op in (aten.index, aten.index_put, aten.index_put_):
            masks = [i for i in args[1] if i is not None and i.dtype == torch.bool]
            waits = bool(masks)
        if waits and not self._is_inside:
            self.places.append(str(func))
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Self:
        for patched in self._patches:
            patched.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for patched in self._patches:
            patched.stop()
