"""Timing side by side, and memory of a fresh process.

With `BENCH_CLOCK=cpu` seconds are CPU seconds of all threads, for a machine that does
other work meanwhile.
"""

import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

MATMUL_SIZE = 1500
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
CLOCK = CLOCKS[os.environ.get("BENCH_CLOCK", "wall")]


def seconds(function: Callable[[], Any]) -> float:
    """Seconds of one call, the device's queue drained."""
    _synchronize()
    start = CLOCK()
    function()
    _synchronize()
    return CLOCK() - start


def side_by_side(
    functions: dict[str, Callable[[], Any]], repeats: int = 15
) -> dict[str, float]:
    """Median seconds of each function, called in turns after one warm-up."""
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            times[name].append(seconds(function))
    return {name: statistics.median(values) for name, values in times.items()}


def matmul() -> Callable[[], torch.Tensor]:
    """The unit of work: a 1500 x 1500 float64 matrix product on the CPU."""
    A = torch.randn(
        MATMUL_SIZE,
        MATMUL_SIZE,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(0),
    )
    return lambda: A @ A


def matmul_seconds(repeats: int = 7) -> float:
    """Median seconds of the unit of work, now."""
    return side_by_side({"matmul": matmul()}, repeats)["matmul"]


class Clock:
    """CPU and wall seconds inside of `with`, summed up."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0

    def __enter__(self) -> None:
        self.cpu -= time.process_time()
        self.wall -= time.perf_counter()

    def __exit__(self, *exception: object) -> None:
        self.cpu += time.process_time()
        self.wall += time.perf_counter()


def in_fresh_process(function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """The result of a module-level function, and the process's peak memory in GiB."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_with_peak, (function, args))


def _with_peak(
    function: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Any, float]:
    result = function(*args)
    return result, peak_kilobytes() / 1024**2


def peak_kilobytes() -> int:
    """Largest resident memory of this process alone.

    Linux hands `ru_maxrss` down from the parent when a process is started.
    """
    peak = _status("VmHWM:")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if peak is None else peak


def resident_kilobytes() -> int:
    """Resident memory of this process; the largest one where no system says it."""
    resident = _status("VmRSS:")
    return peak_kilobytes() if resident is None else resident


def _status(key: str) -> int | None:
    """A number that Linux holds of this process."""
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(key):
                return int(line.split()[1])
    return None


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def installed(names: Iterable[str], needs: Mapping[str, str]) -> list[str]:
    """Those whose packages are here, by the package that a name needs."""
    return [n for n in names if n not in needs or find_spec(needs[n])]
