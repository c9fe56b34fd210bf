"""Which known points are meant by coordinates that were told."""

from collections.abc import Hashable, Sequence
from copy import copy
from functools import cached_property

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.argument_checks import short_list
from botorch_sparse.pools.compact_rows import CompactRows, Rows
from botorch_sparse.strategies.core.trials import PendingTrials
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.row_matching import (
    EqualRows,
    Rounding,
    RowIndex,
    equal_rows,
    rows_at,
)
from botorch_sparse.strategies.data.run_record import RunRecord, row_keys

# What is the same but for rounding, in widths of a column; what few digits leave of a
# point; and a variance of nothing.
SAME, FEW_DIGITS, TINY = 1e-5, 1e-2, 1e-300


class PointFinder:
    """Finds the numbers of points that are told by value.

    Exactly first: rows of the table, in the dtype of what is told, and points that were
    told or proposed before. Then within rounding (see `RowIndex`): rows of the table,
    or on a box pending points. While trials are pending, a point that is none of these
    but near one is refused.

    Args:
        domain: The table, or the box. Where a table's rows are not all here, points
            are not found by their coordinates.
    """

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._known: dict[torch.dtype, EqualRows] = {}
        self._pending: tuple[int, RowIndex] | None = None  # and trials proposed by then

    @cached_property
    def _rounding(self) -> Rounding:
        """What rounding may change in each of the `d` columns."""
        return Rounding.of(self._domain.ranges, self._domain.dtype)

    @property
    def _candidates(self) -> Rows:
        """All rows of the table, `A x d`; none on a box."""
        if (table := self._domain.table) is not None:
            return table.X
        if self._domain.num_rows:
            raise UnsupportedError(
                "Got points by their coordinates; those of a table that several "
                "processes share are not found by these. Tell a batch, or ids of "
                "trials, and run with by_index=True."
            )
        return self._domain.rows(torch.empty(0, dtype=torch.long))

    @cached_property
    def _near_rows(self) -> RowIndex:
        X = self._candidates
        if isinstance(X, CompactRows):  # whole numbers are not rounded
            return RowIndex(X[:0], [], self._rounding)
        return RowIndex(X, range(len(X)), self._rounding)

    def _rows_at(self, X: Tensor) -> list[list[int]]:
        """The rows of the table that equal each of `b x d` points, in their dtype."""
        if isinstance(rows := self._candidates, CompactRows):
            found = rows_at(self._index(X.dtype), rows.compact(X))
            is_held = rows.holds(X.to(rows.device)).tolist()
            return [f if held else [] for f, held in zip(found, is_held, strict=True)]
        return rows_at(self._index(X.dtype), X)

    def _index(self, dtype: torch.dtype) -> EqualRows:
        """The rows of the table by their bytes in a dtype."""
        X = self._candidates
        if isinstance(X, CompactRows):
            dtype = X.stored.dtype
        if dtype not in self._known:
            stored = X.stored if isinstance(X, CompactRows) else X.to(dtype)
            self._known[dtype] = equal_rows(stored)
        return self._known[dtype]

    def _as_candidate(self, X: Tensor) -> Tensor:
        """Points in the type of the candidates, where these are."""
        return X.to(self._candidates.device, self._candidates.dtype)

    def without_pending(self) -> "PointFinder":
        """One that looks pending points up again; what is known of the table stays."""
        other = copy(self)
        other._pending = None
        return other

    def find(self, X: Tensor, record: RunRecord, trials: PendingTrials) -> list[int]:
        """Numbers of `b x d` points; those that are new get one of the history's.

        O(A log A) at the first call and O(log A) for each point.
        """
        rows, is_rounded = self._rows_at(X), X.dtype != self._candidates.dtype
        numbers = [equal[0] if equal else -1 for equal in rows]
        for i, equal in enumerate(rows):
            if is_rounded and len(equal) > 1:
                numbers[i] = self._one_row(equal, X[i], trials)
        beside = X.to(self._candidates.dtype).cpu()
        for i, number in enumerate(numbers):
            known = record.number_of(beside[i]) if number < 0 else None
            numbers[i] = number if known is None else known
        unknown = [i for i, number in enumerate(numbers) if number < 0]
        if len(unknown) == len(X) and self._domain.box is None:
            self._refuse_other_units(X, record, trials)
        if unknown:
            for i, near in zip(
                unknown, self._near(X[unknown], trials, record), strict=True
            ):
                numbers[i] = self._one_of(near, X[i], record, trials)
        return numbers

    def _near(
        self, X: Tensor, trials: PendingTrials, record: RunRecord
    ) -> list[list[int]]:
        """The numbers that each of `b x d` points may be within rounding."""
        if self._domain.num_rows:
            return self._near_rows.find(X)
        found = self._near_pending(trials, record).find(X)
        return [[p for p in points if any(trials.at(p))] for points in found]

    def _near_pending(self, trials: PendingTrials, record: RunRecord) -> RowIndex:
        """What was pending of a box after the last proposal, settled or not."""
        if self._pending is None or self._pending[0] != trials.num_proposed:
            points = sorted({trial.point for trial in trials})
            X_pending = record.points(torch.tensor(points, dtype=torch.long))
            near = RowIndex(X_pending, points, self._rounding)
            self._pending = (trials.num_proposed, near)
        return self._pending[1]

    def _one_row(self, rows: list[int], x: Tensor, trials: PendingTrials) -> int:
        """The row that is meant by a point with fewer digits than the table has."""
        groups: dict[bytes, list[int]] = {}
        keys = row_keys(self._candidates[torch.tensor(rows)])
        for row, key in zip(rows, keys, strict=True):
            groups.setdefault(key, []).append(row)
        if len(groups) == 1:
            return rows[0]
        waiting = [g for g in groups.values() if any(any(trials.at(r)) for r in g)]
        if len(waiting) == 1:
            return waiting[0][0]
        raise InputDataError(
            f"Got {x.tolist()} of dtype {x.dtype}, in which the rows "
            f"{short_list(rows)} of the table are the same, {len(waiting)} of them "
            f"pending. Tell the ids of trials, or points of dtype "
            f"{self._candidates.dtype}."
        )

    def _one_of(
        self, near: list[int], x: Tensor, record: RunRecord, trials: PendingTrials
    ) -> int:
        """The number of a point that is one of a few, or new."""
        if len(near) > 1:
            raise InputDataError(
                f"Got {x.tolist()}, which is within rounding of {len(near)} different "
                f"points, such as {record.points(torch.tensor(near[:2])).tolist()}. "
                "Tell the ids of trials, or keys, or more digits."
            )
        if near:
            return near[0]
        if (box := self._domain.box) is None:
            if len(trials):
                self._refuse_near_row(x)
            return record.add_point(self._as_candidate(x))
        inside = box.clamp(x)
        if not self._rounding.is_fine(x, inside):
            raise InputDataError(
                f"Got {x.tolist()}, which is outside of the bounds "
                f"{box.bounds.tolist()}; need points of the domain."
            )
        if len(trials):
            self._refuse_near_pending(x, record, trials)
        if broken := box.broken(inside):
            raise InputDataError(
                f"Got {x.tolist()}, which breaks {short_list(broken)}; need points of "
                "the domain."
            )
        return record.add_point(box.discrete.nearest(inside))

    def _refuse_other_units(
        self, X: Tensor, record: RunRecord, trials: PendingTrials
    ) -> None:
        """Refuse the pending points, in their order, with columns in other units.

        Three points or more, of which each column is a linear function of theirs.
        """
        if not 3 <= len(X) == len(trials):
            return
        points = torch.tensor([trial.point for trial in trials])
        Z, X = record.points(points).cpu().double(), X.cpu().double()
        z, x = Z - Z.mean(0), X - X.mean(0)
        slope = (z * x).sum(0) / z.square().sum(0).clamp_min(TINY)
        apart = (x - slope * z).abs().amax(0)
        width = x.abs().amax(0)
        # A column may be the same in all of them.
        is_near = (X - Z).abs() <= FEW_DIGITS * width + SAME * Z.abs()
        if bool(is_near.all()) or not bool((apart <= SAME * width).all()):
            return
        column = int((X - Z).abs().amax(0).argmax())
        raise InputDataError(
            f"Got {X[0].tolist()} and {len(X) - 1} more points, which are the pending "
            f"ones in other units: column {column} (from 0) has {X[0, column]:.6g} for "
            f"{Z[0, column]:.6g}. Tell them in the table's units, or ids or keys. If "
            "other points are meant, tell them while no trial is pending."
        )

    def _refuse_near_row(self, x: Tensor) -> None:
        """Refuse a point that is none of the rows, but near one. O(log A)."""
        if near := self._near_rows.nearby(x):
            nearest = self._candidates[near[0]]
            raise InputDataError(
                f"Got {x.tolist()}, which is no row of the table. The nearest one is "
                f"row {near[0]}, {nearest.tolist()}: {self._apart(x, nearest)}. Tell "
                "ids of trials, keys, or at least six digits. If another point is "
                "meant, tell it while no trial is pending."
            )

    def _refuse_near_pending(
        self, x: Tensor, record: RunRecord, trials: PendingTrials
    ) -> None:
        """Refuse a point of a box that is none of the pending ones, but near one."""
        near = self._near_pending(trials, record).nearby(x)
        trial = next((t for point in near for t in trials.at(point)), None)
        if trial is not None:
            nearest = record.points(torch.tensor([trial.point]))[0]
            raise InputDataError(
                f"Got {x.tolist()}, which is near trial {trial.id}, "
                f"{nearest.tolist()}, that is pending: {self._apart(x, nearest)}. Tell "
                "ids of trials, or more digits. If another point is meant, "
                f"tell it after trial {trial.id} is told or withdrawn."
            )

    def _apart(self, x: Tensor, nearest: Tensor) -> str:
        """Where a point differs most from another, by the columns' ranges."""
        there = nearest.to(x).double()
        apart = (x.double() - there).abs().cpu() / torch.tensor(self._rounding.width)
        column = int(apart.argmax())
        return (
            f"column {column} (from 0) has {float(x[column]):.10g} instead of "
            f"{float(nearest[column]):.10g}"
        )

    def rows_of(self, X: Tensor, keys: Sequence[Hashable | None]) -> list[int]:
        """The rows that `k` different points are, -1 for none; exactly.

        Where a row has copies: the one of the point's key, or the first that is none
        of the points before, so that as many are taken as were.
        """
        table = self._domain.table
        names = None if table is None else table.keys
        taken = set[int]()
        rows = list[int]()
        for copies, key in zip(self._rows_at(self._as_candidate(X)), keys, strict=True):
            named = [c for c in copies if names is not None and names[c] == key]
            free = [c for c in copies if c not in taken]
            rows.append((named or free or copies or [-1])[0])
            taken.add(rows[-1])
        return rows

    def is_same(self, X: Tensor, Z: Tensor) -> bool:
        """Whether `b x d` points differ by rounding at most."""
        return self._rounding.is_same(X, Z)

    def copies(self, number: int) -> list[int]:
        """All points with the coordinates of one, itself included. O(log A)."""
        if number >= self._domain.num_rows:
            return [number]
        different, _, order = self._index(self._candidates.dtype)
        if len(different) == len(order):
            return [number]
        return self._rows_at(self._candidates[number : number + 1])[0]
