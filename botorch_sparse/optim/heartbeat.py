"""Ranks that fall silent are noticed, whatever the others wait for."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from operator import methodcaller

import torch.distributed as dist

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
