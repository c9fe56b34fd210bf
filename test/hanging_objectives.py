"""Objectives of rows for processes of their own, which find them here by name."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

HOUR = 3600


class TwoWords(Exception):
    """An error that can't be pickled: it is made of other things than it holds."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def hangs(folder: Path, rows: set[int], index: Tensor) -> float:
    """Notes in a file that it was called; hangs on some rows, with a helper.

    Every second of these loops, and the others sleep.
    """
    row = int(index)
    if row not in rows:
        note(folder, row, [os.getpid()])
        return row / 2
    sleeps = f"import time; time.sleep({HOUR})"
    with subprocess.Popen([sys.executable, "-c", sleeps]) as helper:
        note(folder, row, [os.getpid(), helper.pid])
        end = time.monotonic() + HOUR  # so that no test leaves one behind for ever
        while time.monotonic() < end:
            time.sleep(HOUR * (sorted(rows).index(row) % 2))
    return 0.0


def note(folder: Path, row: int, pids: list[int]) -> None:
    """A file for a call: the row, and the processes that it has."""
    new = folder / f"new-{os.getpid()}"
    new.write_text(" ".join(map(str, [row, *pids])))
    new.rename(folder / f"called-{os.getpid()}-{time.time_ns()}")


def noise(library: str, index: Tensor) -> float:
    if library == "numpy":
        return float(np.random.rand())  # noqa: NPY002 (objectives of users do)
    return float(torch.rand(1))


def crashes(index: Tensor) -> float:
    os._exit(3)


def raises(index: Tensor) -> float:
    raise KeyError("no such row")


def raises_what_is_not_picklable(index: Tensor) -> float:
    raise TwoWords("lamp", "broken")


def waits_for(path: Path) -> str:
    """Something else that a pool does, until there is a file."""
    while not path.exists():
        time.sleep(0.01)
    return "done"
