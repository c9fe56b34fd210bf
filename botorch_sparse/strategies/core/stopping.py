"""When a run ends early: callbacks of `Strategy.run`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from botorch.exceptions import InputDataError, UnsupportedError

from botorch_sparse.argument_checks import (
    as_numbers,
    check_number,
    check_whole,
    short_repr,
)
from botorch_sparse.strategies.data.history import Batch, History
from botorch_sparse.strategies.data.preference import Preference

AT_LEAST_ZERO = "need a number of at least 0.0."


@dataclass(frozen=True)
class StopOnConfidenceGap:
    """Stop when no candidate can be better by more than a tolerance.

    That is, once `Strategy.confidence_gap` is at most the tolerance.

    Args:
        tolerance: Largest simple regret accepted, in units of Y, non-negative.

    Raises:
        UnsupportedError: When called, if the strategy has no confidence bounds, or
            several outcomes.
    """

    tolerance: float

    def __post_init__(self) -> None:
        check_number("tolerance", self.tolerance, "[0, inf]", AT_LEAST_ZERO)

    def __call__(self, strategy: Any, batch: Batch, history: History) -> bool:
        """Whether to stop."""
        if (num := len(strategy.record.outcomes)) > 1:
            raise UnsupportedError(
                f"StopOnConfidenceGap is of one outcome, and the strategy has {num}; "
                "take StopOnNoImprovement, StopAtTarget or StopAtHypervolume."
            )
        return bool(strategy.confidence_gap() <= self.tolerance)


@dataclass(frozen=True)
class StopOnNoImprovement:
    """Stop when the last evaluations found nothing better than those before them.

    Observations are compared as they are: under noise a lucky one stands for long, so
    give many evaluations. With constraints it is the best feasible one, or while there
    is none the least violation; of several objectives the hypervolume above
    `History.reference_point`. Evaluations of which an outcome is missing are left out.

    Args:
        num_evaluations: How many of the last ones to look at, at least 1.
        min_gain: What counts as better, in units of Y or of the hypervolume,
            non-negative. Of violations any decrease counts.
    """

    num_evaluations: int
    min_gain: float = 0.0

    def __post_init__(self) -> None:
        check_whole("num_evaluations", self.num_evaluations)
        check_number("min_gain", self.min_gain, "[0, inf]", AT_LEAST_ZERO)

    def __call__(self, strategy: Any, batch: Batch, history: History) -> bool:
        """Whether to stop."""
        Y = history.values.reshape(-1, len(strategy.record.outcomes))
        Y = Y[~Y.isnan().any(-1)]
        if len(Y) <= self.num_evaluations:
            return False
        preference = Preference.of(strategy.record)
        violation, before = preference.attained(Y[: -self.num_evaluations])
        least, now = preference.attained(Y)
        return least >= violation if violation > 0 else now - before <= self.min_gain


@dataclass(frozen=True)
class StopAfter:
    """Stop after the batch in which the time is up, counted from when this is made.

    Args:
        seconds: Wall time, non-negative.
    """

    seconds: float
    _start: float = field(default_factory=time.perf_counter, init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, "[0, inf]", AT_LEAST_ZERO)

    def __call__(self, strategy: Any, batch: Batch, history: History) -> bool:
        """Whether to stop."""
        return time.perf_counter() - self._start >= self.seconds


@dataclass(frozen=True)
class StopAtTarget:
    """Stop when the best point is as good as a target; see `History.best`.

    With constraints the point has to be feasible.

    Args:
        value: The mean of a point's observations to reach: from below, or from above
            where the objective is minimized.

    Raises:
        UnsupportedError: When called, if there are several objectives.
    """

    value: float

    def __post_init__(self) -> None:
        check_number("value", self.value, "[-inf, inf]")

    def __call__(self, strategy: Any, batch: Batch, history: History) -> bool:
        """Whether to stop."""
        record = strategy.record
        if (num := len(record.outcomes.objectives)) > 1:
            raise UnsupportedError(
                f"StopAtTarget is of one objective, and the strategy has {num}; take "
                "StopAtHypervolume."
            )
        violation, value = Preference.of(record).attained(record.means()[1])
        sign = -1.0 if history.minimize else 1.0
        return violation <= 0 and value >= sign * self.value


@dataclass(frozen=True)
class StopAtHypervolume:
    """Stop when the feasible front dominates a volume; see `History.hypervolume`.

    Args:
        value: The hypervolume to reach, non-negative.
        reference: What counts for nothing, a number for each objective in the user's
            signs and units; None for `History.reference_point`.

    Raises:
        InputDataError: When called, if `reference` has not a number for each objective.
    """

    value: float
    reference: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_number("value", self.value, "[0, inf]", AT_LEAST_ZERO)
        if self.reference is not None:
            need = "need a finite number for each objective, such as [0.0, 3.0]."
            numbers = as_numbers("reference", self.reference, need)
            if numbers.dim() != 1 or not bool(numbers.isfinite().all()):
                raise InputDataError(
                    f"Got reference={short_repr(self.reference)}; {need}"
                )

    def __call__(self, strategy: Any, batch: Batch, history: History) -> bool:
        """Whether to stop."""
        return history.hypervolume(self.reference) >= self.value
