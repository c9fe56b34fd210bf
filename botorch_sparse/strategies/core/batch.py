"""What a strategy proposes, and what is best of all that came of it."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from botorch_sparse.posteriors import RepeatedRows
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.frames import points_frame, with_columns

if TYPE_CHECKING:
    from pandas import DataFrame


# One object, since a NaN equals no other: records without a beta are equal.
NAN = float("nan")


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
        mean: The model's mean there, in the user's units; None where there is no model:
            before anything was learned, and for `RandomSearch` and `GSSBO`. That of
            `SBPE` has seen the last batch alone.
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
            NaN likewise, on continuous domains, and where it was not needed: candidates
            that cannot be chosen are not embedded.
        ask_seconds: Wall time of `ask`.
        tell_seconds: Wall time of all `tell` that brought feedback for this batch.
    """

    size: int
    num_inducing: int = 0
    beta: float = NAN
    max_variance: float = NAN
    ask_seconds: float = 0.0
    tell_seconds: float = 0.0
