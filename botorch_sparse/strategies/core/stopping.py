"""When a run ends early: callbacks of `Strategy.run`."""

import time
from dataclasses import dataclass, field
from typing import Any

from botorch_sparse.argument_checks import check_number, check_whole
from botorch_sparse.strategies.data.history import Batch, History

AT_LEAST_ZERO = "need a number of at least 0.0."


@dataclass(frozen=True)
class StopOnConfidenceGap:
    """Stop when no candidate can be better by more than a tolerance.

    That is, once `Strategy.confidence_gap` is at most the tolerance.

    Args:
        tolerance: Largest simple regret accepted, in units of Y, non-negative.

    Raises:
        UnsupportedError: When called, if the strategy has no confidence bounds.
    """

    tolerance: float

    def __post_init__(self) -> None:
        check_number("tolerance", self.tolerance, "[0, inf]", AT_LEAST_ZERO)

    def __call__(self, strategy: Any, batch: Batch, history: History) -> bool:
        """Whether to stop."""
        return bool(strategy.confidence_gap() <= self.tolerance)


@dataclass(frozen=True)
class StopOnNoImprovement:
    """Stop when the last evaluations found nothing better than those before them.

    Observations are compared as they are: under noise a lucky one stands for long, so
    give many evaluations.

    Args:
        num_evaluations: How many of the last ones to look at, at least 1.
        min_gain: What counts as better, in units of Y, non-negative.
    """

    num_evaluations: int
    min_gain: float = 0.0

    def __post_init__(self) -> None:
        check_whole("num_evaluations", self.num_evaluations)
        check_number("min_gain", self.min_gain, "[0, inf]", AT_LEAST_ZERO)

    def __call__(self, strategy: Any, batch: Batch, history: History) -> bool:
        """Whether to stop."""
        values = history.values
        if len(values) <= self.num_evaluations:
            return False
        before = values[: -self.num_evaluations].max()
        gain = values[-self.num_evaluations :].max() - before
        return bool(gain <= self.min_gain)


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

    Args:
        value: The mean of a point's observations to reach: from below, or from above
            where the strategy minimizes.
    """

    value: float

    def __post_init__(self) -> None:
        check_number("value", self.value, "[-inf, inf]")

    def __call__(self, strategy: Any, batch: Batch, history: History) -> bool:
        """Whether to stop."""
        if len(history) == 0:
            return False
        sign = -1.0 if history.minimize else 1.0
        return sign * history.best().value >= sign * self.value
