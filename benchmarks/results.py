"""Write the tables of the documents from stored runs, and store what benchmarks print.

    python -m benchmarks.results                 # rewrites the tables in place
    python -m benchmarks.results --check         # says what would change
    python -m benchmarks.results --run samplers  # runs what has that in its command

A table stands between `<!-- $ COMMAND -->` and `<!-- end -->`. Where the command has
`--report` it prints stored runs and is called for it. What other commands printed is
kept in `benchmarks/results/printed.json`, with commit, date, machine, and how much of
the machine other processes took meanwhile; `--run` runs them, in one thread, one after
the other. Tables of data that are not here are left as they are (`BOTORCH_SPARSE_DATA`
names the folder).
"""

import argparse
import io
import os
import re
import resource
import shlex
import subprocess
import sys
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

from benchmarks.store import RESULTS, Store, write_whole

ROOT = Path(__file__).parents[1]
EXPERIMENTS = "docs/reference/experiments"
DOCUMENTS = (
    "benchmarks/RESULTS.md",
    "docs/explanation/threads.md",
    *(f"{EXPERIMENTS}/{name}.md" for name in ("bkb", "bbkb", "sbpe", "gssbo")),
)
BLOCK = re.compile(r"<!-- \$ (?P<command>.+?) -->\n(?P<table>.*?)<!-- end -->", re.S)
PRINTED = RESULTS / "printed.json"
STAT = Path("/proc/stat")


def printed(command: str, kept: Path = PRINTED) -> str | None:
    """What a command prints, as Markdown; None if it leaves a data set out.

    Raises:
        ValueError: If it is no report of a benchmark, and nothing that it printed is
            stored.
    """
    text = _reported(command) if "--report" in command else _kept(command, kept)
    if text is None:
        return None
    text = "\n".join(line.rstrip() for line in text.strip().splitlines())
    fence = "" if text.startswith(("#", "|")) else "```\n"
    return f"`{command}`:\n\n{fence}{text}\n{fence.strip()}"


def _reported(command: str) -> str | None:
    """What a benchmark says of stored runs."""
    words = shlex.split(command)
    if words[:2] != ["python", "-m"]:
        raise ValueError(f"{command!r} is no `python -m benchmarks.NAME --report FILE`")
    out, left_out = io.StringIO(), io.StringIO()
    with chdir(ROOT), redirect_stdout(out), redirect_stderr(left_out):
        import_module(words[2]).main(words[3:])
    if "left out" in left_out.getvalue() + out.getvalue():
        return None
    return out.getvalue()


def _kept(command: str, path: Path) -> str:
    """What a benchmark printed when it was run."""
    store = Store(path)
    if command not in store.records:
        raise ValueError(f"{command!r} is no report, and was not run: see --run")
    record = store.records[command]
    others = "what other processes took is not known"
    if record["others"] is not None:
        others = f"other processes took {record['others']:.0%} of the machine"
    gap = "\n" if record["text"].endswith("|") else ""  # the line is no row of a table
    return f"{record['text']}\n{gap}{record['made']}, {others}"


def run(command: str, kept: Path = PRINTED) -> None:
    """Run a command, in one thread, and store what it prints.

    Raises:
        RuntimeError: If it leaves out a data set that is not here.
    """
    words = shlex.split(command)
    given = [word for word in words if re.fullmatch(r"[A-Z_]+=\S+", word)]
    words = words[len(given) :]
    words[0] = sys.executable if words[0] == "python" else words[0]
    names = dict(word.split("=", 1) for word in given)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **names}
    before, start = _busy(), time.perf_counter()
    done = subprocess.run(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    after, wall = _busy(), time.perf_counter() - start
    if re.search("left out.*BOTORCH_SPARSE_DATA", done.stdout):
        raise RuntimeError(f"{command!r} printed {done.stdout!r}; nothing is stored")
    others = None
    if before is not None and after is not None:
        busy, own = (b - a for a, b in zip(before, after, strict=True))
        others = round(max(0.0, busy - own) / ((os.cpu_count() or 1) * wall), 2)
    record = {"text": done.stdout.strip(), "others": others}
    Store(kept).add(command, record, threads=int(environment["OMP_NUM_THREADS"]))


def _busy() -> tuple[float, float] | None:
    """CPU seconds of all processes, and of those that this one has waited for."""
    if not STAT.is_file():
        return None
    user, nice, system, _, _, *interrupts = STAT.read_text().split("\n")[0].split()[1:]
    ticks = sum(map(int, (user, nice, system, *interrupts[:2])))
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ticks / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


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


def commands(documents: list[str]) -> list[str]:
    """Those of the documents whose output is stored, in their order."""
    texts = [(ROOT / name).read_text() for name in documents]
    found = [block["command"] for text in texts for block in BLOCK.finditer(text)]
    return [command for command in found if "--report" not in command]


def main(arguments: list[str] | None = None) -> None:
    """Rewrite the documents, or compare, or run what is stored as text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--run", nargs="+", metavar="TEXT", help="of the commands")
    parser.add_argument("--documents", nargs="+", default=list(DOCUMENTS))
    args = parser.parse_args(arguments)
    for command in commands(args.documents) if args.run else ():
        if any(text in command for text in args.run):
            print(command, flush=True)
            run(command)
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
