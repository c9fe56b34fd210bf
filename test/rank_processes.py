"""Python processes that are ranks, without `torchrun`, which would stop survivors."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import simulated_device
import torch
from torch.distributed import TCPStore

ROOT = Path(__file__).parent.parent
HANGS = 3600  # seconds after which ranks wait for each other for ever

# Devices with numbers of ranks, each of which needs a GPU of its own.
DEVICE_WORLDS = [
    pytest.param(
        "cuda",
        size,
        marks=pytest.mark.skipif(
            torch.cuda.device_count() < size, reason=f"needs {size} GPUs"
        ),
    )
    for size in (1, 2, 4)
]
DEVICE_WORLDS += [
    pytest.param(
        simulated_device.DEVICE,
        2,
        marks=pytest.mark.skipif(
            not simulated_device.IS_AVAILABLE, reason="needs torch >= 2.9 and no GPU"
        ),
    )
]


class Ended(NamedTuple):
    """How a process ended."""

    status: int
    out: str
    err: str


def ended_ranks(size: int, *arguments: str, asleep: Sequence[int] = ()) -> list[Ended]:
    """How so many ranks of one program ended; `torchrun` would start the same ones.

    They meet in a store of this process, as those of `torchrun` do: no other process
    can take its port, and it is there until the last of them has ended.

    Args:
        size: How many.
        *arguments: Of the interpreter, such as `-c`, `program`.
        asleep: Ranks that do not end: killed when the others have ended.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True)
    shared = os.environ | {
        "PYTHONPATH": str(ROOT),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    found = {}
    try:
        for rank in sorted(range(size), key=asleep.__contains__):
            if rank in asleep:
                processes[rank].kill()
            found[rank] = processes[rank].communicate(timeout=HANGS)
    finally:
        for process in processes:
            process.kill()
    return [Ended(processes[rank].returncode, *found[rank]) for rank in range(size)]
