"""`python -m botorch_sparse`: the demo, and `suggest` with that as the first word."""

import os
import signal
from typing import NoReturn

INTERRUPTED = 130  # as shells have it: 128 + SIGINT


def _leave(*_: object) -> NoReturn:
    """End at once at Ctrl-C: nothing has begun while modules are imported."""
    os.write(2, b"python -m botorch_sparse: interrupted before it began\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, _leave)  # the imports from here on take seconds

from botorch_sparse.demo.command import main  # noqa: E402

if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
