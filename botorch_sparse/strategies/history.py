"""What a strategy proposes, and the record of what came of it."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.posteriors import RepeatedRows
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.frames import points_frame, with_columns
from botorch_sparse.strategies.trials import Trial

if TYPE_CHECKING:
    from pandas import DataFrame

# From `k x d` points to means, and more, in the user's units.
Predict: TypeAlias = Callable[[Tensor], tuple[Tensor, ...] | None]


@dataclass(frozen=True, eq=False)
class Batch:
    """Points to evaluate.

    Attributes:
        X: `b x d` points.
        indices: `b` rows of the candidate table; None on a continuous domain.
        number: Which `ask` proposed it; -1 where several did.
        ids: `b` ids of the trials that the points are, of type long; None for points
            that were put together by hand.
        table: The table that the rows are of; None on a continuous domain.
        note: Why there is no point; "" where there are some.
    """

    X: Tensor
    indices: Tensor | None = None
    number: int = -1
    ids: Tensor | None = None
    table: CandidateTable | None = field(default=None, repr=False)
    note: str = ""

    def __len__(self) -> int:
        return self.X.shape[0]

    def to_frame(self) -> "DataFrame":
        """The points in the columns of the candidates, and their trials.

        On a continuous domain the columns are `x0`, `x1`, ... Needs pandas.

        Returns:
            `b` rows, indexed by the candidates' keys where there are some.
        """
        frame = points_frame(self.X, self.indices, self.table)
        if self.ids is None:
            return frame
        return with_columns(frame, {"trial": self.ids.tolist()})

    def unique(self) -> tuple[Tensor, Tensor]:
        """Its different points, for experiments that are repeated in one go.

        Returns:
            `b_u x d` points in the order of their first appearance, and `b_u` numbers
            of evaluations.
        """
        rows = RepeatedRows.find(self.X)
        return self.X[rows.first], rows.inverse.bincount(minlength=len(rows.first))


@dataclass(frozen=True, eq=False)
class Best:
    """The best point that was evaluated.

    Attributes:
        X: `d` coordinates.
        row: Its row of the candidate table; None for a point that is not in one.
        key: The row's key; None where rows have no keys.
        value: The mean of its observations, in the user's units.
        mean: The model's mean there, in the user's units; None where there is no model.
        table: The table that the row is of; None on a continuous domain.
    """

    X: Tensor
    row: int | None
    key: Hashable | None
    value: float
    mean: float | None
    table: CandidateTable | None = field(default=None, repr=False)

    def to_frame(self) -> "DataFrame":
        """The point in the columns of the candidates, with `value` and `mean`.

        On a continuous domain the columns are `x0`, `x1`, ... A name that the
        candidates have too gets an underscore. Needs pandas.

        Returns:
            One row, indexed by the candidate's key where there is one.
        """
        row = torch.tensor([-1 if self.row is None else self.row])
        frame = points_frame(self.X.unsqueeze(0), row, self.table)
        mean = float("nan") if self.mean is None else self.mean
        return with_columns(frame, {"value": [self.value], "mean": [mean]})


@dataclass
class BatchRecord:
    """One batch, as it was chosen.

    Attributes:
        size: Points in the batch.
        num_inducing: Inducing points `m` in use while it was chosen (unique points for
            an exact posterior).
        beta: BoTorch's beta, the square of what multiplies the standard deviation; NaN
            for strategies that use none.
        max_variance: Largest posterior variance of a candidate when the batch starts;
            NaN likewise, and on continuous domains.
        ask_seconds: Wall time of `ask`.
        tell_seconds: Wall time of all `tell` that brought feedback for this batch.
    """

    size: int
    num_inducing: int = 0
    beta: float = float("nan")
    max_variance: float = float("nan")
    ask_seconds: float = 0.0
    tell_seconds: float = 0.0


class History:
    """All evaluations in the order of their feedback, and all batches.

    Attributes:
        batches: One `BatchRecord` for each `ask`.
        point_list: `point` as a list.
        values: What is maximized, in full precision: the observations, or minus them.
        minimize: Whether small observations are good.

    Args:
        candidates: `A x d` table; on a continuous domain it has no rows.
        table: The table with the names of its rows and columns.
        minimize: Whether small observations are good.
        predict: What the model says, for `best`.
    """

    def __init__(
        self,
        candidates: Tensor,
        *,
        table: CandidateTable | None = None,
        minimize: bool = False,
        predict: Predict | None = None,
    ) -> None:
        self._candidates = candidates
        self._table = table
        self._predict = predict
        self.minimize = minimize
        self._extra = candidates[:0]  # points beside the table, with room for more
        self._extra_number: dict[bytes, int] = {}
        self.point_list: list[int] = []
        self.values: list[float] = []
        self._batch: list[int] = []
        self._trial: list[int] = []
        self.batches: list[BatchRecord] = []

    def __len__(self) -> int:
        return len(self.values)

    @property
    def point(self) -> Tensor:
        """`n` point numbers: rows of the candidates, then of points beside them."""
        return torch.tensor(self.point_list, dtype=torch.long)

    @property
    def indices(self) -> Tensor:
        """`n` rows of the candidate table, -1 for points that are not in it."""
        point = self.point
        return torch.where(point < len(self._candidates), point, -1)

    @property
    def X(self) -> Tensor:
        """`n x d` points evaluated, repeats included."""
        return self.points(self.point)

    @property
    def Y(self) -> Tensor:
        """`n` observations, on the candidates' device and in their dtype."""
        values = torch.tensor(self.values, dtype=torch.float64)
        return (-values if self.minimize else values).to(self._candidates)

    @property
    def batch_number(self) -> Tensor:
        """`n` numbers of the batches that proposed the points, -1 for none."""
        return torch.tensor(self._batch, dtype=torch.long)

    @property
    def trial(self) -> Tensor:
        """`n` ids of the trials that were told, -1 for points nobody waited for."""
        return torch.tensor(self._trial, dtype=torch.long)

    @property
    def num_inducing(self) -> Tensor:
        """Inducing points of each batch."""
        return torch.tensor([b.num_inducing for b in self.batches], dtype=torch.long)

    @property
    def seconds(self) -> float:
        """Wall time spent in `ask` and `tell`."""
        return sum(b.ask_seconds + b.tell_seconds for b in self.batches)

    @property
    def num_unique(self) -> int:
        """Number of different points evaluated."""
        return len(set(self.point_list))

    @property
    def num_switches(self) -> int:
        """How often an evaluation was of another point than the one before."""
        pairs = zip(self.point_list[1:], self.point_list, strict=False)
        return sum(now != before for now, before in pairs)

    def best(self) -> Best:
        """The point whose observations are best in the mean. O(n).

        A point that was evaluated once counts with that value; among equal ones the
        first. Under noise the model's mean is the better guide: see `Best.mean`.

        Raises:
            InputDataError: If there is no feedback yet.
        """
        if len(self) == 0:
            raise InputDataError("There is no feedback yet, and no best point.")
        observed: dict[int, list[float]] = {}
        for point, value in zip(self.point_list, self.values, strict=True):
            observed.setdefault(point, []).append(value)
        means = {point: sum(seen) / len(seen) for point, seen in observed.items()}
        point = max(means, key=means.__getitem__)
        X = self.points(torch.tensor([point]))
        predicted = self._prediction(X)
        row = point if point < len(self._candidates) else None
        keys = None if self._table is None else self._table.keys
        return Best(
            X=X[0],
            row=row,
            key=None if row is None or keys is None else keys[row],
            value=-means[point] if self.minimize else means[point],
            mean=None if predicted is None else float(predicted[0]),
            table=self._table,
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
        rows = None if self._table is None else self.indices
        frame = points_frame(self.X, rows, self._table)
        values = [-value for value in self.values] if self.minimize else self.values
        told: dict[str, list[Any]] = {"trial": self._trial, "batch": self._batch}
        told["value"] = values
        return with_columns(frame, told)

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self._candidates.device

    def points(self, number: Tensor, there: Tensor | None = None) -> Tensor:
        """Coordinates of point numbers, `k x d`.

        Args:
            number: `k` numbers, on the host.
            there: The same where the points are, if they are there already.
        """
        X, beside = self._candidates, number.cpu() >= len(self._candidates)
        there = number.to(X.device) if there is None else there
        if not beside.any():
            return X[there]
        extra = self._extra[(there - len(X)).clamp_min(0)]
        if beside.all():
            return extra
        rows = X[there.clamp_max(len(X) - 1)]
        return torch.where((there >= len(X)).unsqueeze(-1), extra, rows)

    def append(self, trials: Sequence[Trial], Y: Sequence[float]) -> None:
        """Add evaluations.

        Args:
            trials: What was evaluated, `n` of them.
            Y: `n` observations.
        """
        self.point_list += [trial.point for trial in trials]
        self.values += [-y for y in Y] if self.minimize else Y
        self._batch += [trial.batch for trial in trials]
        self._trial += [trial.id for trial in trials]

    def told_since(self, start: int) -> list[Trial]:
        """The trials among the evaluations from a place on, in the order of feedback.

        Those of points that nobody waited for are left out.
        """
        told = zip(
            self._trial[start:],
            self.point_list[start:],
            self._batch[start:],
            strict=True,
        )
        return [Trial(*which) for which in told if which[0] >= 0]

    def last_batch(self) -> Batch | None:
        """What was told of the newest batch that something was told of, or None."""
        number = max(self._batch, default=-1)
        if number < 0:
            return None
        places = [i for i, batch in enumerate(self._batch) if batch == number]
        point = self.point[places]
        rows = None if self._table is None else self.indices[places]
        return Batch(self.points(point), rows, number, self.trial[places], self._table)

    def was_told(self, trial: int) -> bool:
        """Whether a trial has been told. O(n)."""
        return trial in self._trial

    def number_of(self, x: Tensor) -> int | None:
        """The number of a point that is not a candidate, if it has one."""
        return self._extra_number.get(row_bytes(x))

    def add_point(self, x: Tensor) -> int:
        """The number of a point that is not a candidate; equal ones share it."""
        used = len(self._extra_number)
        number = len(self._candidates) + used
        known = self._extra_number.setdefault(row_bytes(x), number)
        if known == number:
            if used == len(self._extra):
                room = self._extra.new_empty(max(16, used), x.shape[-1])
                self._extra = torch.cat([self._extra, room])
            self._extra[used] = x.detach()
        return known

    def truncate(self, num_evaluations: int, num_extra: int) -> None:
        """Forget what came after; undoes a `tell` that failed."""
        for x in self._extra[num_extra : self.num_extra]:
            del self._extra_number[row_bytes(x)]
        for column in (self.point_list, self.values, self._batch, self._trial):
            del column[num_evaluations:]

    @property
    def num_extra(self) -> int:
        """Number of points told or proposed that are not candidates."""
        return len(self._extra_number)

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors and plain Python values."""
        return {
            "point": list(self.point_list),
            "Y": list(self.values),
            "batch": list(self._batch),
            "trial": list(self._trial),
            "extra": self._extra[: self.num_extra].clone(),
            "batches": [asdict(b) for b in self.batches],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the history that `state_dict` came from."""
        self.point_list, self.values = list(state["point"]), list(state["Y"])
        self._batch, self._trial = list(state["batch"]), list(state["trial"])
        self._extra, self._extra_number = self._candidates[:0], {}
        for x in state["extra"]:
            self.add_point(x.to(self._candidates))
        self.batches = [BatchRecord(**b) for b in state["batches"]]


def row_bytes(x: Tensor) -> bytes:
    """A hashable key of a point; equal points, negative zeros too, have equal keys."""
    return (x.detach() + 0.0).cpu().numpy().tobytes()
