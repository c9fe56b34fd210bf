"""Measurements so far, from files: of rows of the pool, and beside them."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from botorch.exceptions import InputDataError

from botorch_sparse.command_line import quoted
from botorch_sparse.suggest.candidate_pool import Pool
from botorch_sparse.suggest.csv_cells import (
    FAILED,
    comma_hint,
    has_no_value,
    is_blank,
    is_missing,
    number,
)
from botorch_sparse.suggest.csv_reader import TextTable, read_table
from botorch_sparse.suggest.result_checks import (
    check_features,
    check_keys,
    check_names,
    check_rounded,
    ignore_hint,
    row_within_six_digits,
    unusable,
)


@dataclass(frozen=True)
class Results:
    """Measurements in the order of their files: of rows of the pool, and others.

    A laboratory may take used-up rows out of the pool. Their measurements count as
    before, if the file has their features.

    Attributes:
        name: The files in messages.
        rows: `n` rows of the pool, repeats allowed.
        values: `n` values of the target.
        failed: Rows whose measurement failed.
        points: The features of `k` measurements beside the pool, as cells by name.
        point_values: `k` values of the target there.
        beside: The same `k` measurements in messages.
        left_out: Measurements that cannot be used, in messages.
        others: All results that are of no row of the pool, by file.
        unused: Notes on values in columns that are blank in the pool.
        doubles: Results that an earlier file has too, in messages.
        silent: Failed results of no row of the pool, in messages.
        is_one: Whether there is one file at most, which messages need not name.
    """

    name: str
    rows: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
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

    @classmethod
    def joined(cls, names: Sequence[str], parts: Iterable["Results"]) -> "Results":
        """The results of all files as one."""
        parts = list(parts)
        lists = {
            f.name: [entry for part in parts for entry in getattr(part, f.name)]
            for f in fields(cls)
            if f.name not in ("name", "is_one")
        }
        name = ", ".join(names) or "the results"
        return cls(name=name, is_one=len(names) < 2, **lists)


@dataclass(frozen=True, eq=False)
class ResultFile:
    """The results of one file, and their rows of the pool.

    Attributes:
        text: The cells.
        rows: The row of the pool for each result, -1 for none.
        targets: The cells of the target.
    """

    text: TextTable
    rows: list[int]
    targets: list[str]

    def only(self, places: Sequence[int]) -> "ResultFile":
        """Some of the results."""
        return ResultFile(
            self.text.only(places),
            [self.rows[i] for i in places],
            [self.targets[i] for i in places],
        )


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
        skip_empty: Whether a measurement without a value has failed too: its target is
            empty, or a word for no value as NA.
        candidates: The file of the candidates. If it holds results too, its rows
            without a value have not been measured yet.
        waiting: Rows of the pool that were proposed before. Without a value they have
            not been measured yet, unless `skip_empty`. The same holds for rows that
            have a value in another line or file, or are not in the pool.

    Raises:
        InputDataError: If a file is not there, or none of it can be used.
    """
    names: list[str] = []
    given: list[tuple[ResultFile, bool]] = []
    for path in paths:
        if not path.exists():
            raise InputDataError(
                f"There is no file {str(path)!r} for --results; check its name, or "
                "leave --results out for a first batch."
            )
        text = read_table(
            path, key=pool.key, decimal="," if pool.text.has_commas else "."
        )
        names.append(text.name)
        if text.columns:
            is_one_file = candidates is not None and path.samefile(candidates)
            file = _with_rows(text, pool, is_one_file)
            given.append((file, skip_empty or is_one_file))
    measured = {
        row
        for file, _ in given
        for row, cell in zip(file.rows, file.targets, strict=True)
        if not is_missing(cell)
    }
    may_be_empty = {-1, *waiting, *measured}
    files = [
        file if takes_empty else _without_empty(file, pool, may_be_empty)
        for file, takes_empty in given
    ]
    _check_any_usable(files, pool)
    files, doubles = _counted_once(files, pool)
    parts = [_sorted_out(file, pool, is_one=len(names) < 2) for file in files]
    return Results.joined(names, [*parts, Results("", doubles=doubles)])


def _with_rows(text: TextTable, pool: Pool, is_one_file: bool) -> ResultFile:
    """The results in a file, which may be the file of the candidates."""
    text.need([pool.target], "the --target")
    targets = text.columns[pool.target]
    if is_one_file:
        told = [i for i, cell in enumerate(targets) if not is_missing(cell)]
        text, targets = text.only(told), [targets[i] for i in told]
    rows = (
        _rows_by_features(text, pool) if pool.key is None else _rows_by_key(text, pool)
    )
    return ResultFile(text, rows, targets)


def _rows_by_key(text: TextTable, pool: Pool) -> list[int]:
    """The rows of the pool with the keys of the results; -1 for none."""
    key = str(pool.key)
    text.need([key], "the --key")
    rows = [pool.row_of_key.get(cell, -1) for cell in text.texts(key)]
    check_keys(text, rows, pool)
    check_features(text, rows, pool)
    return rows


def _rows_by_features(text: TextTable, pool: Pool) -> list[int]:
    """The rows of the pool with the features of the results, to six digits; or -1."""
    for name in pool.features:
        text.need([name], f"which {pool.text.name} has{ignore_hint(name, pool)}")
    for name in pool.features:
        text.texts(name) if name in pool.categories else text.numbers(name)
    fit, points = pool.encode(text.columns, range(len(text)))
    found = pool.row_index.find(points)
    rows = [-1] * len(text)
    for i, z, row in zip(fit, points, found, strict=True):
        rows[i] = row if row >= 0 else row_within_six_digits(text, i, z, pool)
    left = [(i, z) for i, z in zip(fit, points, strict=True) if rows[i] < 0]
    check_rounded(text, left, pool)
    check_names(text, rows, pool)
    return rows


def _without_empty(
    file: ResultFile, pool: Pool, may_be_empty: Collection[int]
) -> ResultFile:
    """The results of a file that have a value; the others are still to come.

    Raises:
        InputDataError: If it is not known why a result has no value.
    """
    empty = [i for i, cell in enumerate(file.targets) if is_missing(cell)]
    wrong = next((i for i in empty if file.rows[i] not in may_be_empty), None)
    if wrong is None:
        kept = {*range(len(file.rows))} - {*empty}
        return file.only(sorted(kept)) if empty else file
    cell = file.targets[wrong]
    start = f"{quoted(cell)} is no number" if cell else "the cell is empty"
    reason = (
        f"{start}; fill it in, or leave the row out, if it is measured later. Rows "
        "that were proposed with --state FILE may be empty with that --state: they "
        "wait on. "
        f"If the measurement failed, write {FAILED}, or call with --skip-empty for all "
        "empty cells: then the row is not proposed again."
    )
    raise file.text.error(wrong, pool.target, reason)


def _check_any_usable(files: Sequence[ResultFile], pool: Pool) -> None:
    """Check that some result counts, if there is any with a value."""
    first = None
    for file in files:
        for i, row in enumerate(file.rows):
            if row >= 0 or pool.can_be_beside(file.text.columns, i):
                return
            if first is None and not has_no_value(file.targets[i]):
                first = file.text, i
    if first is not None:
        raise unusable(*first, pool, "no other result can be used either")


def _counted_once(
    files: Sequence[ResultFile], pool: Pool
) -> tuple[list[ResultFile], list[str]]:
    """Files without results that an earlier one has with the same row and value.

    An export may hold all results of earlier exports. Repeats in one file are new
    measurements: of each row and value there are as many as in the file with most.

    Returns:
        The files, and the results that were left out in messages.
    """
    most: Counter[Hashable] = Counter()
    kept, doubles = [], []
    for file in files:
        here: Counter[Hashable] = Counter()
        new = []
        for i, cell in enumerate(file.targets):
            told = (_identity(file, i, pool), cell)
            here[told] += 1
            if here[told] > most[told] or has_no_value(cell):
                new.append(i)
            else:
                doubles.append(f"{file.text.place(i)} of {file.text.name}")
        most |= here
        kept.append(file.only(new) if len(new) < len(file.rows) else file)
    return kept, doubles


def _identity(file: ResultFile, i: int, pool: Pool) -> Hashable:
    """The row of a result; beside the pool its key and features."""
    if file.rows[i] >= 0:
        return file.rows[i]
    names = [*pool.features, *([] if pool.key is None else [pool.key])]
    columns = file.text.columns
    return tuple(columns[name][i] if name in columns else "" for name in names)


def _sorted_out(file: ResultFile, pool: Pool, *, is_one: bool) -> Results:
    """The results of a file by what they are of.

    Args:
        file: The results.
        pool: The candidates.
        is_one: Whether there is no other file.
    """
    text, rows = file.text, file.rows

    def places(chosen: Sequence[int]) -> list[str]:
        return [text.place(i) + f" of {text.name}" * (not is_one) for i in chosen]

    failed = {i for i, cell in enumerate(file.targets) if has_no_value(cell)}
    others = [i for i, row in enumerate(rows) if row < 0]
    told = [i for i in others if i not in failed]
    beside = [i for i in told if pool.can_be_beside(text.columns, i)]
    inside = [i for i, row in enumerate(rows) if row >= 0 and i not in failed]
    for name in pool.features if beside else ():
        if name not in pool.categories:
            text.only(beside).check_points(name)
    return Results(
        text.name,
        rows=[rows[i] for i in inside],
        values=_values(text.only(inside), pool.target),
        failed=[row for i, row in enumerate(rows) if row >= 0 and i in failed],
        points=[{x: text.columns[x][i] for x in pool.features} for i in beside],
        point_values=_values(text.only(beside), pool.target),
        beside=places(beside),
        left_out=places([i for i in told if i not in {*beside}]),
        silent=places([i for i in others if i in failed]),
        others=[text.only(others)],
        unused=_unused(text, pool),
    )


def _unused(text: TextTable, pool: Pool) -> list[str]:
    """Notes on values in columns that are blank in the pool."""
    notes = []
    for name in pool.blank:
        cells = text.columns.get(name, [])
        if value := next((cell for cell in cells if not is_blank(cell)), None):
            notes.append(
                f"column {quoted(name)} is left out, as {pool.text.name} has no value "
                f"in it, but {text.name} has {quoted(value)} in it; it is not used"
            )
    return notes


def _values(text: TextTable, target: str) -> list[float]:
    """The target as numbers.

    Raises:
        InputDataError: If a cell is none, with advice how to write it.
    """
    cells = text.columns[target]
    wrong = next((i for i, cell in enumerate(cells) if number(cell) is None), None)
    if wrong is None:
        return text.numbers(target).tolist()
    advice = (
        f"; write {FAILED} if the measurement failed, so that the row is not proposed "
        "again; else a number, or leave the row out (where candidates and results are "
        "one file, leave the cell empty) until there is one"
    )
    reason = f"{quoted(cells[wrong])} is no number{comma_hint(cells[wrong]) or advice}."
    raise text.error(wrong, target, reason)
