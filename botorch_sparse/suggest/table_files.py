"""The records of a file as people save tables: CSV in some encoding, or .xlsx."""

import csv
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
from botorch.exceptions import InputDataError
from pandas.errors import ParserError, ParserWarning

from botorch_sparse.argument_checks import short_repr
from botorch_sparse.suggest.workbooks import Records, read_workbook

# The marks between cells, by their names in messages.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
# The first bytes of .xlsx, which is an archive, and of older spreadsheets.
ARCHIVE = b"PK\x03\x04"
OLD_SPREADSHEET = b"\xd0\xcf\x11\xe0"
# Encodings by the first bytes, and what programs on Windows write without a mark.
MARKED = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
WINDOWS = "cp1252"
# Letters that most words of another encoding have alone, such as Cyrillic ones.
ANOTHER = re.compile(r"(?<![A-Za-z])[\u00c0-\u00ff]{4,}(?![A-Za-z])")
CYRILLIC = "cp1251"
# A first line that tells a spreadsheet the mark between cells.
DECLARED = re.compile(r'"?sep=([^"\r\n])"?[,;\t]*(?:\r\n?|\n|\Z)', re.IGNORECASE)
# The first line with more than separators.
HEADER = re.compile(r"^[^\r\n]*[^\s,;][^\r\n]*", re.MULTILINE)
LINE_BREAK = re.compile(r"\r\n?|\n")
# How pandas reports a record with more cells than it was told.
TOO_WIDE = re.compile(r"Expected \d+ fields in line \d+, saw (\d+)")


def read_records(path: Path, name: str, decimal: str = ".") -> Records:
    """All records of a file.

    Args:
        path: CSV, plain or gzip, or .xlsx, of which one sheet is read.
        name: The file in messages.
        decimal: The decimal mark that numbers of a workbook are written with.

    Raises:
        InputDataError: If the file cannot be read.
    """
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise InputDataError(f"There is no file {name}.") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputDataError(f"{name} cannot be read: {reason}.") from error
    if content.startswith(ARCHIVE):
        return read_workbook(content, name, decimal)
    if content.startswith(OLD_SPREADSHEET):
        raise InputDataError(
            f"{name} is a spreadsheet of an older form; save it as .xlsx, or as CSV in "
            "UTF-8, and name that file."
        )
    text, notes = _decoded(content, name)
    frame, separator = _records(text, name)
    unread = [*_swallowed(frame, separator)] if '"' in text else []
    return Records(frame, notes, unread, separator=separator)


def _decoded(content: bytes, name: str) -> tuple[str, list[str]]:
    """The text of a file, and its encoding where that is not UTF-8."""
    encoding = MARKED.get(content[:2], "utf-8-sig")
    try:
        return content.decode(encoding), [encoding.upper()] * (encoding == "utf-16")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
    # Text of Windows has no character of UTF-8 that is longer than a byte.
    rest = content.decode("utf-8", errors="ignore")
    if encoding != "utf-16" and b"\0" not in content and rest.isascii():
        with suppress(UnicodeDecodeError):
            text = content.decode(WINDOWS)
            _check_letters(text, content, name)
            return text, [f"the encoding of Windows, {WINDOWS}"]
    raise InputDataError(
        f"{name}, line {line}: byte {byte:#04x} is no "
        f"{encoding.removesuffix('-sig').upper()}; save the file as CSV in UTF-8."
    )


def _check_letters(text: str, content: bytes, name: str) -> None:
    """Check that text of Windows has no words of letters with accents alone."""
    if (odd := ANOTHER.search(text)) is None:
        return
    line = text.count("\n", 0, odd.start()) + 1
    meant = content[odd.start() : odd.end()].decode(CYRILLIC)  # a byte a letter
    raise InputDataError(
        f"{name}, line {line}: the file is not in UTF-8, and in the encoding of "
        f"Windows {short_repr(odd[0])} is no word; is it {short_repr(meant)}, in "
        f"{CYRILLIC}? Save the file as CSV in UTF-8."
    )


def _records(text: str, name: str) -> tuple[pd.DataFrame, str]:
    """All records by the lines in which they begin, and the mark between cells.

    They have NaN where there is no cell. A mark that a file without a first line `sep=`
    cannot have is given as a comma.
    """
    first = 1
    if declared := DECLARED.match(text):
        text, first = text[declared.end() :], 2
    header = found[0] if (found := HEADER.search(text)) else ""
    mark = declared[1] if declared else _separator(header)
    width = header.count(mark) + 1
    frame = None
    while frame is None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", ParserWarning)
                frame = pd.read_csv(
                    io.StringIO(text, newline=""),
                    sep=mark,
                    engine="python",  # strict about quotes, where the other is not
                    header=None,
                    names=range(width),
                    index_col=False,
                    dtype=str,
                    keep_default_na=False,
                    skip_blank_lines=False,
                )
        except ParserWarning:  # the first record is wider
            width += 1
        except ParserError as error:
            if not (seen := TOO_WIDE.search(str(error))):
                line = first + _broken_line(text, mark)
                raise InputDataError(
                    f"{name}, line {line}: no CSV ({error})."
                ) from error
            width = int(seen[1])
    breaks = np.ones(len(frame), dtype=np.int64)
    if '"' in text:  # line breaks inside of cells
        inside = frame.fillna("").map(lambda cell: len(LINE_BREAK.findall(cell)))
        breaks += inside.sum(axis=1).to_numpy()
    frame = frame.set_axis(first + breaks.cumsum() - breaks, axis=0)
    return frame, mark if mark in SEPARATORS else ","


def _swallowed(frame: pd.DataFrame, mark: str) -> Iterator[str]:
    """A message on the first quoted cell with a line that looks like a row."""
    least = int(frame.iloc[0].notna().sum()) - 1 if len(frame) else 0
    for place in frame if least else ():
        for line, cell in frame[place].dropna().items():
            parts = LINE_BREAK.split(cell)
            rows = [i for i, x in enumerate(parts) if i and x.count(mark) >= least]
            if rows:
                yield (
                    f"the quoted cell in line {line} has {len(parts)} lines, and "
                    f"{short_repr(parts[rows[0]])} in it looks like a row of its own; "
                    "if it is one, a quote is missing or one too many"
                )
                return


def _broken_line(text: str, mark: str) -> int:
    """The line, from 0, in which the first record begins that is no CSV."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    begins = 0
    with suppress(csv.Error):
        for _ in reader:
            begins = reader.line_num
    return begins


def _separator(header: str) -> str:
    """The mark that the header row has outside of quotes; a comma if several are."""
    unquoted = re.sub('"[^"]*"', "", header)
    able = [mark for mark in SEPARATORS if mark in unquoted]
    return able[0] if len(able) == 1 else ","
