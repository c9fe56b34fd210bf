"""What Ctrl-C has to wait for, and threads for each other."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from botorch.settings import validate_input_scaling
from gpytorch.settings import lazily_evaluate_kernels


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
def settings_kept() -> Iterator[None]:
    """Set settings of BoTorch and GPyTorch back where a block is interrupted.

    They do so by themselves, but for an interrupt at that very moment.
    """
    known = [(s, s.on()) for s in (validate_input_scaling, lazily_evaluate_kernels)]
    try:
        yield
    except BaseException:
        for setting, state in known:
            setting(state).__enter__()  # for good
        raise


class StepLock(type(threading.RLock())):  # type: ignore[misc]
    """A lock that its thread may take again; a copy is another one, and free.

    No signal comes between its `__exit__`, which is in C, and the block before it.
    """

    def __reduce__(self) -> tuple[type["StepLock"], tuple[()]]:
        return StepLock, ()
