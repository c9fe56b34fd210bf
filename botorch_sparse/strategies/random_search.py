"""Uniform choice, a yardstick."""

from collections.abc import Collection
from typing import Any, Unpack

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.strategies.base import Strategy
from botorch_sparse.strategies.domain import DomainOptions, validate_unique
from botorch_sparse.strategies.seeding import draw_seed


class RandomSearch(Strategy):
    """Candidates drawn uniformly; on a continuous domain Sobol's.

    They are drawn with replacement, the yardstick of cumulative regret, or once each
    with `unique=True`, that of the best value.

    Args:
        candidates: `A x d` points to choose from, see `Strategy`; or give `bounds`.
        batch_size: Points in each batch.
        unique: Propose each candidate of a table at most once, and none that was
            evaluated. Not by default, unlike strategies that infer their kernel.
        seed: Seed of the strategy's generator.
        minimize: See `Strategy`.
        **domain: `bounds` and constraints of a continuous domain; see `Strategy`.
    """

    def __init__(
        self,
        candidates: Any = None,
        *,
        batch_size: int = 100,
        unique: bool = False,
        seed: int = 0,
        minimize: bool = False,
        **domain: Unpack[DomainOptions],
    ) -> None:
        super().__init__(candidates, seed=seed, minimize=minimize, **domain)
        if batch_size < 1:
            raise InputDataError(f"Got batch_size={batch_size}; need at least 1.")
        validate_unique(unique, self.box)
        self.batch_size = batch_size
        self.unique = unique

    @property
    def excluded_points(self) -> Collection[int]:
        """See `Strategy.excluded_points`; where each is proposed once, those too."""
        return self._taken() if self.unique else super().excluded_points

    def _batch_size(self) -> int | None:
        return self.batch_size

    def _select(self, max_batch_size: int | None) -> list[int]:
        size = min(self.batch_size, max_batch_size or self.batch_size)
        if self.box is not None:
            seed = draw_seed(self.generator)
            return [self.history.add_point(x) for x in self.box.sample(size, seed)]
        rows = self._rows()
        if self.unique:
            order = torch.randperm(len(rows), generator=self.generator)
            return rows[order[:size]].tolist()
        draw = torch.randint(len(rows), (size,), generator=self.generator)
        return rows[draw].tolist()

    def _rows(self) -> Tensor:
        """The rows to draw from; O(A)."""
        left = torch.ones(len(self.candidates), dtype=torch.bool)
        left[list(self.excluded_points)] = False
        if not left.any():
            reason = "have failed" + ", are evaluated or pending" * self.unique
            raise UnsupportedError(f"All candidates {reason}: none is left.")
        return left.nonzero().squeeze(-1)

    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            "batch_size": self.batch_size,
            "unique": self.unique,
        }
