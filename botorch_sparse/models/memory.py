"""How many inducing points a memory budget allows."""

import math
import os
from pathlib import Path

import torch

# Peak of a fit and of a first posterior, in float64 numbers: measured 26 m^2 at
# m = 1000 and 22 m^2 at m = 2000, whatever n is, and blocks of rows.
PER_PAIR, PER_POINT = 26, 8192
BYTES = 8
# Share of the free memory that a model may take by default.
SHARE = 0.25
UNKNOWN_MEMORY = 4 * 2**30

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def affordable_inducing_points(max_memory: int) -> int:
    """The largest `m` whose fit and posterior stay within a budget, at least one.

    Nothing of the size of the data is kept, so that the budget does not depend on `n`.

    Args:
        max_memory: Bytes.

    Example:
        >>> affordable_inducing_points(2**30)
        2119
    """
    # PER_PAIR m^2 + PER_POINT m = budget
    budget = max_memory / BYTES
    half = PER_POINT / (2 * PER_PAIR)
    return max(1, math.floor(math.sqrt(half**2 + budget / PER_PAIR) - half))


def default_max_memory(device: torch.device) -> int:
    """A quarter of the memory that is free on a device, in bytes."""
    return int(SHARE * free_memory(device))


def free_memory(device: torch.device) -> int:
    """Bytes that are free: of the GPU, or of the machine or container.

    Where the operating system does not say, 4 GiB.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = [size for size in (_machine_memory(), _container_memory()) if size]
    return min(found, default=UNKNOWN_MEMORY)


def _machine_memory() -> int | None:
    """What Linux says is available, caches that it can drop included."""
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return None


def _container_memory() -> int | None:
    """What the control group leaves, or None without a limit."""
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        return None if limit == "max" else max(0, int(limit) - used)
    except (OSError, ValueError):
        return None
