"""Trials: the points that were proposed, by the numbers of their proposals."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from botorch.exceptions import InputDataError


class Trial(NamedTuple):
    """One proposal of a point.

    Attributes:
        id: Which proposal of the run it is, from 0; -1 for feedback on a point that
            nobody waited for.
        point: Number of the point.
        batch: Which `ask` proposed it; -1 for none.
        failures: How often its evaluation has failed.
        is_waiting: Whether it failed and is to be asked for once more.
        is_awaited: Whether it is out, and was asked for since the strategy learned.
    """

    id: int
    point: int
    batch: int
    failures: int = 0
    is_waiting: bool = False
    is_awaited: bool = False

    @classmethod
    def of_entry(cls, entry: Sequence[Any]) -> "Trial":
        """The trial whose parts, or first four parts, made an entry."""
        id, point, batch, failures = map(int, entry[:4])
        return cls(id, point, batch, failures, *map(bool, entry[4:]))


class PendingTrials:
    """The trials that are asked for and not told yet.

    Finding, adding and settling one takes O(1), whatever the order.

    Attributes:
        num_proposed: Trials of the whole run, those that are settled included.
        has_asked: Whether some were asked for since the strategy learned.
    """

    def __init__(self) -> None:
        self.num_proposed = 0
        self.has_asked = False
        self._trials: dict[int, Trial] = {}
        self._at: dict[int, dict[int, None]] = {}  # ids by point, the oldest first
        self._waiting: set[int] = set()  # ids to be asked for once more
        self._awaited: set[int] = set()

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        """The trials in the order of their proposal."""
        return iter([self._trials[id] for id in sorted(self._trials)])

    def __contains__(self, id: int) -> bool:
        return id in self._trials

    def __getitem__(self, id: int) -> Trial:
        return self._trials[id]

    def expect(
        self, ids: Sequence[int], was_told: Callable[[int], bool]
    ) -> list[Trial]:
        """Pending trials by their ids.

        Args:
            ids: The ids.
            was_told: Whether a trial that is not pending was told.

        Raises:
            InputDataError: If one is not pending, or comes twice.
        """
        for id in ids:
            if id not in self:
                why = "never proposed"
                if 0 <= id < self.num_proposed:
                    why = "told already" if was_told(id) else "given up"
                raise InputDataError(
                    f"Trial {id} {'is' if why == 'told already' else 'was'} {why}; "
                    "need ids in pending_ids. Feedback on a point that nobody waits "
                    "for is told by its coordinates, or by key in a DataFrame without "
                    "the column of trials."
                )
        if len(set(ids)) < len(ids):
            raise InputDataError("Got the same trial twice in one call.")
        return [self[id] for id in ids]

    def refuse_rows(self, ids: Sequence[int]) -> None:
        """Refuse ids that are the rows of a pending batch, and not its ids.

        O(p) for `p` pending trials.
        """
        batches: dict[int, list[Trial]] = {}
        for trial in self:
            batches.setdefault(trial.batch, []).append(trial)
        out = batches.values()
        is_row = any([trial.point for trial in trials] == ids for trials in out)
        if is_row and not any([trial.id for trial in trials] == ids for trials in out):
            raise InputDataError(
                f"Got {ids[:10]}, which may be ids of trials, but are the rows of a "
                "pending batch. Give its ids, batch.ids, or the batch."
            )

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
        trials = [
            Trial(first + i, point, batch, is_awaited=True)
            for i, point in enumerate(points)
        ]
        self.restore(trials)
        self.num_proposed = first + len(points)
        self.has_asked |= len(points) > 0
        return trials

    def take_back(self, num_proposed: int, has_asked: bool) -> None:
        """Undo all proposals but the first; those have never been seen."""
        self.settle([trial for trial in self if trial.id >= num_proposed])
        self.num_proposed, self.has_asked = num_proposed, has_asked

    def settle(self, trials: Iterable[Trial]) -> None:
        """They are pending no more."""
        settled = {trial.id: trial for trial in trials}
        self._waiting.difference_update(settled)
        self._awaited.difference_update(settled)
        for id in settled.keys() & self._trials.keys():
            point = self._trials.pop(id).point
            ids = self._at[point]
            del ids[id]
            if not ids:
                del self._at[point]

    def restore(self, trials: Iterable[Trial]) -> None:
        """They are pending, whether they were or not; those with id -1 are left out."""
        pending = {trial.id: trial for trial in trials if trial.id >= 0}
        new = [trial for id, trial in pending.items() if id not in self._trials]
        self._trials.update(pending)
        self._waiting.difference_update(pending)
        self._awaited.difference_update(pending)
        self._waiting.update(id for id, t in pending.items() if t.is_waiting)
        self._awaited.update(id for id, t in pending.items() if t.is_awaited)
        for trial in new:
            self._place(trial)

    def _place(self, trial: Trial) -> None:
        """Put a trial among those of its point."""
        ids = self._at.setdefault(trial.point, {})
        is_last = not ids or trial.id > next(reversed(ids))
        ids[trial.id] = None
        if not is_last:
            self._at[trial.point] = dict.fromkeys(sorted(ids))

    def fail(self, trials: Iterable[Trial]) -> None:
        """Count a failure of each, and ask for them once more."""
        self.restore(
            t._replace(failures=t.failures + 1, is_waiting=True, is_awaited=False)
            for t in trials
        )

    def waiting(self, most: int | None = None) -> list[Trial]:
        """The trials to be asked for once more, in the order of their proposal."""
        return [self._trials[id] for id in sorted(self._waiting)[:most]]

    def resend(self, trials: Sequence[Trial]) -> None:
        """They are asked for once more, and wait no longer."""
        self.restore(t._replace(is_waiting=False, is_awaited=True) for t in trials)
        self.has_asked |= len(trials) > 0

    def begin(self) -> None:
        """The strategy has learned: nothing has been asked for since."""
        self.restore(self[id]._replace(is_awaited=False) for id in list(self._awaited))
        self.has_asked = False

    @property
    def are_settled(self) -> bool:
        """Whether none is out of those asked for since the strategy learned.

        Where none was asked for since, whether none is out at all.
        """
        is_one_out = len(self._trials) > len(self._waiting)
        return not self._awaited if self.has_asked else not is_one_out

    def state_dict(self) -> dict[str, Any]:
        """Everything, in plain Python values."""
        return {
            "num_proposed": self.num_proposed,
            "pending": [list(trial) for trial in self],
            "has_asked": self.has_asked,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "PendingTrials":
        """The trials that `state_dict` came from.

        Raises:
            InputDataError: If ids repeat, or were never proposed.
        """
        trials = cls()
        pending = [Trial.of_entry(entry) for entry in state["pending"]]
        ids = {trial.id for trial in pending}
        known = set(range(int(state["num_proposed"])))
        if len(ids) < len(pending) or not ids <= known:
            raise InputDataError("Pending trials repeat, or were never proposed.")
        trials.num_proposed = int(state["num_proposed"])
        trials.has_asked = bool(state["has_asked"])
        trials.restore(pending)
        return trials
