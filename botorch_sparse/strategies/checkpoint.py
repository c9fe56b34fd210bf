"""States in files that are whole or not there."""

import io
import os
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError


def write_state(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state so that the file is the old one or the new one at any moment.

    Into a temporary file of the same folder, to the disk, then under its name.

    Raises:
        OSError: If the folder is not there, or can't be written to.
    """
    target = Path(path).absolute()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


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
        state = torch.load(content, weights_only=True)
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
