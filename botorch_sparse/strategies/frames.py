"""Points as pandas DataFrames, in the user's own columns."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from botorch_sparse.strategies.candidates import CandidateTable

if TYPE_CHECKING:
    from pandas import DataFrame


def points_frame(
    X: Tensor, rows: Tensor | None, table: CandidateTable | None
) -> "DataFrame":
    """Points in the columns of a table, or in `x0`, `x1`, ...

    Args:
        X: `k x d` points.
        rows: Their `k` rows of the table, -1 for points beside it; None without one.
        table: The table.

    Raises:
        ImportError: If pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("A DataFrame needs pandas: pip install pandas.") from error
    if table is None or rows is None:
        values = X.detach().cpu().numpy()
        return pd.DataFrame(values, columns=[f"x{i}" for i in range(X.shape[-1])])
    rows = rows.cpu()
    frame = table.frame(rows[rows >= 0])
    return frame if len(frame) == len(X) else _with_others(frame, X, rows, table)


def _with_others(
    known: "DataFrame", X: Tensor, rows: Tensor, table: CandidateTable
) -> "DataFrame":
    """With points beside the table: no key, and no categories."""
    is_known = (rows >= 0).numpy()
    place = np.where(is_known, is_known.cumsum() - 1, -1)
    frame = known.reset_index(drop=True).reindex(place)
    values = X.detach().cpu().numpy()
    for column in table.columns:
        if column.categories is None:
            filled = np.where(is_known, frame[column.label], values[:, column.start])
            frame[column.label] = filled
    if table.keys is None:
        frame.index = rows.numpy()
    else:
        keys = table.keys
        frame.index = [keys[row] if row >= 0 else None for row in rows.tolist()]
    return frame


def with_columns(
    frame: "DataFrame", columns: Mapping[str, Sequence[Any]]
) -> "DataFrame":
    """With more columns at the end; a name that is taken gets an underscore."""
    for name, values in columns.items():
        while name in frame.columns:
            name += "_"
        frame[name] = values
    return frame
