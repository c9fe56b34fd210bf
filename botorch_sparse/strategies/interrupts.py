"""What Ctrl-C has to wait for, and threads for each other."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from botorch.settings import validate_input_scaling


@contextmanager
def undivided() -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended; a second one does not wait."""
    usual = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(usual):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []

    def wait(number: int, frame: FrameType | None) -> None:
        received.append((number, frame))
        if len(received) > 1:
            usual(number, frame)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if received:
        usual(*received[0])


@contextmanager
def checks_kept() -> Iterator[None]:
    """Leave BoTorch's checks of data on where a block is interrupted.

    Models that are built here switch them off and on, but for an interrupt at that
    very moment.
    """
    are_on = validate_input_scaling.on()
    try:
        yield
    except BaseException:
        if are_on:
            validate_input_scaling(True).__enter__()  # for good
        raise


class StepLock(type(threading.RLock())):  # type: ignore[misc]
    """A lock that its thread may take again; a copy is another one, and free.

    No signal comes between its `__exit__`, which is in C, and the block before it.
    """

    def __reduce__(self) -> tuple[type["StepLock"], tuple[()]]:
        return StepLock, ()
