"""Python processes that are ranks, without `torchrun`, which would stop survivors."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import simulated_device
import torch

ROOT = Path(__file__).parent.parent

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


def start_ranks(size: int, *arguments: str) -> list[subprocess.Popen[str]]:
    """So many ranks of one program; those that `torchrun` would start.

    Args:
        size: How many.
        *arguments: Of the interpreter, such as `-c`, `program`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = os.environ | {
        "PYTHONPATH": str(ROOT),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_RUN_ID": "test",
    }
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def ended(
    processes: Sequence[subprocess.Popen[str]], *, is_killed: bool = False
) -> list[Ended]:
    """Wait for processes, or kill them first; none outlives this."""
    if is_killed:
        for process in processes:
            process.kill()
    try:
        found = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        Ended(process.returncode, *texts)
        for process, texts in zip(processes, found, strict=True)
    ]
