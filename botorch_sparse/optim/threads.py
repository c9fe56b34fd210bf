"""How many threads a product may have without a change of its bits.

A product that threads share may be cut in another way for each number of them. So a
product has one thread, and threads take one tile of a batch each: in a batch of
products MKL gives whole ones to its threads. Threads of our own would wait longer for
Python's lock than for these products, which take some microseconds.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for each operation of torch that is called from this thread."""
    number = torch.get_num_threads()
    if number == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


def threads_for(num_tiles: int) -> AbstractContextManager[None]:
    """All threads for a batch of products, and one for a single product.

    Other libraries than MKL cut each product of a batch.
    """
    is_batch = num_tiles > 1 and torch.backends.mkl.is_available()
    return nullcontext() if is_batch else one_thread()
