"""Trials: the points that were proposed, by the numbers of their proposals."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, Self

from botorch.exceptions import InputDataError

from botorch_sparse.strategies.core.persistent import PersistentDict


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


class Proposed(NamedTuple):
    """What is pending of one batch: `size` trials, with ids from `start` to `stop`."""

    start: int
    stop: int
    size: int


class PendingTrials:
    """The trials that are asked for and not told yet.

    Finding, adding and settling one takes O(1), whatever the order, and so does `fork`.

    Attributes:
        num_proposed: Trials of the whole run, those that are settled included.
        has_asked: Whether some were asked for since the strategy learned.
    """

    def __init__(self) -> None:
        self.num_proposed = 0
        self.has_asked = False
        self._trials = PersistentDict[Trial]()
        self._at = PersistentDict[tuple[int, ...]]()  # ids by point, ascending
        self._batches = PersistentDict[Proposed]()
        self._waiting = PersistentDict[None]()  # ids to be asked for once more
        self._awaited = PersistentDict[None]()

    def fork(self) -> Self:
        """Trials to change; these stay as they are. O(1)."""
        other = copy(self)
        for name in ("_trials", "_at", "_batches", "_waiting", "_awaited"):
            setattr(other, name, getattr(self, name).fork())
        return other

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

    def refuse_rows(self, ids: list[int]) -> None:
        """Refuse ids that are the rows of a pending batch, and not its ids.

        O(b) for a batch of `b` trials where as many are left of it as there are ids.
        """
        numbers = self._batches_of(ids[0])
        left = [self._ids_of(b) for b in numbers if self._batches[b].size == len(ids)]
        if not any([self[id].point for id in mine] == ids for mine in left):
            return
        batch = self[ids[0]].batch if ids[0] in self else -1
        if batch < 0 or self._ids_of(batch) != ids:
            raise InputDataError(
                f"Got {ids[:10]}, which may be ids of trials, but are the rows of a "
                "pending batch. Give its ids, batch.ids, or the batch."
            )

    def _batches_of(self, point: int) -> Iterable[int]:
        """The batches in which a point is pending, and maybe others."""
        ids = self._at.get(point, ())
        if len(ids) > len(self._batches):
            return self._batches
        return {self._trials[id].batch for id in ids}

    def _ids_of(self, batch: int) -> list[int]:
        """What is pending of a batch, ascending."""
        start, stop, _ = self._batches[batch]
        return [id for id in range(start, stop) if id in self._trials]

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
        start, stop = self.num_proposed, self.num_proposed + len(points)
        ids = range(start, stop)
        trials = [
            Trial(id, point, batch, 0, False, True)
            for id, point in zip(ids, points, strict=True)
        ]
        self._trials.update(zip(ids, trials, strict=True))
        self._awaited.update((id, None) for id in ids)
        new: dict[int, tuple[int, ...]] = {}
        for id, point in zip(ids, points, strict=True):
            new[point] = (*new.get(point, ()), id)
        self._at.update((p, (*self._at.get(p, ()), *own)) for p, own in new.items())
        if trials:
            self._batches[batch] = Proposed(start, stop, len(trials))
            self.has_asked = True
        self.num_proposed = stop
        return trials

    def settle(self, trials: Iterable[Trial]) -> None:
        """They are pending no more."""
        ids = {trial.id for trial in trials if trial.id in self._trials}
        gone = [self._trials[id] for id in ids]
        for known in (self._trials, self._waiting, self._awaited):
            known.discard(ids)
        for point in {trial.point for trial in gone}:
            left = tuple(id for id in self._at[point] if id not in ids)
            self._at[point] = left
            if not left:
                self._at.discard([point])
        for batch, size in Counter(trial.batch for trial in gone).items():
            proposed = self._batches[batch]
            self._batches[batch] = proposed._replace(size=proposed.size - size)
            if size == proposed.size:
                self._batches.discard([batch])

    def _hold(self, trials: Iterable[Trial]) -> None:
        """They are pending, whether they were or not."""
        for trial in trials:
            id = trial.id
            if id not in self._trials:
                self._place(trial)
            self._trials[id] = trial
            _mark(self._waiting, id, trial.is_waiting)
            _mark(self._awaited, id, trial.is_awaited)

    def _place(self, trial: Trial) -> None:
        """Put a trial among those of its point and its batch."""
        id, point, batch = trial.id, trial.point, trial.batch
        ids = self._at.get(point, ())
        is_last = not ids or id > ids[-1]
        self._at[point] = (*ids, id) if is_last else tuple(sorted([*ids, id]))
        start, stop, size = self._batches.get(batch, Proposed(id, id, 0))
        self._batches[batch] = Proposed(min(start, id), max(stop, id + 1), size + 1)

    def fail(self, trials: Iterable[Trial]) -> None:
        """Count a failure of each, and ask for them once more."""
        self._hold(
            t._replace(failures=t.failures + 1, is_waiting=True, is_awaited=False)
            for t in trials
        )

    def waiting(self, most: int | None = None) -> list[Trial]:
        """The trials to be asked for once more, in the order of their proposal."""
        return [self._trials[id] for id in sorted(self._waiting)[:most]]

    def resend(self, trials: Sequence[Trial]) -> None:
        """They are asked for once more, and wait no longer."""
        self._hold(t._replace(is_waiting=False, is_awaited=True) for t in trials)
        self.has_asked |= len(trials) > 0

    def begin(self) -> None:
        """The strategy has learned: nothing has been asked for since."""
        self._hold(self[id]._replace(is_awaited=False) for id in list(self._awaited))
        self.has_asked = False

    @property
    def are_settled(self) -> bool:
        """Whether none is out of those asked for since the strategy learned.

        Where none was asked for since, whether none is out at all.
        """
        is_one_out = len(self._trials) > len(self._waiting)
        return not self._awaited if self.has_asked else not is_one_out

    def moved(self, number: Mapping[int, int]) -> "PendingTrials":
        """The same trials where points have other numbers, by the old ones."""
        other = PendingTrials()
        other.num_proposed, other.has_asked = self.num_proposed, self.has_asked
        other._hold(trial._replace(point=number[trial.point]) for trial in self)
        return other

    def state_dict(self) -> dict[str, Any]:
        """Everything, in plain Python values."""
        return {
            "num_proposed": self.num_proposed,
            "pending": [list(trial) for trial in self],
            "has_asked": self.has_asked,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "PendingTrials":
        """The trials that `state_dict` came from."""
        trials = cls()
        trials.num_proposed = state["num_proposed"]
        trials.has_asked = state["has_asked"]
        trials._hold(Trial(*entry) for entry in state["pending"])
        return trials


def _mark(ids: PersistentDict[None], id: int, is_in: bool) -> None:
    """Put an id into a set, or out of it."""
    if is_in:
        ids[id] = None
    else:
        ids.discard([id])
