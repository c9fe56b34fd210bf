"""A table of the only arms that a strategy may propose, also from a file."""

import hashlib
import io
import json
import lzma
import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ax.core.search_space import SearchSpace
from botorch.exceptions import InputDataError
from pandas.errors import EmptyDataError

from botorch_sparse.argument_checks import short_repr

COMPRESSION = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zip": "zip"}
# What decompressors, UTF-8 and pandas raise.
UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError, zlib.error),
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
    """The cells of a file as text, without rows and columns that are empty."""
    try:
        cells = pd.read_csv(
            io.BytesIO(content),
            header=None,
            dtype=object,
            keep_default_na=False,
            encoding="utf-8-sig",
            compression=COMPRESSION.get(Path(path).suffix.lower()),
        )
    except EmptyDataError:
        return pd.DataFrame()
    except UNREADABLE as error:
        raise InputDataError(
            f"Got {path!r} as the table of candidates, which cannot be read: {error}. "
            "It must be a CSV file in UTF-8 with a header, plain or compressed as its "
            f"name says ({', '.join(COMPRESSION)})."
        ) from error
    is_filled = cells.apply(lambda column: column.str.strip()) != ""
    cells = cells.loc[is_filled.any(axis=1), is_filled.any()]
    header = cells.iloc[0].tolist() if len(cells) else []
    refuse_repeated(header, path)
    return cells.iloc[1:].set_axis(header, axis=1).reset_index(drop=True)


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


# What cells of a data frame may be; numbers of NumPy become Python's.
PLAIN = (str, bool, int, float, np.integer, np.floating, np.bool_)
MISSING = (type(None), type(pd.NA))
TRUTH = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class ArmTable:
    """Arms to choose from, with a column for each parameter.

    Saved once with the strategy, and not with each trial. Where even that is too much,
    give a file: then its path and the checksum of its content are saved alone. It is
    looked for there, and by its name in the working directory; a file whose content is
    another is refused. Its fields are text until a search space tells their types
    (`in_space`), so that a choice may be called "1", or "NA".

    Args:
        data: The columns, as JSON; see `of`.
        path: Or a file in CSV format with a header, on this machine.
        checksum: The SHA-256 of that file; `of` computes it.

    Example:
        >>> ArmTable.of([{"x": 0.5, "kind": "a"}, {"x": 1.0, "kind": "b"}])
        ArmTable(2 rows of x, kind; ...)
    """

    data: str | None = None
    path: str | None = None
    checksum: str | None = None

    @classmethod
    def of(
        cls,
        candidates: "ArmTable | pd.DataFrame | Sequence[Mapping] | str | Path",
    ) -> "ArmTable":
        """A table from a data frame, parameterizations, or the path of a CSV file.

        Raises:
            InputDataError: For a table without rows, with missing values, with
                columns that share a name, or with values that are no plain numbers,
                text or truth values; for a file that is not there, or is no CSV file,
                or has a row longer than its header. A cell that is empty or lacks is
                text, and refused by `in_space` where the parameter can't be that.
        """
        if isinstance(candidates, ArmTable):
            if candidates.path is None or candidates.checksum is not None:
                return candidates
            candidates = candidates.path
        if isinstance(candidates, str | Path):
            path = str(candidates)
            table = cls(path=path, checksum=sha256(content_of(path)))
        else:
            table = cls(data=_as_json(candidates))
        frame = table.frame
        missing = int(frame.isna().to_numpy().sum())
        if not len(frame) or missing:
            where = "" if table.path is None else f" in {table.path}"
            raise InputDataError(
                f"Got a table of {len(frame)} candidates with {missing} missing "
                f"values{where}; need at least one row and no missing values."
            )
        return table

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The candidates, a row for each; from a file as text. Not to be changed.

        Columns have the dtype `object`, and keep the types of their values.

        Raises:
            InputDataError: For a file that is not there, or was replaced.
        """
        if self.path is not None:
            return parsed(self.path, self.checksum)
        try:
            columns = json.loads(self.data or "{}")
        except ValueError as error:
            raise InputDataError(
                f"Got data={short_repr(self.data)}, which is no JSON; need "
                "ArmTable.of(...), which takes frames, mappings, and paths of files."
            ) from error
        return pd.DataFrame(columns, dtype=object)

    def in_space(self, search_space: SearchSpace) -> pd.DataFrame:
        """The parameters of the candidates, of the types that the search space wants.

        Args:
            search_space: The search space, which must hold all candidates.

        Returns:
            A column for each parameter, not to be changed. The last one is kept.

        Raises:
            InputDataError: If a parameter has no column, or candidates are not in the
                search space.
        """
        if not self._typed or self._typed[0] != search_space:
            frame = _checked(self.frame, search_space)
            self._typed[:] = [search_space.clone(), frame]
        return self._typed[1]

    @cached_property
    def _typed(self) -> list[Any]:
        """A search space and the frame that belongs to it, or nothing."""
        return []

    def __len__(self) -> int:
        return len(self.frame)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ArmTable":
        return self

    def __repr__(self) -> str:
        digest = self.checksum or sha256((self.data or "").encode())
        columns = ", ".join(map(str, self.frame.columns))
        return f"ArmTable({len(self)} rows of {columns}; {digest[:16]})"


def _as_json(candidates: Any) -> str:
    """The columns of a data frame, or of what makes one."""
    try:
        frame = pd.DataFrame(candidates)
    except (TypeError, ValueError) as error:  # as pandas raises
        raise InputDataError(
            f"Got candidates={short_repr(candidates)}, which is no table ({error}); "
            "need a "
            "data frame, a list of parameterizations, or the path of a CSV file."
        ) from error
    names = [str(name) for name in frame]
    refuse_repeated(names, "the data frame")
    columns = {str(name): frame[name].tolist() for name in frame}
    for name, values in columns.items():
        bad = [v for v in values if not isinstance(v, PLAIN + MISSING)]
        if bad:
            raise InputDataError(
                f"Got a table of candidates with {short_repr(bad[0])} of type "
                f"{type(bad[0]).__name__} in column {name!r}; need numbers, text or "
                "truth values."
            )
    return json.dumps(columns, default=lambda v: None if v is pd.NA else v.item())


def _checked(frame: pd.DataFrame, search_space: SearchSpace) -> pd.DataFrame:
    """The columns of the parameters, if they are there and in the search space."""
    parameters = search_space.parameters
    missing = [name for name in parameters if name not in frame]
    if missing:
        raise InputDataError(
            f"Got a table of candidates with columns {list(frame.columns)}; it "
            f"lacks the parameters {missing}."
        )
    typed = pd.DataFrame(
        {name: _as_type(frame[name], p.python_type) for name, p in parameters.items()}
    )
    inside = search_space.check_membership_df(arm_data=typed)
    outside = len(typed) - int(sum(inside))
    if outside:
        first = frame[list(parameters)].iloc[list(inside).index(False)].to_dict()
        raise InputDataError(
            f"Got a table with {outside} of {len(frame)} candidates outside of the "
            f"search space, the first of them {first}. Leave them out, or widen the "
            "bounds."
        )
    return typed


def _as_type(column: pd.Series, wanted: type) -> pd.Series:
    """The values as numbers or truth values, where the search space has such."""
    convert = {int: _integer, float: _number, bool: _truth}.get(wanted)
    if convert is None:
        return column
    try:
        return pd.Series([convert(value) for value in column], column.index)
    except (TypeError, ValueError) as error:
        raise InputDataError(
            f"Got a table of candidates whose column {column.name!r} is not all of "
            f"type {wanted.__name__}, as the search space wants: {error}."
        ) from error


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    return number


def _integer(value: Any) -> int:
    is_exact = isinstance(value, int) or str(value).lstrip("+-").isdigit()
    number = int(value) if is_exact else _number(value)
    if number != int(number):
        raise ValueError(f"{value!r} is no integer")
    return int(number)


def _truth(value: Any) -> bool:
    if str(value).lower() not in TRUTH:
        raise ValueError(f"{value!r} is none of {', '.join(TRUTH)}")
    return TRUTH[str(value).lower()]
