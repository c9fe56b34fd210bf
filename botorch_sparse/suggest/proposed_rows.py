"""Rows that were proposed and have no result yet, kept in a file between calls.

The results hold all feedback, so this is all that a laboratory's run has to remember.
Rows are kept as the text of their cells: the table of candidates may change.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botorch.exceptions import InputDataError

from botorch_sparse.strategies.core.checkpoint import read_state, write_state
from botorch_sparse.strategies.data.row_matching import KnownRows
from botorch_sparse.suggest.candidate_pool import Pool, encode_fit
from botorch_sparse.suggest.csv_cells import cells_are_equal
from botorch_sparse.suggest.csv_text import TextTable, quoted
from botorch_sparse.suggest.results import Results

VERSION = 1
# Seconds that a call waits for another one with the same file.
PATIENCE = 5.0
Cells = dict[str, list[str]]


@dataclass(frozen=True)
class ProposedRows:
    """Rows that were proposed before.

    Attributes:
        rows: Those in the pool, in the order of their proposal.
        gone: The cells of those that are not there any more.
    """

    rows: list[int]
    gone: list[dict[str, str]]

    @property
    def gone_names(self) -> list[str]:
        """What messages call those that are not there any more."""
        return [quoted(", ".join(cells.values())) for cells in self.gone]


@contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Keep a file of proposed rows to one call, from reading to writing.

    Creates a file beside it, which only one of two calls can do, and removes it in the
    end. A call that was killed leaves it there.

    Args:
        path: The file, or None for nothing to keep.

    Raises:
        InputDataError: If another call keeps it for longer than `PATIENCE`.
        OSError: If the folder can't be written to.
    """
    if path is None:
        yield
        return
    target = path.resolve()
    lock = target.with_name(f".{target.name}.lock")
    latest = time.monotonic() + PATIENCE
    while not _create(lock):
        if time.monotonic() >= latest:
            raise InputDataError(
                f"--state: another call is using {str(path)!r}. Wait until it has "
                "ended, so that its rows are not proposed twice; if there is none, "
                f"remove {str(lock)!r}, which one that was killed has left."
            )
        time.sleep(0.1)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _create(path: Path) -> bool:
    """Whether there was no such file; there is one then."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def write_proposed(
    path: Path, pool: Pool, proposed: ProposedRows, *, minimize: bool
) -> None:
    """Write rows that wait for results: the file is the old or the new one.

    Args:
        path: The file.
        pool: The candidates.
        proposed: The rows, those that are gone too: they may come back.
        minimize: Whether small values of the target are better.

    Raises:
        OSError: If it can't be written.
    """
    names = pool.text.columns if pool.key is None else [pool.key]
    columns = {
        name: [
            *(pool.text.columns[name][row].strip() for row in proposed.rows),
            *(cells.get(name, "") for cells in proposed.gone),
        ]
        for name in names
        if name != pool.target
    }
    settings = _settings(pool, minimize)
    write_state({"suggest": VERSION, "settings": settings, "columns": columns}, path)


def read_proposed(path: Path | None, pool: Pool, *, minimize: bool) -> ProposedRows:
    """The rows that were proposed before; none if there is no file yet.

    Rows are found by their key, or without one by all features of the pool, exactly.

    Args:
        path: A file that `write_proposed` wrote, or None.
        pool: The candidates.
        minimize: Whether small values of the target are better.

    Raises:
        InputDataError: If the file is none, or was kept with another key, target or
            direction.
    """
    if path is None or not path.exists():
        return ProposedRows([], [])
    columns = _columns_of(path, _settings(pool, minimize))
    if pool.key is None:
        found = _rows_by_features(columns, pool)
    else:
        known = {key: row for row, key in enumerate(pool.table.keys or ())}
        found = [known.get(key, -1) for key in columns[pool.key]]
    kept = [
        {name: column[i] for name, column in columns.items()}
        for i, row in enumerate(found)
        if row < 0
    ]
    return ProposedRows([row for row in dict.fromkeys(found) if row >= 0], kept)


def without_results(
    before: ProposedRows, pool: Pool, results: Results, path: Path | None
) -> ProposedRows:
    """The rows that wait on: those that have neither a result nor failed.

    Args:
        before: Rows that were proposed before.
        pool: The candidates.
        results: All measurements.
        path: The file that the rows are of.

    Raises:
        InputDataError: If none of the rows is in the pool or has a result, and they
            lack columns of it.
    """
    gone = [cells for cells in before.gone if not _has_result(cells, pool, results)]
    done = {*results.rows, *results.failed}
    proposed = ProposedRows([row for row in before.rows if row not in done], gone)
    is_none_known = not before.rows and len(gone) == len(before.gone)
    if gone and is_none_known and _other_columns(gone[0], pool):
        raise _of_another(path, pool, proposed)
    return proposed


def _other_columns(cells: dict[str, str], pool: Pool) -> list[str]:
    """Columns of the pool that rows without a key are to have, and have not."""
    labels = [str(spec.label) for spec in pool.table.columns]
    return [] if pool.key is not None else [x for x in labels if x not in cells]


def _has_result(cells: dict[str, str], pool: Pool, results: Results) -> bool:
    """Whether one of the results of no row of the pool is of these cells."""
    return any(_is_among(cells, pool, others) for others in results.others)


def _is_among(cells: dict[str, str], pool: Pool, others: TextTable) -> bool:
    if pool.key is not None:
        return cells[pool.key] in others.texts(pool.key)
    names = [str(spec.label) for spec in pool.table.columns]
    return all(name in cells for name in names) and any(
        all(cells_are_equal(others.columns[name][i], cells[name]) for name in names)
        for i in range(len(others))
    )


def _of_another(
    path: Path | None, pool: Pool, proposed: ProposedRows
) -> InputDataError:
    """The error for a file none of whose rows is in the pool, to be raised."""
    column = _other_columns(proposed.gone[0], pool)[0]
    return InputDataError(
        f"--state: none of the {len(proposed.gone)} rows that wait for results in "
        f"{str(path)!r} is in {pool.text.name}, column {quoted(column)}; the first is "
        f"{proposed.gone_names[0]}. If {pool.text.name} is another table, name a new "
        "file; else put the rows back."
    )


def _settings(pool: Pool, minimize: bool) -> dict[str, Any]:
    """What must stay as it is."""
    return {"--key": pool.key, "--target": pool.target, "--minimize": minimize}


def _columns_of(path: Path, settings: dict[str, Any]) -> Cells:
    """The cells in a file that was kept with these settings."""
    try:
        state = read_state(path)
    except InputDataError:
        state = {}
    if state.get("suggest") != VERSION or not _is_sound(state):
        raise InputDataError(
            f"--state: {str(path)!r} is torn, or is none that this command wrote. Take "
            "an earlier copy, or name a new file: then rows that have no result yet "
            "can be proposed again."
        )
    before = state["settings"]
    for option, now in settings.items():
        if before[option] != now:
            raise InputDataError(
                f"--state: {str(path)!r} was kept {_words(option, before[option])}, "
                f"and this call is {_words(option, now)}. Call as before, or name a "
                "new file."
            )
    columns: Cells = state["columns"]
    return columns


def _words(option: str, value: str | bool | None) -> str:
    if not value:
        return f"without {option}"
    return f"with {option}" + f" {quoted(str(value))}" * (value is not True)


def _is_sound(state: dict[str, Any]) -> bool:
    """Whether there are settings, and equally long columns of text."""
    settings, columns = state.get("settings"), state.get("columns")
    if not isinstance(settings, dict) or not isinstance(columns, dict):
        return False
    key = settings.get("--key")
    cells = list(columns.values())
    return (
        settings.keys() == {"--key", "--target", "--minimize"}
        and bool(columns)
        and (key is None or key in columns)
        and all(isinstance(column, list) for column in cells)
        and len({len(column) for column in cells}) == 1
        and all(isinstance(cell, str) for column in cells for cell in column)
    )


def _rows_by_features(columns: Cells, pool: Pool) -> list[int]:
    """The row of the pool with the features of each that was kept; -1 for none."""
    num = len(next(iter(columns.values())))
    rows = [-1] * num
    fit, points = encode_fit(columns, pool, range(num))
    for i, row in zip(fit, KnownRows(pool.table.X).find(points), strict=True):
        rows[i] = row
    return rows
