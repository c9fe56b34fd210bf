"""States: in files that are whole or not there, and sound or refused."""

import errno
import hashlib
import io
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import as_python

STATE_VERSION = 9
MARK = b"sha256:"
# Bytes of a file's name in its temporary's, which file systems limit to 255.
LONGEST_NAME = 200
COMMENT = len(MARK) + 2 * hashlib.sha256().digest_size


def write_state(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state with its checksum; see `write_whole`."""
    write_whole(path, partial(_write_checked, as_python(state)))


def _write_checked(state: object, file: BinaryIO) -> None:
    """As `torch.save` does, with the SHA-256 of all before it as the archive's comment.

    A zip archive ends with the length of its comment, in two bytes, and the comment;
    `torch.load` and other readers pass over it. O(size).
    """
    content = io.BytesIO()
    torch.save(state, content)
    content.seek(-2, io.SEEK_END)
    content.write(COMMENT.to_bytes(2, "little"))
    file.write(content.getbuffer())
    file.write(MARK + _digest(content.getbuffer()))


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _is_damaged(content: bytes) -> bool:
    """Whether content has a checksum of something else. O(size)."""
    at = content.rfind(MARK, max(0, len(content) - COMMENT))
    whole = memoryview(content)
    return at >= 0 and whole[at + len(MARK) :] != _digest(whole[:at])


def write_whole(
    path: str | os.PathLike[str], write: Callable[[BinaryIO], object]
) -> None:
    """Write a file so that it is the old one or the new one at any moment.

    Into a temporary file of the same folder, one for each thread, to the disk, then
    under its name. What processes left beside it that were killed while they wrote is
    removed first. A link stays one, and the file it leads to is written.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Can't save where something is no file", str(path))
    _remove_leftovers(target)
    own = f"{os.getpid()}.{threading.get_native_id()}"
    temporary = target.with_name(f".{_cut(target.name)}.{own}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    _sync_folder(target.parent)


def _cut(name: str) -> str:
    """The beginning of a name; a thread writes one file at a time, whatever others."""
    return os.fsencode(name)[:LONGEST_NAME].decode(errors="ignore")


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of processes that are no more; all others stay."""
    name = re.compile(
        re.escape(f".{_cut(target.name)}.") + r"([1-9][0-9]{0,8})(\.[0-9]+)?\.tmp"
    )
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

    What `torch.save` wrote has no checksum, and is read without one.
    """
    content = Path(path).read_bytes()
    if _is_damaged(content):
        raise InputDataError(
            f"Can't read the state in {os.fspath(path)!r}: the file is torn or "
            "damaged, its bytes are not those that were written (SHA-256). Take an "
            "earlier one, or start anew."
        )
    try:
        file = io.BytesIO(content)
        state = torch.load(file, map_location="cpu", weights_only=True)
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
    """Refuse the state of a strategy that was built otherwise."""
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
