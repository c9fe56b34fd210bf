"""A folder with CSV files in which `suggest` is called, for its tests."""

import csv
import io
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from botorch_sparse.__main__ import main

NUM = 30
HEAT = [20 + 60 * math.sin(i) ** 2 for i in range(NUM)]
DOSE = [math.cos(7 * i) for i in range(NUM)]
SOLVENT = ["water", "oil", "gas, wet"]
HEADER = ["id", "heat", "solvent", "dose", "lid"]
# Options of the command line that are left out.
DEFAULTS: dict[str, Any] = {"seed": 0, "first": None, "budget": None}
DEFAULTS["design"] = "k-means"
Table = str | bytes | list[list[Any]]


def loss(row: int) -> float:
    """What the laboratory measures; the best row is where heat is 50 in oil."""
    return ((HEAT[row] - 50) / 30) ** 2 + 0.2 * DOSE[row] + 0.5 * (row % 3 != 1)


def measured(num: int) -> list[list[Any]]:
    return [["id", "loss"], *([f"c{i}", loss(i)] for i in range(num))]


class Answer(NamedTuple):
    """What a call wrote."""

    rows: list[dict[str, str]]
    said: str

    @property
    def notes(self) -> list[str]:
        """The lines that it said, but for how columns were read."""
        return [x for x in self.said.splitlines() if not x.startswith("read:")]

    @property
    def ids(self) -> list[str]:
        return [row["id"] for row in self.rows]


class Laboratory:
    """A folder with a pool of 30 rows, in which the command is called."""

    def __init__(self, folder: Path, capture: Any) -> None:
        self.folder, self.capture = folder, capture
        self.pool, self.results = folder / "pool.csv", folder / "m.csv"
        self.state = folder / "run.state"
        rows = [
            [
                f"c{i}",
                f"{HEAT[i]:.17g}",
                SOLVENT[i % 3],
                f"{DOSE[i]:.17g}",
                f"{i % 4}.50",
            ]
            for i in range(NUM)
        ]
        self.write("pool.csv", [HEADER, *rows])

    def write(self, name: str, table: Table) -> Path:
        """A file: of bytes, of rows, or of text with bars for line breaks."""
        path = self.folder / name
        if isinstance(table, list):
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(table)
        else:
            is_text = isinstance(table, str)
            path.write_bytes(table.replace("|", "\n").encode() if is_text else table)
        return path

    def __call__(
        self, *words: object, key: str | None = "id", target: str = "loss"
    ) -> Answer:
        named = [] if key is None else ["--key", key]
        given = ["--candidates", self.pool, *named, "--target", target, *words]
        main(["suggest", *map(str, given)])
        out, err = self.capture.readouterr()
        text = out.decode("utf-8-sig")
        header = re.sub('"[^"]*"', "", text.partition("\n")[0])
        mark = next((mark for mark in ";\t" if mark in header), ",")
        rows = [*csv.DictReader(io.StringIO(text), delimiter=mark)]
        return Answer(rows, err.decode())

    def refused(self, *words: object, **named: Any) -> str:
        """The one line on stderr of a call that fails, with nothing on stdout."""
        with pytest.raises(SystemExit) as caught:
            self(*words, **named)
        out, err = self.capture.readouterr()
        line = err.decode()
        assert caught.value.code == 2 and not out
        assert line.count("\n") == 1 and line[:-1].isprintable()
        return line


def lines(header: str, cells: str, num: int, first: int = 0) -> str:
    """A table whose rows differ by a number."""
    return "|".join([header, *(cells.format(i) for i in range(first, first + num))])


def words_of(lab: Laboratory, options: str, results: Table | None) -> list[str]:
    """A key if there is one, the options, and results if there are any."""
    names = {"pool": lab.pool, "folder": lab.folder}
    words = options.format(**names).split()
    words = words if not words or words[0].startswith("-") else ["--key", *words]
    given = [] if results is None else ["--results", str(lab.write("m.csv", results))]
    return [*words, *given]
