"""Write the tables that are made from stored runs into the documents that show them.

    python -m benchmarks.results           # rewrites them in place
    python -m benchmarks.results --check   # says what would change, and exits with 1

A table stands between `<!-- $ COMMAND -->` and `<!-- end -->`, and is what the command
prints: a benchmark of this folder with `--report benchmarks/results/NAME`, which runs
nothing. Each says commit, date, machine and number of seeds. Tables of data that are
not here are left as they are (`BOTORCH_SPARSE_DATA` names the folder).
"""

import argparse
import io
import re
import shlex
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

from benchmarks.store import write_whole

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("benchmarks/RESULTS.md", "docs/experiments.md")
BLOCK = re.compile(r"<!-- \$ (?P<command>.+?) -->\n(?P<table>.*?)<!-- end -->", re.S)


def printed(command: str) -> str | None:
    """What a command prints, as Markdown; None if it leaves a data set out.

    Raises:
        ValueError: If it is no report of a benchmark.
    """
    words = shlex.split(command)
    if words[:2] != ["python", "-m"] or "--report" not in words:
        raise ValueError(f"{command!r} is no `python -m benchmarks.NAME --report FILE`")
    out, left_out = io.StringIO(), io.StringIO()
    with chdir(ROOT), redirect_stdout(out), redirect_stderr(left_out):
        import_module(words[2]).main(words[3:])
    if "left out" in left_out.getvalue() + out.getvalue():
        return None
    text = "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())
    fence = "" if text.startswith(("#", "|")) else "```\n"
    return f"`{command}`:\n\n{fence}{text}\n{fence.strip()}"


def filled(document: str) -> str:
    """A document with its tables made anew."""

    def table(found: re.Match[str]) -> str:
        command = found["command"]
        text = printed(command)
        if text is None:
            print(f"left as it is, data are not here: {command}", file=sys.stderr)
            return found[0]
        return f"<!-- $ {command} -->\n{text.rstrip()}\n<!-- end -->"

    return BLOCK.sub(table, document)


def main(arguments: list[str] | None = None) -> None:
    """Rewrite the documents, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--documents", nargs="+", default=DOCUMENTS)
    args = parser.parse_args(arguments)
    stale = []
    for name in args.documents:
        path = ROOT / name
        old = path.read_text()
        new = filled(old)
        if new != old:
            stale.append(name)
            if not args.check:
                write_whole(path, new)
    print(f"{'stale' if args.check else 'written'}: {', '.join(stale) or 'none'}")
    if args.check and stale:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
