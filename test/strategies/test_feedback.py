"""What `tell`, `fail` and `withdraw` accept, and what they refuse in words."""

import io
from dataclasses import replace
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from refusals import refused

from botorch_sparse.strategies import Batch, RandomSearch

pd = pytest.importorskip("pandas")

BOUNDS = torch.tensor([[0.0, -5.0], [1.0, 5.0]], dtype=torch.float64)


def reread(frame: pd.DataFrame, **options: Any) -> pd.DataFrame:
    """What comes back from a CSV file."""
    return pd.read_csv(io.StringIO(frame.to_csv()), **options)


def heats(name: str | None = "id") -> pd.DataFrame:
    """Integer keys in the order opposite to the rows."""
    index = pd.Index(range(9, -1, -1), name=name)
    return pd.DataFrame({"heat": [10.0 * i for i in range(10)]}, index=index)


def test_frames_that_say_no_keys() -> None:
    for name in ("id", None):
        strategy = RandomSearch(heats(name), batch_size=3)
        strategy.ask()
        plain = heats(name).reset_index(drop=True).iloc[:3]
        refused("say no keys", strategy.tell, plain, torch.zeros(3))
    strategy = RandomSearch(heats("id"))
    refused("say no keys", strategy.tell, heats(None), torch.zeros(10))
    strategy.tell(heats("id"), torch.zeros(10))
    assert strategy.history.indices.tolist() == list(range(10))


def test_trials_of_a_frame_that_do_not_fit() -> None:
    strategy = RandomSearch(heats(), batch_size=4)
    frame = strategy.ask().to_frame()
    swapped = frame.assign(trial=[1, 0, 2, 3])
    if frame.index[0] == frame.index[1]:
        pytest.fail("the seed draws one row twice")
    bad: list[tuple[pd.DataFrame, str]] = [
        (swapped, "not those of its trials"),
        (swapped.reset_index(drop=True), "not those of its trials"),
        (frame.assign(trial=[0, 1, 2, -1]), "in two calls"),
        (frame.assign(trial=[0, 1, 2, 2.5]), "need ids of trials"),
        (frame.assign(trial=[0, 1, 2, 9]), "Trial 9 was never proposed"),
    ]
    for told, match in bad:
        refused(match, strategy.tell, told, torch.zeros(4))
    assert len(strategy.history) == 0
    strategy.tell(frame.assign(trial=-1), torch.zeros(4))  # by key
    assert len(strategy.pending) == 0


def test_a_feature_may_be_called_trial() -> None:
    strategy = RandomSearch(heats().rename(columns={"heat": "trial"}))
    batch = strategy.ask(3)
    strategy.tell(reread(batch.to_frame()), torch.zeros(3))
    assert strategy.history.trial.tolist() == [0, 1, 2]
    strategy.tell(heats().rename(columns={"heat": "trial"}), torch.zeros(10))
    assert strategy.history.indices[3:].tolist() == list(range(10))


def test_keys_may_be_called_trial_or_as_a_feature() -> None:
    for name in ("trial", "heat"):
        strategy = RandomSearch(heats(name))
        frame = strategy.ask(3).to_frame()
        assert ("trial_" in frame) == (name == "trial")
        if name == "heat":
            strategy.tell(frame.drop(columns="trial"), torch.zeros(3))
        else:
            strategy.tell(reread(frame), torch.zeros(3))
        assert len(strategy.pending) == 0


def test_four_digits_raise_while_trials_are_pending() -> None:
    X = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double() + 7
    strategy = RandomSearch(X, batch_size=5)
    row = int(strategy.ask().indices[0])
    x = [float(f"{v:.4g}") for v in X[row].tolist()]
    match = rf"nearest one is row {row}, .*instead of .*six digits"
    refused(match, strategy.tell, [x], [0.0])
    off = X[[row]] + torch.tensor([[0.0, 2e-3]]).double()
    refused(r"column 1 \(from 0\)", strategy.tell, off, [0.0])
    assert strategy.history.num_extra == 0 and len(strategy.pending) == 5
    strategy.tell(X.amax(0, keepdim=True) + 0.02, [0.0])  # 2e-2 of the range
    assert strategy.history.indices.tolist() == [-1]
    strategy.withdraw(strategy.pending_ids)
    strategy.tell(off, [0.0])  # nobody waits: old results
    assert strategy.history.indices.tolist() == [-1, -1]


def test_concentrations_over_decades() -> None:
    X = torch.tensor([[1e-9], [0.5], [1.0]], dtype=torch.float64)
    for value in (5e-6, 2e-9, 0.0):
        strategy = RandomSearch(X, batch_size=2)
        strategy.tell([[value]], [1.0])
        assert strategy.history.indices.tolist() == [-1]
        strategy.ask()
        refused("nearest one is row 0", strategy.tell, [[value * 1.5 + 1e-7]], [1.0])


def test_decimals_and_arithmetic_next_to_zero() -> None:
    """Six decimals of 3.2e-6; and a zero that came back as 1e-16."""
    X = torch.tensor([[3.2e-6, 0.0], [0.5, 1.0], [1.0, 3.0]], dtype=torch.float64)
    strategy = RandomSearch(X)
    strategy.tell([[0.000003, 1e-16]], [0.0])
    assert strategy.history.indices.tolist() == [0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_that_collapse_in_lower_precision(dtype: torch.dtype) -> None:
    """Rows 0 and 1 become one; the pending one of them is meant, if there is one."""
    gap = torch.finfo(dtype).eps / 64
    X = torch.tensor([[1.0], [1.0 + gap], [1.0], [2.0]], dtype=torch.float64)
    low = X.to(dtype)
    assert low[0] == low[1]
    strategy = RandomSearch(X, batch_size=1)
    refused("are the same, 0 of them pending", strategy.tell, low[1:2], [0.0])
    while int(strategy.ask().indices) != 1:
        strategy.withdraw(strategy.pending_ids)
    strategy.tell(low[1:2], [0.0])
    assert strategy.history.indices.tolist() == [1] and len(strategy.pending) == 0
    strategy.tell(low[3:], [0.0])  # one row
    seen: set[int] = set()
    while not {0, 1} <= seen:
        seen.update(strategy.ask().indices.tolist())
    refused("are the same, 2 of them pending", strategy.tell, low[1:2], [0.0])


def text() -> RandomSearch:
    strategy = RandomSearch(heats(), batch_size=3)
    strategy.ask()
    return strategy


def test_fail_and_withdraw_take_any_collection_of_ids() -> None:
    strategy = text()
    strategy.fail({0})
    strategy.withdraw(id for id in [1])
    assert strategy.pending_ids.tolist() == [2]


@pytest.mark.parametrize(
    "mask", [torch.tensor([True, False]), [True, False], True, [0, True]]
)
def test_truth_values_are_no_ids(mask: Any) -> None:
    strategy = text()
    for call in (strategy.fail, strategy.withdraw):
        refused(r"batch\.ids\[mask\]", call, mask)
    refused(r"batch\.ids\[mask\]", strategy.tell, mask, [1.0, 2.0])
    assert len(strategy.pending) == 3


def test_rows_are_no_ids() -> None:
    """The rows of the second batch could be ids; ids of the first may be its rows."""
    X = torch.arange(4.0).unsqueeze(-1)
    strategy = RandomSearch(X, batch_size=4, seed=8)
    first = strategy.ask()
    second = strategy.ask()
    rows = second.indices
    assert sorted(set(rows.tolist())) == sorted(rows.tolist()), "choose another seed"
    for given in (rows, rows.numpy()):
        for call in (strategy.fail, strategy.withdraw):
            refused(r"Give its ids, batch\.ids", call, given)
        refused(r"Give its ids, batch\.ids", strategy.tell, given, torch.zeros(4))
    strategy.tell(first.ids, torch.zeros(4))
    strategy.tell(second.ids, torch.zeros(4))
    assert len(strategy.pending) == 0


def solvents() -> pd.DataFrame:
    data = {"heat": [1.0, 2.0, 30.0, 4.0], "solvent": ["NA", "oil", "01", "gas"]}
    return pd.DataFrame(data, index=pd.Index(list("wxyz"), name="well"))


@pytest.mark.parametrize("parts", ["all", "no trial", "in part"])
@pytest.mark.parametrize("column", ["heat", "solvent"])
def test_keys_with_the_features_of_other_rows(column: str, parts: str) -> None:
    strategy = RandomSearch(solvents(), batch_size=4)
    frame = strategy.ask().to_frame()
    frame[column] = 30.01 if column == "heat" else "oil"
    if parts != "all":
        frame = frame.drop(columns="trial")
    if parts == "in part":
        frame = frame[[column]]
    refused("are not those of", strategy.tell, frame, torch.zeros(4))
    assert len(strategy.history) == 0 and len(strategy.pending) == 4
    strategy.tell(frame.drop(columns=column), torch.zeros(4))
    assert len(strategy.pending) == 0


@pytest.mark.parametrize("known_by", ["trial and key", "trial", "key"])
def test_rows_with_what_a_file_makes_of_features(known_by: str) -> None:
    """Six digits; a category that is read as nothing, and one that is a number."""
    X = solvents() if "key" in known_by else solvents().reset_index(drop=True)
    X["heat"] += 1000.123456789
    strategy = RandomSearch(X, batch_size=4)
    frame = strategy.ask().to_frame()
    frame = frame if "trial" in known_by else frame.drop(columns="trial")
    text = io.StringIO(frame.to_csv(float_format="%.6g"))
    strategy.tell(pd.read_csv(text), torch.zeros(4))
    assert len(strategy.pending) == 0


def test_trials_on_a_box_with_cells_that_were_lost() -> None:
    """What can be read must be the trial's; what can't says nothing."""
    strategy = RandomSearch(bounds=BOUNDS, batch_size=4)
    frame = strategy.ask().to_frame()
    frame.loc[0, "x0"] = float("nan")
    for other in (frame["x1"] + 1.0, float("inf")):
        with pytest.raises(InputDataError, match="are not those of"):
            strategy.tell(frame.assign(x1=other), torch.zeros(4))
    frame["x1"] = frame["x1"].astype(object)
    frame.loc[1, "x1"] = "lost"
    with pytest.raises(InputDataError, match="are not those of"):
        strategy.tell(frame.assign(x1=[1.5, *frame["x1"][1:]]), torch.zeros(4))
    strategy.tell(frame, torch.zeros(4))
    assert len(strategy.pending) == 0


def test_a_cell_that_was_lost_says_nothing_of_the_others() -> None:
    strategy = RandomSearch(solvents().reset_index(drop=True), batch_size=4)
    frame = strategy.ask().to_frame().astype({"heat": object})
    frame.iloc[0, frame.columns.get_loc("heat")] = "oops"
    wrong = frame.copy()
    wrong.iloc[1, wrong.columns.get_loc("heat")] = 99.0
    refused("are not those of", strategy.tell, wrong, torch.zeros(4))
    strategy.tell(frame, torch.zeros(4))
    assert len(strategy.pending) == 0


def test_frames_on_a_box() -> None:
    """Columns are known by the names of `to_frame`, or all by their order."""
    box = torch.tensor([[0.0, 0.0], [1.0, 9.0]]).double()
    strategy = RandomSearch(bounds=box)
    strategy.tell(pd.DataFrame({"x1": [8.0], "x0": [0.5]}), [0.0])
    strategy.tell(pd.DataFrame({"rate": [0.25], "depth": [7.0]}), [0.0])
    assert strategy.history.X.tolist() == [[0.5, 8.0], [0.25, 7.0]]
    with pytest.raises(InputDataError, match=r"no 'x0'; need all of x0 to x1"):
        strategy.tell(pd.DataFrame({"x1": [0.5], "x2": [0.5]}), [0.0])


def asked(kind: str) -> tuple[RandomSearch, Batch, pd.DataFrame]:
    """A strategy, its batch of four, and the same as a frame with the results `y`."""
    heat = [10.0 * i for i in range(10)]
    two = pd.MultiIndex.from_product([["p", "q"], range(5)], names=["plate", "well"])
    domains: dict[str, dict[str, Any]] = {
        "keys": {"candidates": pd.DataFrame({"heat": heat}, index=list("abcdefghij"))},
        "numbers": {"candidates": heats()},
        "two keys": {"candidates": pd.DataFrame({"heat": heat}, index=two)},
        "rows": {"candidates": torch.tensor(heat).unsqueeze(-1)},
        "box": {"bounds": BOUNDS},
    }
    unique = {"unique": True} if kind != "box" else {}
    strategy = RandomSearch(**domains[kind], batch_size=4, seed=1, **unique)
    batch = strategy.ask()
    return strategy, batch, batch.to_frame().assign(y=batch.X[:, 0].numpy())


def is_paired(strategy: RandomSearch) -> bool:
    """Whether each value is that of its point: its first coordinate."""
    history = strategy.history
    return len(history) == 4 and torch.equal(history.Y, history.X[:, 0])


@pytest.mark.parametrize("kind", ["keys", "numbers", "two keys", "rows", "box"])
def test_a_series_is_paired_by_its_index(kind: str) -> None:
    """Whatever order it came in; one that only counts may be meant by position."""
    ways: dict[str, Any] = {
        "batch": lambda batch, frame: (batch, frame.y.sort_values()),
        "frame": lambda batch, frame: (frame, frame.y.sort_values()),
        "column": lambda batch, frame: (batch, frame[["y"]].sort_values("y")),
        "sorted frame": lambda batch, frame: (frame.sort_values("y"), frame.y),
        "same order": lambda batch, frame: (frame, frame.y),
        "counted": lambda batch, frame: (batch, frame.y.reset_index(drop=True)),
        "array": lambda batch, frame: (frame, frame.y.to_numpy()),
        "ids": lambda batch, frame: (batch.ids, frame.y.sort_values()),
        "list": lambda batch, frame: (batch.ids.tolist(), frame.y.sort_values()),
        "by id": lambda batch, frame: (
            batch.ids,
            frame.y.set_axis(batch.ids.tolist()).sort_values(),
        ),
    }
    if kind == "box":
        strategy, batch, frame = asked(kind)
        with pytest.raises(InputDataError, match="need the same labels"):
            strategy.tell(*ways.pop("sorted frame")(batch, frame))
    for name, way in ways.items():
        strategy, batch, frame = asked(kind)
        assert not frame.y.is_monotonic_increasing, "choose another seed"
        strategy.tell(*way(batch, frame))
        assert is_paired(strategy), name
    strategy, batch, frame = asked(kind)
    for X in (batch, frame):
        with pytest.raises(InputDataError, match=r"Y with the index .*Y\.to_numpy\(\)"):
            strategy.tell(X, frame.y.set_axis([50, 51, 52, 53]))
    assert len(strategy.pending) == 4
    strategy.tell(batch.ids, frame.y.set_axis([50, 51, 52, 53]))  # ids say no more
    assert is_paired(strategy)


def test_a_series_beside_ids() -> None:
    """Labels may be rows or ids; one that only counts is in the order of the ids."""
    X = torch.tensor([[3.0], [1.0], [0.0], [2.0]])

    def asked() -> tuple[RandomSearch, Batch]:
        strategy = RandomSearch(X, batch_size=4, seed=1, unique=True)
        return strategy, strategy.ask()

    strategy, batch = asked()
    values = batch.X[:, 0].tolist()
    assert batch.indices.tolist() != [0, 1, 2, 3], "choose another seed"
    by_id = pd.Series(values, index=pd.Index([0, 1, 2, 3]))
    refused("need the same labels, once each", strategy.tell, batch.ids, by_id)
    strategy.tell(reversed(batch.ids.tolist()), pd.Series(values[::-1]))
    assert is_paired(strategy)
    strategy, batch = asked()
    strategy.tell((id for id in (0, 1, 2, 3)), pd.Series(values))
    assert is_paired(strategy)


def test_a_series_by_the_keys_in_a_column() -> None:
    """Of a file that was read without `index_col`."""
    strategy, _, frame = asked("numbers")
    sheet = reread(frame)
    strategy.tell(sheet.drop(columns="trial"), frame.y.sort_values())
    assert is_paired(strategy)
    strategy, _, frame = asked("numbers")
    strategy.tell(reread(frame), reread(frame).y)
    assert is_paired(strategy)


@pytest.mark.parametrize("kind", [list, tuple, pd.Index, pd.Series])
def test_keys_that_are_texts(kind: Any) -> None:
    """As `batch.keys` has them; a Series that says keys is paired by these."""
    table = pd.DataFrame({"heat": [0.0, 1.0, 2.0]}, index=["a", "b", "c"])
    strategy = RandomSearch(table)
    strategy.tell(kind(["c", "a"]), [2.0, 0.0])
    strategy.tell(kind(["b", "c"]), pd.Series([2.0, 1.0], index=["c", "b"]))
    strategy.tell(kind(["b"]), pd.Series([1.0]))
    assert strategy.history.indices.tolist() == [2, 0, 1, 2, 1]
    assert torch.equal(strategy.history.Y, strategy.history.X[:, 0])
    refused("'d' are not in the table", strategy.tell, kind(["a", "d"]), [0.0, 1.0])
    other = pd.Series([1.0, 2.0], index=["b", "d"])
    refused("need the same labels", strategy.tell, kind(["b", "c"]), other)
    batch = strategy.ask(1)
    strategy.tell(batch.keys, batch.X[:, 0])
    assert len(strategy.pending) == 0


def test_a_series_that_could_mean_two_orders() -> None:
    """Places or keys, both 0 to 3; and a key that comes twice."""
    table = pd.DataFrame({"heat": [3.0, 1.0, 0.0, 2.0]}, index=[3, 1, 0, 2])
    strategy = RandomSearch(table, batch_size=4, unique=True)
    batch = strategy.ask()
    assert batch.keys != [0, 1, 2, 3], "choose another seed"
    for X in (batch, batch.to_frame()):
        with pytest.raises(InputDataError, match="need the same labels, once each"):
            strategy.tell(X, pd.Series([0.0, 1.0, 2.0, 3.0]))
    by_key = pd.Series([0.0, 1.0, 2.0, 3.0])[batch.keys]
    refused("need the same labels, once each", strategy.tell, batch, by_key)
    strategy.tell(batch, by_key.to_numpy())
    assert is_paired(strategy)
    twice = table.loc[[3, 3, 0, 1]]
    for Y in (twice.heat.iloc[::-1], twice.heat.set_axis([3, 0, 0, 1])):
        refused("need the same labels, once each", strategy.tell, twice, Y)
    strategy.tell(twice, twice.heat)
    assert torch.equal(strategy.history.Y, strategy.history.X[:, 0])


def test_a_batch_with_infinite_points_is_none_of_its_trials() -> None:
    for strategy in (
        RandomSearch(torch.eye(3)),
        RandomSearch(bounds=[[0.0, 0.0], [1.0, 2.0]]),
    ):
        batch = strategy.ask(1)
        with pytest.raises(InputDataError):
            strategy.tell(replace(batch, X=batch.X + torch.inf), [1.0])
        assert len(strategy.pending) == 1
