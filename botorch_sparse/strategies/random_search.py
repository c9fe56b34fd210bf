"""Uniform choice, the yardstick of cumulative regret."""

from typing import Any

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.strategies.base import Strategy


class RandomSearch(Strategy):
    """Candidates drawn uniformly, with replacement.

    Args:
        candidates: `A x d` points to choose from.
        batch_size: Points in each batch.
        seed: Seed of the strategy's generator.
    """

    def __init__(
        self, candidates: Tensor, *, batch_size: int = 100, seed: int = 0
    ) -> None:
        super().__init__(candidates, seed=seed)
        if batch_size < 1:
            raise InputDataError(f"Got batch_size={batch_size}; need at least 1.")
        self.batch_size = batch_size

    def _select(self, max_batch_size: int | None) -> list[int]:
        size = min(self.batch_size, max_batch_size or self.batch_size)
        draw = torch.randint(len(self.candidates), (size,), generator=self.generator)
        return draw.tolist()

    def _config(self) -> dict[str, Any]:
        return super()._config() | {"batch_size": self.batch_size}
