"""From what the user hands in to trials and their values."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.argument_checks import (
    as_array,
    as_points,
    short_list,
    short_repr,
)
from botorch_sparse.strategies.core.trials import PendingTrials, Trial
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.history import Batch, batch_of
from botorch_sparse.strategies.data.point_finder import PointFinder
from botorch_sparse.strategies.data.run_record import RunRecord

if TYPE_CHECKING:
    from pandas import DataFrame

    Points: TypeAlias = "Batch | Tensor | NDArray[Any] | Sequence[Any] | DataFrame"
else:
    Points: TypeAlias = Any

Labels: TypeAlias = Sequence[Hashable]
# Ids of `b` trials, `b` rows of the table, and `b x d` points. The first that is there
# says what feedback is about; the others must agree with it. The points may be a part:
# NaN stands for cells of a file that can't be read.
Named: TypeAlias = tuple[list[int] | None, list[int] | None, Tensor | None]


def read_feedback(
    X: Points,
    Y: Any,
    record: RunRecord,
    pending: PendingTrials,
    finder: PointFinder,
    largest: float = math.inf,
) -> tuple[list[Trial], Tensor]:
    """What `Strategy.tell` was called with, if it is sound.

    Args:
        X: See `Strategy.tell`.
        Y: `b x k` observations, or `b` of one outcome.
        record: What was told before. Points that are new get their numbers in it.
        pending: The trials that are out.
        finder: Finds points by their coordinates.
        largest: How large values may be, either way.

    Returns:
        `b` trials, and `b x k` values in float64 on the host, in the user's signs. NaN
        stands for outcomes that were not measured.

    Raises:
        BotorchTensorDimensionError: If the shapes do not fit.
        InputDataError: See `Strategy.tell`.
    """
    X = list(X) if isinstance(X, Iterator) else X
    named = _read_points(X, record.domain)
    Y = record.outcomes.ordered(Y)
    if hasattr(Y, "iloc"):
        Y = _aligned(X, Y, record, pending)
    values = _read_values(as_tensor(Y), named, record)
    refuse_large_values(values, largest)
    return _trials_of(X, named, record, pending, finder, values), values


def read_points(X: Points, domain: Domain) -> Tensor:
    """`k x d` points to predict at, on the domain's device.

    A DataFrame is read by the names of its columns, as feedback is.

    Raises:
        BotorchTensorDimensionError: If they are not `k x d`.
        InputDataError: If they are no numbers, or columns are missing.
    """
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        X = _frame_points(X, domain.table, domain.dim)
    return as_points("X", X, domain.dim, domain.device)


def read_trials(
    given: Batch | Iterable[int],
    record: RunRecord,
    pending: PendingTrials,
    finder: PointFinder,
) -> list[Trial]:
    """Pending trials by ids, or by a batch, whose points must be theirs."""
    named = _named_trials(given, record.domain)
    return _trials_of(given, named, record, pending, finder)


def read_withdrawn(
    given: Batch | Iterable[int],
    record: RunRecord,
    pending: PendingTrials,
    finder: PointFinder,
) -> list[Trial]:
    """As `read_trials`, but trials that are not pending any more are left out."""
    named = _named_trials(given, record.domain)
    ids = named[0] or []
    _refuse_rows_for_ids(given, ids, record, pending)
    if never := [id for id in ids if not 0 <= id < pending.num_proposed]:
        raise InputDataError(f"Trials {short_list(never)} were never proposed.")
    places = [place for place, id in enumerate(ids) if id in pending]
    left = [pending[ids[place]] for place in places]
    rows = None if named[1] is None else [named[1][place] for place in places]
    X = None if named[2] is None else named[2][places]
    _check_points(left, rows, X, record, finder)
    return left


def _trials_of(
    given: Any,
    named: Named,
    record: RunRecord,
    pending: PendingTrials,
    finder: PointFinder,
    values: Tensor | None = None,
) -> list[Trial]:
    """The trials that feedback is about, pending ones where there are some."""
    ids, rows, X = named
    if ids is not None:
        _refuse_rows_for_ids(given, ids, record, pending)
        trials = _expected(ids, record, pending, values)
        _check_points(trials, rows, X, record, finder)
        return trials
    if rows is not None:
        _check_rows(rows, X, record, finder)
        return pending.oldest([[row] for row in rows])
    assert X is not None
    points = finder.find(X, record, pending)
    if not len(pending):
        return pending.oldest([[point] for point in points])
    return pending.oldest([finder.copies(point) for point in points])


def _expected(
    ids: list[int], record: RunRecord, pending: PendingTrials, values: Tensor | None
) -> list[Trial]:
    """Pending trials, or trials of which these outcomes are still missing."""
    if values is None:
        return pending.expect(ids, record.was_told)
    trials = _known_trials(ids, record, pending)
    for place in [place for place, id in enumerate(ids) if id not in pending]:
        if bool((record.measured(ids[place]) & ~values[place].isnan()).any()):
            raise InputDataError(
                f"Got an outcome of trial {ids[place]} that is told already; need NaN "
                "there."
            )
    return trials


def _known_trials(
    ids: list[int], record: RunRecord, pending: PendingTrials
) -> list[Trial]:
    """Different trials that are pending, or of several outcomes were told before."""
    is_one = len(record.outcomes) == 1
    later = {id for id in ids if not (is_one or id in pending) and record.was_told(id)}
    if len(set(ids)) < len(ids):
        raise InputDataError("Got the same trial twice in one call.")
    out = pending.expect([id for id in ids if id not in later], record.was_told)
    known = {trial.id: trial for trial in out}
    return [known[id] if id in known else record.trial_of(id) for id in ids]


def _refuse_rows_for_ids(
    given: Any, ids: list[int], record: RunRecord, pending: PendingTrials
) -> None:
    """Refuse an array of rows of a table for ids."""
    if record.domain.box is None and ids and hasattr(given, "dtype"):
        pending.refuse_rows(ids)


def _check_rows(
    rows: list[int], X: Tensor | None, record: RunRecord, finder: PointFinder
) -> None:
    """Refuse rows that are not there, or have other points."""
    num_rows = record.domain.num_rows
    if any(not 0 <= row < num_rows for row in rows):
        raise InputDataError(f"Got rows outside of the table of {num_rows} candidates.")
    if not _are_at(rows, X, record, finder):
        raise InputDataError(
            "Got a batch or a DataFrame whose points are not those of the rows "
            "that it names: they were edited, or lost digits. Leave out the "
            "columns of features, or tell ids of trials."
        )


def _check_points(
    trials: Sequence[Trial],
    rows: list[int] | None,
    X: Tensor | None,
    record: RunRecord,
    finder: PointFinder,
) -> None:
    """Refuse a batch or a frame whose points are not its trials' points."""
    points = [trial.point for trial in trials]
    if (rows is not None and rows != points) or not _are_at(points, X, record, finder):
        raise InputDataError(
            "Got a batch whose points are not those of its trials: it was edited, "
            "another strategy proposed it, or the candidates were written to since "
            "(a tensor is not copied). Give its ids, or leave out the columns of "
            "features of a DataFrame; of another strategy tell the points: "
            "tell(batch.X, Y)."
        )


def _are_at(
    points: Sequence[int], X: Tensor | None, record: RunRecord, finder: PointFinder
) -> bool:
    """Whether coordinates, where there are some, belong to points."""
    if X is None:
        return True
    ours = record.points(torch.tensor(points, dtype=torch.long))
    if X.shape != ours.shape:
        return False
    is_like = X.dtype == ours.dtype and X.device == ours.device
    if is_like and torch.equal(X, ours):
        return True
    return finder.is_same(X.where(~X.isnan(), ours.to(X)), ours)


def _read_values(Y: Tensor, named: Named, record: RunRecord) -> Tensor:
    """The observations as `b x k` values, if they are sound."""
    ids, rows, X = named
    names, dim = rows if ids is None else ids, record.domain.dim
    outcomes = record.outcomes
    Y = Y.reshape(1) if Y.dim() == 0 else Y
    is_right = X is None or (X.dim() == 2 and X.shape[-1] == dim)
    num = 0 if names is None else len(names)
    if names is None and X is not None and X.dim() > 0:
        num = len(X)
    if not is_right or not outcomes.is_shape(Y.shape, num):
        what = f"{num} trials" if X is None else f"X of shape {tuple(X.shape)}"
        needed = "" if X is None else f"`b x {dim}` and "
        raise BotorchTensorDimensionError(
            f"Got {what} and Y of shape {tuple(Y.shape)}; need {needed}"
            f"{outcomes.shape_text} observations."
        )
    values = Y.reshape(num, len(outcomes)).double().cpu()
    num_bad_Y = outcomes.num_unusable(values)
    num_bad_X = 0 if names is not None or X is None else int((~X.isfinite()).sum())
    if num_bad_X or num_bad_Y:
        raise InputDataError(
            f"Got {num_bad_Y} values of Y and {num_bad_X} of X that are NaN"
            f"{' in all outcomes' * (len(outcomes) > 1)} or infinite. Tell the others "
            "alone, and withdraw(batch) or fail(ids) points that can't be evaluated."
        )
    return values


def refuse_large_values(values: Tensor, largest: float) -> None:
    """Refuse feedback that is too large to be learned from.

    It would be in the way of all that is told later: nothing takes it back.
    """
    is_large = values.abs() > largest
    if bool(is_large.any()):
        most = float(values[is_large].abs().max())
        raise InputDataError(
            f"Got feedback as large as {most:.3g}, whose squares overflow when they "
            f"are added up; need values up to {largest:.3g}. Rescale all feedback, or "
            "leave out, with fail(ids) where they are pending, those that are no "
            "measurements."
        )


def _named_trials(given: Batch | Iterable[int], domain: Domain) -> Named:
    """The ids of trials, and of a batch what else it says."""
    if isinstance(given, Batch) and given.ids is not None:
        return _read_batch(given, domain.table)
    return ids_of(given), None, None


def _read_points(X: Any, domain: Domain) -> Named:
    """What feedback is about, in the words of the user."""
    if isinstance(X, Batch):
        return _read_batch(X, domain.table)
    if hasattr(X, "columns") and hasattr(X, "index"):
        return _read_frame(X, domain.table, domain.dim)
    if domain.table is not None and (keys := _text_keys(X, domain.table)):
        return None, domain.table.rows(keys).tolist(), None
    if (ids := as_ids(X)) is not None:
        return ids, None, None
    return None, None, _coordinates(as_tensor(X))


def _text_keys(X: Any, table: CandidateTable | None) -> list[Hashable]:
    """Keys that are texts, or have texts; none if `X` is something else."""
    is_numbers = getattr(getattr(X, "dtype", None), "kind", "O") in "biuf"
    if table is None or table.keys is None or isinstance(X, Tensor) or is_numbers:
        return []
    keys = X.tolist() if hasattr(X, "tolist") else X
    is_list = isinstance(keys, list | tuple)
    return list(keys) if is_list and all(map(_has_text, keys)) else []


def _has_text(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(part, str) for part in parts)


def _coordinates(X: Tensor) -> Tensor:
    """Points in a floating point type."""
    if X.dtype == torch.bool:
        raise InputDataError("Got truth values for points; need their coordinates.")
    return X if X.is_floating_point() else X.double()


def _read_batch(batch: Batch, table: CandidateTable | None) -> Named:
    """What a batch says, which may have been put together by hand."""
    X = _coordinates(as_tensor(batch.X))
    # NaN would stand for what is not said, as in files.
    X = X.nan_to_num(math.inf, posinf=math.inf, neginf=-math.inf)
    ids = _of_each("ids", batch.ids, X)
    rows = _of_each("indices", batch.indices, X)
    # Rows of an earlier table have other numbers in this one.
    is_earlier = batch.table is not None and batch.table is not table
    return ids, None if is_earlier and ids is not None else rows, X


def _of_each(name: str, given: Any, X: Tensor) -> list[int] | None:
    """Ids or rows of a batch; None if there are none."""
    if given is None:
        return None
    numbers = as_ids(given)
    if numbers is None or X.dim() == 0 or len(numbers) != len(X):
        raise InputDataError(
            f"Got a batch with X of shape {tuple(X.shape)} and "
            f"{name}={short_repr(given)}; need a whole number for each point. Tell "
            "points alone as tell(X, Y)."
        )
    return numbers


def _read_frame(X: Any, table: CandidateTable | None, dim: int) -> Named:
    """The rows of a DataFrame: by trial, by key, or by their columns."""
    ids = _trial_column(X, table)
    keys = _frame_keys(X, table)
    if keys is None and ids is None and table is not None and _needs_keys(table):
        raise InputDataError(
            f"Got a DataFrame with the columns {short_list(X.columns)} and the index "
            f"{X.index.names}, which say no keys; the candidates' are named "
            f"{table.key_names}. Read the file with pd.read_csv(path, "
            "index_col=0), or name the column or the index of the keys so."
        )
    if ids is None and keys is None:
        return None, None, _coordinates(_frame_points(X, table, dim))
    rows = None if table is None or keys is None else table.rows(keys).tolist()
    return ids, rows, _read_features(X, table, dim)


def _needs_keys(table: CandidateTable) -> bool:
    """Whether rows have keys that are no features, as molecules' texts are."""
    labels = {spec.label for spec in table.columns}
    return table.keys is not None and not labels.issuperset(table.key_names)


def _read_features(X: Any, table: CandidateTable | None, dim: int) -> Tensor:
    """`b x d` features of a DataFrame, those that are there; NaN for the others.

    A cell that cannot be encoded says nothing: files turn the category "NA" into
    nothing, and "01" into a number.
    """
    points = np.full((len(X), dim), np.nan)
    if table is None:
        for i, name in enumerate(f"x{i}" for i in range(dim)):
            if name in X.columns:
                for rows in _readable(X[name], _floats):
                    points[rows, i] = _floats(X[name].iloc[rows])
        return torch.from_numpy(points)
    for spec in table.columns:
        if spec.label in X.columns:
            for rows in _readable(X[spec.label], spec.encode):
                part = np.zeros((len(rows), dim))
                spec.put(spec.encode(X[spec.label].iloc[rows]), part)
                own = slice(spec.start, spec.start + spec.width)
                points[rows, own] = part[:, own]
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
            f"Got a DataFrame with the columns {short_list(X.columns)}, which has no "
            f"{short_list(missing, 3)}; need all of x0 to x{dim - 1}, or other names, "
            "which are read in their order."
        )
    try:
        return as_tensor((X if missing else X[names]).to_numpy(dtype=float))
    except (TypeError, ValueError) as error:
        raise InputDataError(
            f"Got a DataFrame of points that are no numbers ({error}); need numbers."
        ) from error


def as_tensor(values: Any) -> Tensor:
    """Numbers or truth values as a tensor, lists of floats in float64."""
    need = (
        "need a tensor, an array, or a list of numbers or of points as long as each "
        "other; or for points also a batch, ids of trials or a DataFrame."
    )
    return as_array("feedback", values, need, "biuf").detach()


def as_ids(X: Any) -> list[int] | None:
    """Ids of trials, if these are whole numbers in one dimension."""
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
    """Ids of trials, or of a batch."""
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


def _aligned(X: Any, Y: Any, record: RunRecord, pending: PendingTrials) -> Any:
    """Observations with labels in the order of what they are of."""
    if isinstance(X, Batch):
        return paired(X, Y)
    if keys := _text_keys(X, record.domain.table):
        is_by_place = only_counts(Y.index) or len(Y) != len(keys)
        return Y if is_by_place else _ordered(Y, [keys])
    if hasattr(X, "iloc"):
        return paired(X, Y, _frame_keys(X, record.domain.table))
    if (ids := as_ids(X)) is None or len(ids) != len(Y):
        return Y
    trials = _known_trials(ids, record, pending)
    return paired_with_ids(batch_of(record, trials), Y)


def paired_with_ids(batch: Batch, Y: Any) -> Any:
    """Observations in the order of trials that were named by their ids alone.

    As `paired` with their batch; labels may be the ids themselves, too. Others say
    nothing about trials, and are paired by position.
    """
    known: list[Labels] = [batch.keys or []]
    if not only_counts(Y.index):
        known += [_rows(batch), [] if batch.ids is None else batch.ids.tolist()]
    if not any(_order(Y.index.tolist(), labels) for labels in known):
        return Y.to_numpy()
    return _ordered(Y, known)


def paired(X: Any, Y: Any, keys: Labels | None = None) -> Any:
    """Observations in the order of a batch or a DataFrame, whatever theirs is.

    A pandas Series has labels, and is paired by them: with the index of the DataFrame
    or of `batch.to_frame()`, or with keys. One that only counts from 0 is paired by
    position, as an array is. O(b).
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
            "that say which value is of which point. To pair them by position give "
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
