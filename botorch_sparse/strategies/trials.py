"""Trials: the points that were proposed, by the numbers of their proposals."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from botorch.exceptions import InputDataError


@dataclass(frozen=True)
class Trial:
    """One proposal of a point.

    Attributes:
        id: Which proposal of the run it is, from 0; -1 for feedback on a point that
            nobody waited for.
        point: Number of the point.
        batch: Which `ask` proposed it; -1 for none.
        failures: How often its evaluation has failed.
    """

    id: int
    point: int
    batch: int
    failures: int = 0


class PendingTrials:
    """The trials that are asked for and not told yet.

    Finding, adding and settling one takes O(1), whatever the order.

    Attributes:
        num_proposed: Trials of the whole run, those that are settled included.
    """

    def __init__(self) -> None:
        self.num_proposed = 0
        self._trials: dict[int, Trial] = {}
        self._at: dict[int, dict[int, None]] = {}  # ids by point, the oldest first
        self._waiting: set[int] = set()  # ids to be asked for once more

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        """The trials in the order of their proposal."""
        return iter([self._trials[id] for id in sorted(self._trials)])

    def __contains__(self, id: int) -> bool:
        return id in self._trials

    def __getitem__(self, id: int) -> Trial:
        return self._trials[id]

    def at(self, point: int) -> Iterator[Trial]:
        """The trials of a point, the oldest first."""
        return (self._trials[id] for id in self._at.get(point, ()))

    def oldest(self, choices: Iterable[Sequence[int]]) -> list[Trial]:
        """Different trials for points, the oldest ones; nothing is settled yet.

        Args:
            choices: For each point its numbers: copies in a table have several.

        Returns:
            A trial for each; one with id -1 where none of the points is pending.
        """
        left: dict[int, deque[Trial]] = {}
        found = []
        for points in choices:
            for point in points:
                if point not in left:
                    left[point] = deque(self.at(point))
            queues = [left[point] for point in points]
            heads = [queue for queue in queues if queue]
            if heads:
                found.append(min(heads, key=lambda queue: queue[0].id).popleft())
            else:
                found.append(Trial(-1, points[0], -1))
        return found

    def propose(self, points: Sequence[int], batch: int) -> list[Trial]:
        """New trials of points."""
        first = self.num_proposed
        trials = [Trial(first + i, point, batch) for i, point in enumerate(points)]
        self.restore(trials)
        self.num_proposed = first + len(points)
        return trials

    def take_back(self, num_proposed: int) -> None:
        """Undo all proposals but the first; those have never been seen."""
        self.settle([trial for trial in self if trial.id >= num_proposed])
        self.num_proposed = num_proposed

    def settle(self, trials: Iterable[Trial]) -> None:
        """They are pending no more."""
        for trial in trials:
            self._trials.pop(trial.id, None)
            self._waiting.discard(trial.id)
            ids = self._at.get(trial.point, {})
            ids.pop(trial.id, None)
            if not ids:
                self._at.pop(trial.point, None)

    def restore(self, trials: Iterable[Trial], waiting: Iterable[int] = ()) -> None:
        """They are pending, whether they were or not.

        Args:
            trials: Those to add, or to set.
            waiting: Ids of those that are to be asked for once more.
        """
        for trial in trials:
            if trial.id < 0:
                continue
            self._trials[trial.id] = trial
            ids = self._at.setdefault(trial.point, {})
            is_last = not ids or trial.id > next(reversed(ids))
            ids[trial.id] = None
            if not is_last:
                self._at[trial.point] = dict.fromkeys(sorted(ids))
        self._waiting |= set(waiting)

    def fail(self, trials: Sequence[Trial]) -> None:
        """Count a failure of each, and ask for them once more."""
        counted = [replace(trial, failures=trial.failures + 1) for trial in trials]
        self.restore(counted, [trial.id for trial in trials])

    def waiting(self, most: int | None = None) -> list[Trial]:
        """The trials to be asked for once more, in the order of their proposal."""
        return [self._trials[id] for id in sorted(self._waiting)[:most]]

    def is_waiting(self, id: int) -> bool:
        """Whether a trial is to be asked for once more."""
        return id in self._waiting

    def resend(self, trials: Iterable[Trial]) -> None:
        """They are asked for once more, and wait no longer."""
        for trial in trials:
            self._waiting.discard(trial.id)

    def state_dict(self) -> dict[str, Any]:
        """Everything, in plain Python values."""
        return {
            "num_proposed": self.num_proposed,
            "pending": [list(astuple(trial)) for trial in self],
            "waiting": sorted(self._waiting),
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "PendingTrials":
        """The trials that `state_dict` came from.

        Raises:
            InputDataError: If ids repeat, or were never proposed.
        """
        trials = cls()
        pending = [Trial(*map(int, entry)) for entry in state["pending"]]
        ids = {trial.id for trial in pending}
        known = set(range(int(state["num_proposed"])))
        if len(ids) < len(pending) or not ids <= known:
            raise InputDataError("Pending trials repeat, or were never proposed.")
        if not set(state["waiting"]) <= ids:
            raise InputDataError("A trial that failed and waits is not pending.")
        trials.num_proposed = int(state["num_proposed"])
        trials.restore(pending, state["waiting"])
        return trials
