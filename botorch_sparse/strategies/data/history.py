"""The record of a run: all evaluations, and all batches."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.strategies.core.batch import Batch, Best
from botorch_sparse.strategies.core.batch_records import Batches
from botorch_sparse.strategies.core.trials import Trial
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.evaluations import (
    Evaluations,
    FoldedEvaluations,
    FoldedValues,
    Owner,
    RunRecord,
)
from botorch_sparse.strategies.data.frames import points_frame, with_columns

if TYPE_CHECKING:
    from pandas import DataFrame


# From `k x d` points to means, and more, in the user's units.
Predict: TypeAlias = Callable[[Tensor], tuple[Tensor, ...] | None]
# From `k x d` points and their keys, None for none, to rows of a table, -1 for none.
RowsOf: TypeAlias = Callable[[Tensor, Sequence[Hashable | None]], Sequence[int]]


class History:
    """All evaluations in the order of their feedback, and all batches.

    Columns but `X` and `Y` are views, which take O(1) and are not to be written to.
    What it shows is the record of its owner, at each moment that of whole steps.

    Attributes:
        minimize: Whether small observations are good.

    Args:
        domain: Where points are chosen from, if there is no owner; of a table only
            rows that are asked for are looked at.
        minimize: Whether small observations are good.
        predict: What the model says, for `best`.
        owner: Whose record it shows, such as a strategy; a new one by default.
    """

    record_type: ClassVar[type[RunRecord]] = RunRecord

    def __init__(
        self,
        domain: Domain,
        *,
        minimize: bool = False,
        predict: Predict | None = None,
        owner: Owner | None = None,
    ) -> None:
        self._predict = predict
        self.minimize = minimize
        self._owner = owner or SimpleNamespace(record=self.record_type.of(domain))

    def of(self, owner: Owner) -> Self:
        """The same, of another owner's record."""
        other = copy(self)
        other._owner = owner
        return other

    def _still(self) -> Self:
        """What it shows at this moment, for numbers that are to be of one table."""
        return self.of(SimpleNamespace(record=self._record))

    @property
    def _record(self) -> RunRecord:
        return self._owner.record

    @property
    def _domain(self) -> Domain:
        return self._record.domain

    @property
    def _evaluations(self) -> Evaluations:
        return self._record.evaluations

    def __len__(self) -> int:
        return len(self._evaluations)

    @property
    def batches(self) -> Batches:
        """One `BatchRecord` for each `ask`, as a list to be read; see `Batches`."""
        return self._record.batches

    @property
    def _table(self) -> CandidateTable | None:
        """The names of rows and columns, where there are some."""
        return self._domain.table

    @property
    def point(self) -> Tensor:
        """`n` point numbers: rows of the candidates, then of points beside them.

        On the host, as all columns but `X` and `Y`.
        """
        return self._evaluations.point.values

    @property
    def values(self) -> Tensor:
        """`n` values of what is maximized, float64: the observations, or minus them."""
        return self._evaluations.value.values

    @property
    def indices(self) -> Tensor:
        """`n` rows of the candidate table, -1 for points that are not in it."""
        now = self._still()
        return torch.where(now.point < now._domain.num_rows, now.point, -1)

    @property
    def X(self) -> Tensor:
        """`n x d` points evaluated, repeats included."""
        now = self._still()
        return now.points(now.point)

    @property
    def Y(self) -> Tensor:
        """`n` observations, on the candidates' device and in their dtype; a copy."""
        Y = -self.values if self.minimize else self.values
        return Y.to(self.device, self._domain.dtype, copy=not self.minimize)

    @property
    def batch_number(self) -> Tensor:
        """`n` numbers of the batches that proposed the points, -1 for none."""
        return self._evaluations.batch.values

    @property
    def trial(self) -> Tensor:
        """`n` ids of the trials that were told, -1 for points nobody waited for."""
        return self._evaluations.trial.values

    @property
    def num_inducing(self) -> Tensor:
        """Inducing points of each batch."""
        return self.batches.column("num_inducing")

    @property
    def seconds(self) -> float:
        """Wall time spent in `ask` and `tell`."""
        batches = self.batches
        both = batches.column("ask_seconds") + batches.column("tell_seconds")
        return float(both.sum())

    @property
    def num_unique(self) -> int:
        """Number of different points evaluated."""
        return self._evaluations.num_different

    @property
    def num_switches(self) -> int:
        """How often an evaluation was of another point than the one before."""
        return int((self.point[1:] != self.point[:-1]).sum())

    def best(self) -> Best:
        """The point whose observations are best in the mean. O(n_u), different points.

        A point that was evaluated once counts with that value; among equal ones the
        first. Under noise the model's mean is the better guide: see `Best.mean`.

        Raises:
            InputDataError: If there is no feedback yet.
        """
        if len(self) == 0:
            raise InputDataError("There is no feedback yet, and no best point.")
        now = self._still()
        folded = now.folded()
        place = int(folded.Y.numpy().argmax())  # the first of equal ones
        point, value = int(folded.point[place]), float(folded.Y[place])
        X = now.points(folded.point[place : place + 1])
        predicted = self._prediction(X)
        row = point if point < now._domain.num_rows else None
        keys = None if now._table is None else now._table.keys
        return Best(
            X=X[0],
            row=row,
            key=None if row is None or keys is None else keys[row],
            value=-value if self.minimize else value,
            mean=None if predicted is None else float(predicted[0]),
            table=now._table,
        )

    def _prediction(self, X: Tensor) -> tuple[Tensor, ...] | None:
        """What the model says, if there is one."""
        try:
            return None if self._predict is None else self._predict(X)
        except UnsupportedError:  # there is none yet
            return None

    def to_frame(self) -> "DataFrame":
        """All evaluations in the columns of the candidates, with what came of them.

        After the columns of the candidates (`x0`, `x1`, ... on a continuous domain)
        come `trial` and `batch`, -1 for points nobody waited for, and `value`. A name
        that the candidates have too gets an underscore. Needs pandas.

        Returns:
            `n` rows, indexed by the candidates' keys where there are some.
        """
        now = self._still()
        rows = None if now._table is None else now.indices
        frame = points_frame(now.X, rows, now._table)
        values = -now.values if self.minimize else now.values
        told = {"trial": now.trial, "batch": now.batch_number, "value": values}
        return with_columns(frame, {name: told[name].tolist() for name in told})

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self._domain.device

    def points(self, number: Tensor, there: Tensor | None = None) -> Tensor:
        """Coordinates of point numbers, `k x d`.

        Args:
            number: `k` numbers, on the host.
            there: The same where the points are, if they are there already.
        """
        domain, num_rows = self._domain, self._domain.num_rows
        beside = number.cpu() >= num_rows
        there = number.to(domain.device) if there is None else there
        if not beside.any():
            return domain.rows(there)
        extra = self._record.extra.values[(there - num_rows).clamp_min(0)]
        if beside.all():
            return extra
        rows = domain.rows(there.clamp_max(num_rows - 1))
        return torch.where((there >= num_rows).unsqueeze(-1), extra, rows)

    def batch_of(self, trials: Sequence[Trial], note: str = "") -> Batch:
        """Trials as a batch."""
        points = torch.tensor([trial.point for trial in trials], dtype=torch.long)
        ids = torch.tensor([trial.id for trial in trials], dtype=torch.long)
        numbers = {trial.batch for trial in trials}
        number = numbers.pop() if len(numbers) == 1 else -1
        rows = points if self._domain.num_rows else None
        return Batch(self.points(points), rows, number, ids, self._table, note)

    def append(self, trials: Sequence[Trial], Y: Sequence[float]) -> None:
        """Add evaluations.

        Args:
            trials: What was evaluated, `n` of them.
            Y: `n` observations.
        """
        self._evaluations.append(trials, [-y for y in Y] if self.minimize else Y)

    def folded(self, num_evaluations: int | None = None) -> FoldedValues:
        """The first evaluations by point, or all of them, which takes O(n_u)."""
        return self._evaluations.folded(num_evaluations)

    def told_since(self, start: int) -> list[Trial]:
        """The trials among the evaluations from a place on, in the order of feedback.

        Those of points that nobody waited for are left out.
        """
        columns = (self.trial, self.point, self.batch_number)
        told = zip(*(column[start:].tolist() for column in columns), strict=True)
        return [Trial(*which) for which in told if which[0] >= 0]

    def last_batch(self) -> Batch | None:
        """What was told of the newest batch that something was told of, or None."""
        now = self._still()
        number = int(now.batch_number.max()) if len(now) else -1
        if number < 0:
            return None
        places = now.batch_number == number
        point = now.point[places]
        rows = now.indices[places] if now._domain.num_rows else None
        return Batch(now.points(point), rows, number, now.trial[places], now._table)

    def was_told(self, trial: int) -> bool:
        """Whether a trial has been told. O(1)."""
        return self._evaluations.was_told(trial)

    def number_of(self, x: Tensor) -> int | None:
        """The number of a point that is not a candidate, if it has one."""
        return self._record.number_of(x)

    def add_point(self, x: Tensor) -> int:
        """The number of a point that is not a candidate; equal ones share it."""
        return self._record.add_point(x)

    @property
    def num_extra(self) -> int:
        """Number of points told or proposed that are not candidates."""
        return len(self._record.extra)

    def moved(
        self, domain: Domain, rows_of: RowsOf, others: Iterable[int]
    ) -> tuple[RunRecord, dict[int, int]]:
        """The record of the same evaluations with the numbers of another table.

        Points that are not in it come after its rows. O(n).

        Args:
            domain: The table.
            rows_of: From `k x d` points and their keys to rows of it, or -1.
            others: Further points, beside those that were evaluated.

        Returns:
            The record, and new numbers by the old ones.
        """
        different = self._evaluations.different.values.tolist()
        known = list(dict.fromkeys([*different, *others]))
        X = self.points(torch.tensor(known, dtype=torch.long))
        keys = None if self._table is None else self._table.keys
        named = [keys[p] if keys is not None and p < len(keys) else None for p in known]
        record = self.record_type.of(domain)
        number = {
            point: row if row >= 0 else record.add_point(x)
            for point, row, x in zip(known, rows_of(X, named), X, strict=True)
        }
        record.evaluations.extend(
            [number[point] for point in self.point.tolist()],
            self.values.tolist(),
            self.batch_number.tolist(),
            self.trial.tolist(),
        )
        record.batches = self.batches
        return record, number

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors, which are saved at once. O(n)."""
        return {
            "point": self.point.clone(),
            "Y": self.values.clone(),
            "batch": self.batch_number.clone(),
            "trial": self.trial.clone(),
            "extra": self._record.extra.values.clone(),
            "batches": self.batches.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the history that `state_dict` came from."""
        self._owner.record = self._read(state)

    def _read(self, state: dict[str, Any]) -> RunRecord:
        """The record of a state."""
        record = self.record_type.of(self._domain)
        columns = (state[name].tolist() for name in ("point", "Y", "batch", "trial"))
        record.evaluations.extend(*columns)
        for x in state["extra"]:
            record.add_point(x.to(record.extra.values))
        if len(record.extra) < len(state["extra"]):
            raise InputDataError("Points beside the table come twice.")
        record.batches.load_state_dict(state["batches"])
        return record


def evaluations_at(
    history: History, values: FoldedValues, chosen: Tensor | None = None
) -> FoldedEvaluations:
    """Folded values where the points of their history are; one copy to there.

    Args:
        history: The history.
        values: Its values, or the first of them.
        chosen: `m` places among the points, such as those of inducing points.
    """
    point = values.point
    chosen = point[:0] if chosen is None else chosen
    number, Y, counts, there = upload_vectors(
        point, values.Y, values.counts, chosen, device=history.device
    )
    X = history.points(point, number).double()
    return FoldedEvaluations(point, X, Y, counts, number, there)


def upload_vectors(*vectors: Tensor, device: torch.device) -> list[Tensor]:
    """Vectors of the host on a device, in one copy, or as they are if it is the host.

    Integers up to 2^53 come through as they are.
    """
    if device.type == "cpu":
        return list(vectors)
    packed = torch.cat([vector.double() for vector in vectors]).to(device)
    parts = packed.split([len(vector) for vector in vectors])
    return [part.to(v.dtype) for part, v in zip(parts, vectors, strict=True)]
