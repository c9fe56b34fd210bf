"""Points as pandas DataFrames, in the user's own columns."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.columns import Column

if TYPE_CHECKING:
    from pandas import DataFrame, Series


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
    is_known = bool((rows >= 0).all())
    return table.frame(rows) if is_known else _with_others(X, rows, table)


def _with_others(X: Tensor, rows: Tensor, table: CandidateTable) -> "DataFrame":
    """Points of which some are beside the table: these have no key (None, or -1)."""
    import pandas as pd

    keys = [None if row < 0 else table.keys_of([row])[0] for row in rows.tolist()]
    names = list(table.key_names)
    if table.keys is None:
        index = pd.Index(rows.numpy())
    elif len(names) > 1:
        missing = (None,) * len(names)
        tuples = [missing if key is None else key for key in keys]
        index = pd.MultiIndex.from_tuples(tuples, names=names)
    else:  # of type object: whole numbers stay whole
        index = pd.Index(keys, dtype=object, name=names[0] if names else None)
    values = X.detach().cpu().numpy()
    series = [_series(spec, values).set_axis(index) for spec in table.columns]
    return pd.concat(series, axis=1)


def _series(spec: Column, X: NDArray[Any]) -> "Series":
    """The values of a column, in its type if that holds them.

    A blend of categories is missing.
    """
    import pandas as pd

    values = spec.decode(X)
    if spec.categories is not None:
        part = X[:, spec.start : spec.start + spec.width]
        is_one = (part.max(-1) == 1) & ((part != 0).sum(-1) == 1)
        values[~is_one] = None
        return pd.Series(values, dtype=spec.dtype, name=spec.label)
    plain = pd.Series(values, name=spec.label)
    if spec.dtype is None or getattr(spec.dtype, "kind", "f") == "f":
        return plain.astype(spec.dtype or float)
    if getattr(spec.dtype, "kind", "") == "b":
        is_held = np.isin(values, (0.0, 1.0)).all()
    else:
        info = np.iinfo(getattr(spec.dtype, "numpy_dtype", spec.dtype))
        is_held = (values % 1 == 0) & (values >= info.min) & (values <= info.max)
    return plain.astype(spec.dtype) if np.all(is_held) else plain


def with_columns(
    frame: "DataFrame", columns: Mapping[str, Sequence[Any]]
) -> "DataFrame":
    """With more columns at the end; a name that is taken gets an underscore."""
    for name, values in columns.items():
        while name in frame.columns or name in frame.index.names:
            name += "_"
        frame[name] = values
    return frame
