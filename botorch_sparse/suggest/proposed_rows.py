"""Rows that were proposed and have no result yet, kept in a file between calls.

The results hold all feedback, so a run has nothing else to remember. The file is JSON,
with the text of the rows' cells: the table of candidates may change between calls. With
a key it also has the cells of rows with results, so that a key cannot change its row.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botorch.exceptions import InputDataError
from filelock import FileLock, Timeout

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line.csv_cells import cells_agree
from botorch_sparse.strategies import Constraint, Objective
from botorch_sparse.suggest.candidate_pool import Pool
from botorch_sparse.suggest.results import Measurement, Results

VERSION = 2
# Seconds that a call waits for another one with the same file.
PATIENCE = 5.0


@dataclass(frozen=True)
class ProposedRows:
    """Rows that were proposed before.

    Attributes:
        rows: The rows in the pool, in the order of their proposal.
        gone: The cells of rows that are not in the pool any more.
    """

    rows: list[int]
    gone: list[dict[str, str]]

    def gone_names(self, key: str | None) -> list[str]:
        """The rows that are not in the pool any more, in messages."""
        return [
            short_repr(", ".join(cells.values()) if key is None else cells[key])
            for cells in self.gone
        ]


@contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Keep a file of proposed rows to one call, from reading to writing.

    The lock is a file beside it. The lock of a process that was killed is free.
    """
    if path is None:
        yield
        return
    target = path.resolve()
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise InputDataError(
            f"--state: another call is using {str(path)!r}. Wait until it has ended, "
            "so that its rows are not proposed twice."
        ) from None
    try:
        yield
    finally:
        lock.release()


def write_proposed(
    path: Path, pool: Pool, proposed: ProposedRows, results: Results
) -> None:
    """Write rows that wait for results: the file is the old or the new one."""
    columns = pool.text.columns
    names = [name for name in columns if name not in pool.outcome_columns]
    names = names if pool.key is None else [pool.key, *pool.features]

    def cells_of(rows: Iterable[int]) -> list[dict[str, str]]:
        return [{name: columns[name][row] for name in names} for row in rows]

    waiting = [*cells_of(proposed.rows), *proposed.gone]
    told = [] if pool.key is None else sorted({*results.rows, *results.failed})
    state = {"suggest": VERSION, **_settings(pool), "rows": waiting}
    state["told"] = cells_of(told)
    text = json.dumps(state, ensure_ascii=False, indent=1) + "\n"
    write_whole(path, text.encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is the old one or the new one at any moment.

    The new one is written beside it. A link stays one, and its file is written. Pipes
    and devices stay too.
    """
    with named_errors(str(path)):
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(path.resolve(), content)


def _replace(target: Path, content: bytes) -> None:
    """Put a new file in the place of another one, or of none."""
    new = target.with_name(f".{target.name}.new")
    try:
        with open(new, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Name a file in errors of the system that do not, as where a disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            raise OSError(error.errno, error.strerror, name) from error
        raise


def read_proposed(path: Path | None, pool: Pool) -> ProposedRows:
    """The rows that were proposed before; none if there is no file yet.

    Rows are found by their key, or without one by all features of the pool, exactly.
    The key, the targets, their directions and the columns of constraints have to be as
    before; limits and thresholds may change.
    """
    if path is None or not path.exists():
        return ProposedRows([], [])
    state = _state_of(path, _settings(pool))
    before: list[dict[str, str]] = state["rows"]
    if pool.key is not None:
        _check_same_rows(path, pool, [*before, *state.get("told", [])])
        found = [pool.row_of_key.get(cells[pool.key], -1) for cells in before]
    else:
        found = [_row_with_features(cells, pool) for cells in before]
    gone = [cells for cells, row in zip(before, found, strict=True) if row < 0]
    return ProposedRows([row for row in dict.fromkeys(found) if row >= 0], gone)


def _check_same_rows(path: Path, pool: Pool, kept: list[dict[str, str]]) -> None:
    """Check that rows have the features that they had when they were kept.

    A list that is sorted and numbered anew has other rows under its keys. Columns that
    are new, or were not kept, are passed over.
    """
    for cells in kept:
        row = pool.row_of_key.get(cells[str(pool.key)])
        if row is None:
            continue
        now = {name: pool.text.columns[name][row] for name in pool.features}
        other = [
            f"{short_repr(name)} {short_repr(cells[name])}, now {short_repr(cell)}"
            for name, cell in now.items()
            if name in cells and not pool.agrees(cells[name], name, row)
        ]
        if other:
            raise InputDataError(
                f"--state: {str(path)!r} has another row with the key of "
                f"{pool.name(row)}: {short_list(other, 4, show=str)}. If the rows have "
                "new keys, give them their old ones, so that results stay with their "
                "rows. If a cell was corrected, name a new file: then rows that have "
                "no result yet can be proposed again."
            )


def _row_with_features(cells: dict[str, str], pool: Pool) -> int:
    """The row of the pool with the features of a row that was kept; -1 for none."""
    _, points = pool.encode({name: [cell] for name, cell in cells.items()}, [0])
    return pool.rows_with(points)[0] if len(points) else -1


def without_results(before: ProposedRows, pool: Pool, results: Results) -> ProposedRows:
    """The rows that wait on: they have no result, and have not failed."""
    others = [*results.others, *results.renamed]
    gone = [
        cells
        for cells in before.gone
        if not any(_is_of(other, cells, pool) for other in others)
    ]
    done = {*results.rows, *results.failed}
    return ProposedRows([row for row in before.rows if row not in done], gone)


def _is_of(other: Measurement, cells: dict[str, str], pool: Pool) -> bool:
    """Whether a result is of a row that was kept."""
    if pool.key is not None:
        return cells[pool.key] == other.get(pool.key)
    return all(
        name in cells and cells_agree(other.get(name), cells[name])
        for name in pool.features
    )


def _settings(pool: Pool) -> dict[str, Any]:
    """The options that have to stay as they are."""
    targets = [o for o in pool.outcomes if isinstance(o, Objective)]
    names = sorted(str(o.name) for o in targets)
    minimized = sorted(str(o.name) for o in targets if o.minimize)
    is_one = len(targets) == 1
    return {
        "--key": pool.key,
        "--target": names[0] if is_one else names,
        "--minimize": bool(minimized) if is_one else minimized,
        "--constraint": sorted(
            str(o.name) for o in pool.outcomes if isinstance(o, Constraint)
        ),
    }


def _state_of(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """What is in a file that was kept with these settings."""
    try:
        state: Any = json.loads(path.read_bytes())
    except ValueError:  # neither JSON nor text
        state = None
    if not _is_sound(state):
        raise InputDataError(
            f"--state: {str(path)!r} is torn, or is none that this command wrote. Take "
            "an earlier copy, or name a new file: then rows that have no result yet "
            "can be proposed again."
        )
    for option, now in settings.items():
        before = state.get(option, [])  # earlier versions knew no constraints
        if before != now:
            raise InputDataError(
                f"--state: {str(path)!r} was kept {_words(option, before)}, "
                f"and this call is {_words(option, now)}. Call as before, or name a "
                "new file."
            )
    return dict(state)


def _words(option: str, value: Any) -> str:
    if not value:
        return f"without {option}"
    names = short_list(value if isinstance(value, list) else [value])
    return f"with {option}" + f" {names}" * (value is not True)


def _is_sound(state: Any) -> bool:
    """Whether this command wrote a file."""
    added = {"--constraint", "told"}  # which earlier versions did not write
    names = {"suggest", "--key", "--target", "--minimize", "rows", *added}
    return (
        isinstance(state, dict)
        and state.keys() | added == names
        and state["suggest"] == VERSION
    )
