"""Tables: the protocol of the papers, and every way in which a file can be wrong."""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError
from refusals import refused

from botorch_sparse.demo.datasets import (
    DATA_VARIABLE,
    _fetch_california_housing,
    load_table,
)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "table.csv") -> Path:
        path = tmp_path / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def test_abalone_follows_the_protocol_of_the_papers(tkwargs: dict[str, Any]) -> None:
    table = load_table("abalone", **tkwargs)
    assert table.X.shape == (4177, 8) and table.Y.shape == (4177,)
    assert table.X.dtype == table.Y.dtype == tkwargs["dtype"]
    assert table.X.device.type == tkwargs["device"].type
    assert table.target_name == "rings" and table.feature_names[0] == "sex"
    tol = 1e-4 if tkwargs["dtype"] == torch.float32 else 1e-10
    assert table.X.mean(0).abs().max() < tol
    assert (table.X.std(0, correction=0) - 1).abs().max() < tol
    assert table.Y.min() == 0 and table.Y.max() == 1
    # first row: 15 rings, where the fewest are 1 and the most 29
    assert table.Y[0].item() == pytest.approx(14 / 28)


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_a_file_is_standardized_and_the_target_scaled(write: Write, name: str) -> None:
    path = write("\ufeffa, b,c\r\n1,7,10\r\n3,7,20\r\n\r\n5,7,15\r\n", name)
    table = load_table(path)
    sd = np.sqrt(8 / 3)
    torch.testing.assert_close(
        table.X, torch.tensor([[-2 / sd, 0], [0, 0], [2 / sd, 0]], dtype=torch.float64)
    )
    assert table.Y.tolist() == [0, 1, 0.5]
    assert (table.name, table.feature_names) == ("table", ("a", "b"))


def test_a_constant_column_of_inexact_numbers_is_zero(write: Write) -> None:
    rows = "\n".join(f"0.1,{i},{i}" for i in range(7))
    table = load_table(write("a,b,c\n" + rows))
    assert torch.equal(table.X[:, 0], torch.zeros(7, dtype=torch.float64))


def test_any_column_can_be_the_target(write: Write) -> None:
    table = load_table(write("a,b,c\n1,4,10\n3,2,20\n"), target="b")
    assert table.target_name == "b" and table.feature_names == ("a", "c")
    assert table.Y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("", None, "is empty"),
        ("\n1,2\n", None, "is empty"),
        ("a,b\n", None, "holds 0 rows"),
        ("a,b\n1,2\n", None, "holds 1 rows"),
        ("a\n1\n2\n", None, "only the column 'a'"),
        ("a;b\n1;2\n2;3\n", None, "only the column 'a;b'.*commas"),
        ("1,2\n3,4\n5,6\n", None, "must name the columns"),
        ("a,,b\n1,2,3\n2,3,4\n", None, "Column 2 .* has no name"),
        ("a,b,a\n1,2,3\n2,3,4\n", None, "repeats the column names 'a'"),
        ("a,b\n1,2\n3,x\n", None, "Row 2, column 'b' .* the text 'x'"),
        ("a,b\n1,2\n ,3\n", None, "Row 2, column 'a' .* holds nothing"),
        ("a,b\n1,2\n3,nan\n", None, "Row 2, column 'b' .* the text 'nan'"),
        ("a,b\ninf,2\n3,4\n", None, "Row 1, column 'a' .* the text 'inf'"),
        ("a,b\n1_000,2\n3,4\n", None, "Row 1, column 'a' .* the text '1_000'"),
        ("a,b\n1,2\n3\n", None, "Row 2 .* has 1 cells, the header has 2"),
        ("a,b\n1,2\n3,4,5\n", None, "Row 2 .* has 3 cells"),
        ("a,b\n1,2\n3,4\n", "c", "no column 'c'; its columns are 'a', 'b'"),
        ("a,b\n1,2\n3,2\n", None, "target 'b' of table is constant \\(2 in"),
        ("a,b\n1,2\n1,3\n", None, "All features of table are constant"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(
    write: Write, text: str, target: str | None, message: str
) -> None:
    with pytest.raises(InputDataError, match=message) as caught:
        load_table(write(text), target=target)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    refused("no file", load_table, tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "plain.csv.gz").write_text("a,b\n1,2\n")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 99)[:25])
    spoilt = bytearray(gzip.compress(b"a,b\n" + b"1,2\n" * 99))
    spoilt[12:18] = b"\xff" * 6
    (tmp_path / "spoilt.csv.gz").write_bytes(bytes(spoilt))
    (tmp_path / "latin.csv").write_bytes("é,b\n1,2\n".encode("latin1"))
    for path in tmp_path.iterdir():
        refused("cannot be read", load_table, path)


def test_names_are_looked_up_in_the_data_folder(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    refused(f"{DATA_VARIABLE} \\(which is not set", load_table, "thing")
    path = write("a,b\n1,2\n3,4\n", "thing.csv.gz")
    monkeypatch.setenv(DATA_VARIABLE, str(path.parent))
    assert load_table("thing").Y.tolist() == [0, 1]
    refused(r"holds other\.csv\.gz", load_table, "other")


HOUSING_ROW = [8.3252, 41.0, 880 / 126, 129 / 126, 322.0, 322 / 126, 37.88, -122.23]


def fake_fetcher(monkeypatch: pytest.MonkeyPatch, fetch: Callable[[], Any]) -> None:
    module = SimpleNamespace(fetch_california_housing=fetch)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", module)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)


def test_fetched_housing_is_the_table_with_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = [2.0, 20.0, 5.0, 1.0, 300.0, 3.0, 34.0, -118.0]
    data, values = np.array([HOUSING_ROW, other]), np.array([4.526, 1.5])
    fake_fetcher(monkeypatch, lambda: SimpleNamespace(data=data, target=values))
    fetched = load_table("california_housing", target="total_rooms")
    assert fetched.feature_names[3:5] == ("total_bedrooms", "population")
    assert fetched.Y.tolist() == [1, 0]  # 880 rooms against 5 * 100
    header, cells = _fetch_california_housing()
    expected = [-122.23, 37.88, 41, 880, 129, 322, 126, 8.3252, 452600]
    assert header[-1] == "median_house_value"
    np.testing.assert_allclose(cells[0], expected, rtol=1e-12)


def test_housing_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch() -> None:
        raise OSError("no network")

    fake_fetcher(monkeypatch, fetch)
    refused(f"no network.*set {DATA_VARIABLE}", load_table, "california_housing")


def test_regret_ratio_of_each_row_once_is_one(write: Write) -> None:
    table = load_table(write("a,b\n1,2\n3,4\n9,5\n"))  # Y = 0, 2/3, 1; mean 5/9
    ratios = table.regret_ratio(torch.tensor([0, 1, 2]))
    expected = torch.tensor([1 / (4 / 9), (4 / 3) / (8 / 9), 1], dtype=torch.float64)
    torch.testing.assert_close(ratios, expected)
    assert table.regret_ratio(torch.tensor([2, 2])).tolist() == [0, 0]
    refused("1 indices out of 0", table.regret_ratio, torch.tensor([0, -1]))
