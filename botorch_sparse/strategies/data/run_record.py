"""The record of a run, to which its steps append: batches, points and feedback.

What is appended to a fork leaves the record that it came from as it was. Two forks of
one record write into the same room behind their own ends. So only one of them may be
kept, such as a step that failed and the next.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import astuple, dataclass, field, fields
from functools import cached_property
from typing import Any, Protocol, Self, TypeAlias, TypeVar, overload

import numpy as np
import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.strategies.core.trials import Trial
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.outcomes import ONE_OUTCOME, Outcomes

V = TypeVar("V")
# From `k x d` points and their keys, None for none, to rows of a table, -1 for none.
RowsOf: TypeAlias = Callable[[Tensor, Sequence[Hashable | None]], Sequence[int]]
# One object, since a NaN equals no other: records without a beta are equal.
NAN = float("nan")
EMPTY = torch.empty(0)


class AppendOnlyTensor:
    """A tensor that grows at its end, in O(1) for each entry over many.

    Args:
        like: An empty tensor of the type, the place and the width of the entries.
    """

    def __init__(self, like: Tensor) -> None:
        self._room = like
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> Tensor:
        """The entries, a view. O(1)."""
        return self._room[: self._size]

    def extend(self, entries: Sequence[Any] | Tensor) -> None:
        """Put entries at the end."""
        size = self._size + len(entries)
        if size > len(self._room):
            more = max(16, len(self._room), size - len(self._room))
            room = self._room.new_empty(more, *self._room.shape[1:])
            self._room = torch.cat([self._room, room])
        if size > self._size:
            new = torch.as_tensor(entries, dtype=self._room.dtype)
            self._room[self._size : size] = new
        self._size = size

    def fork(self) -> Self:
        """A tensor to append to. O(1)."""
        return copy(self)


class AppendOnlyList(Sequence[V]):
    """A list that grows at its end, and is read as any other.

    Args:
        items: What is in it.
    """

    def __init__(self, items: Iterable[V] = ()) -> None:
        self._room = list(items)
        self._size = len(self._room)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> V: ...
    @overload
    def __getitem__(self, place: slice) -> list[V]: ...
    def __getitem__(self, place: int | slice) -> V | list[V]:
        if isinstance(place, slice):
            return [self._room[i] for i in range(*place.indices(self._size))]
        return self._room[range(self._size)[place]]

    def __iter__(self) -> Iterator[V]:
        return iter(self._room[: self._size])

    def append(self, item: V) -> None:
        """Put something at the end."""
        del self._room[self._size :]  # of a fork that was not kept
        self._room.append(item)
        self._size += 1

    def fork(self) -> Self:
        """A list to append to. O(1)."""
        return copy(self)


@dataclass
class BatchRecord:
    """One batch, as it was chosen.

    Attributes:
        size: Points in the batch.
        num_inducing: Inducing points `m` in use while it was chosen; unique points for
            an exact posterior, samples in the model for `GSSBO`.
        beta: BoTorch's beta, the square of what multiplies the standard deviation; NaN
            for strategies that use none.
        max_variance: Largest posterior variance of a candidate when the batch starts.
            It is NaN for strategies that use none, on continuous domains, and where it
            was not needed: candidates that cannot be chosen are not embedded.
        ask_seconds: Wall time of `ask`.
        tell_seconds: Wall time of all `tell` that brought feedback for this batch.
        selection_seconds: Wall time of choosing the samples of a model, in `GSSBO`.
    """

    size: int
    num_inducing: int = 0
    beta: float = NAN
    max_variance: float = NAN
    ask_seconds: float = 0.0
    tell_seconds: float = 0.0
    selection_seconds: float = 0.0

    def __eq__(self, other: object) -> bool:
        """Field by field, NaN equal to NaN."""
        if not isinstance(other, BatchRecord):
            return NotImplemented
        return np.array_equal(astuple(self), astuple(other), equal_nan=True)

    @property
    def subset_size(self) -> int:
        """`num_inducing`, by its name in `GSSBO`."""
        return self.num_inducing


KINDS: dict[str, Any] = {each.name: each.type for each in fields(BatchRecord)}


class Batches(Sequence[BatchRecord]):
    """One record for each `ask`, made anew when it is read: writing to it is lost."""

    def __init__(self) -> None:
        self._lines = AppendOnlyTensor(torch.empty(0, len(KINDS)).double())

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, place: int) -> BatchRecord: ...
    @overload
    def __getitem__(self, place: slice) -> list[BatchRecord]: ...
    def __getitem__(self, place: int | slice) -> BatchRecord | list[BatchRecord]:
        if isinstance(place, slice):
            return _records(self._lines.values[list(range(len(self))[place])])
        place = range(len(self))[place]
        return _records(self._lines.values[place : place + 1])[0]

    def __iter__(self) -> Iterator[BatchRecord]:
        return iter(_records(self._lines.values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def column(self, name: str) -> Tensor:
        """A field of all `n` of them, of type long or double. O(n)."""
        kind = torch.long if KINDS[name] is int else torch.double
        return self._lines.values[:, list(KINDS).index(name)].to(kind, copy=True)

    def append(self, record: BatchRecord) -> None:
        """Put a record at the end."""
        self._lines.extend([[getattr(record, name) for name in KINDS]])

    def change(self, place: int, **values: float) -> None:
        """Other values of some fields of one of them; forks may see them or not."""
        names, line = list(KINDS), self._lines.values[place]
        for name, value in values.items():
            line[names.index(name)] = value

    def fork(self) -> Self:
        """Batches to append to. O(1)."""
        other = copy(self)
        other._lines = self._lines.fork()
        return other

    def state_dict(self) -> dict[str, Tensor]:
        """All columns, by name."""
        return {name: self.column(name) for name in KINDS}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become what `state_dict` came from, where there is nothing yet."""
        columns = [state[name].double().cpu() for name in KINDS]
        self._lines.extend(torch.stack(columns, dim=-1))


def _records(lines: Tensor) -> list[BatchRecord]:
    """Records of lines of numbers, whole ones below 2^53."""

    def record(line: list[float]) -> BatchRecord:
        pairs = zip(KINDS.values(), line, strict=True)
        values: Any = (kind(x) if x == x else NAN for kind, x in pairs)
        return BatchRecord(*values)

    return [record(line) for line in lines.tolist()]


@dataclass(frozen=True)
class FoldedEvaluations:
    """Different points in the order of their first feedback, for one outcome.

    Attributes:
        point: `n_u` numbers of the points, on the host.
        Y: `n_u` mean observations, in float64 as `counts`.
        counts: `n_u` numbers of observations.
        X: `n_u x d` coordinates, in float64; empty before `evaluations_at`.
        number: `point` where the coordinates are.
        chosen: `m` places among the points, such as the inducing points.
    """

    point: Tensor
    Y: Tensor
    counts: Tensor
    X: Tensor = field(default=EMPTY, repr=False)
    number: Tensor = field(default=EMPTY, repr=False)
    chosen: Tensor = field(default=EMPTY, repr=False)

    @classmethod
    def of(
        cls, point: Tensor, values: Tensor, weights: Tensor | None = None
    ) -> "FoldedEvaluations":
        """Fold `n` observations by the numbers of their points; NaN counts for none.

        With `weights` an observation counts as so many.

        Sums are taken in the order of the feedback, so that a prefix of a history
        always gives the same bits. Cost: O(n log n).
        """
        number, first, inverse = np.unique(
            point.numpy(), return_index=True, return_inverse=True
        )
        is_there = ~values.isnan()
        Y, weight = values.where(is_there, 0.0), is_there.double()
        if weights is not None:
            Y, weight = Y * weights, weight * weights
        total, counts = (
            np.bincount(inverse, weights=each.numpy(), minlength=len(number))
            for each in (Y, weight)
        )
        order = np.argsort(first)
        sums = (torch.from_numpy(each[order]) for each in (number, total, counts))
        return _of_sums(*sums)

    def __len__(self) -> int:
        return len(self.point)

    def at(self, places: Tensor) -> "FoldedEvaluations":
        """Some points, in another order, before `evaluations_at`."""
        return FoldedEvaluations(
            self.point[places], self.Y[places], self.counts[places]
        )

    def places(self, numbers: Sequence[int]) -> Tensor:
        """Where some points stand, by their numbers."""
        place = {number: row for row, number in enumerate(self.point.tolist())}
        return torch.tensor([place[number] for number in numbers], dtype=torch.long)


def _of_sums(point: Tensor, total: Tensor, counts: Tensor) -> FoldedEvaluations:
    """Means of the points that were measured."""
    if not bool((is_measured := counts > 0).all()):
        point, total, counts = (x[is_measured] for x in (point, total, counts))
    return FoldedEvaluations(point, total / counts, counts)


class Evaluations(Protocol):
    """What a posterior of one outcome learns from; see `RunRecord`."""

    def __len__(self) -> int:
        """How many reports there are."""

    @property
    def point(self) -> Tensor:
        """`n` numbers of points."""

    @property
    def values(self) -> Tensor:
        """`n` values of what is maximized."""

    @property
    def device(self) -> torch.device:
        """Where the points are."""

    @property
    def outcome_text(self) -> str:
        """Which outcome it is, for messages; empty where there is only one."""

    @property
    def is_objective(self) -> bool:
        """Whether more of it is better."""

    def folded(self, size: int | None = None) -> FoldedEvaluations:
        """The first reports by point."""

    def count(self, size: int) -> int:
        """How many of the first `size` reports of the record are its own."""

    def evaluation_numbers(self, places: Tensor) -> list[int]:
        """Numbers of evaluations in the history, of `k` places among these reports."""

    def points(self, number: Tensor, there: Tensor | None = None) -> Tensor:
        """Coordinates of point numbers."""

    def add_point(self, x: Tensor) -> int:
        """The number of a point that is not a candidate."""


class RunRecord:
    """Points, feedback and batches of a run; the steps of a strategy append to it.

    A report is the feedback of one evaluation: `k` outcomes, NaN where one was not
    measured. A later report of the same trial brings outcomes that were missing.
    Appending takes O(1) for each report. Forks share three indices: of trials, of
    points that were evaluated, and of points beside the table. An index may know what
    only another fork has: what it says is true where the columns agree.

    Args:
        domain: The table, or the box. Rows of a table have the first numbers.
        outcomes: What is measured.

    Attributes:
        domain: The same.
        outcomes: The same.
        batches: One record for each `ask`.
        extra: Points told or proposed that are not candidates.
        rounds: What the batches of `SBPE` came to; empty for others.
    """

    def __init__(self, domain: Domain, outcomes: Outcomes = ONE_OUTCOME) -> None:
        self.domain, self.outcomes = domain, outcomes
        self.batches = Batches()
        shape, place = (0, domain.dim), domain.device
        extra = torch.empty(shape, dtype=domain.dtype, device=place)
        self.extra = AppendOnlyTensor(extra)
        self.rounds: tuple[Any, ...] = ()
        whole = torch.empty(0, dtype=torch.long)
        self._point = AppendOnlyTensor(whole)
        # Batch, trial, place among the different points, whether it is a later report.
        self._labels = AppendOnlyTensor(whole.reshape(0, 4))
        self._Y = AppendOnlyTensor(torch.empty(0, len(outcomes)).double())
        self._different = AppendOnlyTensor(whole)
        self._reports: dict[int, tuple[int, ...]] = {}  # places, by trial
        self._order: dict[int, int] = {}  # of a point among the different ones
        self._extra_keys = AppendOnlyList[bytes]()
        self._extra_place: dict[bytes, int] = {}
        self._num_later = 0
        nothing = torch.empty(len(outcomes), 0).double()
        self._sums = (0, nothing, nothing)  # of the first reports, by outcome and point

    def fork(self) -> Self:
        """A record to append to; this one stays as it is. O(1)."""
        other = copy(self)
        other.batches, other.extra = self.batches.fork(), self.extra.fork()
        other._point, other._labels = self._point.fork(), self._labels.fork()
        other._Y = self._Y.fork()
        other._different = self._different.fork()
        other._extra_keys = self._extra_keys.fork()
        return other

    def __len__(self) -> int:
        return len(self._Y)

    @property
    def point(self) -> Tensor:
        """`n` numbers of points: rows of the table, then of points beside it.

        On the host, as `trial`, `batch_number`, `Y` and `values`; all are views.
        """
        return self._point.values

    @property
    def batch_number(self) -> Tensor:
        """`n` numbers of the batches that proposed the points, -1 for none."""
        return self._labels.values[:, 0]

    @property
    def trial(self) -> Tensor:
        """`n` ids of the trials, -1 for points that nobody waited for."""
        return self._labels.values[:, 1]

    @property
    def Y(self) -> Tensor:
        """`n x k` values of what is maximized, float64; NaN where not measured."""
        return self._Y.values

    @property
    def values(self) -> Tensor:
        """`n` values of the first outcome."""
        return self._Y.values[:, 0]

    def count(self, size: int) -> int:
        """How many of the first reports are its own: all; see `OneOutcome`."""
        return size

    def evaluation_numbers(self, places: Tensor) -> list[int]:
        """Numbers of evaluations in the history, of `k` reports. O(n)."""
        is_first = ~self.is_later
        first = [
            place if is_first[place] else self._reports_of(int(self.trial[place]))[0]
            for place in places.tolist()
        ]
        return (is_first.cumsum(0) - 1)[first].tolist()

    @property
    def is_later(self) -> Tensor:
        """Which of `n` reports bring outcomes that were missing of their trial."""
        return self._labels.values[:, 3].bool()

    @property
    def num_evaluations(self) -> int:
        """Number of evaluations: reports that are the first of their trial."""
        return len(self) - self._num_later

    def merged(self) -> tuple[Tensor | slice, Tensor]:
        """Evaluations, each with all that was reported of it.

        O(1) where no outcome was told later, else O(n).

        Returns:
            The places of their first reports, and `e x k` values of what is maximized.
        """
        if self._num_later == 0:
            return slice(None), self.Y
        is_later, Y = self.is_later, self.Y.clone()
        for place in is_later.nonzero().squeeze(-1).tolist():
            whole = Y[self._reports_of(int(self.trial[place]))[0]]
            whole.copy_(torch.where(whole.isnan(), Y[place], whole))
        return (~is_later).nonzero().squeeze(-1), Y[~is_later]

    @property
    def different(self) -> Tensor:
        """Numbers of the different points that were evaluated, in their order."""
        return self._different.values

    @property
    def num_different(self) -> int:
        """Number of different points that were evaluated."""
        return len(self._different)

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self.domain.device

    @property
    def outcome_text(self) -> str:
        """Nothing, for messages: see `OneOutcome`."""
        return ""

    @property
    def is_objective(self) -> bool:
        """Whether more of it is better: a lone outcome is an objective."""
        return True

    def was_told(self, trial: int) -> bool:
        """Whether something of a trial was told. O(1)."""
        return len(self._reports_of(trial)) > 0

    def trial_of(self, id: int) -> Trial:
        """A trial that was told. O(1)."""
        place = self._reports_of(id)[0]
        return Trial(id, int(self.point[place]), int(self.batch_number[place]))

    def measured(self, trial: int, size: int | None = None) -> Tensor:
        """Which of the `k` outcomes of a trial were told, in the first `size` reports.

        By default in all of them.
        """
        most = len(self) if size is None else size
        places = [place for place in self._reports_of(trial) if place < most]
        return ~self.Y[places].isnan().all(0)

    def _reports_of(self, trial: int) -> list[int]:
        """The places of what was told of a trial, ascending."""
        known, size = self._reports.get(trial, ()), len(self)
        return [p for p in known if p < size and int(self.trial[p]) == trial]

    def append(self, trials: Sequence[Trial], Y: Tensor) -> None:
        """Add reports: `n x k` observations of trials, in the user's signs."""
        points = [trial.point for trial in trials]
        labels = [trial.batch for trial in trials], [trial.id for trial in trials]
        self._extend(points, *labels, self.outcomes.signed_rows(Y))

    def _extend(
        self,
        points: Sequence[int],
        batches: Sequence[int],
        trials: Sequence[int],
        Y: Tensor,
    ) -> None:
        """Add reports by column."""
        start, orders = len(self), self._ordered(points)
        labels = zip(batches, trials, orders, strict=True)
        self._labels.extend([(*each, 0) for each in labels])
        self._point.extend(points)
        self._Y.extend(Y)
        for place, trial in enumerate(trials, start):
            if trial >= 0:
                before = [p for p in self._reports_of(trial) if p < place]
                self._reports[trial] = (*before, place)
                if before:
                    self._num_later += 1
                    self._labels.values[place, 3] = 1

    def _ordered(self, points: Sequence[int]) -> list[int]:
        """The places of points among the different ones; new ones are added."""
        known, new, index = self._different.values.numpy(), list[int](), self._order
        number, places = len(known), list[int]()
        for point in points:
            at = index.get(point, -1)
            if 0 <= at < number:
                is_there = known.item(at) == point
            else:
                is_there = 0 <= at - number < len(new) and new[at - number] == point
            if not is_there:
                at = index[point] = number + len(new)
                new.append(point)
            places.append(at)
        self._different.extend(new)
        return places

    def means(self, size: int | None = None) -> tuple[Tensor, Tensor]:
        """All points that were evaluated, with the means of their outcomes. O(n_u).

        Args:
            size: Of the first reports alone, in O(n); None for all.

        Returns:
            `n_u` numbers of points in the order of their first feedback, and `n_u x k`
            values of what is maximized, NaN where an outcome was not measured.
        """
        if size is None or size >= len(self):
            _, total, count = self._present_sums()
        else:
            place = self._labels.values[:size, 2]
            num = int(place.max()) + 1 if size else 0
            total = torch.zeros(len(self.outcomes), num, dtype=torch.double)
            count = total.clone()
            _add_reports(total, count, place, self.Y[:size])
        points = self._different.values[: total.shape[-1]]
        return points, (total / count).mT  # 0 / 0 is NaN

    def folded(self, size: int | None = None, outcome: int = 0) -> FoldedEvaluations:
        """The first reports by point; all of them in O(n_u), for `n_u` points.

        Args:
            size: How many reports; None for all.
            outcome: Which of the `k` outcomes.
        """
        if size is not None and size < len(self):
            return FoldedEvaluations.of(self.point[:size], self.Y[:size, outcome])
        _, total, count = self._present_sums()
        return _of_sums(self._different.values, total[outcome], count[outcome])

    def _present_sums(self) -> tuple[int, Tensor, Tensor]:
        """Sums and numbers of all reports by outcome and point. O(n_u + new ones)."""
        start, total, count = self._sums
        if start < len(self):
            more = total.new_zeros(len(total), self.num_different - total.shape[-1])
            total, count = torch.cat([total, more], -1), torch.cat([count, more], -1)
            place = self._labels.values[start:, 2]
            _add_reports(total, count, place, self.Y[start:])
            self._sums = (len(self), total, count)
        return self._sums

    def told_since(self, start: int, *, is_later: bool = False) -> list[Trial]:
        """The trials told first from a place on, in the order of feedback.

        Reports on points that nobody waited for are left out.

        Args:
            start: The place.
            is_later: Those of which outcomes came later from there on, instead.
        """
        chosen = self.is_later[start:] if is_later else self.is_told_first(start)
        places = start + chosen.nonzero().squeeze(-1)
        columns = self.trial, self.point, self.batch_number
        told = zip(*(column[places].tolist() for column in columns), strict=True)
        return [Trial(*each) for each in told]

    def is_told_first(self, start: int) -> Tensor:
        """Which of the reports from a place on are the first ones of a trial."""
        return (self.trial[start:] >= 0) & ~self.is_later[start:]

    def points(self, number: Tensor, there: Tensor | None = None) -> Tensor:
        """Coordinates of point numbers, `k x d`.

        Args:
            number: `k` numbers, on the host.
            there: The same where the points are, if they are there already.
        """
        domain, num_rows = self.domain, self.domain.num_rows
        beside = number.cpu() >= num_rows
        there = number.to(domain.device) if there is None else there
        if not beside.any():
            return domain.rows(there)
        extra = self.extra.values[(there - num_rows).clamp_min(0)]
        if beside.all():
            return extra
        rows = domain.rows(there.clamp_max(num_rows - 1))
        return torch.where((there >= num_rows).unsqueeze(-1), extra, rows)

    def number_of(self, x: Tensor) -> int | None:
        """The number of a point that is not a candidate, if it has one."""
        return self._number_of(*row_keys(x.unsqueeze(0)))

    def _number_of(self, key: bytes) -> int | None:
        place, end = self._extra_place.get(key), len(self._extra_keys)
        if place is None or place >= end or self._extra_keys[place] != key:
            return None
        return self.domain.num_rows + place

    def add_point(self, x: Tensor) -> int:
        """The number of a point that is not a candidate; equal ones share it."""
        return self.add_points(x.unsqueeze(0))[0]

    def add_points(self, X: Tensor) -> list[int]:
        """The numbers of `k x d` points that are no candidates."""
        numbers, new, end = list[int](), dict[bytes, int](), len(self.extra)
        first = list[int]()
        for row, key in enumerate(row_keys(X)):
            if (number := self._number_of(key)) is None:
                if key not in new:
                    new[key] = end + len(new)
                    first.append(row)
                number = self.domain.num_rows + new[key]
            numbers.append(number)
        self.extra.extend(X[first].detach())
        for key, place in new.items():
            self._extra_place[key] = place
            self._extra_keys.append(key)
        return numbers

    def moved(
        self, domain: Domain, rows_of: RowsOf, others: Iterable[int]
    ) -> tuple["RunRecord", dict[int, int]]:
        """The record of the same evaluations with the numbers of another table.

        Points that are not in it come after its rows. O(n).

        Args:
            domain: The table.
            rows_of: From `k x d` points and their keys to rows of it, or -1.
            others: Further points, beside those that were evaluated.

        Returns:
            The record, and new numbers by the old ones.
        """
        known = list(dict.fromkeys([*self._different.values.tolist(), *others]))
        X = self.points(torch.tensor(known, dtype=torch.long))
        keys = None if self.domain.table is None else self.domain.table.keys
        named = [keys[p] if keys is not None and p < len(keys) else None for p in known]
        record = RunRecord(domain, self.outcomes)
        number = {
            point: row if row >= 0 else record.add_point(x)
            for point, row, x in zip(known, rows_of(X, named), X, strict=True)
        }
        points = [number[point] for point in self.point.tolist()]
        record._extend(points, self.batch_number.tolist(), self.trial.tolist(), self.Y)
        record.batches, record.rounds = self.batches, self.rounds
        return record, number

    def state_dict(self) -> dict[str, Any]:
        """Everything but `rounds`, as tensors, which are saved at once. O(n)."""
        return {
            "point": self.point.clone(),
            "Y": self.Y.clone(),
            "batch": self.batch_number.clone(),
            "trial": self.trial.clone(),
            "extra": self.extra.values.clone(),
            "batches": self.batches.state_dict(),
        }

    def of_state(self, state: dict[str, Any]) -> "RunRecord":
        """The record on this one's domain that `state_dict` came from.

        Raises:
            InputDataError: If columns differ in length, or points have no coordinates.
        """
        record = RunRecord(self.domain, self.outcomes)
        lengths = {len(state[name]) for name in ("point", "batch", "trial", "Y")}
        most = self.domain.num_rows + len(state["extra"])
        is_there = (0 <= state["point"]) & (state["point"] < most)
        if len(lengths) > 1 or not is_there.all():
            raise InputDataError("Evaluations have different lengths, or lack points.")
        points, batches, trials = (
            state[name].tolist() for name in ("point", "batch", "trial")
        )
        record._extend(points, batches, trials, state["Y"].cpu())
        record.add_points(state["extra"].to(record.extra.values))
        if len(record.extra) < len(state["extra"]):
            raise InputDataError("Points beside the table come twice.")
        record.batches.load_state_dict(state["batches"])
        return record


@dataclass(frozen=True, eq=False)
class OneOutcome:
    """The reports of one outcome of a record, as if there were no other.

    Attributes:
        record: The record; nothing is appended to it while this is in use.
        column: Which outcome.
    """

    record: RunRecord
    column: int

    @cached_property
    def places(self) -> Tensor | slice:
        """The reports that have it. O(n)."""
        is_there = ~self.record.Y[:, self.column].isnan()
        return slice(None) if bool(is_there.all()) else is_there.nonzero().squeeze(-1)

    def count(self, size: int) -> int:
        """How many of the first reports have it."""
        return int((~self.record.Y[:size, self.column].isnan()).sum())

    def evaluation_numbers(self, places: Tensor) -> list[int]:
        """Numbers of evaluations in the history; see `RunRecord`."""
        reports = torch.arange(len(self.record))[self.places]
        return self.record.evaluation_numbers(reports[places])

    def __len__(self) -> int:
        return len(self.point)

    @cached_property
    def point(self) -> Tensor:
        """`n` numbers of points; see `RunRecord.point`."""
        return self.record.point[self.places]

    @cached_property
    def values(self) -> Tensor:
        """`n` values of what is maximized."""
        return self.record.Y[:, self.column][self.places]

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self.record.device

    @property
    def outcome_text(self) -> str:
        """Which outcome it is, for messages."""
        return f" in the outcome {self.record.outcomes.parts[self.column].name!r}"

    @property
    def is_objective(self) -> bool:
        """Whether more of it is better."""
        return self.column in self.record.outcomes.objectives

    def folded(self, size: int | None = None) -> FoldedEvaluations:
        """Its reports by point; the first `size` of them, or all.

        Points are in the order of their first report, of whatever outcome.
        """
        if size is not None and isinstance(self.places, Tensor):
            size = None if size >= len(self) else int(self.places[size])
        return self.record.folded(size, self.column)

    def points(self, number: Tensor, there: Tensor | None = None) -> Tensor:
        """Coordinates of point numbers; see `RunRecord.points`."""
        return self.record.points(number, there)

    def add_point(self, x: Tensor) -> int:
        """The number of a point; see `RunRecord.add_point`."""
        return self.record.add_point(x)


def each_outcome(record: RunRecord) -> list[Evaluations]:
    """The outcomes of a record one by one; the record itself if there is one."""
    if len(record.outcomes) == 1:
        return [record]
    return [OneOutcome(record, column) for column in range(len(record.outcomes))]


def _add_reports(total: Tensor, count: Tensor, place: Tensor, Y: Tensor) -> None:
    """Add `n x k` values at `n` places to sums and counts, `k x n_u` each."""
    for outcome, values in enumerate(Y.unbind(-1)):
        is_there = ~values.isnan()
        at = place[is_there].numpy()
        np.add.at(total[outcome].numpy(), at, values[is_there].numpy())
        np.add.at(count[outcome].numpy(), at, 1.0)


def evaluations_at(
    record: Evaluations, values: FoldedEvaluations, chosen: Tensor | None = None
) -> FoldedEvaluations:
    """Folded evaluations where the points of their record are; one copy to there."""
    point = values.point
    chosen = point[:0] if chosen is None else chosen
    number, Y, counts, there = upload_vectors(
        point, values.Y, values.counts, chosen, device=record.device
    )
    X = record.points(point, number).double()
    return FoldedEvaluations(point, Y, counts, X, number, there)


def upload_vectors(*vectors: Tensor, device: torch.device) -> list[Tensor]:
    """Vectors of the host on a device, in one copy, or as they are if it is the host.

    Integers up to 2^53 come through as they are.
    """
    if device.type == "cpu":
        return list(vectors)
    packed = torch.cat([vector.double() for vector in vectors]).to(device)
    parts = packed.split([len(vector) for vector in vectors])
    return [part.to(v.dtype) for part, v in zip(parts, vectors, strict=True)]


def row_keys(X: Tensor) -> list[bytes]:
    """Hashable keys of points; equal points, negative zeros too, have equal keys."""
    rows = (X.detach() + 0.0).cpu().contiguous().numpy()
    return [row.tobytes() for row in rows]
