"""Ranks that are threads of one process: quick, where no process has to die."""

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import simulated_device
import torch
from rank_processes import HANGS
from torch import Tensor

from botorch_sparse.pools.shard import HOST, Ranks

T = TypeVar("T")


class _Table:
    """Where threads lay what they have."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=HANGS)
        self.places: list[Any] = [None] * size


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    """Ranks over a table that all threads see."""

    table: _Table = field(default_factory=lambda: _Table(1), compare=False)

    def gather(self, value: T) -> list[T]:
        self.table.places[self.rank] = copy.deepcopy(value)
        self.table.barrier.wait()
        values = copy.deepcopy(self.table.places)
        self.table.barrier.wait()
        return values

    def stack(self, tensor: Tensor) -> Tensor:
        return torch.stack(self.gather(tensor.detach()))

    def from_owner(self, tensor: Tensor, owner: int) -> Tensor:
        return self.gather(tensor.detach())[owner]

    def once(self, compute: Callable[[], T]) -> T:
        outcome: tuple[Any, Exception | None] | None = None
        if self.rank == 0:
            try:
                outcome = compute(), None
            except Exception as error:
                outcome = None, error
        value, error = self.gather(outcome)[0]
        if error is not None:
            raise error
        return value


def together(
    size: int, work: Callable[[Ranks], T], device: torch.device = HOST
) -> list[T]:
    """What each of so many ranks returns; the first error of one is raised.

    Args:
        size: How many.
        work: What each does.
        device: Where all of them compute; the simulated one is there in each thread.
    """
    table = _Table(size)
    is_simulated = device.type == "sim"

    def run(rank: int) -> T:
        place = simulated_device.accelerator() if is_simulated else nullcontext()
        try:
            with place:
                return work(ThreadRanks(rank, size, device, table))
        except BaseException:
            table.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as threads:
        futures = [threads.submit(run, rank) for rank in range(size)]
    errors = [e for f in futures if (e := f.exception()) is not None]
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [future.result() for future in futures]
