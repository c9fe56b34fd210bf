"""The processes that `torchrun` started, as ranks that choose together.

What is read from a part of the table comes from the rank that owns it, and what is
computed from small matrices is computed by one rank alone: no rank relies on another's
arithmetic being like its own.

`torch.distributed` notices when a rank is gone. A process that ends closes its
connections, and `torchrun` stops the others of its machine. A machine that is cut off
closes none: an operation waits for it until `timeout`.
"""

import io
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from botorch.exceptions.errors import BotorchError, InputDataError
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import short_repr
from botorch_sparse.pools.shard import HOST, Ranks

T = TypeVar("T")
# How long ranks wait in one operation: for the objective, or a fit, on rank 0.
TIMEOUT = timedelta(days=1)
# Seconds before a group ends, in which its threads end what they are at.
LETTING_GO = 0.1


class RankError(BotorchError):
    """Another process is gone, or went another way."""


@dataclass(frozen=True)
class ProcessRanks(Ranks):
    """The processes of the default `torch.distributed` group.

    Plain values and tensors of the host travel by gloo, tensors of CUDA devices by NCCL
    where the ranks compute on such, and any others through the host.
    """

    @override
    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        with self._together():
            dist.all_gather_object(values, value)
        return values

    @override
    def stack(self, tensor: Tensor) -> Tensor:
        ours = self._travelling(tensor)
        parts = [torch.empty_like(ours) for _ in range(self.size)]
        with self._together():
            dist.all_gather(parts, ours)
        return torch.stack(parts).to(tensor.device)

    @override
    def from_owner(self, tensor: Tensor, owner: int) -> Tensor:
        moved = self._travelling(tensor)
        if moved.data_ptr() == tensor.data_ptr() and owner != self.rank:
            moved = moved.clone()  # the caller's tensor stays as it is
        with self._together():
            dist.broadcast(moved, src=owner)
        return moved.to(tensor.device)

    def _travelling(self, tensor: Tensor) -> Tensor:
        """A tensor where there is a collective for it."""
        has_nccl = tensor.device.type == self.device.type == "cuda"
        return tensor.detach().to(tensor.device if has_nccl else HOST).contiguous()

    @override
    def once(self, compute: Callable[[], T]) -> T:
        outcome = _outcome(compute) if self.rank == 0 else None
        sent: list[Any] = [None if outcome is None else _packed(outcome)]
        with self._together():
            dist.broadcast_object_list(sent, src=0)
        value, error = self._unpacked(sent[0]) if outcome is None else outcome
        if error is not None:
            raise error
        return cast(T, value)

    def _unpacked(self, content: bytes) -> Any:
        """What `_packed` gave, with rank 0's accelerator replaced by one's own."""

        def own(storage: Any, where: str) -> Any:
            is_there = self.device != HOST and where.startswith(self.device.type)
            return storage.to(device=self.device) if is_there else None

        buffer = io.BytesIO(content)
        return torch.load(buffer, map_location=own, weights_only=False)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Errors of a connection say what to do."""
        try:
            yield
        except RuntimeError as error:  # as torch raises them, from gloo and NCCL
            raise RankError(
                f"Rank {self.rank} of {self.size} lost the others: a process has died "
                f"or gave no answer ({short_repr(error, 200)}). What was checkpointed "
                "is whole; start again, on any number of ranks, and resume from it."
            ) from error

    def __reduce__(self) -> tuple[type[Ranks], tuple[()]]:
        """A copy in another process is alone there."""
        return Ranks, ()


@contextmanager
def joined_ranks(
    device: torch.device | str = "cpu", timeout: timedelta = TIMEOUT
) -> Iterator[Ranks]:
    """The processes that `torchrun` started; one alone where it did not.

    `torchrun` gives one thread to each of several processes, and any number of them
    round alike: so does one process then. OMP_NUM_THREADS is another number for all.

    With `device="cuda"` each computes on a GPU of its own: `ranks.device`, where
    `ShardedDomain.of` puts its rows. Tensors go from one to another by NCCL.

    Args:
        device: Where the strategies compute.
        timeout: How long a rank waits for the others: longer than the objective takes
            for a batch. After that a machine that is cut off counts as dead.

    Raises:
        InputDataError: If there are more processes on this machine than GPUs.
    """
    own = own_device(device)
    if not dist.is_torchelastic_launched():
        yield Ranks(device=own)
        return
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    backend = "gloo"
    if own.type == "cuda":
        torch.cuda.set_device(own)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=timeout)
    rank, size = dist.get_rank(), dist.get_world_size()
    try:
        yield (ProcessRanks if size > 1 else Ranks)(rank, size, own)
    finally:
        # A thread of Gloo lets go of a tensor when its operation has ended already, and
        # needs Python's lock for it. The end of the group may hold that lock while it
        # waits for the thread (seen with torch 2.6), so that neither goes on.
        time.sleep(LETTING_GO)
        dist.destroy_process_group()


def own_device(device: torch.device | str) -> torch.device:
    """Where this process computes: each that `torchrun` started has its own GPU.

    Raises:
        InputDataError: If it is no device, or if there are fewer GPUs than processes on
            this machine.
    """
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:  # as torch raises
        raise InputDataError(
            f"Got device={short_repr(device)}; need one such as 'cpu' or 'cuda'."
        ) from error
    if device.type != "cuda" or not dist.is_torchelastic_launched():
        return device
    num, size = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if size > 1 and device.index is not None:
        raise InputDataError(
            f"Got {device} for {size} processes of this machine, which need a GPU "
            "each: give cuda, and each takes its own."
        )
    if size > num:
        raise InputDataError(
            f"Got {size} processes on a machine with {num} CUDA devices; each needs "
            "its own. Start fewer (--nproc-per-node), or compute on the CPU."
        )
    if device.index is not None:
        return device
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def _packed(value: object) -> bytes:
    """A value that may hold tensors, as it travels."""
    buffer = io.BytesIO()
    torch.save(value, buffer, pickle_protocol=pickle.DEFAULT_PROTOCOL)
    return buffer.getvalue()


def _outcome(compute: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What a computation returned, or what it raised."""
    try:
        return compute(), None
    except Exception as error:  # of whatever kind: all ranks raise it
        return None, _portable(error)


def _portable(error: Exception) -> Exception:
    """An error as it can be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of whatever kind; what counts is that it can't be sent
        return RankError(f"Rank 0 failed: {short_repr(error, 200)}.")
    return error
