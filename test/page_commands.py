"""The commands of a page, what it says that they print, and the files it shows.

`python test/page_commands.py PAGE.md` runs the commands and writes what they print now
into the page.

A block of `sh` is a command. A block of `text` is what the command before it prints. A
table `{csv-table} FILE` shows a file. A line of three points stands for lines that are
left out. A file that is shown before any command has written it is one that the reader
writes.
"""

import csv
import io
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from importlib.metadata import metadata
from itertools import islice
from pathlib import Path

from botorch_sparse.__main__ import main

BLOCK = re.compile(
    r"^```(?P<kind>sh|text|\{csv-table\}) ?(?P<name>\S*)\n"
    r"(?P<options>(?::[^\n]*\n)*)(?P<text>.*?\n)```$",
    re.DOTALL | re.MULTILINE,
)
POINTS = "..."
# A number that is no part of a name.
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?!\w)")
SUGGEST = "python -m botorch_sparse "
INSTALL = re.compile(r'python -m pip install "\.\[([\w,]+)\]"\n')


def printed(command: str) -> str:
    """What a command prints; of one that installs the package only its extras count."""
    if extras := INSTALL.fullmatch(command):
        known = metadata("botorch_sparse").get_all("Provides-Extra") or []
        assert {*extras[1].split(",")} <= {*known}
        return ""
    assert command.startswith(SUGGEST), command
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(output), redirect_stderr(output), suppress(SystemExit):
        main(shlex.split(command.removeprefix(SUGGEST)))
    return output.buffer.getvalue().decode()


def shown_and_found(page: str) -> Iterator[tuple[re.Match[str], str]]:
    """The texts and tables of a page, each with what is printed or in the file.

    The commands run in the current folder.
    """
    output = ""
    for block in BLOCK.finditer(page):
        if block["kind"] == "sh":
            output = printed(block["text"])
        elif block["kind"] == "text":
            yield block, output
        elif (file := Path(block["name"])).exists():
            yield block, file.read_text(encoding="utf-8-sig")
        else:
            file.write_text(block["text"], encoding="utf-8")


def agree(shown: str, found: str) -> bool:
    """Whether lines are equal, but for rounding and for lines that are left out.

    Numbers may differ by 1%, or by one in the last digit that is shown.
    """
    before, points, after = shown.partition(f"{POINTS}\n")
    lines, first, last = found.splitlines(), before.splitlines(), after.splitlines()
    if points and len(lines) > len(first) + len(last):
        lines[len(first) : len(lines) - len(last)] = []
    pairs = zip([*first, *last], lines, strict=True)
    try:
        return all(_lines_agree(*pair) for pair in pairs)
    except ValueError:  # more lines on one side
        return False


def _lines_agree(shown: str, found: str) -> bool:
    if NUMBER.split(shown) != NUMBER.split(found):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(found), strict=True)
    return all(
        abs(float(a) - float(b)) <= max(_last_digit(a), 0.01 * abs(float(a))) * 1.001
        for a, b in pairs
    )


def _last_digit(number: str) -> float:
    """The size of the last digit that is written."""
    digits, _, power = number.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


def copy_tables(source: Path, target: Path) -> None:
    """Copy the CSV files of a folder, and save each as a spreadsheet would."""
    from openpyxl import Workbook  # an extra; doctests of this file do without

    for path in source.glob("*.csv"):
        shutil.copy(path, target)
        book = Workbook()
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                book.active.append([*map(_spreadsheet_cell, row)])
        book.save(target / f"{path.stem}.xlsx")


def _spreadsheet_cell(cell: str) -> str | float | None:
    return float(cell) if NUMBER.fullmatch(cell) else cell or None


def renewed(page: str) -> str:
    """The page with what the commands print now, as many lines as before."""
    blocks = [*shown_and_found(page)]
    for block, found in reversed(blocks):
        before, points, after = block["text"].partition(f"{POINTS}\n")
        lines = found.splitlines(keepends=True)
        if points:
            last = after.count("\n")
            rest = lines[len(lines) - last :]
            lines = [*islice(lines, before.count("\n")), points, *rest]
        page = page[: block.start("text")] + "".join(lines) + page[block.end("text") :]
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        copy_tables(path.with_suffix(""), Path(folder))
        with chdir(folder):
            text = renewed(path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
