"""What a run has found, for its users: batches, the best point, the history."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.argument_checks import as_numbers, short_list, short_repr
from botorch_sparse.posteriors import RepeatedRows
from botorch_sparse.strategies.core.trials import Trial
from botorch_sparse.strategies.data.candidate_table import (
    CandidateTable,
    points_frame,
    with_columns,
)
from botorch_sparse.strategies.data.outcomes import Outcomes
from botorch_sparse.strategies.data.preference import (
    Preference,
    dominated_hypervolume,
    feasible_front,
    hypervolumes,
    reference_point,
)
from botorch_sparse.strategies.data.run_record import Batches, RunRecord

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Batch", "Best", "History", "Pareto", "batch_of"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Points to evaluate.

    Attributes:
        X: `b x d` points.
        indices: `b` rows of the candidate table, counted from 0 in its order whatever
            its index says; None on a continuous domain.
        number: Which `ask` proposed it; -1 where several did.
        ids: `b` ids of the trials that the points are, of type long; None for points
            that were put together by hand.
        table: The table that the rows are of; None on a continuous domain.
        note: Why there is no point, or why there are no more of them; "" otherwise.
    """

    X: Tensor
    indices: Tensor | None = None
    number: int = -1
    ids: Tensor | None = None
    table: CandidateTable | None = field(default=None, repr=False)
    note: str = ""

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def keys(self) -> list[Hashable] | None:
        """The `b` keys of its rows: `df.loc[batch.keys]` are the rows of a DataFrame.

        None where rows have no keys; among keys, None for points beside the table.
        `to_frame` has them as its index.
        """
        if self.table is None or self.table.keys is None or self.indices is None:
            return None
        keys = self.table.keys
        return [None if row < 0 else keys[row] for row in self.indices.tolist()]

    def to_frame(self) -> "DataFrame":
        """The points in the columns of the candidates, and their trials.

        On a continuous domain the columns are `x0`, `x1`, ... Needs pandas.

        Returns:
            `b` rows, indexed by the candidates' keys where there are some.
        """
        frame = points_frame(self.X, self.indices, self.table)
        if self.ids is None:
            return frame
        return with_columns(frame, [("trial", self.ids.tolist())])

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
        value: The mean of its observations, in the user's units; of the objective,
            where there are constraints.
        mean: The model's mean there, in the user's units; None where there is no model:
            before anything was learned, and for `RandomSearch` and `GSSBO`. The
            mean of `SBPE` has seen the last batch alone, that of `TrustRegionBBKB` the
            present runs: after a region has begun anew it says nothing of a point that
            an earlier one found.
        table: The table that the row is of; None on a continuous domain.
        is_feasible: Whether it keeps to all constraints; where it does not, no point
            that was evaluated does, and this one violates them least.
    """

    X: Tensor
    row: int | None
    key: Hashable | None
    value: float
    mean: float | None
    table: CandidateTable | None = field(default=None, repr=False)
    is_feasible: bool = True

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
        return with_columns(frame, [("value", [self.value]), ("mean", [mean])])


@dataclass(frozen=True, eq=False)
class Pareto:
    """The points that are feasible, and that no other feasible point dominates.

    Attributes:
        X: `f x d` points, in the order of their first evaluation.
        indices: `f` rows of the candidate table, -1 for points beside it; None on a
            continuous domain.
        values: `f x k` means of their observations, in the user's signs and units.
        means: `f x k` means of the model; None where there is none.
        names: The `k` names of the outcomes.
        table: The table that the rows are of.
    """

    X: Tensor
    indices: Tensor | None
    values: Tensor
    means: Tensor | None
    names: tuple[Hashable, ...]
    table: CandidateTable | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.X)

    def to_frame(self) -> "DataFrame":
        """The points in the columns of the candidates, and their outcomes.

        The model's means are in columns whose names end in `mean`. A name that is
        taken gets an underscore. Needs pandas.

        Returns:
            `f` rows, indexed by the candidates' keys where there are some.
        """
        frame = points_frame(self.X, self.indices, self.table)
        names = [str(name) for name in self.names]
        frame = with_columns(frame, zip(names, self.values.mT.tolist(), strict=True))
        if self.means is None:
            return frame
        means = [f"{name}_mean" for name in names]
        return with_columns(frame, zip(means, self.means.mT.tolist(), strict=True))


def batch_of(record: RunRecord, trials: Sequence[Trial], note: str = "") -> Batch:
    """Trials as a batch."""
    points = torch.tensor([trial.point for trial in trials], dtype=torch.long)
    ids = torch.tensor([trial.id for trial in trials], dtype=torch.long)
    numbers = {trial.batch for trial in trials}
    number = numbers.pop() if len(numbers) == 1 else -1
    rows = points if record.domain.num_rows else None
    return Batch(record.points(points), rows, number, ids, record.domain.table, note)


class History:
    """All evaluations in the order of their feedback, and all batches; to be read.

    It shows its owner's record, at each moment after a whole step. Columns but `X` and
    `Y` are views, which take O(1) and are not to be written to.

    Args:
        owner: The strategy whose record it shows.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    @property
    def _record(self) -> RunRecord:
        record: RunRecord = self._owner.record
        return record

    @property
    def outcomes(self) -> Outcomes:
        """What is measured, and what is wanted of it."""
        return self._record.outcomes

    @property
    def minimize(self) -> bool:
        """Whether small observations are good, of the first objective."""
        outcomes = self._record.outcomes
        return outcomes.minimize[outcomes.objectives[0]]

    def __len__(self) -> int:
        return self._record.num_evaluations

    @property
    def batches(self) -> Batches:
        """One `BatchRecord` for each `ask`, as a list to be read; see `Batches`."""
        return self._record.batches

    @property
    def rounds(self) -> list[Any]:
        """What each batch of `SBPE` that has ended came to: a `Round`."""
        return list(self._record.rounds)

    @property
    def point(self) -> Tensor:
        """`n` point numbers: rows of the candidates, then of points beside them.

        On the host, as all columns but `X` and `Y`.
        """
        return _shown(self._record, "point")

    @property
    def values(self) -> Tensor:
        """`n` values of what is maximized, float64: the observations, or minus them.

        `n x k` of several outcomes.
        """
        Y = self._record.merged()[1]
        return Y[:, 0] if Y.shape[-1] == 1 else Y

    @property
    def indices(self) -> Tensor:
        """`n` rows of the candidate table, -1 for points that are not in it."""
        record = self._record
        return _rows_of(record, _shown(record, "point"))

    @property
    def X(self) -> Tensor:
        """`n x d` points evaluated, repeats included."""
        record = self._record
        return record.points(_shown(record, "point"))

    @property
    def Y(self) -> Tensor:
        """`n` observations, on the candidates' device and in their dtype; a copy.

        `n x k` of several outcomes, NaN where one was not measured.
        """
        record = self._record
        Y = record.outcomes.signed_rows(record.merged()[1])
        Y = Y[:, 0] if Y.shape[-1] == 1 else Y
        return Y.to(record.device, record.domain.dtype, copy=True)

    @property
    def batch_number(self) -> Tensor:
        """`n` numbers of the batches that proposed the points, -1 for none."""
        return _shown(self._record, "batch_number")

    @property
    def trial(self) -> Tensor:
        """`n` ids of the trials that were told, -1 for points nobody waited for."""
        return _shown(self._record, "trial")

    @property
    def num_inducing(self) -> Tensor:
        """Inducing points of each batch; samples in the model for `GSSBO`."""
        return self.batches.column("num_inducing")

    @property
    def subset_size(self) -> Tensor:
        """`num_inducing`, by its name in `GSSBO`."""
        return self.num_inducing

    @property
    def seconds(self) -> float:
        """Wall time spent in `ask` and `tell`."""
        batches = self.batches
        both = batches.column("ask_seconds") + batches.column("tell_seconds")
        return float(both.sum())

    @property
    def selection_seconds(self) -> float:
        """The part of `seconds` that `GSSBO` spent on choosing samples."""
        return float(self.batches.column("selection_seconds").sum())

    @property
    def num_unique(self) -> int:
        """Number of different points evaluated."""
        return self._record.num_different

    @property
    def num_extra(self) -> int:
        """Number of points told or proposed that are not candidates."""
        return len(self._record.extra)

    @property
    def num_switches(self) -> int:
        """How often an evaluation was of another point than the one before."""
        point = self.point
        return int((point[1:] != point[:-1]).sum())

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self._record.device

    def points(self, number: Tensor, there: Tensor | None = None) -> Tensor:
        """Coordinates of point numbers, `k x d`; see `RunRecord.points`."""
        return self._record.points(number, there)

    def was_told(self, trial: int) -> bool:
        """Whether a trial has been told. O(1)."""
        return self._record.was_told(trial)

    def missing(self, name: Hashable) -> Tensor:
        """`u` ids of trials that were told without an outcome, which may come later.

        Args:
            name: The outcome.

        Raises:
            InputDataError: If there is no such outcome.
        """
        record, names = self._record, self._record.outcomes.names or ("value",)
        if name not in names:
            raise InputDataError(f"Got {name!r}; need one of {short_list(names)}.")
        places, Y = record.merged()
        is_missing = Y[:, names.index(name)].isnan() & (record.trial[places] >= 0)
        return record.trial[places][is_missing]

    def means(self) -> tuple[Tensor, Tensor]:
        """The means of each point's observations. O(n_u), different points.

        Returns:
            `n_u` numbers of the points in the order of their first evaluation, and
            `n_u x k` means in the user's signs, NaN where an outcome is missing.
        """
        point, Y = self._record.means()
        return point, self.outcomes.signed_rows(Y)

    def best(self) -> Best:
        """The point whose observations are best in the mean. O(n_u), different points.

        A point that was evaluated once counts with that value; among equal ones the
        first. Under noise the model's mean is the better guide: see `Best.mean`. With
        constraints it is the best feasible point, or where there is none the one that
        violates them least, in standard deviations of what was measured. Points of
        which an outcome is missing are left out.

        Raises:
            InputDataError: If there is no feedback yet.
            UnsupportedError: If there are several objectives: take `pareto`.
        """
        record, outcomes = self._record, self._record.outcomes
        if len(outcomes.objectives) > 1:
            raise UnsupportedError(
                f"There are {len(outcomes.objectives)} objectives, and no point is "
                "best in all of them. Take history.pareto()."
            )
        place, is_feasible = self._best_place()
        point, Y = record.means()
        column, table = outcomes.objectives[0], record.domain.table
        X = record.points(point[place : place + 1])
        means = self._predicted(X)
        row = int(point[place])
        is_row = row < record.domain.num_rows
        keys = None if table is None else table.keys
        return Best(
            X=X[0],
            row=row if is_row else None,
            key=keys[row] if is_row and keys is not None else None,
            value=outcomes.signed(float(Y[place, column]), column),
            mean=None if means is None else float(means[0, column]),
            table=table,
            is_feasible=is_feasible,
        )

    def _best_place(self) -> tuple[int, bool]:
        """The best of the different points for one objective; whether it is feasible.

        The first of equal ones.
        """
        outcomes, (_, Y) = self._record.outcomes, self._record.means()
        complete = (~Y.isnan().any(-1)).nonzero().squeeze(-1)
        if len(complete) == 0:
            raise InputDataError("There is no feedback yet, and no best point.")
        violation = Preference.of(self._record).violation(Y[complete])
        least = violation == violation.min()
        values = Y[complete, outcomes.objectives[0]].where(least, -torch.inf)
        place = int(complete[int(values.numpy().argmax())])
        return place, bool(violation.min() <= 0)

    def _predicted(self, X: Tensor) -> Tensor | None:
        """The model's means of `q x d` points, `q x k` in the user's signs."""
        try:
            predicted = self._owner.predict(X)
        except UnsupportedError:  # there is no model yet
            return None
        if predicted is None:
            return None
        mean: Tensor = predicted[0]
        return mean.reshape(len(X), -1)

    def pareto(self) -> Pareto:
        """The feasible points that are not dominated, by the means of observations.

        Points of which an outcome is missing are left out. With one objective these are
        the best feasible ones. O(n_u^2) at worst.
        """
        record = self._record
        point, Y = record.means()
        places = feasible_front(record.outcomes, Y)
        X, outcomes = record.points(point[places]), record.outcomes
        rows = _rows_of(record, point[places]) if record.domain.num_rows else None
        return Pareto(
            X=X,
            indices=rows,
            values=outcomes.signed_rows(Y[places]),
            means=self._predicted(X) if len(X) else None,
            names=outcomes.names or ("value",),
            table=record.domain.table,
        )

    def reference_point(self) -> Tensor:
        """The objectives' values that count for nothing, `o`, in the user's signs.

        These are the thresholds; what is not given is inferred, see
        `botorch_sparse.strategies.data.preference.reference_point`.
        """
        record = self._record
        outcomes = record.outcomes
        reference = reference_point(outcomes, record.means()[1])
        pairs = zip(outcomes.objectives, reference.tolist(), strict=True)
        signed = [outcomes.signed(value, column) for column, value in pairs]
        return torch.tensor(signed, dtype=torch.double)

    def hypervolume(self, reference: Any = None) -> float:
        """The volume that the feasible front dominates above a reference point.

        Args:
            reference: `o` values of the objectives, in the user's signs and units; None
                for `reference_point`.

        Raises:
            InputDataError: If `reference` is not a finite number for each objective.
        """
        outcomes, r = self.outcomes, self._signed_reference(reference)
        Y = self._record.means()[1]
        F = Y[feasible_front(outcomes, Y)][:, list(outcomes.objectives)]
        return dominated_hypervolume(F, r)

    def hypervolumes(self, reference: Any = None) -> Tensor:
        """`hypervolume` after each of the `n` evaluations, at one reference point.

        Outcomes that came later count from their evaluation on. Cost: a hypervolume
        for each evaluation that changes the front.

        Args:
            reference: See `hypervolume`; None for the present `reference_point`.
        """
        places, Y = self._record.merged()
        point = self._record.point[places].tolist()
        return hypervolumes(self.outcomes, point, Y, self._signed_reference(reference))

    def _signed_reference(self, reference: Any) -> Tensor:
        """`o` values of a reference point, in the sign that is maximized."""
        outcomes, columns = self.outcomes, self.outcomes.objectives
        if reference is None:
            return reference_point(outcomes, self._record.means()[1])
        need = f"need {len(columns)} numbers, one for each objective."
        r = as_numbers("reference", reference, need).double().reshape(-1).cpu()
        if len(r) != len(columns) or not bool(r.isfinite().all()):
            raise InputDataError(f"Got reference={short_repr(reference)}; {need}")
        return r * torch.tensor(
            [-1.0 if outcomes.minimize[c] else 1.0 for c in columns]
        )

    def to_frame(self) -> "DataFrame":
        """All evaluations in the columns of the candidates, with what came of them.

        After the columns of the candidates (`x0`, `x1`, ... on a continuous domain)
        come `trial` and `batch`, -1 for points nobody waited for, and `value`, or a
        column for each outcome. A name that is taken gets an underscore. Needs pandas.

        Returns:
            `n` rows, indexed by the candidates' keys where there are some.
        """
        record = self._record
        places, Y = record.merged()
        point, table = record.point[places], record.domain.table
        rows = None if table is None else _rows_of(record, point)
        frame = points_frame(record.points(point), rows, table)
        told = [
            ("trial", record.trial[places]),
            ("batch", record.batch_number[places]),
            *record.outcomes.columns(Y).items(),
        ]
        return with_columns(frame, [(name, values.tolist()) for name, values in told])

    def last_batch(self) -> Batch | None:
        """What was told of the newest batch that something was told of, or None."""
        record, numbers = self._record, self.batch_number
        number = int(numbers.max()) if len(numbers) else -1
        if number < 0:
            return None
        point, trial = self.point[numbers == number], self.trial[numbers == number]
        rows = _rows_of(record, point) if record.domain.num_rows else None
        return Batch(record.points(point), rows, number, trial, record.domain.table)


def _shown(record: RunRecord, name: str) -> Tensor:
    """A column, without later reports of the same evaluations; a view if none is."""
    column: Tensor = getattr(record, name)
    return column[record.merged()[0]]


def _rows_of(record: RunRecord, point: Tensor) -> Tensor:
    """Rows of the table of point numbers, -1 for points beside it."""
    return torch.where(point < record.domain.num_rows, point, -1)
