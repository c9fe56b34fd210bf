"""An evaluation in a process of its own, which is ended where it takes too long.

Whoever evaluates waits for that process and does nothing else: a thread, a process of
a pool, a Dask worker, or the run itself. So the time counts from where the objective is
called, a pool does not break, and the evaluations of others are left alone.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, TypeAlias

import numpy as np
import torch
from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import short_repr

# A day in seconds: the operating system waits for some weeks at most.
LONGEST_WAIT = 86_400.0
# What a process sends: that the objective is called, then its values or its error.
Answer: TypeAlias = tuple[str, Any]

_starting = threading.Lock()


def packed(call: Callable[..., Any], objective: Any) -> bytes:
    """A call in a form that any process can do; by `cloudpickle` where that is there.

    Raises:
        InputDataError: If the objective can't be pickled.
    """
    try:
        return bytes(_pickler().dumps(call))
    except Exception as error:  # as objects raise where they are pickled
        raise InputDataError(
            f"Got timeout with objective={short_repr(objective)}, which can't be "
            f"pickled ({short_repr(str(error))}); need one that can, since each "
            "evaluation is then a process of its own. Define it at the top level of a "
            "module, or install cloudpickle."
        ) from error


def _pickler() -> Any:
    """What pickles functions by their content too, such as those of a notebook."""
    try:
        return import_module("cloudpickle")
    except ImportError:
        return pickle


def evaluate_within(timeout: float, payload: bytes) -> list[float] | None:
    """One evaluation, or None where it took longer than so many seconds.

    Args:
        timeout: Counted from the call of the objective.
        payload: The call, `packed`.

    Raises:
        ChildProcessError: If the process ended without a value, such as by a crash.
        Exception: What the objective raised.
    """
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(  # type: ignore[attr-defined]
        target=_answer, args=(payload, sender), daemon=False
    )
    kind, value, exit_code = "none", None, None
    try:
        _start(process)
        sender.close()  # so that the end of the process is the end of the pipe
        kind, value = _last_answer(receiver, timeout)
    finally:
        exit_code = _end(process, with_group=kind not in ("values", "error"))
        receiver.close()
    if kind == "none":
        raise ChildProcessError(
            f"The process of the evaluation ended with code {exit_code} and without a "
            "value. A crash or `os._exit` does that, and so does a script whose run is "
            "not below `if __name__ == '__main__':`."
        )
    if kind == "error":
        raise value
    values: list[float] | None = value
    return values


def _context() -> BaseContext:
    """How processes are started: forks of this one only where nothing else is in it.

    A fork of threads inherits locks that nobody will open. A worker of a pool, which
    has one thread and leaves all work to its forks, is safe. Others ask a server for
    forks, which has imported this module once, where there are such servers.
    """
    is_worker = multiprocessing.parent_process() is not None
    is_alone = is_worker and threading.active_count() == 1
    if is_alone and sys.platform == "linux":
        return multiprocessing.get_context("fork")
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _start(process: Any) -> None:
    """Start a process, also from a daemonic one, as Dask's workers are.

    These must not leave processes behind: what is started here ends with its parent.
    """
    with _starting:
        this = multiprocessing.current_process()
        is_daemonic = this.daemon
        if is_daemonic:
            this.daemon = False
        try:
            process.start()
        finally:
            if is_daemonic:
                this.daemon = True


def _last_answer(receiver: Connection, timeout: float) -> Answer:
    """The values or the error; `"late"` without one in time, `"none"` at the end."""
    try:
        answer: Answer = receiver.recv()
        if answer[0] == "called":
            if not _comes_within(receiver, timeout):
                return "late", None
            answer = receiver.recv()
    except EOFError:
        return "none", None
    return answer


def _comes_within(receiver: Connection, timeout: float) -> bool:
    """Whether there is something to receive before the time is over."""
    end = time.monotonic() + timeout
    while (left := end - time.monotonic()) > 0:
        if receiver.poll(min(left, LONGEST_WAIT)):
            return True
    return False


def _end(process: Any, *, with_group: bool) -> int | None:
    """End a process, and with its group also what it has started; its exit code."""
    if process.pid is None:  # it did not start
        return None
    if with_group and hasattr(os, "killpg"):
        with suppress(OSError):  # it has no group yet
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()
    exit_code: int | None = process.exitcode
    process.close()
    return exit_code


def _answer(payload: bytes, sender: Connection) -> None:
    """What the process does: all of an evaluation."""
    if hasattr(os, "setsid"):
        os.setsid()  # a group of its own, which Ctrl-C leaves to its parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    np.random.seed()  # noqa: NPY002 (forks of one process would draw the same noise)
    torch.seed()
    try:
        call = pickle.loads(payload)
        sender.send(("called", None))
        answer: Answer = ("values", call())
    except Exception as error:
        answer = ("error", _portable(error))
    sys.stdout.flush()
    sys.stderr.flush()
    sender.send_bytes(_pickler().dumps(answer))


def _end_with_parent() -> None:
    """Wait for the end of the parent, and end with it."""
    if (parent := multiprocessing.parent_process()) is None:
        return
    parent.join()
    if hasattr(os, "killpg"):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _portable(error: Exception) -> Exception:
    """An error that arrives as it is, or one that says what it was."""
    frames = "".join(traceback.format_exception(error))
    try:
        pickle.loads(_pickler().dumps(error))
    except Exception:  # as objects raise where they are pickled
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"In its own process:\n{frames}")
    return error
