"""How many threads a product may have without a change of its bits.

A product that threads share may be cut in another way for each number of them. So a
product has one thread, as kernels have, and threads take one tile of a batch each. On
some processors MKL gives whole products of a batch to its threads, on others it does
not; the machine at hand is asked once. Threads of our own would wait longer for
Python's lock than for these products, which take some microseconds.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial

import torch
from torch import Tensor

# Rows, inner sizes and tiles of the products that the machine is asked about.
SHAPES = ((64, 64), (40, 64), (16, 120), (8, 200))
NUM_TILES = (2, 3, 8, 11)
WIDTH = 512


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for each operation of torch that is called from this thread.

    A thread that is started meanwhile has one thread too, and keeps it.
    """
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
    """All threads for a batch of products that keep their bits, else one."""
    keeps = num_tiles > 1 and keeps_bits(torch.get_num_threads())
    return nullcontext() if keeps else one_thread()


@cache
def keeps_bits(threads: int) -> bool:
    """Whether so many threads give the bits of one, as seen on some products.

    Cost: some tens of milliseconds, once.
    """
    if threads == 1 or not torch.backends.mkl.is_available():
        return threads == 1
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    numbers = (*NUM_TILES, 2 * threads)
    for dtype in (torch.float64, torch.float32):
        A = draw(1, 64, 200, dtype=dtype)
        B = draw(max(numbers), 200, WIDTH, dtype=dtype)
        for rows, inner in SHAPES:
            for tiles in numbers:
                product = A[:, :rows, :inner], B[:tiles, :inner]
                if not torch.equal(_one_by_one(*product), _together(*product)):
                    return False
    return True


def _one_by_one(A: Tensor, B: Tensor) -> Tensor:
    with one_thread():
        return torch.cat([torch.bmm(A, tile) for tile in B.split(1)])


def _together(A: Tensor, B: Tensor) -> Tensor:
    """The products with tiles of one matrix, written into a part of another."""
    tiles = B.transpose(0, 1).contiguous().transpose(0, 1)
    out = B.new_empty(len(B), 2 * A.shape[1], WIDTH)[:, : A.shape[1]]
    return torch.bmm(A.expand(len(B), -1, -1), tiles, out=out)
