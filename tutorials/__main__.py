"""`python -m tutorials build|text|check [NAME ...]` makes the notebooks or checks them.

`build` runs the scripts in full and stores the notebooks; `text` takes over the text of
scripts whose code is the same, and runs nothing. `check` tells where script
and notebook differ, runs the scripts (small, or as they are with `--full`), and tells
where what they print has another structure than what the notebooks hold.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from nbclient.exceptions import CellExecutionError

from tutorials import notebooks


def main(arguments: Sequence[str] | None = None) -> int:
    """Build or check the tutorials that were named, or all.

    Returns:
        The exit status: 1 if there is a fault.
    """
    parser = argparse.ArgumentParser(prog="python -m tutorials", description=__doc__)
    parser.add_argument("command", choices=("build", "text", "check"))
    parser.add_argument(
        "names", nargs="*", help=f"of {', '.join(notebooks.NAMES)}", metavar="NAME"
    )
    parser.add_argument("--full", action="store_true", help="check without SMOKE_TEST")
    args = parser.parse_args(arguments)
    names = args.names or notebooks.NAMES
    if unknown := set(names) - set(notebooks.NAMES):
        parser.error(f"no tutorial {sorted(unknown)}")
    do = partial(_timed, args.command, args.full)
    faults = 0
    # What is built holds times: one after the other.
    with ProcessPoolExecutor(_num_cores() if args.command == "check" else 1) as pool:
        for name, (seconds, found) in zip(names, pool.map(do, names), strict=True):
            said = "; ".join(found) or "ok"
            print(f"{name:<20} {seconds:6.1f} s  {said}", flush=True)
            faults += len(found)
    return int(faults > 0)


def _num_cores() -> int:
    """Cores of this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _timed(command: str, is_full: bool, name: str) -> tuple[float, list[str]]:
    """Seconds that a tutorial takes, and its faults."""
    start = time.perf_counter()
    found = _check(name, is_full) if command == "check" else _make(name, command)
    return time.perf_counter() - start, found


def _make(name: str, command: str) -> list[str]:
    try:
        notebooks.build(name) if command == "build" else notebooks.retell(name)
    except (CellExecutionError, ValueError) as error:
        return [str(error)]
    return []


def _check(name: str, full: bool) -> list[str]:
    stored = notebooks.read_notebook(name)
    found = list(notebooks.faults_of_pair(notebooks.read_script(name), stored))
    if found:
        return [*found, f"repair it with `python -m tutorials build {name}`"]
    try:
        fresh = notebooks.run(name, smoke=not full)
    except CellExecutionError as error:
        return [str(error)]
    return list(notebooks.faults_of_run(stored, fresh))


if __name__ == "__main__":
    sys.exit(main())
