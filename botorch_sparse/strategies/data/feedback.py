"""Feedback at the door: what was told, and which points are meant."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.argument_checks import as_array, short_repr
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.columns import short_list
from botorch_sparse.strategies.data.history import Batch
from botorch_sparse.strategies.data.label_alignment import only_counts, paired

if TYPE_CHECKING:
    from pandas import DataFrame

    Points: TypeAlias = "Batch | Tensor | NDArray[Any] | Sequence[Any] | DataFrame"
else:
    Points: TypeAlias = Any


@dataclass(frozen=True)
class Feedback:
    """Sound feedback; the first of `ids`, `rows` and `X` says what it is about.

    The others, where they are there too, must agree with it.

    Attributes:
        values: `b` observations in the user's sign.
        ids: `b` ids of trials.
        rows: `b` rows of the table.
        X: `b x d` points.
        is_partial: Whether NaN among these are cells of a file that can't be read.
    """

    values: list[float]
    ids: list[int] | None = None
    rows: list[int] | None = None
    X: Tensor | None = None
    is_partial: bool = False

    def among(self, is_among: Callable[[int], bool]) -> "Feedback":
        """What is said of some trials, without values."""
        chosen = [i for i, id in enumerate(self.ids or ()) if is_among(id)]
        return replace(
            self,
            values=[],
            ids=None if self.ids is None else [self.ids[i] for i in chosen],
            rows=None if self.rows is None else [self.rows[i] for i in chosen],
            X=None if self.X is None else self.X[chosen],
        )


def read_feedback(
    X: Points, Y: Any, table: CandidateTable | None, dim: int
) -> Feedback:
    """What `Strategy.tell` was called with, if it is sound.

    Args:
        X: See `Strategy.tell`.
        Y: `b` or `b x 1` observations.
        table: The table of candidates; None on a continuous domain.
        dim: The number `d` of features that is expected.

    Raises:
        BotorchTensorDimensionError: If the shapes do not fit.
        InputDataError: If there are NaN or infinite values, unknown keys, a batch with
            other numbers of ids or rows than points, or a Series whose index is not
            that of the points.
    """
    X = list(X) if isinstance(X, Iterator) else X
    is_frame = hasattr(X, "columns") and hasattr(X, "index")
    named = _read_batch(X, table) if isinstance(X, Batch) else None
    if (named is not None or is_frame) and hasattr(Y, "iloc"):
        Y = paired(X, Y, _frame_keys(X, table) if is_frame else None)
    Y = as_tensor(Y)
    Y = Y.reshape(1) if Y.dim() == 0 else Y
    if named is not None and named.X is not None:
        if named.ids is None and named.rows is None:
            return _read_points(named.X, Y, dim)
        values = validate_feedback(named.X, Y, dim, is_known=True)
        return replace(named, values=values)
    if is_frame:
        return _read_frame(X, Y, table, dim)
    if (ids := as_ids(X)) is not None:
        return Feedback(_values(Y, len(ids)), ids=ids)
    return _read_points(as_tensor(X), Y, dim)


def read_trials(
    trials: Batch | Iterable[int], table: CandidateTable | None
) -> Feedback:
    """The ids of trials, and of a batch what else it says; there are no values.

    Args:
        trials: Ids, or a batch.
        table: The table of candidates; None on a continuous domain.

    Raises:
        InputDataError: If they are none, or a batch's parts differ in length.
    """
    if isinstance(trials, Batch) and trials.ids is not None:
        return _read_batch(trials, table)
    return Feedback([], ids_of(trials))


def _read_batch(batch: Batch, table: CandidateTable | None) -> Feedback:
    """What a batch says, which may have been put together by hand."""
    X = as_tensor(batch.X)
    if X.dtype == torch.bool:
        raise InputDataError("Got truth values for points; need their coordinates.")
    X = X if X.is_floating_point() else X.double()
    ids = _of_each("ids", batch.ids, X)
    rows = _of_each("indices", batch.indices, X)
    # Rows of an earlier table have other numbers in this one.
    is_earlier = batch.table is not None and batch.table is not table
    return Feedback([], ids, None if is_earlier and ids is not None else rows, X)


def _of_each(name: str, given: Any, X: Tensor) -> list[int] | None:
    """Ids or rows of a batch; None if there are none."""
    if given is None:
        return None
    numbers = as_ids(given)
    if numbers is None or X.dim() == 0 or len(numbers) != len(X):
        raise InputDataError(
            f"Got a batch with X of shape {tuple(X.shape)} and "
            f"{name}={short_repr(given)}; "
            "need a whole number for each point. Tell points alone as tell(X, Y)."
        )
    return numbers


def _read_frame(X: Any, Y: Tensor, table: CandidateTable | None, dim: int) -> Feedback:
    """Feedback on the rows of a DataFrame: by trial, by key, or by their columns."""
    ids = _trial_column(X, table)
    if table is not None and table.keys is not None:
        keys = _frame_keys(X, table)
        if keys is None and ids is None:
            raise InputDataError(
                f"Got a DataFrame with the columns {short_list(X.columns)} and the "
                "index "
                f"{X.index.names}, which say no keys; the candidates' are named "
                f"{table.key_names}. Read the file with pd.read_csv(path, "
                "index_col=0), or name the column or the index of the keys so."
            )
        if keys is not None:
            rows = table.rows(keys).tolist()
            points = _said_features(X, table)
            return Feedback(_values(Y, len(X)), ids, rows, points, is_partial=True)
    if ids is None:
        return _read_points(_frame_points(X, table, dim), Y, dim)
    points = _said_coordinates(X, dim) if table is None else _said_features(X, table)
    return Feedback(_values(Y, len(X)), ids, X=points, is_partial=True)


def _said_features(X: Any, table: CandidateTable) -> Tensor:
    """`b x d` features of a DataFrame, those that are there; NaN for the others.

    A cell that cannot be encoded says nothing: files turn the category "NA" into
    nothing, and "01" into a number.
    """
    points = np.full((len(X), table.X.shape[-1]), np.nan)
    for spec in table.columns:
        if spec.label in X.columns:
            for rows in _readable(X[spec.label], spec.encode):
                part = np.zeros((len(rows), points.shape[-1]))
                spec.put(spec.encode(X[spec.label].iloc[rows]), part)
                own = slice(spec.start, spec.start + spec.width)
                points[rows, own] = part[:, own]
    return torch.from_numpy(points)


def _said_coordinates(X: Any, dim: int) -> Tensor:
    """The same on a box, for the columns x0 to x{d - 1}."""
    points = np.full((len(X), dim), np.nan)
    for i, name in enumerate(f"x{i}" for i in range(dim)):
        if name in X.columns:
            for rows in _readable(X[name], _floats):
                points[rows, i] = _floats(X[name].iloc[rows])
    return torch.from_numpy(points)


def _floats(values: Any) -> NDArray[np.float64]:
    floats: NDArray[np.float64] = values.to_numpy(dtype=float)
    return floats


def _readable(values: Any, read: Callable[[Any], Any]) -> list[list[int]]:
    """The rows of a Series that can be read: all together, or else one by one."""
    rows = list(range(len(values)))
    for parts in ([rows], [[row] for row in rows]):
        found = []
        for part in parts:
            with suppress(InputDataError, TypeError, ValueError):
                read(values.iloc[part])
                found.append(part)
        if len(found) == len(parts):
            break
    return found


def _frame_keys(X: Any, table: CandidateTable | None) -> list[Hashable] | None:
    """The keys in columns of their names, or else in the index; None for neither."""
    if table is None or table.keys is None:
        return None
    labels = {spec.label for spec in table.columns}
    # An index without a name, once it was in a CSV file.
    names = [f"Unnamed: {i}" if n is None else n for i, n in enumerate(table.key_names)]
    if all(name in X.columns and name not in labels for name in names):
        parts = [X[name].tolist() for name in names]
        return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
    if tuple(X.index.names) != tuple(table.key_names) or only_counts(X.index):
        return None
    keys: list[Hashable] = X.index.tolist()
    return keys


def _trial_column(X: Any, table: CandidateTable | None) -> list[int] | None:
    """The ids that `to_frame` wrote; None where there are none, or all are -1."""
    name, taken = "trial", set[Hashable]()
    if table is not None:
        taken = {spec.label for spec in table.columns} | set(table.key_names)
    while name in taken:
        name += "_"
    if name not in X.columns or len(X) == 0:
        return None
    ids = X[name].tolist()
    if all(id == -1 for id in ids):
        return None
    for id in ids:
        if isinstance(id, bool) or not isinstance(id, int | float) or id != id // 1:
            raise InputDataError(
                f"Got {id!r} in the column {name!r}; need ids of trials, as in "
                "batch.to_frame(). Drop the column to tell rows by key or features."
            )
        if id < 0:
            raise InputDataError(
                f"Got rows with a trial and rows without one (-1) in the column "
                f"{name!r}; tell them in two calls, the latter without the column."
            )
    return [int(id) for id in ids]


def _frame_points(X: Any, table: CandidateTable | None, dim: int) -> Tensor:
    """`b x d` points of a DataFrame."""
    if table is not None:
        return table.encode(X)
    names = [f"x{i}" for i in range(dim)]
    missing = [name for name in names if name not in X.columns]
    if 0 < len(missing) < len(names):
        raise InputDataError(
            f"Got a DataFrame with the columns {list(X.columns)[:9]}, which has no "
            f"{missing[:3]}; need all of x0 to x{dim - 1}, or other names, which are "
            f"read in their order."
        )
    try:
        return as_tensor((X if missing else X[names]).to_numpy(dtype=float))
    except (TypeError, ValueError) as error:
        raise InputDataError(
            f"Got a DataFrame of points that are no numbers ({error}); need numbers."
        ) from error


def _read_points(X: Tensor, Y: Tensor, dim: int) -> Feedback:
    """Feedback on `b x d` points."""
    if X.dtype == torch.bool:
        raise InputDataError("Got truth values for points; need their coordinates.")
    X = X if X.is_floating_point() else X.double()
    return Feedback(validate_feedback(X, Y, dim, is_known=False), X=X)


def as_tensor(values: Any) -> Tensor:
    """Numbers or truth values as a tensor, lists of floats in float64.

    Raises:
        InputDataError: If they are no array of real numbers.
    """
    need = (
        "need a tensor, an array, or a list of numbers or of points as long as each "
        "other; or for points also a batch, ids of trials or a DataFrame."
    )
    return as_array("feedback", values, need, "biuf").detach()


def as_ids(X: Any) -> list[int] | None:
    """Ids of trials, if these are whole numbers in one dimension.

    Raises:
        InputDataError: If they are no array of numbers, or truth values.
    """
    ids = as_tensor(list(X) if isinstance(X, range) else X)
    if ids.dim() > 1 or (ids.numel() > 0 and ids.is_floating_point()):
        return None
    is_one = not isinstance(X, Tensor | np.ndarray | range) and ids.dim() == 1
    if ids.dtype == torch.bool or (is_one and any(type(id) is bool for id in X)):
        raise InputDataError(
            "Got truth values for ids of trials; need the ids themselves: "
            "batch.ids[mask]."
        )
    return [int(id) for id in ids.reshape(-1).tolist()]


def ids_of(trials: Batch | Iterable[int]) -> list[int]:
    """Ids of trials, or of a batch.

    Raises:
        InputDataError: If they are none.
    """
    given = trials.ids if isinstance(trials, Batch) else trials
    if isinstance(given, Set | Iterator):
        given = list(given)
    ids = None if given is None else as_ids(given)
    if ids is None:
        raise InputDataError(
            "Got no ids of trials; need whole numbers such as batch.ids, or a batch "
            "that ask() returned."
        )
    return ids


def _values(Y: Tensor, num: int) -> list[float]:
    """The observations of trials or keys."""
    if Y.shape not in {(num,), (num, 1)}:
        raise BotorchTensorDimensionError(
            f"Got {num} trials and Y of shape {tuple(Y.shape)}; need `b` or `b x 1` "
            "observations."
        )
    return _finite(Y, 0)


def validate_feedback(X: Tensor, Y: Tensor, dim: int, *, is_known: bool) -> list[float]:
    """The values of feedback on the host, if it is sound.

    Args:
        X: `b x d` points.
        Y: `b` or `b x 1` observations.
        dim: The number `d` of features that is expected.
        is_known: Whether the points are trials or rows, which have been looked at.

    Raises:
        BotorchTensorDimensionError: If the shapes do not fit.
        InputDataError: If there are NaN or infinite values.
    """
    rows = X.shape[:1]
    if X.dim() != 2 or X.shape[-1] != dim or Y.shape not in {rows, (*rows, 1)}:
        raise BotorchTensorDimensionError(
            f"Got X of shape {tuple(X.shape)} and Y of shape {tuple(Y.shape)}; "
            f"need `b x {dim}` and `b` or `b x 1`."
        )
    return _finite(Y, 0 if is_known else int((~X.isfinite()).sum()))


def _finite(Y: Tensor, num_bad_X: int) -> list[float]:
    values: list[float] = Y.reshape(-1).double().tolist()
    num_bad_Y = len(values) - sum(map(math.isfinite, values))
    if num_bad_X or num_bad_Y:
        raise InputDataError(
            f"Got {num_bad_Y} values of Y and {num_bad_X} of X that are NaN or "
            "infinite. Tell the others alone, and withdraw(batch) or fail(ids) points "
            "that can't be evaluated."
        )
    return values
