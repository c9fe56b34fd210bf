"""What has been measured, from files: of rows of the pool, and beside them."""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from botorch.exceptions import InputDataError

from botorch_sparse.strategies.data.row_matching import KnownRows, NearRows, Rounding
from botorch_sparse.suggest.candidate_pool import Pool, can_be_beside, encode_fit
from botorch_sparse.suggest.csv_cells import (
    FAILED,
    comma_hint,
    is_blank,
    is_missing,
    number,
    says_failed,
)
from botorch_sparse.suggest.csv_text import TextTable, quoted, read_table
from botorch_sparse.suggest.result_checks import (
    check_features,
    check_keys,
    check_names,
    check_rounded,
    ignore_hint,
    unusable,
)


@dataclass(frozen=True)
class Results:
    """Measurements in the order of their files: of rows of the pool, and others.

    A laboratory may take out of the pool what it has used up. What it measured there
    says as much as before, if the file has the features.

    Attributes:
        name: What messages call the files.
        rows: `n` rows of the pool, repeats allowed.
        values: `n` values of the target.
        failed: Rows whose measurement failed.
        points: `k` times the cells of the features of what is no row of the pool.
        point_values: `k` values of the target there.
        beside: What messages call these.
        left_out: What they call results that cannot be used.
        others: All results of no row of the pool, by file.
        unused: What is said of values in columns that the pool has without any.
        doubles: What messages call results that an earlier file has too.
        silent: What they call failed results of no row of the pool.
        is_one: Whether there is one file at most, so that messages need not name it.
    """

    name: str
    rows: list[int]
    values: list[float]
    failed: list[int] = field(default_factory=list)
    points: list[dict[str, str]] = field(default_factory=list)
    point_values: list[float] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    others: list[TextTable] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    is_one: bool = True

    def __len__(self) -> int:
        return len(self.values) + len(self.point_values)


def read_results(
    paths: Sequence[Path],
    pool: Pool,
    *,
    skip_empty: bool = False,
    candidates: Path | None = None,
    waiting: Collection[int] = (),
) -> Results:
    """The measurements so far; none if no file is named, or only empty ones.

    A measurement failed if its target is the word `failed`.

    Args:
        paths: CSV files with the target, and with the key or all features of the rows;
            other columns are ignored. None for a first batch. Results of no row of
            the pool need all features.
        pool: The candidates.
        skip_empty: Whether a measurement without a value has failed too: one whose
            target is empty, or a word for that as NA.
        candidates: The file of the candidates. If it holds results too, its rows
            without a value have not been measured yet.
        waiting: Rows of the pool that were proposed before: without a value they have
            not been measured yet, unless `skip_empty`. Nor have rows that have their
            value in another line or file, or are not in the pool.

    Raises:
        InputDataError: If a file is not there, or none of it can be used.
    """
    names, tables = [], []
    for path in paths:
        if not path.exists():
            raise InputDataError(
                f"There is no file {str(path)!r} for --results; check its name, or "
                "leave --results out for a first batch."
            )
        text = read_table(path, key=pool.key, decimal=pool.decimal)
        names.append(text.name)
        if not text.columns:
            continue
        text.need([pool.target], "the --target")
        is_one_file = candidates is not None and path.samefile(candidates)
        if is_one_file:
            text = text.only(_places(text, pool, is_empty=False))
        tables.append((text, _rows_of(text, pool), skip_empty or is_one_file))
    may_be_empty = {-1, *waiting}
    for text, rows, _ in tables:
        may_be_empty |= {rows[i] for i in _places(text, pool, is_empty=False)}
    told = [
        (text, rows) if takes_empty else _told(text, rows, pool, may_be_empty)
        for text, rows, takes_empty in tables
    ]
    _check_any_usable(told, pool)
    told, doubles = _counted_once(told, pool)
    is_one = len(names) < 2
    parts = [_sort_out(text, rows, pool, is_one=is_one) for text, rows in told]
    return _joined(names, [*parts, Results("", [], [], doubles=doubles)])


def _told(
    text: TextTable, rows: list[int], pool: Pool, may_be_empty: Collection[int]
) -> tuple[TextTable, list[int]]:
    """What a file says of measurements without what is still to come, and its rows.

    Args:
        text: Results.
        rows: Their rows of the pool, -1 for none.
        pool: The candidates.
        may_be_empty: Rows that wait for their values, or have them in some file.

    Raises:
        InputDataError: If it is not known why there is no value.
    """
    empty = set(_places(text, pool, is_empty=True))
    kept = [
        i for i, row in enumerate(rows) if i not in empty or row not in may_be_empty
    ]
    text = text.only(kept)
    _check_none_empty(text, pool)
    return text, [rows[i] for i in kept]


def _joined(names: Sequence[str], parts: Sequence[Results]) -> Results:
    """The results of all files as those of one."""
    lists = {
        f.name: [entry for part in parts for entry in getattr(part, f.name)]
        for f in fields(Results)
        if f.name not in ("name", "is_one")
    }
    name = ", ".join(names) or "the results"
    return Results(name=name, is_one=len(names) < 2, **lists)


def _places(text: TextTable, pool: Pool, *, is_empty: bool) -> list[int]:
    """Where the target has no value, or where it has one."""
    cells = enumerate(text.columns[pool.target])
    return [i for i, cell in cells if is_missing(cell) == is_empty]


def _says_nothing(cell: str) -> bool:
    """Whether a result that is used has no value, as its measurement failed."""
    return is_missing(cell) or says_failed(cell)


def _check_none_empty(text: TextTable, pool: Pool) -> None:
    """Refuse results without a value, unless they are known to have failed."""
    if not (empty := _places(text, pool, is_empty=True)):
        return
    cell = text.columns[pool.target][empty[0]].strip()
    what = f"{quoted(cell)} is no number" if cell else "the cell is empty"
    reason = (
        f"{what}; fill it in, or leave the row out, if it is measured later. Rows that "
        "were proposed with --state FILE may be empty with that --state: they wait on. "
        f"If the measurement failed, write {FAILED}, or call with --skip-empty for all "
        "empty cells: then the row is not proposed again."
    )
    raise text.error(empty[0], pool.target, reason)


def _check_any_usable(
    tables: Sequence[tuple[TextTable, list[int]]], pool: Pool
) -> None:
    """Refuse results none of which is of the pool or fits it, in all files."""
    first = None
    for text, rows in tables:
        for i, row in enumerate(rows):
            if row >= 0 or can_be_beside(text.columns, i, pool):
                return
            if _says_nothing(text.columns[pool.target][i]):
                continue
            first = first or (text, i)
    if first is not None:
        raise unusable(*first, pool, "no other result can be used either")


def _counted_once(
    tables: Sequence[tuple[TextTable, list[int]]], pool: Pool
) -> tuple[list[tuple[TextTable, list[int]]], list[str]]:
    """Files without values that an earlier one has of the same row, and what is said.

    An export may hold what earlier ones did. What a file repeats itself was measured
    again: of each row and value there are as many as in the file that has most.
    """
    most: Counter[Hashable] = Counter()
    kept, doubles = [], []
    for text, rows in tables:
        here: Counter[Hashable] = Counter()
        new = []
        for i, row in enumerate(rows):
            cell = text.columns[pool.target][i]
            told = (_who(text, i, row, pool), cell.strip())
            here[told] += 1
            if here[told] > most[told] or _says_nothing(cell):
                new.append(i)
            else:
                doubles.append(f"{text.place(i)} of {text.name}")
        most |= here
        kept.append((text.only(new), [rows[i] for i in new]))
    return kept, doubles


def _who(text: TextTable, i: int, row: int, pool: Pool) -> Hashable:
    """What tells whether two results are of the same row: of none by key and cells."""
    if row >= 0:
        return row
    names = [str(spec.label) for spec in pool.table.columns]
    if pool.key is not None:
        names.append(pool.key)
    cells = (text.columns[name][i] if name in text.columns else "" for name in names)
    return tuple(map(str.strip, cells))


def _sort_out(text: TextTable, rows: list[int], pool: Pool, *, is_one: bool) -> Results:
    """The results by what they are of: rows of the pool, -1 for none.

    Args:
        text: Results.
        rows: Their rows.
        pool: The candidates.
        is_one: Whether there is no other file.
    """
    of = "" if is_one else f" of {text.name}"
    targets = enumerate(text.columns[pool.target])
    failed = {i for i, cell in targets if _says_nothing(cell)}
    others = [i for i, row in enumerate(rows) if row < 0]
    told = [i for i in others if i not in failed]
    beside = [i for i in told if can_be_beside(text.columns, i, pool)]
    left_out = sorted({*told} - {*beside})
    inside = [i for i, row in enumerate(rows) if row >= 0 and i not in failed]
    labels = [str(spec.label) for spec in pool.table.columns]
    if beside:
        _check_points(text.only(beside), pool)
    return Results(
        text.name,
        rows=[rows[i] for i in inside],
        values=_values(text.only(inside), pool.target),
        failed=[row for i, row in enumerate(rows) if row >= 0 and i in failed],
        points=[
            {name: text.columns[name][i].strip() for name in labels} for i in beside
        ],
        point_values=_values(text.only(beside), pool.target),
        beside=[f"{text.place(i)}{of}" for i in beside],
        left_out=[f"{text.place(i)}{of}" for i in left_out],
        silent=[f"{text.place(i)}{of}" for i in others if i in failed],
        others=[text.only(others)],
        unused=_unused(text, pool),
    )


def _check_points(text: TextTable, pool: Pool) -> None:
    """Refuse numbers beside the pool whose points may separate thousands."""
    for spec in pool.table.columns:
        if spec.categories is None:
            text.check_points(str(spec.label))


def _unused(text: TextTable, pool: Pool) -> list[str]:
    """What is said of values in columns that the pool has without any."""
    notes = []
    for name in pool.blank:
        cells = map(str.strip, text.columns.get(name, ()))
        if value := next((cell for cell in cells if not is_blank(cell)), None):
            notes.append(
                f"column {quoted(name)} is left out, as {pool.text.name} has no value "
                f"in it, but {text.name} has {quoted(value)} in it; it is not used"
            )
    return notes


def _values(text: TextTable, target: str) -> list[float]:
    """The target as numbers, or an error that says how to write what is none."""
    cells = text.columns[target]
    wrong = next((i for i, cell in enumerate(cells) if number(cell) is None), None)
    if wrong is None:
        return text.numbers(target).tolist()
    cell = cells[wrong].strip()
    advice = (
        f"; write {FAILED} if the measurement failed, so that the row is not proposed "
        "again; else a number, or leave the row out (where candidates and results are "
        "one file, leave the cell empty) until there is one"
    )
    reason = f"{quoted(cell)} is no number{comma_hint(cell) or advice}."
    raise text.error(wrong, target, reason)


def _rows_of(text: TextTable, pool: Pool) -> list[int]:
    """The rows of the pool that results are of; -1 for none."""
    if pool.key is None:
        rows = _rows_by_features(text, pool)
        check_names(text, rows, pool)
        return rows
    return _rows_by_key(text, pool.key, pool)


def _rows_by_key(text: TextTable, key: str, pool: Pool) -> list[int]:
    """The rows of the pool with the keys of the results; -1 for none."""
    text.need([key], "the --key")
    known = {name: row for row, name in enumerate(pool.table.keys or ())}
    rows = [known.get(cell, -1) for cell in text.texts(key)]
    check_keys(text, key, rows, pool)
    check_features(text, rows, pool)
    return rows


def _rows_by_features(text: TextTable, pool: Pool) -> list[int]:
    """The rows that have the features of the results, after rounding to six digits.

    -1 for those that have no row.
    """
    X = pool.table.X
    columns = {str(s.label): s.categories is None for s in pool.table.columns}
    for label in columns:
        text.need([label], f"which {pool.text.name} has{ignore_hint(label, pool)}")
    for label, is_number in columns.items():
        text.numbers(label) if is_number else text.texts(label)
    rows = [-1] * len(text)
    fit, points = encode_fit(text.columns, pool, range(len(text)))
    for i, row in zip(fit, KnownRows(X).find(points), strict=True):
        rows[i] = row
    unknown = [place for place, i in enumerate(fit) if rows[i] < 0]
    if not unknown:
        return rows
    ranges = torch.stack(X.aminmax(dim=0))
    near = NearRows(X, range(len(X)), Rounding.of(ranges, X.dtype)).find(
        points[unknown]
    )
    for place, found in zip(unknown, near, strict=True):
        if len(found) > 1:
            which = " and ".join(pool.name(row) for row in found[:2])
            raise InputDataError(
                f"{text.name}, line {text.lines[fit[place]]}: to six digits this is "
                f"{which}; name the rows by a --key."
            )
        rows[fit[place]] = found[0] if found else -1
    others = [(fit[place], points[place]) for place in unknown if rows[fit[place]] < 0]
    check_rounded(text, others, pool)
    return rows
