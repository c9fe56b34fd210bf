"""Runs of `benchmarks.pools`: the file that keeps them, and the tables they make."""

import json
import statistics
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.pool_tables import load_pool
from benchmarks.store import read_json, write_whole

RANKED_AT = (100, 300)  # and at the end
EXACT = ("exact-ts", "exact-ts-quick")  # with which CPU time is compared
Key = tuple[str, str, int]  # table, method, seed


@dataclass
class Run:
    """One run.

    Attributes:
        rows: Rows of the table in the order of their evaluation.
        cpu_seconds: Of the method, without the objective.
        wall_seconds: Likewise.
        versions: Of the packages, with the machine and the number of threads.
    """

    rows: list[int]
    cpu_seconds: float
    wall_seconds: float
    versions: dict[str, str]


class Store:
    """Runs by table, method and seed, in a JSON file (or `.json.gz`) if there is one.

    Args:
        paths: Files to read; runs are written to the first.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        self.runs: dict[Key, Run] = {}
        for path in self.paths:
            self.runs |= _read(path)

    def add(self, key: Key, run: Run) -> None:
        """Keep a run, and write the file, whole or not at all."""
        self.runs[key] = run
        if not self.paths:
            return
        path = self.paths[0]
        held = _read(path) | {key: run}  # with what another process wrote meanwhile
        text = {"/".join(map(str, key)): asdict(run) for key, run in held.items()}
        write_whole(path, json.dumps(text))

    def seeds(self, table: str, method: str) -> list[Run]:
        """The runs of a method on a table, by seed."""
        keys = sorted(key for key in self.runs if key[:2] == (table, method))
        return [self.runs[key] for key in keys]


def _read(path: Path) -> dict[Key, Run]:
    """The runs in a file; none if there is no file."""
    runs: dict[Key, Run] = {}
    for key, run in read_json(path).items():
        table, method, seed = key.rsplit("/", 2)
        runs[table, method, int(seed)] = Run(**run)
    return runs


@dataclass(frozen=True)
class Row:
    """What a table prints of one method: medians over its seeds.

    Attributes:
        ranks: After `RANKED_AT` evaluations and at the end; NaN beyond the end.
    """

    method: str
    seeds: int
    evaluations: int
    ranks: tuple[float, ...]
    simple_regret: float
    regret_ratio: float
    cpu_seconds: float

    def cells(self) -> tuple[str, ...]:
        """The row of the markdown table."""
        ranks = ("-" if rank != rank else f"{rank:g}" for rank in self.ranks)
        figures = (f"{self.simple_regret:.4f}", f"{self.regret_ratio:.3f}")
        return (
            self.method,
            str(self.seeds),
            *ranks,
            *figures,
            f"{self.cpu_seconds:.3g}",
        )


def summarize(table: str, method: str, runs: list[Run]) -> Row:
    """The medians of the runs of a method on a table."""
    values = load_pool(table).table
    ranks = [ranks_of(values.Y, run.rows) for run in runs]
    best = values.Y.max()
    return Row(
        method,
        len(runs),
        statistics.median_low(len(run.rows) for run in runs),
        tuple(statistics.median(column) for column in zip(*ranks, strict=True)),
        statistics.median(float(best - values.Y[run.rows].max()) for run in runs),
        statistics.median(
            float(values.regret_ratio(torch.tensor(run.rows))[-1]) for run in runs
        ),
        statistics.median(run.cpu_seconds for run in runs),
    )


def ranks_of(Y: Tensor, rows: list[int]) -> list[float]:
    """1 plus the number of better rows of the table, early and at the end."""
    ends = [at if at <= len(rows) else 0 for at in RANKED_AT] + [len(rows)]
    return [
        1.0 + float((Y > Y[rows[:end]].max()).sum()) if end else float("nan")
        for end in ends
    ]


def report(
    store: Store,
    tables: Iterable[str],
    peers: Collection[str],
    ours: Collection[str],
) -> str:
    """Markdown: for each table the figures of all methods, and how ours compare."""
    parts: list[str] = []
    verdicts: dict[str, list[bool]] = {}
    for table in tables:
        theirs, own = (
            [
                summarize(table, method, runs)
                for method in methods
                if (runs := store.seeds(table, method))
            ]
            for methods in (peers, ours)
        )
        if theirs or own:
            parts += [_title(table), _markdown(own, theirs), _verdicts(own, theirs)]
        for row in own if theirs else ():
            verdicts.setdefault(row.method, []).append(_no_worse(row, _best(theirs)))
    parts += [
        f"{method} is no worse than the best peer on {sum(found)} of {len(found)} "
        "tables."
        for method, found in verdicts.items()
    ]
    return "\n\n".join(part for part in parts if part)


def _best(rows: list[Row]) -> Row:
    return min(
        rows, key=lambda row: (row.ranks[-1], row.simple_regret, row.regret_ratio)
    )


def _no_worse(row: Row, other: Row) -> bool:
    return row.ranks[-1] <= other.ranks[-1]


def _title(table: str) -> str:
    values = load_pool(table).table
    tied = int((values.Y == values.Y.max()).sum())
    ties = f"; {tied} rows share the best value" if tied > 1 else ""
    return f"### {table}: {values.X.shape[0]} rows, {values.X.shape[1]} columns{ties}"


def _markdown(ours: list[Row], peers: list[Row]) -> str:
    end = max(row.evaluations for row in ours + peers)
    ranks = [f"rank at {at}" for at in (*RANKED_AT, end)]
    head = ("method", "seeds", *ranks, "simple regret", "regret ratio", "CPU s")
    bold = [replace(row, method=f"**{row.method}**") for row in ours]
    lines = [head, ("---",) * len(head), *(row.cells() for row in bold + peers)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _verdicts(ours: list[Row], peers: list[Row]) -> str:
    """Ours against the best peer, and its CPU time against that of the exact GP."""
    if not peers:
        return ""
    best = _best(peers)
    exact = {row.method: row.cpu_seconds for row in peers if row.method in EXACT}
    lines = []
    for row in ours:
        verdict = "no worse" if _no_worse(row, best) else "WORSE"
        shares = [
            f"{row.cpu_seconds / seconds:.3f} of the CPU time of {method}"
            for method, seconds in exact.items()
        ]
        lines.append(
            f"- {row.method}: median rank {row.ranks[-1]:g}, {verdict} than the best "
            f"peer ({best.method}, {best.ranks[-1]:g})"
            + "".join(f"; {share}" for share in shares)
        )
    return "\n".join(lines)
