"""Tables of numbers, in memory or in a file of which only what is needed is read."""

import os
import warnings
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.argument_checks import DTYPES, as_numbers
from botorch_sparse.strategies.data.columns import CellError

# Entries that are looked at in one go.
CHUNK_ENTRIES = 2**24
# Before CPython 3.12.2 threads that parse literals at the same time, as `numpy.load`
# does for a header, may fail: "AST constructor recursion depth mismatch".
_ONE_HEADER = Lock()


def read_numbers(candidates: Any, rows: slice | None = None) -> Tensor:
    """`A x d` numbers as a tensor, if they are finite.

    A tensor is itself. A `numpy.memmap`, and a file, stay where they are: the tensor
    shares their memory, and of other rows than those asked for nothing is read.

    Args:
        candidates: A tensor, array or list of lists; or the path of a `.npy` file.
        rows: Which rows to take, without a step; None for all.

    Raises:
        BotorchTensorDimensionError: If they are not `A x d` with A, d > 0.
        InputDataError: If they are no floating point numbers, or one is not finite.
    """
    X = _shared(candidates)
    if X.dim() == 2 and rows is not None:
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise InputDataError(f"Got rows={rows}; need a slice without a step.")
        X = X[rows]
    if X.dim() != 2 or X.shape[0] == 0 or X.shape[1] == 0:
        raise BotorchTensorDimensionError(
            f"Got candidates of shape {tuple(X.shape)}; need `A x d` with A, d > 0."
        )
    if X.dtype not in DTYPES:
        raise InputDataError(
            f"Got candidates of dtype {X.dtype}; need float32 or float64."
        )
    _check_finite(X, 0 if rows is None else rows.start or 0)
    return X


def _check_finite(X: Tensor, first: int) -> None:
    """Refuse numbers that are not finite, some rows at a time."""
    size = max(1, CHUNK_ENTRIES // X.shape[1])
    for start in range(0, len(X), size):
        is_finite = X[start : start + size].isfinite()
        if not is_finite.all():
            row, column = (~is_finite).nonzero()[0].tolist()
            value = X[start + row, column].item()
            reason = f"got {value}; need entries that are finite."
            raise CellError(first + start + row, f"x{column}", reason)


def _shared(candidates: Any) -> Tensor:
    """A tensor that shares memory with what is one already, or in a file."""
    if isinstance(candidates, str | os.PathLike):
        candidates = open_array(candidates)
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
        raise InputDataError(str(error).split(". ")[0].rstrip(".")) from error
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
