"""Seconds before the work begins: imports beside BoTorch's, and calls of `suggest`.

    python -m benchmarks.start

Each line is a fresh interpreter, all of them in turns. Seconds are CPU seconds of the
process, and those on the wall: medians over repeats, after one run that is not counted
(it writes bytecode). To reach: an import of ours takes at most `IMPORT` times as long
as BoTorch's model, `suggest` on 3,000 rows `SUGGEST` seconds.

`import botorch.models` loads no model, and `import botorch_sparse.strategies` no
strategy: both packages import a module when a name of it is used.
"""

import argparse
import csv
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

IMPORT, SUGGEST = 1.3, 3.0
PEER = "from botorch.models import SingleTaskGP"
IMPORTS = (
    "from botorch_sparse.models import SparseSingleTaskGP",
    "from botorch_sparse.strategies import ThompsonSampling",
    "from botorch_sparse.strategies import BBKB",
)
OTHERS = ("import torch", "import botorch.models", "import botorch_sparse.strategies")
ROWS, MEASURED = 3000, 100


def write_tables(folder: Path) -> None:
    """A pool of two numbers and two categories, and results for its first rows."""
    draw = random.Random(0)
    header = ["temperature", "time", "solvent", "base"]
    pool = [
        [
            f"{draw.uniform(20, 120):.1f}",
            f"{draw.uniform(1, 24):.2f}",
            f"solvent {draw.randrange(12)}",
            f"base {draw.randrange(8)}",
        ]
        for _ in range(ROWS)
    ]
    found = [[*row, f"{float(row[0]) / (1 + float(row[1])):.3f}"] for row in pool]
    for name, lines in (
        ("pool.csv", [header, *pool]),
        ("results.csv", [[*header, "yield"], *found[:MEASURED]]),
    ):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows(lines)


def suggest_arguments(*more: str) -> list[str]:
    """Of an interpreter that proposes 20 rows."""
    call = "-m botorch_sparse suggest --candidates pool.csv --target yield".split()
    return [*call, *more, "--output", "next.csv", "--quiet"]


def seconds(arguments: list[str], folder: Path) -> tuple[float, float]:
    """CPU and wall seconds of a fresh interpreter with these arguments."""
    before, start = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system
    return cpu - before.children_user - before.children_system, wall


def main() -> None:
    """Print the table, and what is slower than is to be reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    calls = {line: ["-c", line] for line in (*OTHERS, PEER, *IMPORTS)}
    results = ["--results", "results.csv"]
    for name, more in (("first batch", []), (f"{MEASURED} results", results)):
        calls[f"suggest, {ROWS:,} rows, {name}"] = suggest_arguments(*more)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    repeats = parser.parse_args().repeats
    with TemporaryDirectory() as name:
        write_tables(Path(name))
        for _ in range(repeats + 1):
            for call, arguments in calls.items():
                times[call].append(seconds(arguments, Path(name)))
    found = {
        call: [median(each) for each in zip(*values[1:], strict=True)]
        for call, values in times.items()
    }
    print(f"| a fresh interpreter | CPU seconds | times `{PEER}` | wall seconds |")
    print("|---|---|---|---|")
    for call, (cpu, wall) in found.items():
        print(f"| `{call}` | {cpu:.2f} | {cpu / found[PEER][0]:.2f} | {wall:.2f} |")
    slow = [name for name in IMPORTS if found[name][0] > IMPORT * found[PEER][0]]
    slow += [
        name
        for name in found
        if name.startswith("suggest") and found[name][1] > SUGGEST
    ]
    print(f"slower than {IMPORT} times or {SUGGEST} s:", "; ".join(slow) or "none")


if __name__ == "__main__":
    main()
