"""Tables in `.npy` files, whole and shared by ranks."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError
from thread_ranks import together

from botorch_sparse.demo.datasets import load_table
from botorch_sparse.distributed import Ranks
from botorch_sparse.pools.shard import RANK_TILE, Shard

ROWS = 5 * RANK_TILE - 100


@pytest.fixture
def cells() -> np.ndarray:
    generator = np.random.default_rng(0)
    cells = generator.normal(3.0, 5.0, size=(ROWS, 4))
    cells[:, 1] = 7.0  # a constant column
    return cells


@pytest.fixture
def path(cells: np.ndarray, tmp_path: Path) -> Path:
    np.save(tmp_path / "big.npy", cells)
    return tmp_path / "big.npy"


def test_a_table_has_its_target_in_the_last_column(
    path: Path, cells: np.ndarray
) -> None:
    table = load_table(path)
    assert (table.name, table.target_name, table.num_rows) == ("big", "y", ROWS)
    assert table.feature_names == ("x0", "x1", "x2")
    X = (cells - cells.mean(0)) / np.where(cells.std(0) > 0, cells.std(0), 1.0)
    torch.testing.assert_close(table.X, torch.from_numpy(X[:, :3]))
    y = (cells[:, 3] - cells[:, 3].min()) / np.ptp(cells[:, 3])
    torch.testing.assert_close(table.Y, torch.from_numpy(y))


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8])
def test_other_numbers_are_taken(path: Path, cells: np.ndarray, dtype: type) -> None:
    other = np.abs(cells).astype(dtype)
    np.save(path, other)
    table = load_table(path, target="x2")
    assert table.X.dtype == torch.float64 and table.target_name == "x2"
    assert table.Y.argmax() == other[:, 2].argmax()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_have_the_bits_of_one_process(path: Path, size: int) -> None:
    whole = load_table(path)
    parts = together(size, lambda ranks: load_table(path, ranks=ranks))
    assert torch.equal(torch.cat([part.X for part in parts]), whole.X)
    assert torch.equal(torch.cat([part.Y for part in parts]), whole.Y)
    assert all(part.shard.start % RANK_TILE == 0 for part in parts)


def test_a_rank_reads_no_row_of_another(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []

    class Watched(np.memmap):
        def __getitem__(self, index: slice) -> np.ndarray:
            read.append((index.start, index.stop))
            return np.asarray(super().__getitem__(index))

    load = np.load
    monkeypatch.setattr(np, "load", lambda *a, **k: load(*a, **k).view(Watched))
    parts = together(3, lambda ranks: load_table(path, ranks=ranks))
    assert sorted(read) == [(p.shard.start, p.shard.stop) for p in parts]


def test_threads_read_headers_in_turn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two threads parse literals at once CPython may raise a SystemError."""
    load, inside, most = np.load, [], []

    def watched(*args: Any, **options: Any) -> Any:
        inside.append(args)
        most.append(len(inside))
        sleep(0.01)
        inside.pop()
        return load(*args, **options)

    monkeypatch.setattr(np, "load", watched)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(load_table, [path] * 4))
    assert most == [1] * 4


def test_regret_and_rank_are_those_of_the_whole_table(path: Path) -> None:
    whole = load_table(path)
    rows = torch.tensor([3, ROWS - 1, 700, 3, 1600])

    def seen(ranks: Ranks) -> list[torch.Tensor]:
        part = load_table(path, ranks=ranks)
        return [part.values(rows), part.best_rank(rows), part.regret_ratio(rows)]

    for values, rank, ratio in together(3, seen):
        assert torch.equal(values, whole.Y[rows])
        assert torch.equal(rank, whole.best_rank(rows))
        torch.testing.assert_close(ratio, whole.regret_ratio(rows))


def test_every_row_has_one_owner() -> None:
    shards = together(4, lambda ranks: Shard(ROWS, ranks))
    owned = [row for s in shards for row in range(s.start, s.stop)]
    assert owned == list(range(ROWS))
    owner = shards[0].owner(torch.arange(ROWS))
    assert owner.bincount().tolist() == [len(s) for s in shards]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ([[[0.0] * 2] * 2] * 3, r"shape \(3, 2, 2\); need a matrix"),
        ([[0.0] * 3], "at least one feature and two rows"),
        ([[0.0]] * 3, "at least one feature"),
        ([["a", "b"], ["c", "d"]], "<U1 of shape"),
        ([[0j] * 2] * 3, "complex128 of shape"),
        ([[1, 2], [3, None]], "cannot be read as .npy"),
        ([[1.0, 2.0], [3.0, np.nan]], r"Row 1 \(from 0\)"),
        ([[1.0, 2.0], [1.0, 3.0]], "features of bad are constant"),
        ([[1.0, 2.0], [2.0, 2.0]], "target 'y' of bad is constant"),
    ],
)
def test_what_is_no_table_is_refused(
    content: list[list[object]], match: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "bad.npy", np.array(content))
    with pytest.raises(InputDataError, match=match):
        load_table(tmp_path / "bad.npy")


def test_files_that_are_not_there_or_no_npy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputDataError, match="There is no file"):
        load_table(tmp_path / "none.npy")
    (tmp_path / "text.npy").write_text("a,b\n1,2\n")
    with pytest.raises(InputDataError, match=r"as \.npy: .*pickled .*data\.$"):
        load_table(tmp_path / "text.npy")  # and no advice to read it unsafely


@pytest.mark.parametrize("problem", ["missing", "infinite"])
def test_all_ranks_refuse_what_one_cannot_read(
    problem: str, path: Path, cells: np.ndarray
) -> None:
    if problem == "infinite":
        cells[3 * RANK_TILE + 5, 2] = np.inf
        np.save(path, cells)

    def load(ranks: Ranks) -> str:
        is_missing = problem == "missing" and ranks.rank == 2
        with pytest.raises(InputDataError) as error:
            load_table(path.with_stem("none") if is_missing else path, ranks=ranks)
        return str(error.value)

    expected = {"missing": "no file", "infinite": f"Row {3 * RANK_TILE + 5} "}[problem]
    assert all(expected in message for message in together(3, load))


def test_a_table_of_fewer_tiles_than_ranks_is_refused(path: Path) -> None:
    with pytest.raises(InputDataError, match="5020 rows for 6 ranks"):
        together(6, lambda ranks: load_table(path, ranks=ranks))
