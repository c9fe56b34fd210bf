"""Observations that carry labels, in the order of the points that they are of."""

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

from botorch.exceptions import InputDataError

from botorch_sparse.strategies.data.columns import short_list
from botorch_sparse.strategies.data.history import Batch

Labels: TypeAlias = Sequence[Hashable]


def paired_with_ids(batch: Batch, Y: Any) -> Any:
    """Observations in the order of trials that were named by their ids alone.

    As `paired` with their batch; labels may be the ids themselves, too. Others say
    nothing about trials, and are paired by position.

    Raises:
        InputDataError: If the labels mean more than one order.
    """
    known: list[Labels] = [batch.keys or []]
    if not only_counts(Y.index):
        known += [_rows(batch), [] if batch.ids is None else batch.ids.tolist()]
    if not any(_order(Y.index.tolist(), labels) for labels in known):
        return Y.to_numpy()
    return _ordered(Y, known)


def paired(X: Any, Y: Any, keys: Labels | None) -> Any:
    """Observations in the order of a batch or a DataFrame, whatever theirs is.

    A pandas Series has labels, and is paired by them: with the index of the DataFrame
    or of `batch.to_frame()`, or with keys. One that only counts from 0 is paired by
    position, as an array is. O(b).

    Args:
        X: The batch, or the DataFrame.
        Y: `b` or `b x 1` observations.
        keys: The keys of the DataFrame's rows, if it says them.

    Raises:
        InputDataError: If the labels are others, or repeat in another order, or mean
            more than one order.
    """
    if not hasattr(Y, "iloc") or len(Y) != len(X):
        return Y
    known: list[Labels]
    if isinstance(X, Batch):
        is_same = only_counts(Y.index) and X.keys is None
        known = [X.keys, _rows(X)] if X.keys else [_rows(X)]
    else:
        is_same, known = X.index.equals(Y.index), [X.index.tolist(), keys or []]
    return Y if is_same else _ordered(Y, known)


def _ordered(Y: Any, known: Sequence[Labels]) -> Any:
    """Observations in the one order that their labels mean."""
    given = Y.index.tolist()
    orders = {order for labels in known if (order := _order(given, labels)) is not None}
    if only_counts(Y.index):
        orders.add(tuple(range(len(Y))))
    if len(orders) != 1:
        raise InputDataError(
            f"Got Y with the index {short_list(given)} for points with the index "
            f"{short_list(known[0] or known[-1])}; need the same labels, once each, "
            "that say "
            "which value is of which point. To pair them by position give "
            "Y.to_numpy()."
        )
    return Y.iloc[list(orders.pop())]


def _rows(batch: Batch) -> list[int]:
    """The index of `to_frame` where there are no keys."""
    if batch.indices is None:
        return list(range(len(batch)))
    rows: list[int] = batch.indices.tolist()
    return rows


def _order(given: Labels, wanted: Labels) -> tuple[int, ...] | None:
    """Where each wanted label is; None unless they are the same, once each."""
    if given == wanted:
        return tuple(range(len(given)))
    place = {label: i for i, label in enumerate(given)}
    if len(place) < len(given) or place.keys() != set(wanted):
        return None
    return tuple(place[label] for label in wanted)


def only_counts(index: Any) -> bool:
    """Whether an index is what pandas makes where there is none."""
    is_range = type(index).__name__ == "RangeIndex" and index.name is None
    return is_range and (index.start, index.step) == (0, 1)
