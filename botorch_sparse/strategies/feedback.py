"""Feedback at the door: what was told, and which points are meant."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.history import Batch

if TYPE_CHECKING:
    from pandas import DataFrame

    Points: TypeAlias = "Batch | Tensor | NDArray[Any] | Sequence[Any] | DataFrame"
else:
    Points: TypeAlias = Any


@dataclass(frozen=True)
class Feedback:
    """Sound feedback; one of `ids`, `rows` and `X` says what it is about.

    Attributes:
        values: `b` observations in the user's sign.
        ids: `b` ids of trials.
        rows: `b` rows of the table.
        X: `b x d` points.
    """

    values: list[float]
    ids: list[int] | None = None
    rows: list[int] | None = None
    X: Tensor | None = None


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
        InputDataError: If there are NaN or infinite values, or unknown keys.
    """
    Y = as_tensor(Y)
    Y = Y.reshape(1) if Y.dim() == 0 else Y
    if isinstance(X, Batch):
        is_known = X.ids is not None or X.indices is not None
        values = validate_feedback(X.X, Y, dim, is_known=is_known)
        ids = None if X.ids is None else X.ids.tolist()
        rows = None if X.indices is None else X.indices.tolist()
        return Feedback(values, ids, rows, X.X)
    if hasattr(X, "columns") and hasattr(X, "index"):
        return _read_frame(X, Y, table, dim)
    if (ids := as_ids(X)) is not None:
        return Feedback(_values(Y, len(ids)), ids=ids)
    return _read_points(as_tensor(X), Y, dim)


def _read_frame(X: Any, Y: Tensor, table: CandidateTable | None, dim: int) -> Feedback:
    """Feedback on the rows of a DataFrame: by key, or else by their columns."""
    if table is not None and table.keys is not None:
        rows: list[int] = table.rows(X.index.tolist()).tolist()
        return Feedback(_values(Y, len(rows)), rows=rows)
    if table is not None:
        return _read_points(table.encode(X), Y, dim)
    names = [f"x{i}" for i in range(dim)]
    X = X[names] if set(names) <= set(X.columns) else X
    return _read_points(as_tensor(X.to_numpy(dtype=float)), Y, dim)


def _read_points(X: Tensor, Y: Tensor, dim: int) -> Feedback:
    """Feedback on `b x d` points."""
    X = X if X.is_floating_point() else X.double()
    return Feedback(validate_feedback(X, Y, dim, is_known=False), X=X)


def as_tensor(values: Any) -> Tensor:
    """Numbers as a tensor, lists of floats in float64."""
    if isinstance(values, Tensor):
        return values.detach()
    return torch.from_numpy(np.array(values))


def as_ids(X: Any) -> list[int] | None:
    """Ids of trials, if these are whole numbers in one dimension."""
    ids = as_tensor(list(X) if isinstance(X, range) else X)
    if ids.dim() > 1 or (ids.numel() > 0 and ids.is_floating_point()):
        return None
    return [int(id) for id in ids.reshape(-1)]


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
    num_bad_Y = sum(not math.isfinite(value) for value in values)
    if num_bad_X or num_bad_Y:
        raise InputDataError(
            f"Got {num_bad_Y} values of Y and {num_bad_X} of X that are NaN or "
            "infinite. Tell the others alone, and withdraw(batch) or fail(ids) points "
            "that can't be evaluated."
        )
    return values
