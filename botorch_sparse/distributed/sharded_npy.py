"""Tables in `.npy` files, of which each process reads the rows that it owns."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
from botorch.exceptions.errors import InputDataError
from numpy.typing import NDArray

from botorch_sparse.argument_checks import check_kind, check_path
from botorch_sparse.pools.shard import RANK_TILE, Ranks, Shard
from botorch_sparse.strategies.data.columns import map_npy

Matrix: TypeAlias = NDArray[np.float64]


def open_npy(path: Path) -> NDArray[np.generic]:
    """A matrix of numbers, at least 2 x 2, as a file holds it; nothing is read yet."""
    try:
        cells = map_npy(path, "r")
    except FileNotFoundError:
        raise InputDataError(f"There is no file {path}.") from None
    except (OSError, InputDataError) as error:
        raise InputDataError(f"{path} cannot be read as .npy: {error}.") from error
    shape = getattr(cells, "shape", ())
    if len(shape) != 2 or min(shape) < 2 or cells.dtype.kind not in "biuf":
        raise InputDataError(
            f"{path} holds {getattr(cells, 'dtype', 'arrays')} of shape {shape}; need "
            "a matrix of numbers, with a target in its last column and at least one "
            "feature and two rows."
        )
    return cells


def read_shard(path: str | os.PathLike[str], ranks: Ranks) -> tuple[Matrix, Shard]:
    """The rows of this rank in a file, and which they are; all ranks fail together.

    Args:
        path: An `.npy` file with an `A x p` matrix of numbers, A and p at least 2.
        ranks: The processes that share it.

    Returns:
        This rank's `a x p` rows in float64, and their places among all.

    Raises:
        InputDataError: If there is no such matrix, or one that is not finite.
    """
    check_path("path", path)
    check_kind("ranks", ranks, Ranks, "the Ranks that joined_ranks yields")
    path = Path(path)
    problem, cells = _attempt(lambda: open_npy(path))
    _raise_first(ranks, problem)
    assert cells is not None
    shape, dtype = cells.shape, str(cells.dtype)
    ranks.require_equal("table", lambda: (path.name, shape, dtype))
    shard = Shard(len(cells), ranks)
    own = np.array(cells[shard.start : shard.stop], dtype=np.float64)
    row = first_not_finite(own)
    found = None if row is None else shard.start + row
    bad = [row for row in ranks.gather(found) if row is not None]
    if bad:
        raise InputDataError(
            f"Row {bad[0]} (from 0) of {path} holds what is not a finite number."
        )
    return own, shard


def _attempt(
    read: Callable[[], NDArray[np.generic]],
) -> tuple[str | None, NDArray[np.generic] | None]:
    try:
        return None, read()
    except InputDataError as error:
        return str(error), None


def _raise_first(ranks: Ranks, problem: str | None) -> None:
    """Raise what one rank has found wrong, on all of them."""
    for found in ranks.gather(problem):
        if found is not None:
            raise InputDataError(found)


def first_not_finite(rows: Matrix) -> int | None:
    """The first row with a NaN or an infinity; tile by tile, in O(1) memory."""
    for start in range(0, len(rows), RANK_TILE):
        finite = np.isfinite(rows[start : start + RANK_TILE]).all(axis=1)
        if not finite.all():
            return start + int(finite.argmin())
    return None
