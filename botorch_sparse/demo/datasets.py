"""Tables of candidates with a measured target, for the demo and the benchmarks.

A table turns real data into a finite optimization problem: its rows are the
candidates and its target column is the function. As in the experiments of
[Calandriello2019]_ and [Calandriello2020]_, features are standardized and the target is
scaled to [0, 1].

References:
    .. [Calandriello2019]
        D. Calandriello, L. Carratino, A. Lazaric, M. Valko and L. Rosasco. Gaussian
        process optimization with adaptive sketching: scalable and no regret.
        COLT 2019.
    .. [Calandriello2020]
        D. Calandriello, L. Carratino, A. Lazaric, M. Valko and L. Rosasco.
        Near-linear time Gaussian process optimization with adaptive batching and
        resparsification. ICML 2020.
"""

import csv
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from botorch.exceptions.errors import InputDataError
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.argument_checks import (
    DTYPES,
    as_device,
    check_choice,
    check_kind,
    check_tensors,
    short_list,
)
from botorch_sparse.command_line.csv_cells import check_header, number
from botorch_sparse.distributed import (
    ALONE,
    RANK_TILE,
    Ranks,
    Shard,
    ShardedDomain,
    read_shard,
)

Matrix: TypeAlias = NDArray[np.float64]
DATA_VARIABLE = "BOTORCH_SPARSE_DATA"


@dataclass(frozen=True, eq=False)
class Table:
    """Candidates and the values of the function at them.

    Of a table of several ranks each holds the rows that it owns, and all have to call
    its methods together.

    Attributes:
        name: Name of the table.
        X: `A x d` standardized features (mean 0, standard deviation 1; a constant
            column is 0); of several ranks, this rank's rows.
        Y: `A` values of the target, scaled to [0, 1]; likewise.
        feature_names: Names of the `d` features.
        target_name: Name of the target column.
        part: Which rows they are; None for all.
    """

    name: str
    X: Tensor
    Y: Tensor
    feature_names: tuple[str, ...]
    target_name: str
    part: Shard | None = None

    @property
    def shard(self) -> Shard:
        """Which rows are here."""
        return self.part or Shard(len(self.Y))

    @property
    def num_rows(self) -> int:
        """Candidates `A`, on all ranks together."""
        return self.shard.num_rows

    @cached_property
    def candidates(self) -> Tensor | ShardedDomain:
        """The rows as strategies take them, from all ranks."""
        if self.shard.ranks.size == 1:
            return self.X
        Y = self.Y.unsqueeze(-1)
        return ShardedDomain(self.X, self.shard, self.feature_names, Y)

    def values(self, indices: Tensor) -> Tensor:
        """The target at `n` rows."""
        self._check_rows(indices)
        return self.shard.at(self.Y, indices)

    def known_values(self, indices: Tensor) -> Tensor:
        """The target at rows that a strategy has chosen, also on one rank alone."""
        if isinstance(self.candidates, ShardedDomain):
            return self.candidates.beside_of(indices).squeeze(-1)
        return self.values(indices)

    def regret_ratio(self, indices: Tensor) -> Tensor:
        r"""Cumulative regret over the expected one of uniform choice.

        .. math:: \rho_t = \sum_{s \le t} (\max f - f(x_s)) / (t (\max f - \bar f))

        It is 1 for uniform choice (in expectation) and 0 for choosing the best row
        each time. The values of the table are taken, not the noisy feedback.

        Args:
            indices: `n` rows, in the order of their evaluation.

        Returns:
            `n` ratios, one after each evaluation. O(n).

        Raises:
            InputDataError: If an index is negative: a point that is not in the table.
        """
        self._check_rows(indices)
        ranks = self.shard.ranks
        best = ranks.max(self.Y.max())
        mean = ranks.sum(self.Y.sum()) / self.num_rows
        regret = (best - self.values(indices)).cumsum(0)
        t = torch.arange(1, len(regret) + 1, dtype=regret.dtype, device=regret.device)
        return regret / (t * (best - mean))

    def best_rank(self, indices: Tensor) -> Tensor:
        """Rank of the best row so far: 1 plus the number of rows with a larger value.

        Args:
            indices: `n` rows, in the order of their evaluation.

        Returns:
            `n` ranks of type long, one after each evaluation. O((A + n) log A).

        Raises:
            InputDataError: If an index is negative: a point that is not in the table.
        """
        self._check_rows(indices)
        best = self.values(indices).cummax(0).values
        not_larger = torch.searchsorted(self.Y.sort().values, best, right=True)
        return 1 + self.shard.ranks.sum(len(self.Y) - not_larger)

    def _check_rows(self, indices: Tensor) -> None:
        """Refuse points that are not in the table."""
        check_tensors(indices=indices)
        if indices.is_floating_point() or indices.is_complex():
            raise InputDataError(f"Got indices of dtype {indices.dtype}; need long.")
        is_bad = (indices < 0) | (indices >= self.num_rows)
        if is_bad.any():
            raise InputDataError(
                f"Got {int(is_bad.sum())} indices out of 0 to {self.num_rows - 1}; "
                "need rows of the table, as no others have a value, regret or rank."
            )


def load_table(
    name_or_path: str | os.PathLike[str],
    *,
    target: str | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    ranks: Ranks = ALONE,
) -> Table:
    """Read a table by name or from a file, and standardize it.

    A file holds one header row and then numbers only, separated by commas. Names
    are looked up so: `abalone` comes with the package; any other `NAME` is the file
    `NAME.csv.gz` in the folder that the environment variable BOTORCH_SPARSE_DATA
    names; `california_housing` is downloaded through scikit-learn if it is not there.
    An `.npy` file holds a matrix of numbers, whose columns are called `x0`, `x1`, ...,
    and `y` the last; each rank reads its own rows.

    Args:
        name_or_path: A name, or a path that ends in `.csv`, `.csv.gz` or `.npy`.
        target: Column to maximize; the last one by default.
        dtype: Floating point type of the tensors.
        device: Their device.
        ranks: The processes that share the table.

    Returns:
        The table with `A` rows and `d` features, or this rank's part of it.

    Raises:
        InputDataError: If the table is not found or cannot be read, or holds text or
            missing cells, unnamed or repeated columns, fewer than two rows, no
            varying feature, no column `target`, or a constant target.

    Example:
        >>> table = load_table("abalone")
        >>> table.X.shape, table.target_name
        (torch.Size([4177, 8]), 'rings')
    """
    check_kind("name_or_path", name_or_path, (str, os.PathLike), "a name or a path")
    check_choice("dtype", dtype, DTYPES)
    check_kind("ranks", ranks, Ranks, "the Ranks that joined_ranks yields")
    device = as_device(device)
    path = str(name_or_path)
    if path.endswith(".npy"):
        cells, shard = read_shard(Path(path), ranks)
        name, header = Path(path).stem, _npy_header(cells)
    else:
        name, header, cells = _find(path)
        shard = Shard(len(cells), ranks)
    column = _target_column(name, header, target)
    low, high = _column_ranges(cells, ranks)
    constant = np.delete(low == high, column)
    features, values = np.delete(cells, column, axis=1), cells[:, column]
    if path.endswith(".npy"):
        mean, sd = _tiled_moments(features, shard=shard)
    else:
        mean, sd = features.mean(axis=0), (features - features.mean(axis=0)).std(axis=0)
    X = _standardize(name, features, mean, sd, constant)
    Y = _scale(name, header[column], values, low[column], high[column])
    own = slice(None) if len(X) == len(shard) else slice(shard.start, shard.stop)
    return Table(
        name=name,
        X=torch.tensor(X[own], dtype=dtype, device=device),
        Y=torch.tensor(Y[own], dtype=dtype, device=device),
        feature_names=tuple(header[:column] + header[column + 1 :]),
        target_name=header[column],
        part=shard,
    )


def _npy_header(rows: Matrix) -> list[str]:
    """Names of `a x (d + 1)` columns: of `d` features, and of the target."""
    return [*(f"x{i}" for i in range(rows.shape[1] - 1)), "y"]


def _column_ranges(rows: Matrix, ranks: Ranks) -> tuple[Matrix, Matrix]:
    """The `p` lowest and the `p` largest values of `a x p` columns, of all ranks."""
    low, high = zip(*ranks.gather((rows.min(axis=0), rows.max(axis=0))), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)


def _tiled_moments(rows: Matrix, shard: Shard) -> tuple[Matrix, Matrix]:
    """`p` means and deviations of `a x p` columns over the rows of all ranks.

    Any number of ranks gives the same bits.
    """
    mean = _column_means(rows, shard)
    return mean, np.sqrt(_column_means(rows, shard, mean))


def _column_means(rows: Matrix, shard: Shard, centre: Matrix | None = None) -> Matrix:
    """The mean of each column over all ranks, or of its squares about `centre`."""
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


def _standardize(
    name: str, features: Matrix, mean: Matrix, sd: Matrix, constant: np.ndarray
) -> Matrix:
    """Mean 0 and standard deviation 1 in each column; 0 where it is constant."""
    if constant.all():
        raise InputDataError(f"All features of {name} are constant; one must vary.")
    centred = features - mean
    return np.where(constant, 0.0, centred / np.where(constant, 1.0, sd))


def _scale(name: str, column: str, target: Matrix, low: float, high: float) -> Matrix:
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


def _find(name: str) -> tuple[str, list[str], np.ndarray]:
    """Name, header and `A x (d + 1)` numbers of a table."""
    if name.endswith((".csv", ".csv.gz")):
        path = Path(name)
        stem = path.name.removesuffix(".gz").removesuffix(".csv")
        return stem, *_read(path)
    if name == "abalone":
        with as_file(files("botorch_sparse") / "data" / "abalone.csv.gz") as path:
            return name, *_read(path)
    folder = os.environ.get(DATA_VARIABLE)
    if folder and (path := Path(folder) / f"{name}.csv.gz").is_file():
        return name, *_read(path)
    if name == "california_housing":
        return name, *_fetch_california_housing()
    where = f"is {folder}" if folder else "is not set"
    raise InputDataError(
        f"There is no table {name!r}: give 'abalone', a path ending in .csv, .csv.gz "
        f"or .npy, or set {DATA_VARIABLE} (which {where}) to a folder that holds "
        f"{name}.csv.gz."
    )


def _read(path: Path) -> tuple[list[str], np.ndarray]:
    """Header and numbers of a CSV file, gzip or plain."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            return _parse(path, csv.reader(file))
    except FileNotFoundError:
        raise InputDataError(f"There is no file {path}.") from None
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise InputDataError(
            f"{path} cannot be read as {'gzip ' * (path.suffix == '.gz')}CSV: {error}."
        ) from error


def _parse(path: Path, reader: Iterator[list[str]]) -> tuple[list[str], np.ndarray]:
    header = [name.strip() for name in next(reader, [])]
    if not any(header):
        raise InputDataError(f"{path} is empty: a header row and data are needed.")
    check_header(str(path), header)
    if len(header) < 2:
        raise InputDataError(
            f"{path} has only the column {header[0]!r}: a target and at least one "
            "feature are needed, separated by commas."
        )
    rows = [
        _parse_row(path, header, row, cells)
        for row, cells in enumerate((cells for cells in reader if cells), start=1)
    ]
    if len(rows) < 2:
        raise InputDataError(f"{path} holds {len(rows)} rows of data; 2 are needed.")
    return header, np.array(rows)


def _parse_row(
    path: Path, header: Sequence[str], row: int, cells: Sequence[str]
) -> list[float]:
    if len(cells) != len(header):
        raise InputDataError(
            f"Row {row} of {path} has {len(cells)} cells, the header has {len(header)}."
        )
    numbers = [number(cell) for cell in cells]
    for name, cell, value in zip(header, cells, numbers, strict=True):
        if value is None:
            what = f"the text {cell.strip()!r}" if cell.strip() else "nothing"
            raise InputDataError(
                f"Row {row}, column {name!r} of {path} holds {what}; a finite number "
                "is needed (the header is not counted as a row)."
            )
    return [value for value in numbers if value is not None]


def _target_column(name: str, header: list[str], target: str | None) -> int:
    if target is None:
        return len(header) - 1
    if target not in header:
        raise InputDataError(
            f"{name} has no column {target!r}; its columns are "
            f"{short_list(header, 20)}; need one of these as target."
        )
    return header.index(target)


def _fetch_california_housing() -> tuple[list[str], np.ndarray]:
    """The table of Pace and Barry (1997), with its counts restored.

    scikit-learn divides rooms, bedrooms and population by the number of households;
    the experiments of [Calandriello2020]_ use the counts.
    """
    try:
        from sklearn.datasets import fetch_california_housing

        frame = fetch_california_housing()
    except (ImportError, OSError) as error:
        raise InputDataError(
            f"california_housing is neither in the folder that {DATA_VARIABLE} names "
            f"nor could scikit-learn fetch it ({error}): set {DATA_VARIABLE} to a "
            "folder that holds california_housing.csv.gz."
        ) from error
    income, age, rooms, bedrooms, population, occupancy, lat, long = frame.data.T
    households = np.round(population / occupancy)
    counts = [np.round(rooms * households), np.round(bedrooms * households)]
    columns = {
        "longitude": long,
        "latitude": lat,
        "housing_median_age": age,
        "total_rooms": counts[0],
        "total_bedrooms": counts[1],
        "population": population,
        "households": households,
        "median_income": income,
        "median_house_value": np.round(frame.target * 1e5),
    }
    return list(columns), np.stack(list(columns.values()), axis=1)
