"""A number of torch's threads for a block, and who takes part in `for_each`."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads_set(number: int) -> Iterator[None]:
    """That many threads of torch, which the block leaves as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
        assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(before)
