"""Reading a user's table: numbers as they are, all else one-hot.

Tables of numbers alone may stay in a file, of which only what is needed is read.
"""

import os
import re
import warnings
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import repeat
from math import isfinite
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.argument_checks import DTYPES, as_numbers, is_inexact, short_list
from botorch_sparse.pools.compact_rows import CompactRows, Rows, as_bytes

# More categories than this are no categories: a text of its own in each row.
MAX_CATEGORIES = 1000
NUMBERS = int | float | Decimal | np.integer | np.floating | np.bool_
# A column of at least so many categories is looked at, and such a share of them in the
# rows says that they are none.
FEWEST_LOOKED_AT, LARGEST_SHARE = 10, 0.9
NO_CATEGORY = (
    "got nothing; need a value. Write a word such as 'none', or leave out the column "
    "or the row."
)
# Counts of a molecule's fingerprint.
NUM_COUNTS = 2048
# Entries that are looked at in one go.
CHUNK_ENTRIES = 2**24
# Before CPython 3.12.2 threads that parse literals at the same time, as `numpy.load`
# does for a header, may fail: "AST constructor recursion depth mismatch".
_ONE_HEADER = Lock()


def bad_cell(
    row: int, column: Hashable, reason: str, keys: Sequence[Hashable] | None = None
) -> InputDataError:
    """The error of a cell that can't be used, with the key of its row if it has one."""
    which = f"row {row} (from 0)" if keys is None else f"row {keys[row]!r}"
    return InputDataError(f"In {which}, column {column!r}: {reason}")


@dataclass(frozen=True)
class Column:
    """How one column is encoded, and what it takes to undo that.

    Attributes:
        label: The column's label in the user's table.
        dtype: What its values are, for pandas or NumPy; None for Python's own text.
        start: Its first encoded column.
        categories: Its `k` different values, each with an encoded column of its own;
            None for numbers, which take one.
        num_counts: Encoded columns of the fingerprints of a column of molecules; 0 for
            others.
        smiles: These molecules, one for each row of the table.
    """

    label: Hashable
    dtype: Any
    start: int
    categories: tuple[Hashable, ...] | None
    num_counts: int = 0
    smiles: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def width(self) -> int:
        """Number of its encoded columns."""
        if self.num_counts:
            return self.num_counts
        return 1 if self.categories is None else len(self.categories)

    def is_odd(self, num_rows: int) -> bool:
        """Whether its categories look as if they were none. O(k).

        They are nearly one for each row, or numbers with some words between.
        """
        kinds = self.categories or ()
        num = len(kinds)
        if num < FEWEST_LOOKED_AT:
            return False
        num_numbers = sum(map(_reads_as_number, kinds))
        return num >= LARGEST_SHARE * num_rows or num / 2 <= num_numbers < num

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its encoded columns: `label`, or `label=category` for each."""
        if self.num_counts:
            return tuple(f"{self.label}[{i}]" for i in range(self.num_counts))
        if self.categories is None:
            return (str(self.label),)
        return tuple(f"{self.label}={category}" for category in self.categories)

    def encode(
        self, values: Any, keys: Sequence[Hashable] | None = None
    ) -> NDArray[Any]:
        """`q` other values as float64 numbers, or int64 places of the categories."""
        if self.num_counts:
            return _morgan_counts(values, self.num_counts, str(self.label))
        values = as_host_array(values)
        if self.categories is None:
            if not is_number(self.label, values):
                items = as_list(values)
                row = first_place(not isinstance(v, NUMBERS) for v in items)
                reason = f"got {items[row]!r}; need a number, as in the candidates."
                raise bad_cell(row, self.label, reason, keys)
            return exact_numbers(self.label, values, keys)
        place = {category: i for i, category in enumerate(self.categories)}
        items = _items(self.label, values, keys)
        codes = np.fromiter(map(place.get, items, repeat(-1)), np.int64, len(items))
        if (codes < 0).any():
            row = int((codes < 0).argmax())
            known = short_list(self.categories)
            reason = f"{items[row]!r} is none of its categories, {known}."
            raise bad_cell(row, self.label, reason, keys)
        return codes

    def put(self, encoded: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Write what `encode` returned into the `q x d` encoded columns, zeros so far.

        Args:
            encoded: `q` numbers or places.
            out: `q x d` matrix.
        """
        if self.num_counts:
            out[:, self.start : self.start + self.num_counts] = encoded
        elif self.categories is None:
            out[:, self.start] = encoded
        else:
            out[np.arange(len(encoded)), self.start + encoded] = 1.0

    def decode(self, X: NDArray[Any]) -> NDArray[Any]:
        """The values that `q x d` encoded rows came from; counts for molecules."""
        if self.num_counts:
            return X[:, self.start : self.start + self.num_counts]
        if self.categories is None:
            return X[:, self.start]
        values = np.empty(self.width, dtype=object)
        values[:] = self.categories
        return values[X[:, self.start : self.start + self.width].argmax(axis=1)]


def read_molecules(
    label: Hashable, smiles: Any, start: int
) -> tuple[Column, NDArray[np.uint8]]:
    """How to encode a column of SMILES, and its Morgan fingerprints, `A x d` counts."""
    counts = _morgan_counts(smiles, NUM_COUNTS, str(label))
    return Column(label, None, start, None, NUM_COUNTS, tuple(as_list(smiles))), counts


def _morgan_counts(smiles: Any, size: int, label: str) -> NDArray[np.uint8]:
    from botorch_sparse.molecules import morgan_counts  # RDKit is an extra

    return morgan_counts(as_list(smiles), size=size, label=label)


def read_column(
    label: Hashable, values: Any, start: int, keys: Sequence[Hashable] | None = None
) -> tuple[Column, NDArray[Any]]:
    """How to encode a column, and its values encoded.

    Numbers and truth values stay numbers, as objects too. Text, other objects and what
    pandas calls categorical are categories, in the order of pandas or else of their
    first appearance; a category that no row has is left out. Cost: O(A) for `A` values,
    no Python code runs for each.
    """
    values = as_host_array(values)
    dtype = getattr(values, "dtype", None)
    if is_number(label, values):
        encoded = exact_numbers(label, values, keys)
        if getattr(dtype, "kind", "") == "O":
            dtype = _plain(values).dtype  # objects come back as numbers
        return Column(label, dtype, start, None), encoded
    items = _items(label, values, keys)
    if not hasattr(dtype, "categories"):
        _refuse_mixed(label, items, keys)
    place = {value: i for i, value in enumerate(dict.fromkeys(items))}
    if len(place) > MAX_CATEGORIES:
        raise InputDataError(
            f"Column {label!r} holds {len(place)} different values that are not "
            f"numbers; at most {MAX_CATEGORIES} categories are encoded. If it names "
            f"the rows, make it the index, frame.set_index({label!r}); else leave it "
            "out. On the command line: --key or --ignore."
        )
    order = getattr(dtype, "categories", place)
    place = {v: i for i, v in enumerate(v for v in order if v in place)}
    codes = np.fromiter(map(place.__getitem__, items), np.int64, len(items))
    return Column(label, dtype, start, tuple(place)), codes


def is_number(label: Hashable, values: Any) -> bool:
    """Whether all values are numbers or truth values, by their type."""
    dtype = getattr(values, "dtype", None)
    kind = getattr(dtype, "kind", "O")
    if kind in "mMc":
        raise InputDataError(
            f"Column {label!r} is of type {dtype}; need numbers, truth values or "
            "text. Turn dates into numbers, such as days since the first."
        )
    if hasattr(dtype, "categories"):
        return False
    if kind == "O":
        return all(issubclass(k, NUMBERS) for k in set(map(type, values)))
    return kind in "biuf"


def exact_numbers(
    label: Hashable, values: Any, keys: Sequence[Hashable] | None = None
) -> NDArray[np.float64]:
    """Numbers in float64, if they are there, finite and exact."""
    missing = np.asarray(values.isna()) if hasattr(values, "isna") else None
    if missing is not None and missing.any():
        raise bad_cell(int(missing.argmax()), label, _missing("nothing"), keys)
    array = _plain(values)
    if array.dtype.kind in "iu":
        large = is_inexact(array)
        if large.any():
            row = int(large.argmax())
            reason = (
                f"{array[row]} is beyond 2^53, where float64 loses digits. If the "
                f"column names the rows, make it the index, frame.set_index({label!r}) "
                "(on the command line: --key); else scale it."
            )
            raise bad_cell(row, label, reason, keys)
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        row = int((~np.isfinite(array)).argmax())
        raise bad_cell(row, label, _missing(str(array[row])), keys)
    return array


def _plain(values: Any) -> NDArray[Any]:
    """Numbers as an array of truth values, whole numbers or floating point ones."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        array = np.asarray(array.tolist())
    return array if array.dtype.kind in "biuf" else array.astype(np.float64)


def _items(
    label: Hashable, values: Any, keys: Sequence[Hashable] | None
) -> list[Hashable]:
    """Categories as Python values, one for each row."""
    missing = np.asarray(values.isna()) if hasattr(values, "isna") else None
    if missing is not None and missing.any():
        raise bad_cell(int(missing.argmax()), label, NO_CATEGORY, keys)
    items = as_list(values)
    try:
        different = dict.fromkeys(items)
    except TypeError:
        row = first_place(not isinstance(v, Hashable) for v in items)
        reason = f"{items[row]!r} cannot be a category; need text."
        raise bad_cell(row, label, reason, keys) from None
    if has_missing(different):
        raise bad_cell(first_place(map(is_null, items)), label, NO_CATEGORY, keys)
    return items


def _refuse_mixed(
    label: Hashable, items: list[Hashable], keys: Sequence[Hashable] | None
) -> None:
    """Refuse texts among numbers: one cell would make categories of a column."""
    kinds = set(map(type, items))
    if str not in kinds or not any(issubclass(kind, NUMBERS) for kind in kinds):
        return
    texts = sum(isinstance(item, str) for item in items)
    is_few = 2 * texts <= len(items)
    row = first_place(isinstance(item, str) == is_few for item in items)
    kind = "text among numbers" if is_few else "a number among texts"
    reason = (
        f"{items[row]!r} is {kind}; need one or the other. Where all are categories: "
        f"frame[{label!r}].astype(str)."
    )
    raise bad_cell(row, label, reason, keys)


def has_missing(values: Collection[Hashable]) -> bool:
    """Whether one of some values is missing; no Python code runs for text alone."""
    kinds = set(map(type, values))
    if kinds <= {str}:
        return not all(map(str.strip, map(str, values)))
    return not kinds <= {int, bool} and any(map(is_null, values))


def is_null(value: Hashable) -> bool:
    """Whether a value is None, NaN, pandas' NA, or blank text."""
    if isinstance(value, str):
        return not value.strip()
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA compares to nothing
        return True


def _reads_as_number(value: Hashable) -> bool:
    """Whether a category is a finite number, or the text of one."""
    try:
        return isfinite(float(str(value)))
    except ValueError:
        return False


def first_place(conditions: Iterable[bool]) -> int:
    """The place of the first that holds; 0 if none does."""
    return next((i for i, holds in enumerate(conditions) if holds), 0)


def _missing(what: str) -> str:
    return f"got {what}; need a value. Fill it in, or leave out the column or the row."


def as_host_array(values: Any) -> Any:
    """Values that NumPy can read: a tensor as an array, all else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def as_list(values: Iterable[Any]) -> list[Any]:
    """Values of an array, Series, Index, tensor or any sequence as Python values."""
    if hasattr(values, "tolist"):
        return list(values.tolist())
    return list(values)


def read_numbers(candidates: Any, rows: slice | None = None) -> Rows:
    """`A x d` numbers as a tensor, if they are finite, or as bytes if they are such.

    A tensor is itself. A `numpy.memmap`, and a file, stay where they are: the tensor
    shares their memory, and of other rows than those asked for nothing is read.
    """
    if isinstance(candidates, str | os.PathLike):
        candidates = open_array(candidates)
    if (compact := _compact(candidates)) is not None:
        return compact if rows is None else compact.part(_plain_slice(rows))
    X = _shared(candidates)
    if X.dim() == 2 and rows is not None:
        X = X[_plain_slice(rows)]
    if X.dim() != 2 or X.shape[0] == 0 or X.shape[1] == 0:
        raise BotorchTensorDimensionError(
            f"Got candidates of shape {tuple(X.shape)}; need `A x d` with A, d > 0."
        )
    if X.dtype not in DTYPES:
        raise InputDataError(
            f"Got candidates of dtype {X.dtype}; need float32 or float64, or uint8 "
            "for counts up to 255. Try X.double(), or np.load(path) in place of a file."
        )
    _check_finite(X, 0 if rows is None else rows.start or 0)
    return X


def _compact(candidates: Any) -> CompactRows | None:
    """Bits or counts as such; None where they are other numbers."""
    if isinstance(candidates, CompactRows):
        return candidates
    stored = as_bytes(candidates)
    if stored is None:
        return None
    if stored.dim() != 2:
        raise BotorchTensorDimensionError(
            f"Got candidates of shape {tuple(stored.shape)}; need `A x d` with A, d > "
            "0."
        )
    return CompactRows(stored, stored.shape[1])


def _plain_slice(rows: slice) -> slice:
    """Rows of a table that follow each other."""
    if not isinstance(rows, slice) or rows.step not in (None, 1):
        raise InputDataError(f"Got rows={rows}; need a slice without a step.")
    return rows


def _check_finite(X: Tensor, first: int) -> None:
    """Refuse numbers that are not finite, some rows at a time."""
    size = max(1, CHUNK_ENTRIES // X.shape[1])
    for start in range(0, len(X), size):
        is_finite = X[start : start + size].isfinite()
        if not is_finite.all():
            row, column = (~is_finite).nonzero()[0].tolist()
            value = X[start + row, column].item()
            reason = f"got {value}; need entries that are finite."
            raise bad_cell(first + start + row, f"x{column}", reason)


def _shared(candidates: Any) -> Tensor:
    """A tensor that shares memory with what is one already, or in a file."""
    if isinstance(candidates, np.memmap):
        return _of_file(candidates)
    return as_numbers(
        "candidates",
        candidates,
        "need numbers alone; give tables with text as a pandas DataFrame.",
    )


def open_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array in a `.npy` file, not read yet; what is written to it stays here.

    Raises:
        InputDataError: If the file holds none.
        OSError: If it is not there, or can't be read.
    """
    try:
        return map_npy(path, "c")
    except InputDataError as error:
        raise InputDataError(
            f"Got candidates={os.fspath(path)!r}, which is no .npy file with an array "
            f"of numbers ({error}). Write one with numpy.save, or give text tables as "
            "pandas.read_csv(path)."
        ) from error


def map_npy(path: str | os.PathLike[str], mode: Literal["r", "c"]) -> NDArray[Any]:
    """The array in a file as a map of it; "c": what is written to it stays here.

    Raises:
        InputDataError: If the file holds none; why stands first, in NumPy's words.
        OSError: If it is not there, or can't be read.
    """
    try:
        with _ONE_HEADER:
            array: NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
    except (ValueError, EOFError) as error:
        # NumPy goes on with the advice to unpickle the file.
        reason = re.split(r"\. | when allow_pickle", str(error))[0]
        raise InputDataError(reason.rstrip(".")) from error
    return array


def _of_file(array: NDArray[Any]) -> Tensor:
    try:
        with warnings.catch_warnings():  # that a map may be of a file to read alone
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise InputDataError(
            f"Got a file with entries of type {array.dtype}; need float32 or float64 "
            f"in this machine's byte order ({error})."
        ) from error
