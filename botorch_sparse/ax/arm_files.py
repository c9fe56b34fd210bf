"""Files of candidates, known by their content."""

import bz2
import csv
import gzip
import hashlib
import io
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
from botorch.exceptions import InputDataError


def _unzipped(content: bytes) -> bytes:
    """The only file of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (name,) = archive.namelist()
        return archive.read(name)


DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zip": _unzipped,
}
# What they, UTF-8 and the csv module raise.
UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError, csv.Error, zlib.error),
    *(lzma.LZMAError, zipfile.BadZipFile),
)


def parsed(path: str, checksum: str | None) -> pd.DataFrame:
    """The file of that content: at its path, or by its name where we are."""
    if checksum is None:
        raise InputDataError(
            f"The table of candidates {path} has no checksum, as strategies of earlier "
            "versions have none; make it by ArmTable.of(path)."
        )
    places = [path, Path(path).name]
    there = [place for place in places if Path(place).is_file()]
    contents = [content_of(place) for place in there or [path]]
    for content in contents:
        if sha256(content) == checksum:
            return _read(path, content)
    raise InputDataError(
        f"The table of candidates {there} is not the one that the strategy was made "
        f"with: its SHA-256 is {sha256(contents[0])} and not {checksum}. Put the file "
        "back, or make a new strategy of this one."
    )


def _read(path: str, content: bytes) -> pd.DataFrame:
    """The cells of a file as text."""
    decompress = DECOMPRESS.get(Path(path).suffix.lower(), bytes)
    try:
        text = decompress(content).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        every = [(reader.line_num, cells) for cells in reader]
        rows = [(line, cells) for line, cells in every if any(map(str.strip, cells))]
    except UNREADABLE as error:
        raise InputDataError(
            f"Got {path!r} as the table of candidates, which cannot be read: {error}. "
            "It must be a CSV file in UTF-8 with a header, plain or compressed as its "
            f"name says ({', '.join(DECOMPRESS)})."
        ) from error
    width = max((_width(cells) for _, cells in rows), default=0)
    rows = [(line, [*cells[:width]]) for line, cells in rows]
    header = rows[0][1] if rows else []
    refuse_repeated(header, path)
    for line, cells in rows:
        if len(cells) != len(header):
            raise InputDataError(
                f"Line {line} of the table of candidates {path} has {len(cells)} "
                f"cells, and its header {len(header)}; they must be as many."
            )
    return pd.DataFrame([cells for _, cells in rows[1:]], columns=header, dtype=object)


def _width(cells: list[str]) -> int:
    """Cells up to the last that is not empty."""
    return max(i for i, cell in enumerate(cells, 1) if cell.strip())


def refuse_repeated(names: Iterable[str], where: str) -> None:
    """Refuse a header with a name twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputDataError(
            f"Got a table of candidates in which {where} repeats the column names "
            f"{repeated}; each must be there once."
        )


def content_of(path: str) -> bytes:
    """The bytes of a file; nothing is fetched from anywhere else."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputDataError(
            f"Got {path!r} as the table of candidates, which cannot be read "
            f"({error.strerror}). It must be a file on this machine, at that path or, "
            "once it is known, by its name in the working directory. What an address "
            "in the net points to must be downloaded first."
        ) from error


def sha256(content: bytes) -> str:
    """The checksum of a content, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
