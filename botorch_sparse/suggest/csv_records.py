"""The records of a CSV file by the lines in which they begin."""

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from botorch.exceptions import InputDataError

# What may stand between cells, by the names of messages.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
# What the files of spreadsheets begin with; some call text .xls too.
SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
# A first line that tells a spreadsheet what stands between cells.
DECLARED = re.compile(r'"?sep=([^"\r\n])"?[,;\t]*\r?\n?', re.IGNORECASE)


def csv_records(path: Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file with the lines in which they begin.

    Args:
        path: The file, in UTF-8, with or without byte order mark.
        name: What messages call it.

    Raises:
        InputDataError: If the file cannot be read as CSV.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    begins = 1
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            if file.buffer.peek(4).startswith(SPREADSHEETS):  # type: ignore[attr-defined]
                raise InputDataError(
                    f"{name} is a spreadsheet or an archive; save it as CSV, in UTF-8, "
                    "and name that file."
                )
            mark, skipped = _separator(file)
            begins += skipped
            reader = csv.reader(file, strict=True, delimiter=mark)
            for cells in reader:
                if any(map(str.strip, cells)):
                    yield begins, cells
                begins = reader.line_num + skipped + 1
    except FileNotFoundError:
        raise InputDataError(f"There is no file {name}.") from None
    except UnicodeDecodeError as error:
        raise InputDataError(
            f"{name}, line {_undecodable_line(path)}: byte "
            f"{error.object[error.start]:#04x} is no UTF-8; save the file as CSV in "
            "UTF-8."
        ) from error
    except csv.Error as error:
        raise InputDataError(f"{name}, line {begins}: no CSV ({error}).") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputDataError(f"{name} cannot be read: {reason}.") from error


def _separator(file: TextIO) -> tuple[str, int]:
    """What separates the cells, and how many first lines only say so.

    It is what the header row has; a comma if that is not certain. The file is at its
    beginning before, and behind these lines after.
    """
    if declared := DECLARED.fullmatch(file.readline()):
        return declared[1], 1
    file.seek(0)
    header = next((line for line in file if line.strip(" ,;\t\r\n")), "")
    file.seek(0)
    unquoted = re.sub('"[^"]*"', "", header)
    able = [mark for mark in SEPARATORS if mark in unquoted]
    return (able[0] if len(able) == 1 else ","), 0


def _undecodable_line(path: Path) -> int:
    """The first line that is no UTF-8; text is decoded in blocks, not by line."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        for line, text in enumerate(file, start=1):
            try:
                text.decode()
            except UnicodeDecodeError:
                return line
    return line
