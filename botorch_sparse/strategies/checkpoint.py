"""States: in files that are whole or not there, and sound or refused."""

import io
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.strategies.identity import plain
from botorch_sparse.strategies.trials import PendingTrials

STATE_VERSION = 4


def write_state(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state so that the file is the old one or the new one at any moment.

    Into a temporary file of the same folder, to the disk, then under its name. What
    processes left beside it that were killed while they wrote is removed first.

    Raises:
        OSError: If the folder is not there, or can't be written to.
    """
    target = Path(path).absolute()
    _remove_leftovers(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(plain(state), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of processes that are no more; all others stay."""
    name = re.compile(re.escape(f".{target.name}.") + r"([1-9][0-9]{0,8})\.tmp")
    with suppress(OSError):  # they do no harm
        for entry in os.listdir(target.parent):
            if (found := name.fullmatch(entry)) and _is_dead(int(found[1])):
                target.with_name(entry).unlink(missing_ok=True)


def _is_dead(pid: int) -> bool:
    """Whether there is surely no such process; where there is no way to ask, no."""
    if os.name != "posix":
        return False
    try:
        os.kill(pid, 0)  # sends nothing
    except OSError as error:  # or it is somebody else's
        return isinstance(error, ProcessLookupError)
    return False


def _sync_folder(folder: Path) -> None:
    """Write a renaming to the disk, where folders are files."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state; nothing in the file is executed.

    Raises:
        OSError: If there is no such file, or it can't be read.
        InputDataError: If it is torn, or holds something else.
    """
    content = io.BytesIO(Path(path).read_bytes())
    try:
        state = torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:  # what it is depends on where the bytes stop to fit
        raise InputDataError(
            f"Can't read the state in {os.fspath(path)!r}: the file is torn or is none "
            "that Strategy.save or run(checkpoint=...) wrote. Take an earlier one, or "
            "start anew."
        ) from error
    if not isinstance(state, dict):
        raise InputDataError(
            f"The file {os.fspath(path)!r} holds a {type(state).__name__}; need a "
            "state as Strategy.save writes it."
        )
    return state


def check_fits(state: dict[str, Any], config: dict[str, Any]) -> None:
    """Refuse the state of a strategy that was built otherwise.

    Args:
        state: What `Strategy.state_dict` returned once.
        config: What it has to agree on with the strategy that loads it.

    Raises:
        InputDataError: If it does not, or is of another version.
    """
    if not isinstance(state, dict):
        raise InputDataError(f"Got {type(state).__name__}; need a state_dict.")
    theirs = state.get("config")
    if theirs is not None and state.get("version") != STATE_VERSION:
        raise InputDataError(
            f"The state does not fit this strategy: it has the version "
            f"{state.get('version')!r}, and this release of botorch_sparse reads "
            f"{STATE_VERSION}. Load it with the release that wrote it, or tell a "
            "new strategy the history."
        )
    theirs = theirs if isinstance(theirs, dict) else {}
    if theirs != config:
        keys = config.keys() | theirs.keys()
        different = sorted(k for k in keys if theirs.get(k) != config.get(k))
        raise InputDataError(
            f"The state does not fit this strategy: {different} differ. Build the "
            "strategy with the arguments that it was saved with (names: the keys, "
            "columns and categories of the candidates)."
        )


def check_state(state: dict[str, Any], num_rows: int, dim: int) -> None:
    """Refuse the state of a strategy that contradicts itself.

    Args:
        state: What `Strategy.state_dict` returned once.
        num_rows: Rows `A` of its table; 0 on a continuous domain.
        dim: Its number `d` of features.

    Raises:
        InputDataError: If columns have different lengths, values are not finite, or
            numbers are of points, batches or trials that are not there.
        Exception: Whatever a part that is missing, or of another type, leads to.
    """
    history, trials = state["history"], PendingTrials.of_state(state)
    _check_evaluations(history, dim)
    points = range(num_rows + len(history["extra"]))
    pending = [trial.point for trial in trials]
    _check_numbers([*history["point"], *pending, *state["failed"]], points, "points")
    _check_numbers(history["batch"], range(-1, len(history["batches"])), "batches")
    _check_numbers(history["trial"], range(-1, trials.num_proposed), "trials")
    if any(id in trials for id in history["trial"]):
        raise InputDataError("Trials that are told are pending.")
    _check_numbers([state["num_learned"]], range(len(history["Y"]) + 1), "evaluations")
    _check_known([state.get(part) for part in ("surrogate", "fit")])
    torch.Generator().set_state(state["generator"].cpu())


def _check_evaluations(history: dict[str, Any], dim: int) -> None:
    extra = torch.as_tensor(history["extra"])
    if extra.dim() != 2 or extra.shape[1] != dim or not extra.isfinite().all():
        raise InputDataError(f"Points are no finite `k x {dim}` tensor.")
    sizes = {name: len(history[name]) for name in ("point", "Y", "batch", "trial")}
    if len(set(sizes.values())) > 1:
        raise InputDataError(f"Evaluations have different lengths: {sizes}.")
    values = torch.tensor(history["Y"], dtype=torch.float64)
    if values.dim() != 1 or not values.isfinite().all():
        raise InputDataError("Observations are not finite.")


def _check_known(part: Any) -> None:
    """Refuse NaN in what was learned."""
    if isinstance(part, dict | list | tuple):
        for each in part.values() if isinstance(part, dict) else part:
            _check_known(each)
    elif isinstance(part, Tensor | float) and bool(torch.as_tensor(part).isnan().any()):
        raise InputDataError("What was learned holds NaN.")


def _check_numbers(numbers: Iterable[Any], known: range, what: str) -> None:
    if any(type(i) is not int or i not in known for i in numbers):
        raise InputDataError(f"There are numbers of {what} that are not there.")
