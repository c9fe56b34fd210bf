"""What a table of candidates is to a laboratory: columns with names, rows with keys."""

import warnings
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_kind,
    check_whole,
    short_list,
    short_repr,
)
from botorch_sparse.pools.compact_rows import CompactRows, Rows
from botorch_sparse.strategies.data.columns import (
    Column,
    as_list,
    first_place,
    has_missing,
    is_null,
    read_column,
    read_molecules,
    read_numbers,
)

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True, eq=False)
class CandidateTable:
    """Candidates as numbers, with what it takes to name their rows and columns.

    Numbers and truth values are one encoded column each, those in columns of objects
    too. Text, other objects and pandas' categories are one-hot: an encoded column for
    each category that occurs, in pandas' order of the categories or else as they
    first appear. Columns that look as if they were no categories, nearly one for
    each row or numbers with some words between, are announced.

    Attributes:
        X: `A x d` encoded candidates, float64; a tensor that was given is itself, and
            a file is not read into memory. Bits and counts are `CompactRows`.
        feature_names: Names of the `d` encoded columns: `label`, or `label=category`.
        keys: `A` different names of the rows; None where they are known by number.
        columns: The user's columns, in their order.
        key_names: Names of the key's parts: one, more for a pandas MultiIndex.

    Example:
        >>> table = CandidateTable.from_columns(
        ...     {"id": ["a", "b"], "solvent": ["water", "oil"], "heat": [20, 35]},
        ...     key="id",
        ... )
        >>> table.feature_names
        ('solvent=water', 'solvent=oil', 'heat')
        >>> table.X.tolist()
        [[1.0, 0.0, 20.0], [0.0, 1.0, 35.0]]
        >>> table.rows(["b"])
        tensor([1])
    """

    X: Rows
    feature_names: tuple[str, ...]
    keys: tuple[Hashable, ...] | None
    columns: tuple[Column, ...]
    key_names: tuple[Hashable, ...] = ()

    @classmethod
    def of(
        cls,
        candidates: Any,
        *,
        key: Hashable | None = None,
        rows: slice | None = None,
    ) -> "CandidateTable":
        """The table of any kind of candidates.

        Args:
            candidates: `A x d` tensor, NumPy array or list of lists of numbers, a
                pandas DataFrame, or a `CandidateTable`, which is returned as it is.
                A `numpy.memmap`, or the path of a `.npy` file, stays on the disk. Bits
                and counts (bool, uint8, scipy's sparse matrices of whole numbers up to
                255) stay a byte each; see `CompactRows` for packed ones.
            key: Column of a DataFrame that names its rows; by default its index does,
                unless that only counts from 0.
            rows: Of numbers take these alone, and read no others.

        Raises:
            BotorchTensorDimensionError: If numbers come in another shape than `A x d`.
            InputDataError: If a cell is missing or infinite, keys repeat, there are
                no rows or no columns, or a key is asked of what has no names.
            OSError: If there is no such file, or it can't be read.
        """
        is_frame = hasattr(candidates, "columns") and hasattr(candidates, "index")
        if rows is not None and (is_frame or isinstance(candidates, cls)):
            raise InputDataError(
                f"Got rows={rows} of a {type(candidates).__name__}; need numbers "
                "without names: a tensor, an array or a .npy file."
            )
        if isinstance(candidates, cls):
            if key is not None and candidates.key_names != (key,):
                raise InputDataError(
                    f"Got key={key!r} for a CandidateTable whose keys are "
                    f"{candidates.key_names or 'row numbers'}; give it to `of` first."
                )
            return candidates
        if is_frame:
            return cls._of_frame(candidates, key)
        if key is not None:
            raise InputDataError(
                f"Got key={key!r} for a {type(candidates).__name__} without column "
                "names; need a pandas DataFrame."
            )
        return cls._of_numbers(read_numbers(candidates, rows))

    @classmethod
    def from_smiles(
        cls, smiles: Any, columns: Mapping[Any, Any] | None = None
    ) -> "CandidateTable":
        """The table of molecules, or of reactions of some; needs RDKit.

        Molecules become Morgan counts (radius 2, 2,048 of them; stereoisomers are told
        apart), which the Tanimoto kernel compares, of each column of molecules for
        itself. Their canonical SMILES name the rows.

        Args:
            smiles: `A` SMILES, or such a list for each label, as in a DataFrame, whose
                index is left out.
            columns: `A` values of further features for each label.

        Raises:
            InputDataError: If one can't be parsed, with its row; if two rows are the
                same molecules; if a label comes in both; and see `of`.
            ImportError: If RDKit is not installed.

        Example:
            >>> table = CandidateTable.from_smiles(["OCC", "c1ccccc1", "CC(=O)O"])
            >>> table.keys
            ('CCO', 'c1ccccc1', 'CC(=O)O')
        """
        from botorch_sparse.molecules import canonical_smiles  # RDKit is an extra

        columns = {} if columns is None else columns
        smiles, columns = _by_label(smiles), _by_label(columns)
        check_kind("columns", columns, Mapping, "lists of values by label")
        named = smiles if isinstance(smiles, Mapping) else {"smiles": smiles}
        if both := [label for label in named if label in columns]:
            raise InputDataError(
                f"The labels {short_list(both)} are in smiles and in columns; need "
                "other ones in one of the two."
            )
        names = [canonical_smiles(v, str(k)) for k, v in named.items()]
        keys: list[Hashable] = [*zip(*names, strict=False)]
        if len(names) == 1:
            keys = [*names[0]]
        hint = (
            " For molecules with other features in each row take CandidateTable."
            f"from_columns(columns, smiles={[*named]}), which names no rows."
        )
        _check_keys(keys, "molecules", hint)
        return cls._build({**named, **columns}, keys, tuple(named), smiles=tuple(named))

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[Any, Any],
        *,
        key: Hashable | None = None,
        smiles: Sequence[Hashable] = (),
    ) -> "CandidateTable":
        """The table of columns by their labels; needs no pandas.

        Args:
            columns: `A` values for each label: a sequence, an array or a Series.
            key: The column that names the rows.
            smiles: Columns of molecules; see `from_smiles`.

        Raises:
            InputDataError: See `of`.
        """
        check_kind("columns", columns, Mapping, "lists of values by label")
        if isinstance(smiles, str) or not {*smiles} <= {*columns}:
            raise InputDataError(
                f"Got smiles={short_repr(smiles)}; need a list of columns, of "
                f"{short_list(columns)}."
            )
        if key is None:
            return cls._build(columns, None, (), smiles)
        if key not in columns:
            raise InputDataError(
                f"Got key={key!r}; the columns are {short_list(columns)}: need one of "
                "them."
            )
        rest = {label: v for label, v in columns.items() if label != key}
        return cls._build(rest, as_list(columns[key]), (key,), smiles)

    @classmethod
    def _of_frame(cls, frame: "DataFrame", key: Hashable | None) -> "CandidateTable":
        columns, index = _by_label(frame), frame.index
        if key is not None:
            return cls.from_columns(columns, key=key)
        if type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1):
            return cls._build(columns, None, ())
        return cls._build(columns, index.tolist(), tuple(index.names))

    @classmethod
    def _build(
        cls,
        columns: Mapping[Any, Any],
        keys: Sequence[Hashable] | None,
        key_names: tuple[Hashable, ...],
        smiles: Sequence[Hashable] = (),
    ) -> "CandidateTable":
        for label, values in columns.items():
            if isinstance(values, str) or not hasattr(values, "__len__"):
                raise InputDataError(
                    f"Got {short_repr(values)} in columns, at {label!r}; need a list "
                    "of values, an array or a Series."
                )
        sizes = {len(values) for values in columns.values()}
        sizes |= set() if keys is None else {len(keys)}
        if not columns or len(sizes) != 1 or 0 in sizes:
            raise InputDataError(
                f"Got {len(columns)} columns besides the key, with {sorted(sizes)} "
                "rows; need at least one column and one row, and as many in each."
            )
        if keys is not None:
            _check_keys(keys)
        specs: list[Column] = []
        parts: list[NDArray[Any]] = []
        d = 0
        for label, values in columns.items():
            if label in smiles:
                spec, encoded = read_molecules(label, values, d)
            else:
                spec, encoded = read_column(label, values, d, keys)
            specs.append(spec)
            parts.append(encoded)
            d += spec.width
        _announce_odd(specs, len(parts[0]))
        names = tuple(name for spec in specs for name in spec.names)
        rows = None if keys is None else tuple(keys)
        X: Rows
        if all(spec.num_counts for spec in specs):
            counts = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
            X = CompactRows(torch.from_numpy(counts), d)
        else:
            X = _matrix(specs, parts)
        return cls(X, names, rows, tuple(specs), key_names)

    @classmethod
    def _of_numbers(cls, X: Rows) -> "CandidateTable":
        names = tuple(f"x{i}" for i in range(X.shape[1]))
        dtype = str(X.dtype).removeprefix("torch.")
        specs = tuple(Column(name, dtype, i, None) for i, name in enumerate(names))
        return cls(X, names, None, specs)

    def __len__(self) -> int:
        return self.X.shape[0]

    def rows(self, keys: Iterable[Hashable]) -> Tensor:
        """The `q` rows of keys; where there are none, row numbers are the keys.

        Args:
            keys: `q` keys, repeats allowed; numbers may come as an array or tensor.

        Returns:
            `q` row numbers of type long, on the host.

        Raises:
            InputDataError: If a key is not in the table.
        """
        if isinstance(keys, str):
            raise InputDataError(f"Got the text {keys!r}; need a list of keys.")
        check_kind("keys", keys, Iterable, "a list of keys")
        wanted = as_list(keys)
        try:
            found = list(map(self._row_of.get, wanted, repeat(-1)))
        except TypeError:
            raise InputDataError(
                f"Got keys={short_repr(keys)} that cannot be looked up; need text or "
                "numbers."
            ) from None
        if -1 in found:
            unknown = [k for k, row in zip(wanted, found, strict=True) if row < 0]
            known = range(len(self)) if self.keys is None else self.keys
            raise InputDataError(
                f"The keys {short_list(unknown, 3)} are not in the table, whose "
                f"{len(self)} keys begin {short_list(known[:3])}; need keys that are."
            )
        return torch.tensor(found, dtype=torch.long)

    def keys_of(self, rows: Iterable[int]) -> list[Hashable]:
        """The keys of `q` rows, or their numbers where there are no keys."""
        numbers = self._numbers(rows)
        keys = range(len(self)) if self.keys is None else self.keys
        return [keys[row] for row in numbers]

    def _numbers(self, rows: Iterable[int]) -> list[int]:
        """Row numbers as a list, if they are such."""
        need = f"whole numbers from 0 to {len(self) - 1}"
        check_kind("rows", rows, Iterable, need)
        numbers = as_list(rows)
        for number in numbers:
            check_whole("rows", number, 0, f"need {need}.")
            if number >= len(self):
                raise InputDataError(f"Got rows={number}; need {need}.")
        return numbers

    @cached_property
    def _row_of(self) -> Mapping[Hashable, int]:
        keys = range(len(self)) if self.keys is None else self.keys
        return dict(zip(keys, range(len(self)), strict=True))

    def encode(self, frame: Any) -> Tensor:
        """Other rows in the encoding of this table.

        Args:
            frame: `q` rows with the user's columns, as a DataFrame or as values for
                each label; other columns are ignored.

        Returns:
            `q x d` points like `X`.

        Raises:
            InputDataError: If a column or a value is missing, a number is infinite, or
                a category is none of this table's.
        """
        need = "a DataFrame, or lists of values by label"
        check_kind("frame", frame, Container, need)
        labels = [spec.label for spec in self.columns]
        if hasattr(frame, "reset_index") and {*labels} & {*frame.index.names}:
            frame = frame.reset_index()  # molecules name the rows
        if missing := [label for label in labels if label not in frame]:
            raise InputDataError(
                f"The columns {short_list(missing)} of the candidates are missing; got "
                f"{short_list(frame)}."
            )
        parts = [spec.encode(frame[spec.label]) for spec in self.columns]
        if len({len(part) for part in parts}) > 1:
            raise InputDataError("Got columns of different lengths.")
        return _matrix(self.columns, parts).to(self.X.device, self.X.dtype)

    def in_columns_of(self, other: "CandidateTable") -> "CandidateTable":
        """The same rows with the encoded columns, dtype and device of another table.

        Raises:
            InputDataError: If the columns are others, or a category is none of its.
        """
        mine, theirs = ({c.label: c for c in t.columns} for t in (self, other))
        if mine.keys() != theirs.keys():
            raise InputDataError(
                f"Got candidates with the columns {short_list(mine)}; need those that "
                f"there were: {short_list(theirs)}."
            )
        X, Z = self.X, other.X
        if self.feature_names != other.feature_names:
            cells = X[:].detach().cpu().numpy()
            decoded = {label: c.decode(cells) for label, c in mine.items()}
            parts = [
                decoded[c.label]
                if c.num_counts
                else c.encode(decoded[c.label], self.keys)
                for c in other.columns
            ]
            X = _matrix(other.columns, parts)
        names, columns = other.feature_names, other.columns
        if isinstance(Z, Tensor):
            X = X[:].to(Z.device, Z.dtype)
        elif isinstance(X, CompactRows):
            X = X.to(Z.device)
        return replace(self, X=X, feature_names=names, columns=columns)

    def frame(self, rows: Tensor | None = None) -> "DataFrame":
        """Rows of the table in the user's own columns and types; needs pandas.

        Args:
            rows: `q` row numbers; None for all.

        Returns:
            `q` rows, indexed by key, or by number where there are no keys.

        Raises:
            ImportError: If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "A DataFrame needs pandas: pip install pandas."
            ) from error
        numbers = range(len(self)) if rows is None else self._numbers(rows)
        chosen = torch.tensor(numbers, dtype=torch.long)
        X = self.X[chosen.to(self.X.device)].detach().cpu().numpy()
        keys = self.keys_of(chosen)
        if len(self.key_names) > 1:
            index = pd.MultiIndex.from_tuples(keys, names=self.key_names)
        else:
            index = pd.Index(keys, name=self.key_names[0] if self.key_names else None)
        series = {
            spec.label: pd.Series(
                _molecules(spec, numbers) if spec.num_counts else spec.decode(X),
                index=index,
                dtype=spec.dtype,
            )
            for spec in self._shown_columns()
        }
        return pd.DataFrame(series, index=index, columns=[*series])

    def _shown_columns(self) -> list[Column]:
        """Those that a frame has beside its index, which may have the molecules."""
        return [
            spec
            for spec in self.columns
            if not (spec.num_counts and spec.label in self.key_names)
        ]

    @property
    def fingerprints(self) -> tuple[slice, ...]:
        """Encoded columns of bits or counts that are compared as one, for each.

        Those of each column of molecules; all columns of other `CompactRows`.
        """
        found = tuple(
            slice(spec.start, spec.start + spec.width)
            for spec in self.columns
            if spec.num_counts
        )
        if not found and isinstance(self.X, CompactRows):
            return (slice(0, self.X.num_columns),)
        return found

    def feature_groups(self) -> dict[Hashable, tuple[int, ...]]:
        """The encoded columns of each of the user's columns of categories.

        Returns:
            Numbers of encoded columns by the user's label; numeric columns are left
            out.
        """
        return {
            spec.label: tuple(range(spec.start, spec.start + spec.width))
            for spec in self.columns
            if spec.categories is not None
        }


def _announce_odd(specs: Sequence[Column], num_rows: int) -> None:
    """Name the columns whose categories look as if they were none."""
    odd = [spec for spec in specs if spec.is_odd(num_rows)]
    if odd:
        sizes = [f"{spec.label!r} ({spec.width} in {num_rows} rows)" for spec in odd]
        warnings.warn(
            f"Text became many categories: {short_list(sizes, show=str)}. Nothing "
            "is learned from a category about the others: turn text of numbers or "
            "dates into numbers, make names of rows the index, as by "
            f"frame.set_index({odd[0].label!r}), or leave the column out.",
            InputDataWarning,
            stacklevel=2,
        )


def _by_label(columns: Any) -> Any:
    """The columns of a DataFrame by their labels, which differ; all else as it is."""
    if not hasattr(columns, "columns") or not hasattr(columns, "index"):
        return columns
    labels = columns.columns.tolist()
    if repeated := _repeated(labels):
        raise InputDataError(f"The columns {short_list(repeated)} come more than once.")
    return {label: columns[label] for label in labels}


def _check_keys(keys: Sequence[Hashable], name: str = "keys", hint: str = "") -> None:
    try:
        different = dict.fromkeys(keys)
    except TypeError:
        raise InputDataError(
            f"Got keys that cannot be looked up, such as {keys[0]!r}; need text or "
            "numbers."
        ) from None
    if has_missing(different):
        row = first_place(map(is_null, keys))
        raise InputDataError(f"Row {row} (from 0) has no key; need one in each row.")
    if len(different) < len(keys):
        repeated = _repeated(keys)
        places = [i for i, key in enumerate(keys) if key == repeated[0]]
        raise InputDataError(
            f"The {name} {short_list(repeated, 3)} come more than once, the first in "
            f"rows {short_list(places, 3)} (from 0); each row needs its own.{hint}"
        )


def _repeated(values: Sequence[Hashable]) -> list[Hashable]:
    return [value for value, count in Counter(values).items() if count > 1]


def _matrix(specs: Sequence[Column], parts: Sequence[NDArray[Any]]) -> Tensor:
    """`A x d` encoded rows, float64. O(A d)."""
    X = np.zeros((len(parts[0]), sum(spec.width for spec in specs)))
    for spec, part in zip(specs, parts, strict=True):
        spec.put(part, X)
    return torch.from_numpy(X)


def points_frame(
    X: Tensor, rows: Tensor | None, table: CandidateTable | None
) -> "DataFrame":
    """Points in the columns of a table, or in `x0`, `x1`, ...

    Args:
        X: `k x d` points.
        rows: Their `k` rows of the table, -1 for points beside it; None without one.
        table: The table.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("A DataFrame needs pandas: pip install pandas.") from error
    if table is None or rows is None:
        values = X.detach().cpu().numpy()
        return pd.DataFrame(values, columns=[f"x{i}" for i in range(X.shape[-1])])
    rows = rows.cpu()
    is_known = bool((rows >= 0).all())
    return table.frame(rows) if is_known else _with_others(X, rows, table)


def _with_others(X: Tensor, rows: Tensor, table: CandidateTable) -> "DataFrame":
    """Points of which some are beside the table: these have no key (None, or -1)."""
    import pandas as pd

    keys = [None if row < 0 else table.keys_of([row])[0] for row in rows.tolist()]
    names = list(table.key_names)
    if table.keys is None:
        index = pd.Index(rows.numpy())
    elif len(names) > 1:
        missing = (None,) * len(names)
        tuples = [missing if key is None else key for key in keys]
        index = pd.MultiIndex.from_tuples(tuples, names=names)
    else:  # of type object: whole numbers stay whole
        index = pd.Index(keys, dtype=object, name=names[0] if names else None)
    values = X.detach().cpu().numpy()
    series = {
        spec.label: pd.Series(_molecules(spec, rows.tolist()), index=index)
        if spec.num_counts
        else _series(spec, values).set_axis(index)
        for spec in table._shown_columns()
    }
    return pd.DataFrame(series, index=index, columns=[*series])


def _molecules(spec: Column, rows: Iterable[int]) -> list[str | None]:
    """A column of molecules as it was written; None beside the table."""
    return [spec.smiles[row] if row >= 0 else None for row in rows]


def _series(spec: Column, X: NDArray[Any]) -> "Series":
    """The values of a column, in its type if that holds them.

    A blend of categories is missing.
    """
    import pandas as pd

    values = spec.decode(X)
    if spec.categories is not None:
        part = X[:, spec.start : spec.start + spec.width]
        is_one = (part.max(-1) == 1) & ((part != 0).sum(-1) == 1)
        values[~is_one] = None
        return pd.Series(values, dtype=spec.dtype, name=spec.label)
    plain = pd.Series(values, name=spec.label)
    if spec.dtype is None or getattr(spec.dtype, "kind", "f") == "f":
        return plain.astype(spec.dtype or float)
    if getattr(spec.dtype, "kind", "") == "b":
        is_held = np.isin(values, (0.0, 1.0)).all()
    else:
        info = np.iinfo(getattr(spec.dtype, "numpy_dtype", spec.dtype))
        is_held = (values % 1 == 0) & (values >= info.min) & (values <= info.max)
    return plain.astype(spec.dtype) if np.all(is_held) else plain


def with_columns(
    frame: "DataFrame", columns: Iterable[tuple[Hashable, Sequence[Any]]]
) -> "DataFrame":
    """With more columns at the end; a name that is taken gets an underscore."""
    for name, values in columns:
        while name in frame.columns or name in frame.index.names:
            name = f"{name}_"
        frame[name] = values
    return frame
