"""Tables of candidates: the way to numbers and back, keys, and what is refused."""

import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import InputDataWarning
from refusals import refused
from strategy_table import TABLE, equal, make_candidates, objective, without_times

from botorch_sparse.distributed import ALONE, ShardedDomain
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.columns import CHUNK_ENTRIES, MAX_CATEGORIES

pd = pytest.importorskip("pandas")

COLUMNS: dict[str, Any] = {
    "id": ["c1", "c2", "c3"],
    "solvent": ["water", "oil", "water"],
    "heat": [20, 35, 50],
    "dry": [True, False, True],
}


def table() -> CandidateTable:
    return CandidateTable.from_columns(COLUMNS, key="id")


def test_text_is_one_hot_in_the_order_of_first_appearance() -> None:
    names = ("solvent=water", "solvent=oil", "heat", "dry")
    assert table().feature_names == names and len(table()) == 3
    assert table().X.tolist() == [[1, 0, 20, 1], [0, 1, 35, 0], [1, 0, 50, 1]]
    assert table().X.dtype == torch.float64
    assert table().feature_groups() == {"solvent": (0, 1)}


def test_a_tensor_stays_as_it_is(tkwargs: dict[str, Any]) -> None:
    X = torch.rand(3, 2, **tkwargs)
    candidates = CandidateTable.of(X)
    assert candidates.X is X and candidates.keys is None
    assert candidates.feature_names == ("x0", "x1")
    assert candidates.feature_groups() == {}
    assert CandidateTable.of(candidates) is candidates
    assert candidates.rows(torch.tensor([2, 0])).tolist() == [2, 0]
    assert candidates.keys_of(torch.tensor([2, 0])) == [2, 0]
    assert torch.equal(candidates.encode({"x1": X[:, 1].cpu(), "x0": X[:, 0].cpu()}), X)


@pytest.mark.parametrize("make", [np.array, list])
def test_arrays_and_lists_are_float64_of_their_own(make: Any) -> None:
    source = make([[1, 2], [3, 4]])
    candidates = CandidateTable.of(source)
    assert candidates.X.dtype == torch.float64
    source[0][0] = 9
    assert candidates.X.tolist() == [[1, 2], [3, 4]]


def test_rows_and_keys_find_each_other() -> None:
    rows = table().rows(["c3", "c1", "c3"])
    assert rows.tolist() == [2, 0, 2] and rows.dtype == torch.long
    assert table().keys_of(rows) == ["c3", "c1", "c3"]
    with pytest.raises(InputDataError, match=r"'x', 'y', 'z' and 1 more are not.*'c1'"):
        table().rows(["c1", "x", "y", "z", "w"])
    refused("the text 'c1'; need a list", table().rows, "c1")
    with pytest.raises(InputDataError, match=r"3 are not in the table, whose 2 keys"):
        CandidateTable.of([[1.0], [2.0]]).rows([3])


def test_other_rows_are_encoded_alike() -> None:
    others = {"heat": [1.5], "note": ["x"], "dry": [False], "solvent": ["oil"]}
    assert table().encode(others).tolist() == [[0, 1, 1.5, 0]]
    with pytest.raises(
        InputDataError, match=r"row 0.*'solvent': 'gas' is none.*'water'"
    ):
        table().encode(others | {"solvent": ["gas"]})
    with pytest.raises(InputDataError, match=r"'heat': got 'hot'; need a number"):
        table().encode(others | {"heat": ["hot"]})
    refused(r"'heat': got nan", table().encode, others | {"heat": [float("nan")]})
    refused(r"columns 'solvent', 'heat', 'dry'.*'id'", table().encode, {"id": ["c1"]})
    with pytest.raises(InputDataError, match="columns of different lengths"):
        table().encode(others | {"heat": [1.5, 2.5]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": ["c1", "c1", "c3"]}, "keys 'c1' come more than once.*rows 0, 1"),
        ({"id": ["c1", "", "c3"]}, r"Row 1 \(from 0\) has no key"),
        ({"id": ["c1", "c2", None]}, r"Row 2 \(from 0\) has no key"),
        ({"id": ["c1", "c2", []]}, "cannot be looked up"),
        ({"id": ["c1"]}, r"with \[1, 3\] rows"),
        ({"heat": [1, 2, float("nan")]}, "row 'c3', column 'heat': got nan"),
        ({"heat": np.array([1, np.inf, 3])}, "row 'c2', column 'heat': got inf"),
        ({"heat": [1, 2, 2**53 + 1]}, "row 'c3', column 'heat': .* beyond 2.53"),
        ({"heat": np.array([1j, 2, 3])}, "'heat' is of type complex128"),
        ({"solvent": ["a", None, "b"]}, "row 'c2', column 'solvent': got nothing"),
        ({"solvent": ["a", " ", "b"]}, "nothing.* 'none', or leave out the column"),
        ({"solvent": ["a", float("nan"), "b"]}, "row 'c2', column 'solvent'"),
        ({"solvent": ["a", ["b"], "c"]}, r"row 'c2'.*\['b'\] cannot be a category"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named(
    changes: dict[str, Any], message: str
) -> None:
    refused(message, CandidateTable.from_columns, COLUMNS | changes, key="id")


def test_without_keys_rows_are_named_by_number() -> None:
    with pytest.raises(
        InputDataError, match=r"row 1 \(from 0\), column 'a': got nothing"
    ):
        CandidateTable.from_columns({"a": ["x", None]})


def test_tables_that_are_none() -> None:
    refused("Got 0 columns", CandidateTable.from_columns, {"id": ["a"]}, key="id")
    refused(r"1 columns .* \[0\] rows", CandidateTable.from_columns, {"a": []})
    with pytest.raises(InputDataError, match="key='name'; the columns are 'id'"):
        CandidateTable.from_columns(COLUMNS, key="name")
    refused("key='id' for a Tensor", CandidateTable.of, torch.ones(2, 2), key="id")
    refused(r"key='name' for a CandidateTable", CandidateTable.of, table(), key="name")
    with pytest.raises(BotorchTensorDimensionError, match=r"shape \(2,\)"):
        CandidateTable.of([1.0, 2.0])
    with pytest.raises(InputDataError, match=r"row 1 \(from 0\), column 'x0': got nan"):
        CandidateTable.of([[1.0], [float("nan")]])
    with pytest.raises(InputDataError, match=r"dtype torch\.int64"):
        CandidateTable.of(torch.ones(2, 2, dtype=torch.long))
    refused(r"no matrix of numbers.*DataFrame", CandidateTable.of, [[1.0, "a"]])


def test_a_text_of_its_own_in_each_row_is_no_category() -> None:
    texts = [f"t{i}" for i in range(MAX_CATEGORIES + 1)]
    with pytest.raises(InputDataError, match=r"'a' holds 1001 .*_index\('a'\).*--ig"):
        CandidateTable.from_columns({"a": texts})
    columns = {"a": texts, "b": range(len(texts))}
    assert CandidateTable.from_columns(columns, key="a").X.shape == (1001, 1)
    with pytest.warns(InputDataWarning, match=r"'a' \(1000 in 1000 rows\)"):
        assert CandidateTable.from_columns({"a": texts[1:]}).X.shape == (1000, 1000)


@pytest.mark.parametrize("kind", [int, float, Decimal, np.float32])
def test_objects_that_are_numbers_are_numbers(kind: Any) -> None:
    """To the same table as without objects; they come back as numbers."""
    columns: dict[str, list[Any]] = {
        "a": [kind(i) / 2 for i in range(20)],
        "b": [i % 2 for i in range(20)],
        "c": [i < 5 for i in range(20)],
    }
    objects = CandidateTable.of(pd.DataFrame(columns, dtype=object))
    assert objects.feature_names == ("a", "b", "c")
    plain = pd.DataFrame(columns).astype({"a": float})
    assert torch.equal(objects.X, CandidateTable.of(plain).X)
    again = objects.frame()
    assert [dtype.kind for dtype in again.dtypes] == ["f", "i", "b"]
    assert again.b.tolist() == columns["b"] and again.c.tolist() == columns["c"]
    assert torch.equal(objects.encode(again), objects.X)
    hole = pd.DataFrame({"a": [kind(1), None]}, dtype=object)
    refused("'a': got nothing", CandidateTable.of, hole)


ODD: dict[str, list[str]] = {
    "numbers as text": [str(0.5 * i) for i in range(40)],
    "dates": [f"2020-{1 + i % 12:02d}-{1 + i % 13:02d}" for i in range(40)],
    "mostly missing": [str(i) if i % 3 == 0 else "NA" for i in range(40)],
}
PLAIN: dict[str, list[str]] = {
    "half of them": [f"solvent {i % 20}" for i in range(40)],
    "codes": [str(i % 20) for i in range(40)],
    "a number among words": ["1", *[f"w{i % 12}" for i in range(39)]],
}


@pytest.mark.parametrize("name", ODD)
def test_categories_that_look_like_none_are_announced(name: str) -> None:
    """By their column, with how many they are."""
    columns = {"heat": list(range(40)), "x": ODD[name]}
    num = len(set(ODD[name]))
    with pytest.warns(InputDataWarning, match=rf": 'x' \({num} in 40 rows\)\."):
        candidates = CandidateTable.from_columns(columns)
    assert candidates.X.shape == (40, 1 + num)


@pytest.mark.parametrize("name", PLAIN)
def test_categories_are_not_announced(name: str) -> None:
    """Nor are those of a few rows, nor keys; a warning would be an error."""
    columns = {"x": PLAIN[name], "id": ODD["numbers as text"]}
    CandidateTable.from_columns(columns, key="id")
    CandidateTable.from_columns({"heat": list(range(9)), "x": list("abcdefghi")})


def frame() -> Any:
    order = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    columns = COLUMNS | {
        "grade": pd.Categorical(["high", "low", "high"], dtype=order),
        "whole": pd.array([1, 2, 3], dtype="Int64"),
        "single": np.array([0.1, 0.2, 0.3], dtype=np.float32),
        "mixed": pd.Series(["a", (1, 2), "a"], dtype=object),
        7: [0.1, 0.2, 0.3],
    }
    return pd.DataFrame(columns)


@pytest.mark.parametrize("index", [None, "id", ["id", "heat"]])
def test_frames_come_back_as_they_were(index: Any) -> None:
    source = frame().drop(columns="id") if index is None else frame().set_index(index)
    candidates = CandidateTable.of(source)
    pd.testing.assert_frame_equal(candidates.frame(), source, check_index_type=False)
    rows = torch.tensor([2, 0, 2])
    picked = candidates.frame(rows)
    expected = source.iloc[rows.numpy()]
    pd.testing.assert_frame_equal(picked, expected, check_index_type=False)
    assert torch.equal(candidates.encode(picked), candidates.X[rows])


def test_a_column_of_a_frame_can_be_the_key() -> None:
    candidates = CandidateTable.of(frame(), key="id")
    assert candidates.keys == ("c1", "c2", "c3")
    assert candidates.frame().index.name == "id"
    # pandas' order, without the category that no row has
    assert candidates.feature_groups()["grade"] == (4, 5)
    assert candidates.feature_names[4:6] == ("grade=low", "grade=high")
    shuffled = frame().iloc[[2, 1, 0]]
    assert CandidateTable.of(shuffled).keys == (2, 1, 0)


def test_frames_with_holes_are_refused() -> None:
    source = frame().set_index("id")
    hole = source.assign(whole=pd.array([1, None, 3], dtype="Int64"))
    refused("row 'c2', column 'whole': got nothing", CandidateTable.of, hole)
    hole = source.assign(solvent=pd.array(["a", None, "b"], dtype="string"))
    refused("row 'c2', column 'solvent': got nothing", CandidateTable.of, hole)
    with pytest.raises(InputDataError, match="'when' is of type datetime64"):
        CandidateTable.of(source.assign(when=pd.Timestamp("2020-01-01")))
    with pytest.raises(InputDataError, match="columns 'heat' come more than once"):
        CandidateTable.of(pd.concat([source, source[["heat"]]], axis=1))
    with pytest.raises(InputDataError, match=r"Row 1 \(from 0\) has no key"):
        CandidateTable.of(source.set_axis(["a", pd.NA, "b"]))


def test_large_tables_are_read_by_column() -> None:
    """No Python function is called for each row."""
    num = 100_000
    columns = {
        "id": [f"c{i}" for i in range(num)],
        "kind": np.array(["a", "b", "c"])[np.arange(num) % 3].tolist(),
        "x": np.linspace(0, 1, num),
    }
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        candidates = CandidateTable.from_columns(columns, key="id")
        rows = candidates.rows(columns["id"])
        X = candidates.encode(columns)
    finally:
        sys.setprofile(None)
    assert calls < 1000
    assert torch.equal(X, candidates.X) and torch.equal(rows, torch.arange(num))


def test_pandas_is_needed_for_frames_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="DataFrame needs pandas: pip install"):
        table().frame()


def saved(folder: Path, array: Any) -> Path:
    """A file of an array."""
    np.save(folder / "table.npy", array)
    return folder / "table.npy"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_file_stays_where_it_is(tmp_path: Path, dtype: Any) -> None:
    """By path or as a map of NumPy's, also one to read alone and a part of columns."""
    array = np.arange(12, dtype=dtype).reshape(4, 3)
    path = saved(tmp_path, array)
    for candidates in (path, str(path), *(np.load(path, mmap_mode=m) for m in "rc")):
        table = CandidateTable.of(candidates)
        assert torch.equal(table.X, torch.from_numpy(array))
        assert table.keys is None and table.feature_names == ("x0", "x1", "x2")
    mapped = np.load(path, mmap_mode="r")
    shared = CandidateTable.of(mapped).X
    assert shared.data_ptr() == mapped.ctypes.data
    assert torch.equal(CandidateTable.of(mapped[:, :2]).X, shared[:, :2])
    CandidateTable.of(path).X[0, 0] = 7.0  # of one's own
    assert np.load(path)[0, 0] == 0.0


def test_no_row_is_read_but_those_asked_for(tmp_path: Path) -> None:
    """A row of others, which would be refused, is not looked at."""
    array = np.ones((1000, 2))
    array[:300] = np.nan
    array[700:] = np.inf
    path = saved(tmp_path, array)
    for candidates in (path, np.load(path, mmap_mode="r"), array):
        table = CandidateTable.of(candidates, rows=slice(300, 700))
        assert len(table) == 400 and bool((table.X == 1).all())
    with pytest.raises(InputDataError, match=r"row 700 \(from 0\).*got inf"):
        CandidateTable.of(path, rows=slice(300, None))
    with pytest.raises(BotorchTensorDimensionError, match=r"\(0, 2\)"):
        CandidateTable.of(path, rows=slice(5, 5))
    refused("without a step", CandidateTable.of, path, rows=slice(0, 10, 2))
    with pytest.raises(InputDataError, match="need numbers without names"):
        CandidateTable.of(pd.DataFrame(array), rows=slice(5))


def test_numbers_are_looked_at_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At no time all of them: a file may be larger than the memory."""
    path, rows = tmp_path / "large.npy", CHUNK_ENTRIES // 4
    array = np.lib.format.open_memmap(path, "w+", np.float32, (2 * rows + 9, 4))
    array[rows + 433, 2] = -np.inf
    array.flush()
    seen, isfinite = [], torch.Tensor.isfinite

    def spy(self: torch.Tensor) -> torch.Tensor:
        seen.append(self.numel())
        return isfinite(self)

    monkeypatch.setattr(torch.Tensor, "isfinite", spy)
    where = rf"row {rows + 433} \(from 0\), column 'x2'"
    refused(where, CandidateTable.of, path)
    assert seen == [CHUNK_ENTRIES] * 2


def test_files_that_are_none(tmp_path: Path) -> None:
    for array, match in [
        (np.arange(6).reshape(3, 2), "dtype torch.int64; need float32"),
        (np.array([["a", "b"]], dtype="U3"), "entries of type"),
        (np.arange(6.0).reshape(3, 2).astype(">f8"), "byte order"),
        (np.array([[{}]], dtype=object), "no .npy file with an array"),
    ]:
        refused(match, CandidateTable.of, saved(tmp_path, array))


def test_paths_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputDataError, match=r"pandas.read_csv\(path\)") as error:
        CandidateTable.of(tmp_path / "table.csv")
    assert "allow_pickle" not in str(error.value)
    (tmp_path / "empty.npy").write_bytes(b"")
    for read in (CandidateTable.of, partial(ShardedDomain.of, ranks=ALONE)):
        refused(r"empty.npy', which is no .npy file", read, tmp_path / "empty.npy")
    with pytest.raises(FileNotFoundError):
        CandidateTable.of(str(tmp_path / "none.npy"))


@pytest.mark.parametrize("make", [list, np.array])
def test_whole_numbers_that_float64_cannot_tell_apart(make: Any) -> None:
    for large in (2**53, 2**60, -(2**60)):
        refused(r"beyond 2\^53", CandidateTable.of, make([[large], [large + 1], [5]]))
    rows = CandidateTable.of(make([[2**53 - 1], [2**53], [-(2**53)]])).X
    assert rows.long().tolist() == [[2**53 - 1], [2**53], [-(2**53)]]


@pytest.mark.parametrize("name", ["random", "bbkb-global"])
def test_a_strategy_on_a_file_is_that_on_its_numbers(tmp_path: Path, name: str) -> None:
    X = make_candidates()
    path = saved(tmp_path, X.numpy())
    runs = [TABLE[name](candidates=c) for c in (X, path, np.load(path, mmap_mode="r"))]
    states = []
    for strategy in runs:
        strategy.run(objective, 20, progress=False)
        states.append(without_times(strategy.state_dict()))
    assert equal(states[0], states[1]) and equal(states[0], states[2])
