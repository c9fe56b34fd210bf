"""Processes that choose together, and what they agree on.

All ranks run the same code with the same seed. What is read from a part of the table
comes from the rank that owns it, and what is computed from small matrices is computed
by one rank alone: no rank relies on another's arithmetic being like its own.
"""

import io
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from operator import methodcaller
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from botorch.exceptions.errors import BotorchError, InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import check_whole

# Seconds between signs of life, and of silence after which a rank counts as dead. A
# killed process is noticed at once: its connections close.
BEAT, SILENCE = 5.0, 45.0
# Seconds for which rank 0, where the store is, waits for the others' last signs.
GRACE = 2.0
FINISHED = "finished"


@contextmanager
def heartbeat(store: dist.Store, rank: int, size: int) -> Iterator[None]:
    """Give signs of life, and end this process where another one gives none.

    For machines that are cut off or stopped: nothing closes their connections, and an
    operation of a group would wait for ever.

    Args:
        store: What all ranks read and write.
        rank: Of this process.
        size: Number of processes.
    """
    over = threading.Event()
    watch = _Watch(methodcaller("clone")(store), rank, size)  # its own connection
    thread = threading.Thread(target=watch.run, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(BEAT)


class _Watch:
    """When each of the other ranks was heard of last."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        store.set_timeout(timedelta(seconds=BEAT))
        self._store = store
        self._rank, self._size = rank, size
        others = [other for other in range(size) if other != rank]
        self._heard = dict.fromkeys(others, ("", time.monotonic()))

    def run(self, over: threading.Event) -> None:
        """Until it is over, or a rank is silent for too long."""
        beat = 0
        while True:
            is_over = over.wait(BEAT if beat else 0.0)
            beat += 1
            try:
                self._store.set(_key(self._rank), FINISHED if is_over else f"{beat}")
                self._listen()
            except RuntimeError:  # as torch raises where the store is out of reach
                pass
            if is_over:
                if self._rank == 0:
                    self._wait_for_the_last()
                return
            self._end_if_alone()

    def _wait_for_the_last(self) -> None:
        """Until all have finished: who finds no store says so at length."""
        end = time.monotonic() + GRACE
        while time.monotonic() < end and any(
            value != FINISHED for value, _ in self._heard.values()
        ):
            time.sleep(0.02)
            try:
                self._listen()
            except RuntimeError:
                return

    def _listen(self) -> None:
        now = time.monotonic()
        for other, (value, _) in self._heard.items():
            if self._store.check([_key(other)]):
                latest = self._store.get(_key(other)).decode()
                if latest != value or latest == FINISHED:
                    self._heard[other] = latest, now

    def _end_if_alone(self) -> None:
        now = time.monotonic()
        silent = [
            other
            for other, (value, heard) in self._heard.items()
            if value != FINISHED and now - heard > SILENCE
        ]
        if silent:
            print(
                f"Rank {self._rank} of {self._size} ends: nothing was heard of ranks "
                f"{silent} for {SILENCE:g} seconds. What was checkpointed is whole; "
                "start again, on any number of ranks, and resume from it.",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)  # the main thread may wait in an operation for ever


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"


T = TypeVar("T")

# A rank that dies closes its connections, and the others know at once; `heartbeat` sees
# to the others. Who waits for a fit, or for the objective, waits as long as that takes.
PATIENCE = timedelta(days=30)
HOST = torch.device("cpu")


class RankError(BotorchError):
    """Another process is gone, or went another way."""


class GlobalMaximum(NamedTuple):
    """The largest value of all ranks.

    Attributes:
        value: The value.
        row: Whose it is.
        owner: The rank that has it.
    """

    value: float
    row: int
    owner: int


@dataclass(frozen=True)
class Ranks:
    """One process alone: what it has is what all have.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
        device: Where it computes: the host, or its own accelerator.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = HOST

    def __post_init__(self) -> None:
        check_whole("size", self.size)
        check_whole("rank", self.rank, 0)
        if self.rank >= self.size:
            raise InputDataError(
                f"Got rank={self.rank} of size={self.size}; need a smaller rank."
            )

    def gather(self, value: T) -> list[T]:
        """What each rank has, in their order; anything that can be pickled."""
        return [value]

    def stack(self, tensor: Tensor) -> Tensor:
        """Tensors of one shape and dtype, `size x ...`, in the order of the ranks."""
        return tensor.unsqueeze(0)

    def from_owner(self, tensor: Tensor, owner: int) -> Tensor:
        """The owner's tensor.

        Args:
            tensor: The owner's, and on the other ranks one of its shape and dtype.
            owner: The rank that has it.
        """
        return tensor

    def told(self, value: T | None) -> T:
        """What rank 0 has; the others give None."""
        if value is None:
            raise ValueError("Rank 0 has nothing to tell.")
        return value

    def once(self, compute: Callable[[], T]) -> T:
        """What rank 0 computes; all others wait for it.

        Tensors in it come to the accelerator of whoever waited.

        Args:
            compute: Takes no part in what ranks do together.

        Raises:
            Exception: On all ranks what `compute` raised on rank 0.
        """
        return compute()

    def once_drawing(self, generator: torch.Generator, compute: Callable[[], T]) -> T:
        """The same for what draws random numbers; the generators stay equal."""
        value, state = self.once(lambda: (compute(), generator.get_state()))
        generator.set_state(state)
        return value

    def best(self, value: float, row: int) -> GlobalMaximum:
        """The largest value of all ranks; ties go to the lowest row.

        Args:
            value: The largest of this rank's; NaN counts as minus infinity.
            row: Its row in the whole table.
        """
        ours = torch.tensor([value, row], dtype=torch.float64)  # exact below 2^53
        values, rows = self.stack(ours).T.tolist()
        pairs = zip(values, rows, strict=True)
        order = [(-v if v == v else torch.inf, row) for v, row in pairs]
        owner = min(range(self.size), key=order.__getitem__)
        return GlobalMaximum(values[owner], int(rows[owner]), owner)

    def sum(self, tensor: Tensor) -> Tensor:
        """Sums over the ranks.

        They are exact for whole numbers, and where an entry is not zero on one rank
        only: such sums do not depend on who owns what.
        """
        return self.stack(tensor).sum(0)

    def min(self, tensor: Tensor) -> Tensor:
        """The least over the ranks, entry by entry."""
        return self.stack(tensor).amin(0)

    def max(self, tensor: Tensor) -> Tensor:
        """The largest over the ranks, entry by entry; NaN if one of them is NaN."""
        return self.stack(tensor).amax(0)

    def agree(self, what: str, value: Callable[[], Any]) -> None:
        """Refuse to go on with ranks that were given something else.

        Args:
            what: What the value is, for the message.
            value: Returns plain values that compare by `==`.

        Raises:
            InputDataError: On all ranks, if one has another value than rank 0.
        """
        if self.size == 1:
            return
        values = self.gather(value())
        others = [rank for rank, other in enumerate(values) if other != values[0]]
        if others:
            raise InputDataError(
                f"Ranks {others} have another {what} than rank 0: "
                f"{_short(values[others[0]])} and {_short(values[0])}. Start all with "
                "the same arguments and the same table."
            )


ALONE = Ranks()


@dataclass(frozen=True)
class ProcessRanks(Ranks):
    """The processes of the default `torch.distributed` group.

    Plain values and tensors of the host travel by gloo, tensors of CUDA devices by
    NCCL where the ranks compute on such, and any others through the host.
    """

    def gather(self, value: T) -> list[T]:
        """See `Ranks`."""
        values: list[Any] = [None] * self.size
        with self._together():
            dist.all_gather_object(values, value)
        return values

    def stack(self, tensor: Tensor) -> Tensor:
        """See `Ranks`."""
        ours = self._travelling(tensor)
        parts = [torch.empty_like(ours) for _ in range(self.size)]
        with self._together():
            dist.all_gather(parts, ours)
        return torch.stack(parts).to(tensor.device)

    def from_owner(self, tensor: Tensor, owner: int) -> Tensor:
        """See `Ranks`."""
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

    def told(self, value: T | None) -> T:
        """See `Ranks`."""
        sent: list[Any] = [_packed(value) if self.rank == 0 else None]
        with self._together():
            dist.broadcast_object_list(sent, src=0)
        return super().told(value if self.rank == 0 else self._unpacked(sent[0]))

    def _unpacked(self, content: bytes) -> Any:
        """What `_packed` gave, with rank 0's accelerator replaced by one's own."""

        def own(storage: Any, where: str) -> Any:
            is_there = self.device != HOST and where.startswith(self.device.type)
            return storage.to(device=self.device) if is_there else None

        buffer = io.BytesIO(content)
        return torch.load(buffer, map_location=own, weights_only=False)

    def once(self, compute: Callable[[], T]) -> T:
        """See `Ranks`."""
        value, error = self.told(_outcome(compute) if self.rank == 0 else None)
        if error is not None:
            raise error
        return cast(T, value)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Errors of a connection say what to do."""
        try:
            yield
        except RuntimeError as error:  # as torch raises them, from gloo and NCCL
            raise RankError(
                f"Rank {self.rank} of {self.size} lost the others: a process has died "
                f"or was stopped ({_short(error)}). What was checkpointed is whole; "
                "start again, on any number of ranks, and resume from it."
            ) from error

    def __reduce__(self) -> tuple[type[Ranks], tuple[()]]:
        """A copy in another process is alone there."""
        return Ranks, ()


@contextmanager
def joined_ranks(device: torch.device | str = "cpu") -> Iterator[Ranks]:
    """The processes that `torchrun` started; one alone where it did not.

    `torchrun` gives one thread to each of several processes, and any number of them
    round alike: so does one process then. OMP_NUM_THREADS is another number for all.

    With `device="cuda"` each computes on a GPU of its own: `ranks.device`, where
    `ShardedDomain.of` puts its rows. Tensors go from one to another by NCCL.

    Args:
        device: Where the strategies compute.

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
    store, rank, size = next(dist.rendezvous("env://"))
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=PATIENCE
    )
    with heartbeat(store, rank, size):
        try:
            yield (ProcessRanks if size > 1 else Ranks)(rank, size, own)
        finally:  # may wait for one that is dead, until it is noticed
            dist.destroy_process_group()


def own_device(device: torch.device | str) -> torch.device:
    """Where this process computes: each that `torchrun` started has its own GPU.

    Raises:
        InputDataError: If there are fewer GPUs than processes on this machine.
    """
    device = torch.device(device)
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
        return RankError(f"Rank 0 failed: {_short(repr(error))}.")
    return error


def _short(value: object) -> str:
    """One line of at most 200 characters."""
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else f"{text[:197]}..."
