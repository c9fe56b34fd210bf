"""Bits and counts that stay bytes: rows are the numbers that NumPy has."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from gpytorch.means import ConstantMean, LinearMean

from botorch_sparse.kernels import TanimotoKernel, dense_covariance
from botorch_sparse.kernels.kernel_matrices import compares_counts
from botorch_sparse.kernels.tanimoto import similarity
from botorch_sparse.pools import compact_rows
from botorch_sparse.pools.compact_rows import (
    CompactRows,
    DistinctRows,
    as_bytes,
    distinct_blocks,
    kernel_rows,
    kernel_with,
    mean_of,
    variance_of,
)

A, D = 50, 21


@pytest.fixture
def bits() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (A, D), dtype=np.uint8)


def both(bits: np.ndarray) -> list[CompactRows]:
    """As bytes, and as packed bits."""
    packed = CompactRows.from_packed(np.packbits(bits, axis=1), D)
    return [CompactRows(torch.from_numpy(bits), D), packed]


def test_rows_are_the_numbers(bits: np.ndarray) -> None:
    X = torch.from_numpy(bits).double()
    for rows in both(bits):
        assert rows.shape == X.shape and len(rows) == A
        index = torch.tensor([3, 49, 3])
        for which in (index, slice(7, 30), slice(None), slice(0, 0), 5):
            found = rows[which]
            assert found.dtype == torch.float64 and torch.equal(found, X[which])
            assert rows.entries(which).dtype == torch.uint8
        part = rows.part(slice(10, 20))
        assert isinstance(part, CompactRows) and torch.equal(part[:], X[10:20])


def test_ranges(bits: np.ndarray) -> None:
    bits[:, 4], bits[:, 5] = 0, 1
    for rows in both(bits):
        low, high = rows.aminmax(dim=0)
        np.testing.assert_array_equal(low.numpy(), bits.min(0))
        np.testing.assert_array_equal(high.numpy(), bits.max(0))


def test_points_as_stored(bits: np.ndarray) -> None:
    """Numbers become the bytes of a row where a row can be that."""
    X = torch.from_numpy(bits)
    for rows in both(bits):
        for dtype in (torch.float64, torch.float32, torch.uint8):
            assert torch.equal(rows.compact(X.to(dtype)), rows.stored)
            assert rows.holds(X.to(dtype)).all()
    others = X[:4].double()
    others[0, 0], others[1, 20], others[2, 3] = -1.0, 0.5, 300.0
    assert both(bits)[0].holds(others).tolist() == [False, False, False, True]
    others[2, 3] = 2.0
    assert [r.holds(others)[2].item() for r in both(bits)] == [True, False]


@pytest.mark.parametrize("kernel", [ScaleKernel(TanimotoKernel()), LinearKernel()])
def test_what_a_pool_asks_of_all_rows(
    kernel, bits: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, kernel = torch.from_numpy(bits).double(), kernel.double()
    monkeypatch.setattr(compact_rows, "CHUNK_ENTRIES", 7 * D)
    means = [ConstantMean().double(), LinearMean(D).double()]
    means[0].constant.data.fill_(3.0)
    for rows in both(bits):
        torch.testing.assert_close(variance_of(kernel, rows), kernel(X, diag=True))
        for mean in means:
            torch.testing.assert_close(mean_of(mean, rows), mean(X))
        is_counts = kernel_rows(kernel, rows, slice(0, 3)).dtype == torch.uint8
        assert is_counts is isinstance(kernel, ScaleKernel)
    assert kernel_rows(MaternKernel(), X, slice(0, 3)).dtype == torch.float64


def test_files_stay_on_the_disk(bits: np.ndarray, tmp_path: Path) -> None:
    """What is written to the file afterwards is what is read."""
    path = tmp_path / "bits.npy"
    np.save(path, np.packbits(bits, axis=1))
    rows = CompactRows.from_packed(path, D)
    cells = np.load(path, mmap_mode="r+")
    cells[7] = 0
    cells.flush()
    assert rows[7].sum() == 0 and rows[8].tolist() == bits[8].tolist()


def test_what_becomes_bytes(bits: np.ndarray) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    counts = (bits * 9).astype(np.float64)
    for values in (
        counts.astype(np.uint8),
        torch.from_numpy(counts.astype(np.uint8)),
        sparse.csr_matrix(counts),
        sparse.coo_array(counts),
    ):
        np.testing.assert_array_equal(as_bytes(values).numpy(), counts)
    assert torch.equal(as_bytes(bits.astype(bool)), torch.from_numpy(bits))
    for values in (
        counts,
        counts.tolist(),
        torch.from_numpy(counts),
        counts.astype(int),
    ):
        assert as_bytes(values) is None
    twice = sparse.coo_matrix(([200, 200], ([0, 0], [0, 0])), shape=(1, 2))
    with pytest.raises(InputDataError, match="entry 400; need whole numbers"):
        as_bytes(twice)
    backwards = counts.astype(np.uint8)[::-1]
    np.testing.assert_array_equal(as_bytes(backwards).numpy(), backwards)
    with pytest.raises(InputDataError, match=r"entry 0\.5; need whole numbers"):
        as_bytes(sparse.csr_matrix(counts / 18))


def test_refuses_what_are_no_such_bits(bits: np.ndarray, tmp_path: Path) -> None:
    packed = np.packbits(bits, axis=1)
    with pytest.raises(InputDataError, match="need a matrix of type uint8"):
        CompactRows.from_packed(packed.astype(int), D)
    with pytest.raises(InputDataError, match="need 4: eight bits in a byte"):
        CompactRows.from_packed(packed, 30)
    with pytest.raises(InputDataError, match="bits beyond the last"):
        CompactRows.from_packed(packed | 1, D)
    with pytest.raises(BotorchTensorDimensionError, match="A, d > 0"):
        CompactRows.from_packed(packed[:0], D)
    with pytest.raises(FileNotFoundError):
        CompactRows.from_packed(tmp_path / "none.npy", D)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
def test_different_rows_have_the_similarities_of_all(share: float) -> None:
    """To the last bit, with their own bytes, other bytes, and numbers of any kind."""
    g = torch.Generator().manual_seed(0)
    counts = torch.randint(1, 40, (20, 60), generator=g)
    rows = (counts * (torch.rand(20, 60, generator=g) < share)).to(torch.uint8)
    rows = rows[torch.randint(20, (90,), generator=g)]
    distinct = DistinctRows.of(rows)
    assert len(distinct.rows) == len(rows.unique(dim=0))
    assert torch.equal(distinct.rows[distinct.number], rows)
    others = rows[:12].clone()
    others[:, 3] += 1
    half = rows[:12].double() + 0.5
    for points in (rows[:3], rows, rows.double(), others, others.double(), half):
        found = distinct.similarity(points)[distinct.number]
        expected = similarity(rows.double(), points.double())
        # Sums of halves are exact too.
        assert torch.equal(found, expected)


@pytest.mark.parametrize("blocks", [None, (6, D - 6)])
@pytest.mark.parametrize("most", [0, compact_rows.MOST_DISTINCT])
def test_kernels_of_rows_are_those_of_numbers(
    blocks: tuple[int, ...] | None,
    most: int,
    bits: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the last bit, also where rows and blocks that come again are looked up."""
    monkeypatch.setattr(compact_rows, "MOST_DISTINCT", most)
    bits[:, :6] = bits[:5, :6].repeat(A // 5, axis=0)
    bits[30:] = bits[:20]
    scaled = ScaleKernel(TanimotoKernel(blocks))
    scaled.outputscale = 0.3
    twice = ScaleKernel(scaled)
    twice.outputscale = 7.0
    X, index = torch.from_numpy(bits).double(), torch.tensor([3, 49, 3])
    for kernel in (TanimotoKernel(blocks), scaled, twice, MaternKernel()):
        kernel = kernel.double().requires_grad_(False)
        is_known = most > 0 and not isinstance(kernel, MaternKernel)
        for rows in both(bits):
            assert (distinct_blocks(kernel, rows) is not None) == is_known
            for which in (index, slice(7, 30), slice(None)):
                for points in (X[:12], rows.entries(slice(2, 14))):
                    if points.dtype == torch.uint8 and not compares_counts(kernel):
                        continue
                    found = kernel_with(kernel, rows, which, points)
                    expected = dense_covariance(kernel, X[which], points.double())
                    if compares_counts(kernel):
                        assert torch.equal(found, expected)
                    torch.testing.assert_close(found, expected)


def test_rows_of_which_neither_they_nor_entries_are_few_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compact_rows, "FEW_ROWS", 20)
    many = np.eye(A, 60, dtype=np.uint8)
    full = 1 - many
    assert CompactRows(torch.from_numpy(many), 60).distinct((60,)) is not None
    assert CompactRows(torch.from_numpy(full), 60).distinct((60,)) is None
    assert CompactRows(torch.from_numpy(full[:20]), 60).distinct((60,)) is not None


def test_a_copy_finds_its_different_rows_itself(bits: np.ndarray) -> None:
    for rows in both(bits):
        size = len(pickle.dumps(rows))
        assert rows.distinct((D,)) is rows.distinct((D,)) is not None
        assert len(pickle.dumps(rows)) == size
        for other in (pickle.loads(pickle.dumps(rows)), copy.deepcopy(rows)):
            assert torch.equal(other[:], rows[:])
            found, (own,) = other.distinct((D,)), rows.distinct((D,)) or [None]
            assert found is not None and own is not None
            assert torch.equal(found[0].rows, own.rows)
        part = rows.part(slice(10, 20)).distinct((D,))
        assert part is not None and len(part[0].number) == 10


def test_blocks_that_do_not_fit_are_refused_as_by_the_kernel(bits: np.ndarray) -> None:
    for rows in both(bits):
        with pytest.raises(InputDataError, match="have 7; need as many"):
            kernel_with(TanimotoKernel((3, 4)), rows, slice(None), rows[:2])


def test_kernels_of_some_columns_take_the_rows_as_they_are(bits: np.ndarray) -> None:
    kernel = TanimotoKernel(active_dims=[2, 3, 7]).double()
    X = torch.from_numpy(bits).double()
    for rows in both(bits):
        assert distinct_blocks(kernel, rows) is None
        found = kernel_with(kernel, rows, slice(4, 20), X[:9])
        assert torch.equal(found, dense_covariance(kernel, X[4:20], X[:9]))
