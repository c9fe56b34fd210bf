"""Trials: the points that were proposed, by the numbers of their proposals."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from enum import Enum
from typing import Any, Generic, NamedTuple, Self, TypeVar

from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import short_list

V = TypeVar("V")
# Parts of a dictionary: a fork copies their list, and a change one of them.
NUM_PARTS = 256


class TrialState(Enum):
    """Where a trial that was proposed and not told stands."""

    AWAITED = "awaited"  # out, and asked for since the strategy learned
    PENDING = "pending"  # out, and asked for before
    FAILED = "failed"  # failed, and asked for once more at the next `ask`


class Trial(NamedTuple):
    """One proposal of a point.

    Attributes:
        id: Which proposal of the run it is, from 0; -1 for feedback on a point that
            nobody waited for.
        point: Number of the point.
        batch: Which `ask` proposed it; -1 for none.
        failures: How often its evaluation has failed.
        state: Where it stands, while it is not told.
    """

    id: int
    point: int
    batch: int
    failures: int = 0
    state: TrialState = TrialState.PENDING


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
        self._num_in = dict.fromkeys(TrialState, 0)
        self._trials = PersistentDict[Trial]()
        self._at = PersistentDict[tuple[int, ...]]()  # ids by point, ascending
        # By batch: its first id, the one after its last, and how many are pending.
        self._batches = PersistentDict[tuple[int, int, int]]()

    def fork(self) -> Self:
        """Trials to change; these stay as they are. O(1)."""
        other = copy(self)
        other._num_in = dict(self._num_in)
        other._trials, other._at = self._trials.fork(), self._at.fork()
        other._batches = self._batches.fork()
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
        """Pending trials by their ids."""
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
        left = [self._ids_of(b) for b in numbers if self._batches[b][-1] == len(ids)]
        if not any([self[id].point for id in mine] == ids for mine in left):
            return
        batch = self[ids[0]].batch if ids[0] in self else -1
        if batch < 0 or self._ids_of(batch) != ids:
            raise InputDataError(
                f"Got {short_list(ids)}, which may be ids of trials, but are the rows "
                "of a pending batch. Give its ids, batch.ids, or the batch."
            )

    def _batches_of(self, point: int) -> Iterable[int]:
        """The batches in which a point is pending, and maybe others."""
        ids = self._at.get(point) or ()
        if len(ids) > len(self._batches):
            return self._batches
        return {self._trials[id].batch for id in ids}

    def _ids_of(self, batch: int) -> list[int]:
        """What is pending of a batch, ascending."""
        start, stop, _ = self._batches[batch]
        return [id for id in range(start, stop) if id in self._trials]

    def at(self, point: int) -> Iterator[Trial]:
        """The trials of a point, the oldest first."""
        return (self._trials[id] for id in self._at.get(point) or ())

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
        trials = [
            Trial(id, point, batch, state=TrialState.AWAITED)
            for id, point in enumerate(points, self.num_proposed)
        ]
        self._put(trials)
        self.num_proposed += len(trials)
        self.has_asked |= len(trials) > 0
        return trials

    def _put(self, trials: Iterable[Trial]) -> None:
        """They are pending, in the state that they say, whether they were or not."""
        for trial in trials:
            if (before := self._trials.get(trial.id)) is None:
                self._place(trial)
            else:
                self._num_in[before.state] -= 1
            self._num_in[trial.state] += 1
            self._trials[trial.id] = trial

    def _place(self, trial: Trial) -> None:
        """Put a trial among the others of its point and its batch."""
        id, point, batch = trial.id, trial.point, trial.batch
        ids = self._at.get(point) or ()
        is_last = not ids or id > ids[-1]
        self._at[point] = (*ids, id) if is_last else tuple(sorted([*ids, id]))
        start, stop, size = self._batches.get(batch) or (id, id, 0)
        self._batches[batch] = min(start, id), max(stop, id + 1), size + 1

    def settle(self, trials: Iterable[Trial]) -> None:
        """They are pending no more."""
        ids = {trial.id for trial in trials if trial.id in self._trials}
        gone = [self._trials.pop(id) for id in ids]
        for trial in gone:
            self._num_in[trial.state] -= 1
        for point in {trial.point for trial in gone}:
            left = tuple(id for id in self._at.pop(point) if id not in ids)
            if left:
                self._at[point] = left
        for batch, num in Counter(trial.batch for trial in gone).items():
            start, stop, size = self._batches.pop(batch)
            if num < size:
                self._batches[batch] = start, stop, size - num

    def fail(self, trials: Iterable[Trial]) -> None:
        """Count a failure of each, and ask for them once more."""
        self._put(
            t._replace(failures=t.failures + 1, state=TrialState.FAILED) for t in trials
        )

    def failed(self, most: int | None = None) -> list[Trial]:
        """The trials to be asked for once more, in the order of their proposal."""
        return self._in(TrialState.FAILED)[:most]

    def _in(self, state: TrialState) -> list[Trial]:
        """The trials in a state, in the order of their proposal. O(1) for none."""
        return [t for t in self if t.state is state] if self._num_in[state] else []

    def resend(self, trials: Sequence[Trial]) -> None:
        """They are asked for once more."""
        self._put(trial._replace(state=TrialState.AWAITED) for trial in trials)
        self.has_asked |= len(trials) > 0

    def begin(self) -> None:
        """The strategy has learned: nothing has been asked for since."""
        awaited = self._in(TrialState.AWAITED)
        self._put(trial._replace(state=TrialState.PENDING) for trial in awaited)
        self.has_asked = False

    @property
    def are_settled(self) -> bool:
        """Whether none is out of those asked for since the strategy learned.

        Where none was asked for since, whether none is out at all.
        """
        awaited = self._num_in[TrialState.AWAITED]
        return not awaited and (self.has_asked or not self._num_in[TrialState.PENDING])

    def moved(self, number: Mapping[int, int]) -> "PendingTrials":
        """The same trials where points have other numbers, by the old ones."""
        other = PendingTrials()
        other.num_proposed, other.has_asked = self.num_proposed, self.has_asked
        other._put(trial._replace(point=number[trial.point]) for trial in self)
        return other

    def state_dict(self) -> dict[str, Any]:
        """Everything, in plain Python values."""
        return {
            "num_proposed": self.num_proposed,
            "pending": [[*trial[:-1], trial.state.value] for trial in self],
            "has_asked": self.has_asked,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "PendingTrials":
        """The trials that `state_dict` came from."""
        trials = cls()
        trials.num_proposed = state["num_proposed"]
        trials.has_asked = state["has_asked"]
        trials._put(
            Trial(id, point, batch, failures, TrialState(stands))
            for id, point, batch, failures, stands in state["pending"]
        )
        return trials


class PersistentDict(Generic[V]):
    """Values by whole numbers from 0 on, in parts that forks share until they change.

    A fork takes O(1), and the first change of a part after it O(p / 256) for `p` keys.
    """

    def __init__(self) -> None:
        self._parts: list[dict[int, V]] = [{} for _ in range(NUM_PARTS)]
        self._own = set(range(NUM_PARTS))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        """The keys, from part to part."""
        return iter([key for part in self._parts for key in part])

    def __contains__(self, key: int) -> bool:
        return key in self._parts[key % NUM_PARTS]

    def __getitem__(self, key: int) -> V:
        return self._parts[key % NUM_PARTS][key]

    def get(self, key: int) -> V | None:
        """The value of a key, or None."""
        return self._parts[key % NUM_PARTS].get(key)

    def __setitem__(self, key: int, value: V) -> None:
        part = self._part(key)
        self._size += key not in part
        part[key] = value

    def pop(self, key: int) -> V:
        """Remove a key that is there; its value."""
        self._size -= 1
        return self._part(key).pop(key)

    def _part(self, key: int) -> dict[int, V]:
        """The part of a key, to be changed."""
        place = key % NUM_PARTS
        if place not in self._own:
            self._parts[place] = dict(self._parts[place])
            self._own.add(place)
        return self._parts[place]

    def fork(self) -> Self:
        """A dictionary of its own, and this one as it is."""
        other = copy(self)
        other._parts, other._own = list(self._parts), set()
        self._own = set()
        return other
