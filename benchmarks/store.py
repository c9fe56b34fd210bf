"""Finished runs in a JSON file, each with when, where and from which commit it was."""

import argparse
import gzip
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).with_name("results")  # what the tables of the docs are from
Record = dict[str, Any]


def here(threads: int | None = None) -> str:
    """What a run of today is known by: commit, date, processor, threads, torch."""
    threads = torch.get_num_threads() if threads is None else threads
    return (
        f"commit {_commit()}, {datetime.now(UTC):%Y-%m-%d}, {_processor()}, "
        f"{threads} threads, torch {torch.__version__}"
    )


def _commit() -> str:
    """The commit of these files, with a `+` if they differ from it."""
    git = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty=+"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def _processor() -> str:
    """Its model where Linux tells."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.is_file() else ():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


class Store:
    """Records by key; those that are added carry `made`, what `here` says.

    Args:
        path: A `.json` or `.json.gz` file; None keeps records in memory alone.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.records: dict[str, Record] = {}
        if path is not None:
            self.records = read_json(path)

    def add(self, key: str, record: Record, threads: int | None = None) -> None:
        """Keep a record, and write the file, whole or not at all.

        Those that others have written meanwhile stay. `threads` are those of the run,
        where it was no run of this process.
        """
        if self.path is not None:
            self.records |= read_json(self.path)
        self.records[key] = record | {"made": here(threads)}
        if self.path is None:
            return
        lines = [f"{json.dumps(k)}: {json.dumps(r)}" for k, r in self.records.items()]
        write_whole(self.path, "{\n" + ",\n".join(lines) + "\n}\n")

    def made(self, keys: Iterable[str]) -> str:
        """Lines that say where these records are from."""
        found = {
            self.records[key].get("made", "commit, date and machine unknown")
            for key in keys
            if key in self.records
        }
        return "\n".join(sorted(found)) or "nothing is stored"


def run_or_report(
    args: argparse.Namespace,
    run_all: Callable[[Store, argparse.Namespace], None],
    report: Callable[[Store, argparse.Namespace], str],
) -> Store:
    """Run what is not stored in `args.store`, or read `args.report`; print its tables.

    Below them stands where the records are from.
    """
    store = Store(args.report or args.store)
    if args.report is None:
        run_all(store, args)
    print(report(store, args).strip())
    print(f"\n{store.made(store.records)}")
    return store


def parsed_runs(
    doc: str | None,
    arguments: Sequence[str] | None,
    seeds: int,
    **names: Iterable[str],
) -> argparse.Namespace:
    """Options of a benchmark with stored runs.

    Args:
        doc: What it is, by its first line.
        arguments: The command line; None for the program's.
        seeds: Runs of each by default.
        **names: For each option all names that it may have, which are its default.
    """
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    for option, every in names.items():
        known = list(every)
        parser.add_argument(f"--{option}", nargs="*", choices=known, default=known)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    return parser.parse_args(arguments)


def read_json(path: Path) -> Any:
    """What a `.json` or `.json.gz` file holds; an empty dict if there is none."""
    if not path.is_file():
        return {}
    held = path.read_bytes()
    return json.loads(gzip.decompress(held) if path.suffix == ".gz" else held)


def write_whole(path: Path, text: str) -> None:
    """Write a text file, `.gz` or plain, whole or not at all; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{os.getpid()}.{path.name}")
    held = text.encode()
    beside.write_bytes(gzip.compress(held) if path.suffix == ".gz" else held)
    beside.replace(path)
