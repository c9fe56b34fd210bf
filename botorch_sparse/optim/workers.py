"""Small products in threads that need not wait for one another.

A product of a tile takes some microseconds, less than the threads inside of a library
need to meet, and milliseconds less where cores are shared. So each product has one
thread, and tiles are spread over threads of our own.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for each operation of torch that is called from this thread."""
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


@torch.no_grad()
def spread(tasks: Sequence[Callable[[], None]]) -> None:
    """Run each task on a thread of its own, with one thread for its operations."""

    def run(task: Callable[[], None]) -> None:
        with torch.no_grad():
            torch.set_num_threads(1)
            task()

    with one_thread():  # it also says how many there are again, in the end
        if len(tasks) == 1:
            tasks[0]()
            return
        with ThreadPoolExecutor(len(tasks)) as executor:
            for done in [executor.submit(run, task) for task in tasks]:
                done.result()
