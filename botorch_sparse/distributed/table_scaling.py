"""Units of a table: features standardized, the target on [0, 1]."""

from typing import TypeAlias

import numpy as np
from botorch.exceptions.errors import InputDataError
from numpy.typing import NDArray

from botorch_sparse.distributed.ranks import Ranks
from botorch_sparse.distributed.shards import RANK_TILE, Shard

Matrix: TypeAlias = NDArray[np.float64]


def column_ranges(rows: Matrix, ranks: Ranks) -> tuple[Matrix, Matrix]:
    """The lowest and the largest value of each column, over all ranks."""
    low, high = zip(*ranks.gather((rows.min(axis=0), rows.max(axis=0))), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)


def tiled_moments(rows: Matrix, shard: Shard) -> tuple[Matrix, Matrix]:
    """Mean and standard deviation of each column over all ranks.

    Sums are taken tile by tile, and of the tiles in their order: they have the same
    bits on any number of ranks.
    """
    mean = _column_means(rows, shard)
    return mean, np.sqrt(_column_means(rows, shard, mean))


def _column_means(rows: Matrix, shard: Shard, centre: Matrix | None = None) -> Matrix:
    """The mean of each column over all ranks, or of its squared distance to `centre`.

    Args:
        rows: Those of this rank.
        shard: Which these are.
        centre: `d` numbers.
    """
    tiles = [
        rows[start : start + RANK_TILE] for start in range(0, len(rows), RANK_TILE)
    ]
    if centre is not None:
        sums = [np.square(tile - centre).sum(axis=0) for tile in tiles]
    else:
        sums = [tile.sum(axis=0) for tile in tiles]
    total = np.concatenate(shard.ranks.gather(np.array(sums))).sum(axis=0)
    mean: Matrix = total / shard.num_rows
    return mean


def whole_moments(features: Matrix) -> tuple[Matrix, Matrix]:
    """Mean and standard deviation of each column."""
    mean = features.mean(axis=0)
    return mean, (features - mean).std(axis=0)


def standardize(
    name: str, features: Matrix, mean: Matrix, sd: Matrix, constant: NDArray[np.bool_]
) -> Matrix:
    """Mean 0 and standard deviation 1 in each column; 0 where it is constant."""
    if constant.all():
        raise InputDataError(f"All features of {name} are constant; one must vary.")
    centred = features - mean
    return np.where(constant, 0.0, centred / np.where(constant, 1.0, sd))


def scale(name: str, column: str, target: Matrix, low: float, high: float) -> Matrix:
    """The target on [0, 1]."""
    if high / 2 - low / 2 > np.finfo(float).max / 4:
        raise InputDataError(
            f"The target {column!r} of {name} ranges from {low:g} to {high:g}, too far "
            "to be scaled to [0, 1]."
        )
    if low == high:
        raise InputDataError(
            f"The target {column!r} of {name} is constant ({low:g} in all rows); "
            "there is nothing to optimize."
        )
    return (target - low) / (high - low)
