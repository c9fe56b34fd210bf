"""How the choice of a batch shows its progress, and how long it may take."""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

# Called with the number of points chosen so far; whether to choose another one.
GoesOn: TypeAlias = Callable[[int], bool]


def always(num_points: int) -> bool:
    """Go on whatever was chosen."""
    return True


class Pace:
    """Says after each point of a batch whether the next one is chosen.

    Args:
        max_seconds: No further point is begun after so long; None for no end.
        progress: Called with the number of points so far, where there are more.

    Attributes:
        is_over: Whether the time was over.
    """

    def __init__(
        self,
        max_seconds: float | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> None:
        seconds = float("inf") if max_seconds is None else max_seconds
        self._end = time.perf_counter() + seconds
        self._progress = progress
        self._shown = 0
        self.is_over = False

    def __call__(self, num_points: int) -> bool:
        """Whether to choose another point."""
        self.show(num_points)
        self.is_over = time.perf_counter() >= self._end
        return not self.is_over

    def show(self, num_points: int) -> None:
        """Call `progress`, if it has not heard of so many points."""
        if self._progress is not None and num_points > self._shown:
            self._shown = num_points
            self._progress(num_points)
