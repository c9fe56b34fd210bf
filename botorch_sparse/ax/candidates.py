"""A table of the only arms that a strategy may propose."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from botorch.exceptions import InputDataError


@dataclass(frozen=True)
class CandidateTable:
    """Arms to choose from, with a column for each parameter.

    Saved once with the strategy, and not with each trial. Where even that is too much,
    give a file: then its path is saved alone.

    Args:
        data: The columns, as JSON; see `of`.
        path: Or a file in CSV format with a header.

    Example:
        >>> CandidateTable.of([{"x": 0.5, "kind": "a"}, {"x": 1.0, "kind": "b"}])
        CandidateTable(2 rows of x, kind; ...)
    """

    data: str | None = None
    path: str | None = None

    @classmethod
    def of(
        cls,
        candidates: "CandidateTable | pd.DataFrame | Sequence[Mapping] | str | Path",
    ) -> "CandidateTable":
        """A table from a data frame, parameterizations, or the path of a CSV file.

        Raises:
            InputDataError: For a table without rows, or with missing values.
        """
        if isinstance(candidates, CandidateTable):
            return candidates
        if isinstance(candidates, str | Path):
            table = cls(path=str(candidates))
        else:
            frame = pd.DataFrame(candidates)
            columns = {str(name): frame[name].tolist() for name in frame}
            table = cls(data=json.dumps(columns))
        missing = int(table.frame.isna().to_numpy().sum())
        if not len(table.frame) or missing:
            raise InputDataError(
                f"Got a table of {len(table.frame)} candidates with {missing} missing "
                "values; need at least one row and no missing values."
            )
        return table

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The candidates, a row for each. Not to be changed."""
        if self.path is not None:
            return pd.read_csv(self.path, float_precision="round_trip")
        return pd.DataFrame(json.loads(self.data or "{}"))

    def __len__(self) -> int:
        return len(self.frame)

    def __deepcopy__(self, memo: dict[int, Any]) -> "CandidateTable":
        return self

    def __repr__(self) -> str:
        source = self.data if self.path is None else self.path
        digest = hashlib.sha256((source or "").encode()).hexdigest()[:16]
        columns = ", ".join(map(str, self.frame.columns))
        return f"CandidateTable({len(self)} rows of {columns}; {digest})"
