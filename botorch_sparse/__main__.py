"""`python -m botorch_sparse`: the demo, or `suggest` if that is the first word."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from botorch_sparse.command_line import INTERRUPTED


def main(arguments: Sequence[str]) -> None:
    """Run the demo or `suggest`."""
    command_of(arguments)()


def command_of(arguments: Sequence[str]) -> Callable[[], None]:
    """The command that arguments name, imported and ready to run."""
    if list(arguments[:1]) != ["suggest"]:
        from botorch_sparse.demo.demo_command import main as demo

        return lambda: demo(arguments)
    try:
        from botorch_sparse.suggest.suggest_command import main as suggest
    except ModuleNotFoundError as error:
        if error.name not in ("pandas", "filelock"):
            raise
        print(
            f"python -m botorch_sparse suggest: error: {error.name} is missing; "
            "pip install 'botorch_sparse[suggest]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    return lambda: suggest(arguments[1:])


def _leave(*_: object) -> NoReturn:
    """End at once at Ctrl-C: nothing has begun while modules are imported."""
    os.write(2, b"python -m botorch_sparse: interrupted before it began\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    # Threads of torch that wait let other processes compute; read when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)  # imports take seconds
    gc.disable()  # what imports make is no garbage: a fifth of the time of a short call
    command = command_of(sys.argv[1:])
    gc.freeze()
    gc.enable()
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()
