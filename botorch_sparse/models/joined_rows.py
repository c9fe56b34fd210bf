"""Rows of several tensors that are put together when someone asks for them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import torch
from gpytorch.likelihoods.noise_models import FixedGaussianNoise
from gpytorch.module import Module
from torch import Tensor


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """Rows of several tensors, one after the other.

    Attributes:
        parts: Tensors `part_batch x n_i x event`, whose batch shapes broadcast.
        batch_shape: The batch shape of the result.
        event_dims: Dimensions from the rows on: 2 for inputs, 1 for targets.
    """

    parts: tuple[Tensor, ...]
    batch_shape: torch.Size
    event_dims: int

    @property
    def num_rows(self) -> int:
        """The number of rows. Cost: O(1)."""
        return sum(part.shape[-self.event_dims] for part in self.parts)

    def append(self, rows: Tensor, batch_shape: torch.Size) -> Self:
        """With more rows, in a larger batch. Cost: O(1)."""
        return replace(self, parts=(*self.parts, rows), batch_shape=batch_shape)

    def join(self) -> Tensor:
        """`batch_shape x num_rows x event`, the batch expanded."""
        k = self.event_dims
        batches = [part.shape[: part.dim() - k] for part in self.parts]
        common = torch.broadcast_shapes(*batches)
        parts = [part.expand(*common, *part.shape[-k:]) for part in self.parts]
        rows = torch.cat(parts, dim=-k)
        return rows.expand(*self.batch_shape, *rows.shape[-k:])

    def detached(self) -> Self:
        """The same rows without gradients."""
        return replace(self, parts=tuple(part.detach() for part in self.parts))


class JoinedNoise(FixedGaussianNoise):
    """Noise variances of old and new observations.

    Args:
        rows: The variances.
    """

    def __init__(self, rows: JoinedRows) -> None:
        Module.__init__(self)
        self.rows = rows

    @property
    def noise(self) -> Tensor:
        """All noise variances, `batch_shape x n`."""
        return self.rows.join()

    @noise.setter
    def noise(self, value: Tensor) -> None:
        self.rows = JoinedRows((value,), value.shape[:-1], event_dims=1)

    def mean(self) -> Tensor:
        """Their mean, `batch_shape x 1`, without putting them together."""
        sums = (part.sum(dim=-1, keepdim=True) for part in self.rows.parts)
        return reduce(torch.add, sums) / self.rows.num_rows

    def __getstate__(self) -> dict[str, object]:
        """Everything but graphs, which cannot be copied."""
        return {**self.__dict__, "rows": self.rows.detached()}

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        parts = tuple(fn(part) for part in self.rows.parts)
        self.rows = replace(self.rows, parts=parts)
        return Module._apply(self, fn)
