"""Small products in threads that need not wait for one another.

A product of a tile takes some microseconds, less than the threads inside of a library
need to meet, and milliseconds less where cores are shared. So each product has one
thread, and tiles are spread over threads of our own.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import torch

MAX_THREADS = 64


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for each operation of torch that is called from this thread."""
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Threads that stay: each would allocate its libraries' buffers anew.

    Args:
        process: Whose they are; those of a parent are not there after a fork.
    """
    return ThreadPoolExecutor(MAX_THREADS)


@torch.no_grad()
def spread(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks on threads of our own, each with one thread for its operations."""

    def run(task: Callable[[], None]) -> None:
        with torch.no_grad():
            torch.set_num_threads(1)
            task()

    with one_thread():  # it also says how many there are again, in the end
        if len(tasks) == 1:
            tasks[0]()
            return
        threads = _threads(os.getpid())
        for done in [threads.submit(run, task) for task in tasks]:
            done.result()
