"""`python -m tutorials build|text|check [NAME ...]` makes the notebooks or checks them.

`build` runs the scripts in full and stores the notebooks; `text` takes over the text of
scripts whose code is the same, and runs nothing. `check` tells where script
and notebook differ, runs the scripts (small, or as they are with `--full`), and tells
where what they print has another structure than what the notebooks hold.
"""

import argparse
import sys
import time
from collections.abc import Sequence

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
    faults = 0
    for name in names:
        start = time.perf_counter()
        if args.command == "check":
            found = _check(name, args.full)
        else:
            found = _make(name, args.command)
        seconds = time.perf_counter() - start
        print(f"{name:<20} {seconds:6.1f} s  {'; '.join(found) or 'ok'}", flush=True)
        faults += len(found)
    return int(faults > 0)


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
