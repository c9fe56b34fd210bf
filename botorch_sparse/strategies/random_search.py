"""Uniform choice, a yardstick."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Unpack

from botorch.exceptions import UnsupportedError
from typing_extensions import override

from botorch_sparse.argument_checks import check_flag, check_whole
from botorch_sparse.strategies.core.strategy import Strategy
from botorch_sparse.strategies.data.box import DomainOptions
from botorch_sparse.strategies.data.outcomes import Outcome


class RandomSearch(Strategy):
    """Candidates drawn uniformly; on a continuous domain Sobol's.

    They are drawn with replacement, the yardstick of cumulative regret, or once each
    with `unique=True`, the yardstick of the best value.

    Args:
        candidates: `A x d` points to choose from, see `Strategy`; or give `bounds`.
        batch_size: Points in each batch.
        unique: Propose each candidate of a table at most once, and none that was
            evaluated. Not by default, unlike strategies that infer their kernel.
        seed: Seed of the strategy's generator.
        minimize: See `Strategy`.
        outcomes: See `Strategy`.
        **domain: `bounds` and constraints of a continuous domain; see `Strategy`.
    """

    batch_size: int
    shares_tables: ClassVar[bool] = True
    takes_several_outcomes: ClassVar[bool] = True
    takes_discrete_features: ClassVar[bool] = True
    largest_value: ClassVar[float] = sys.float_info.max

    def __init__(
        self,
        candidates: Any = None,
        *,
        batch_size: int = 100,
        unique: bool = False,
        seed: int = 0,
        minimize: bool = False,
        outcomes: Iterable[Outcome] | None = None,
        **domain: Unpack[DomainOptions],
    ) -> None:
        super().__init__(
            candidates, seed=seed, minimize=minimize, outcomes=outcomes, **domain
        )
        check_whole("batch_size", batch_size)
        check_flag("unique", unique)
        self.domain.is_unique(unique, is_known=True)
        self.batch_size = batch_size
        self.unique = unique

    def _select(self, max_batch_size: int | None) -> list[int]:
        size = min(self.batch_size, max_batch_size or self.batch_size)
        chosen = self.domain.uniform(
            size,
            self.generator,
            self.record.add_point,
            self.excluded_points,
            unique=self.unique,
        )
        if not chosen:
            reason = "have failed" + ", are evaluated or pending" * self.unique
            raise UnsupportedError(f"All candidates {reason}: none is left.")
        return chosen

    @override
    def _move(self, number: Mapping[int, int]) -> None:
        pass  # nothing else knows points by number

    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            "batch_size": self.batch_size,
            "unique": self.unique,
        }
