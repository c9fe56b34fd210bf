"""What Ctrl-C has to wait for, and threads for each other."""

import signal
import threading
import warnings
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
    """Leave checks of data and filters of warnings where a block is interrupted.

    Models that are built here switch BoTorch's checks, and warnings of them, off and
    on, but for an interrupt at that very moment. Errors leave all that in order, and
    other threads may have filters of their own for a moment.
    """
    are_on, filters = validate_input_scaling.on(), list(warnings.filters)
    try:
        yield
    except BaseException as error:
        if are_on:
            validate_input_scaling(True).__enter__()  # for good
        if not isinstance(error, Exception) and list(warnings.filters) != filters:
            warnings.resetwarnings()  # also in what Python keeps of them
            warnings.filters = filters
        raise


class StepLock(type(threading.RLock())):  # type: ignore[misc]
    """A lock that its thread may take again; a copy is another one, and free.

    No signal comes between its `__exit__`, which is in C, and the block before it.
    """

    def __reduce__(self) -> tuple[type["StepLock"], tuple[()]]:
        return StepLock, ()
