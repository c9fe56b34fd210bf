"""The tests with other versions of Python and of the libraries: `make matrix`.

`make test` has the pins on Python 3.11, with all extras. Each row here has an
environment of its own in a temporary folder, which is deleted after the row. The newest
torch brings some 5 GB. A line of the table is printed as soon as its tests have ended;
the output of pip and pytest goes to standard error.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
LIBRARIES = "torch botorch gpytorch linear_operator scipy numpy".split()
COUNTS = "passed failed skipped".split()
VERSIONS = "import sys; from importlib.metadata import version; "
VERSIONS += "print(*map(version, sys.argv[1:]))"


class Row(NamedTuple):
    """One environment: `versions` are the floors, the pins or the newest."""

    python: str
    versions: str


ROWS = [
    Row("3.11", "floors"),
    *(Row(python, "pins") for python in ("3.12", "3.13", "3.14")),
    Row("3.14", "newest"),
]


def constraints(versions: str) -> str:
    """What pip may choose from; the floors are the bounds of pyproject.toml."""
    if versions == "pins":
        return (ROOT / "constraints.txt").read_text()
    if versions == "newest":
        return ""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = filter(re.compile(">=").search, project["dependencies"])
    return "\n".join(bound.replace(">=", "==") + ".*" for bound in bounds)


def interpreter(python: str) -> str | None:
    """The command of an interpreter that starts."""
    command = f"python{python}"
    try:
        subprocess.run([command, "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return command


def cells(row: Row, folder: Path, options: Sequence[str]) -> list[str]:
    """Versions of the libraries and numbers of tests, or why there are none."""
    command = interpreter(row.python)
    if command is None:
        return ["not here"]
    chosen, report = folder / "constraints.txt", folder / "report.xml"
    chosen.write_text(constraints(row.versions))
    run = [str(folder / "bin" / "python"), "-m"]
    # The row alone says what pip may choose, not a setting of the machine.
    environment = os.environ | {"PIP_CONSTRAINT": os.devnull}
    wanted = ["-c", str(chosen), "-e", ".[test]"]
    for step in (
        [command, "-m", "venv", str(folder)],
        [*run, "pip", "install", *wanted],
    ):
        if subprocess.run(step, env=environment, stdout=sys.stderr).returncode:
            return ["does not install"]
    printed = subprocess.check_output([run[0], "-c", VERSIONS, *LIBRARIES], text=True)
    if row.versions != "pins":  # other versions have warnings of their own
        options = ["-W", "default", *options]
    tests = [*run, "pytest", "-q", f"--junitxml={report}", *options]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(tests, env=os.environ | one_thread, stdout=sys.stderr)
    if not report.is_file():
        return [*printed.split(), "", "no report"]
    suite = ElementTree.parse(report).find("testsuite")
    assert suite is not None
    total, *bad, skipped = (
        int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    )
    counts = (total - sum(bad) - skipped, sum(bad), skipped)
    return [*printed.split(), *map(str, counts)]


def main() -> int:
    """Print the table; 1 if a test failed or an environment could not be built."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("python", "versions"):
        known = list(dict.fromkeys(getattr(row, name) for row in ROWS))
        parser.add_argument(f"--{name}", nargs="+", choices=known, default=known)
    chosen, options = parser.parse_known_args()  # others are pytest's
    columns = ["Python", "versions", *LIBRARIES, *COUNTS]
    print("Tests that passed, failed and were skipped, by environment")
    print("|", " | ".join(columns), "|")
    print("|", " | ".join(["---"] * len(columns)), "|", flush=True)
    is_whole = True
    for row in ROWS:
        if row.python in chosen.python and row.versions in chosen.versions:
            with TemporaryDirectory(prefix="matrix") as folder:
                line = [*row, *cells(row, Path(folder), options)]
            line += [""] * (len(columns) - len(line))
            print("|", " | ".join(line), "|", flush=True)
            is_whole &= line[-2] in ("0", "") and "does not install" not in line
    return int(not is_whole)


if __name__ == "__main__":
    sys.exit(main())
