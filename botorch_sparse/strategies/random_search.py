"""Uniform choice, the yardstick of cumulative regret."""

from typing import Any, Unpack

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.strategies.base import Strategy
from botorch_sparse.strategies.domain import DomainOptions
from botorch_sparse.strategies.seeding import draw_seed


class RandomSearch(Strategy):
    """Candidates drawn uniformly, with replacement; on a continuous domain Sobol's.

    Args:
        candidates: `A x d` points to choose from; or give `bounds`.
        batch_size: Points in each batch.
        seed: Seed of the strategy's generator.
        **domain: `bounds` and constraints of a continuous domain; see `Strategy`.
    """

    def __init__(
        self,
        candidates: Tensor | None = None,
        *,
        batch_size: int = 100,
        seed: int = 0,
        **domain: Unpack[DomainOptions],
    ) -> None:
        super().__init__(candidates, seed=seed, **domain)
        if batch_size < 1:
            raise InputDataError(f"Got batch_size={batch_size}; need at least 1.")
        self.batch_size = batch_size

    def _select(self, max_batch_size: int | None) -> list[int]:
        size = min(self.batch_size, max_batch_size or self.batch_size)
        if self.box is not None:
            seed = draw_seed(self.generator)
            return [self.history.add_point(x) for x in self.box.sample(size, seed)]
        draw = torch.randint(len(self.candidates), (size,), generator=self.generator)
        return draw.tolist()

    def _config(self) -> dict[str, Any]:
        return super()._config() | {"batch_size": self.batch_size}
