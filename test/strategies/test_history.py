"""What a history shows: the best point, and tables of what happened."""

from dataclasses import astuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from interrupted import Trace
from strategy_table import TABLE, objective
from torch import Tensor

from botorch_sparse.strategies import (
    History,
    Objective,
    RandomSearch,
    ThompsonSampling,
)
from botorch_sparse.strategies.core.trials import Trial
from botorch_sparse.strategies.data.domain import domain_of
from botorch_sparse.strategies.data.run_record import Batches, BatchRecord, RunRecord

pd = pytest.importorskip("pandas")

X = torch.tensor([[0.0, 1.0], [0.5, 2.0], [1.0, 3.0]], dtype=torch.float64)


def told(rows: list[int], values: list[float], minimize: bool = False) -> RandomSearch:
    strategy = RandomSearch(X, minimize=minimize)
    strategy.tell(X[rows], values)
    return strategy


def test_points_are_numbered_once() -> None:
    """In one call and in later ones; those of a fork that is not kept are forgotten."""
    record = RunRecord(domain_of(X, {}))
    new = torch.tensor([[7.0, 7.0], [8.0, -0.0], [7.0, 7.0]]).double()
    assert record.add_points(new) == [3, 4, 3] and len(record.extra) == 2
    fork = record.fork()
    assert fork.add_points(torch.cat([new[1:2].abs(), new[:1] + 2])) == [4, 5]
    with pytest.raises(RuntimeError):
        record.add_points(torch.zeros(2, 5).double())
    assert record.add_points(new[:1] - 2) == [5]
    assert record.points(torch.tensor([3, 5])).tolist() == [[7.0, 7.0], [5.0, 5.0]]
    assert record.number_of(new[0] + 2) is None


@pytest.mark.parametrize("minimize", [False, True])
def test_best_is_best_in_the_mean(minimize: bool) -> None:
    """Row 1 has the best single value, and row 2 the best mean."""
    sign = -1.0 if minimize else 1.0
    values = [sign * y for y in (5.0, 1.0, 2.0, 3.5)]
    history = told([1, 1, 0, 2], values, minimize).history
    best = history.best()
    assert (best.row, best.key, best.value, best.mean) == (2, None, sign * 3.5, None)
    assert torch.equal(best.X, X[2])
    assert history.Y.tolist() == values
    assert history.values.tolist() == [sign * value for value in values]


def test_the_first_of_equal_ones_is_best() -> None:
    assert told([2, 0, 1], [1.0, 1.0, 0.5]).history.best().row == 2


def test_best_beside_the_table_and_on_a_box() -> None:
    strategy = told([0], [1.0])
    strategy.tell([[9.0, 9.0]], [2.0])
    best = strategy.history.best()
    assert best.row is None and best.key is None and best.X.tolist() == [9.0, 9.0]
    box = RandomSearch(bounds=X[[0, 2]])
    box.run(lambda X: X[:, 0], 5, progress=False)
    best, frame = box.history.best(), box.history.to_frame()
    assert frame.columns.tolist() == ["x0", "x1", "trial", "batch", "value"]
    assert frame[["x0", "x1"]].to_numpy().tolist() == box.history.X.tolist()
    assert best.row is None and best.value == float(box.history.Y.max())


def test_no_feedback_no_best() -> None:
    with pytest.raises(InputDataError, match="no feedback yet"):
        RandomSearch(X).history.best()


@pytest.mark.parametrize("name", ["bbkb-global", "gpucb"])
def test_best_has_the_mean_of_the_model(name: str) -> None:
    strategy = TABLE[name]()
    history = strategy.run(objective, 30, progress=False)
    best = history.best()
    assert best.row is not None and best.mean is not None
    predicted = strategy.predict(best.X.unsqueeze(0))
    assert predicted is not None and best.mean == float(predicted[0])
    assert best.mean == pytest.approx(best.value, abs=0.3)


def test_frame_of_a_tensor() -> None:
    strategy = told([1, 0], [3.0, 4.0], minimize=True)
    batch = strategy.ask(2)
    strategy.tell(batch, [5.0, 6.0])
    strategy.tell([[7.0, 8.0]], [9.0])
    frame = strategy.history.to_frame()
    assert frame.columns.tolist() == ["x0", "x1", "trial", "batch", "value"]
    assert frame["trial"].tolist() == [-1, -1, 0, 1, -1]
    assert frame["batch"].tolist() == [-1, -1, 0, 0, -1]
    assert frame["value"].tolist() == [3.0, 4.0, 5.0, 6.0, 9.0]
    features = frame[["x0", "x1"]].to_numpy().tolist()
    assert features == strategy.history.X.tolist()
    assert frame.index.tolist() == strategy.history.indices.tolist()


def test_frame_in_the_users_columns() -> None:
    """Categories and keys come back; a name that is taken gets an underscore."""
    data = {"solvent": ["oil", "water"], "value": [20, 35]}
    candidates = pd.DataFrame(data, index=pd.Index(["a", "b"], name="id"))
    strategy = RandomSearch(candidates)
    strategy.tell(candidates.loc[["b", "a"]], [1.0, 2.0])
    frame = strategy.history.to_frame()
    expected = ["solvent", "value", "trial", "batch", "value_"]
    assert frame.columns.tolist() == expected
    assert frame.index.tolist() == ["b", "a"] and frame.index.name == "id"
    assert frame["solvent"].tolist() == ["water", "oil"]
    assert frame["value"].tolist() == [35, 20]
    best = strategy.history.best()
    assert (best.key, best.row, best.value) == ("a", 0, 2.0)


def test_frame_of_points_beside_the_table() -> None:
    """They have no key, and a blend of categories is none; all types stay."""
    data = {
        "solvent": pd.Categorical(["oil", "water"]),
        "maker": ["us", "them"],
        "heat": pd.array([20, 35], dtype="Int64"),
        "count": [1, 2],
        "is_new": [True, False],
        "weight": [0.5, 1.5],
    }
    candidates = pd.DataFrame(data, index=pd.Index([7, 8], name="id"))
    strategy = RandomSearch(candidates)
    strategy.tell(candidates.loc[[8]], [2.0])
    strategy.tell([[0.5, 0.5, 0.0, 1.0, 99.0, 3.0, 1.0, 9.5]], [1.0])
    frame = strategy.history.to_frame()
    assert frame.index.tolist() == [8, None] and frame.index.name == "id"
    assert type(frame.index[0]) is int
    assert frame[list(data)].dtypes.tolist() == candidates.dtypes.tolist()
    assert frame["solvent"].isna().tolist() == [False, True]
    assert frame["maker"].tolist() == ["them", "them"]
    assert frame["heat"].tolist() == [35, 99]
    assert frame["count"].tolist() == [2, 3]
    assert frame["is_new"].tolist() == [False, True]
    assert frame["weight"].tolist() == [1.5, 9.5]
    strategy.tell([[1.0, 0.0, 0.0, 1.0, 20.5, 300.5, 0.5, 1.5]], [1.0])
    frame = strategy.history.to_frame()
    assert frame["heat"].tolist() == [35, 99, 20.5]
    assert frame["count"].tolist() == [2, 3, 300.5]
    assert frame["is_new"].tolist() == [0, 1, 0.5]
    assert frame["solvent"].tolist()[2] == "oil"


def test_outcomes_with_names_that_frames_have_too() -> None:
    """No column stands for another one."""
    outcomes = [Objective("trial"), Objective("a"), Objective("a_mean")]
    strategy = ThompsonSampling(X, outcomes=outcomes, seed=0)
    strategy.tell(X, [[1.0, 2.0, 7.0], [3.0, 4.0, 8.0], [5.0, 6.0, 9.0]])
    strategy.learn()
    frame = strategy.history.to_frame()
    assert frame["trial"].tolist() == [-1] * 3
    assert frame["trial_"].tolist() == [1.0, 3.0, 5.0]
    front = strategy.history.pareto()
    frame = front.to_frame()
    assert frame["a_mean"].tolist() == [9.0]
    assert front.means is not None
    assert frame["a_mean_"].tolist() == front.means[:, 1].tolist()


def test_frame_beside_a_table_with_two_keys() -> None:
    index = pd.MultiIndex.from_product([[1, 2], ["a", "b"]], names=["plate", "well"])
    strategy = RandomSearch(pd.DataFrame({"heat": [1, 2, 3, 4]}, index=index))
    strategy.tell([[4.0], [9.0]], [1.0, 2.0])
    frame = strategy.history.to_frame()
    assert list(frame.index.names) == ["plate", "well"]
    assert frame.index[0] == (2, "b") and frame["heat"].tolist() == [4, 9]
    assert pd.isna(list(frame.index[1])).all()


def test_the_best_row_as_the_user_wrote_it() -> None:
    data = {"solvent": ["oil", "water"], "value": [20, 35]}
    candidates = pd.DataFrame(data, index=pd.Index(["a", "b"], name="id"))
    strategy = RandomSearch(candidates, minimize=True)
    strategy.tell(candidates, [4.0, 3.0])
    frame = strategy.history.best().to_frame()
    assert frame.columns.tolist() == ["solvent", "value", "value_", "mean"]
    pd.testing.assert_frame_equal(frame[["solvent", "value"]], candidates.iloc[1:])
    assert frame["value_"].tolist() == [3.0] and frame["mean"].isna().all()
    strategy.tell([[1.0, 0.0, 7.0]], [1.0])  # beside the table
    frame = strategy.history.best().to_frame()
    assert frame[["solvent", "value"]].to_numpy().tolist() == [["oil", 7]]
    assert frame.index.tolist() == [None]
    box = RandomSearch(bounds=X[[0, 2]])
    box.tell([[0.25, 2.0]], [1.0])
    assert box.history.best().to_frame()[["x0", "x1"]].to_numpy().tolist() == [
        [0.25, 2.0]
    ]


def test_columns_are_views_that_later_feedback_leaves_alone() -> None:
    """And none moves more often than a doubling of its room asks for."""
    strategy = told([2, 0], [1.0, 2.0])
    history, record = strategy.history, strategy.record
    before = (history.point, history.values, history.batch_number, history.trial)
    kept = [column.clone() for column in before]
    moves, last = 0, history.values.data_ptr()
    for i in range(5000):
        record.append([Trial(i, i % 3, i)], torch.tensor([[float(i)]]).double())
        moves += history.values.data_ptr() != last
        last = history.values.data_ptr()
    assert moves < 10 and history.trial[-1] == 4999 and history.was_told(4999)
    assert all(torch.equal(*pair) for pair in zip(before, kept, strict=True))
    for name in ("point", "values", "batch_number", "trial"):
        assert getattr(history, name).data_ptr() == getattr(history, name).data_ptr()


@pytest.mark.parametrize("minimize", [False, True])
def test_what_is_done_to_observations_leaves_the_run_alone(minimize: bool) -> None:
    """Such as centering those that a plot shows."""
    strategy = RandomSearch(X, minimize=minimize)
    strategy.tell(X[[0, 1]], torch.tensor([1.0, 2.0]))
    strategy.history.Y.sub_(9.0)
    assert strategy.history.Y.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["random", "bbkb-global"])
def test_bookkeeping_does_not_grow_with_the_history(name: str) -> None:
    """As many lines of this package run in a round after 4,000 evaluations as at 400.

    What converts, searches or copies a list by itself would run more.
    """

    def lines_of_a_round(num: int) -> int:
        strategy, trace = TABLE[name](batch_size=4, candidates=X), Trace(None)
        strategy.tell(X[torch.arange(num) % 3], torch.arange(num) % 3)
        with trace.on():
            batch = strategy.ask()
            strategy.tell(batch.ids[:1], [0.5])
            strategy.tell(batch.ids[1:], [0.5, 0.5, 0.5])
            assert strategy.history.was_told(0)
            strategy.history.best()
        return sum(trace.lines.values())

    few, many = lines_of_a_round(400), lines_of_a_round(4000)
    assert few > 50 and abs(many - few) < 40


def test_nothing_of_length_n_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No list of all evaluations becomes a tensor, or a tensor a list, in a round."""
    strategy = TABLE["bbkb-global"](batch_size=4, candidates=X)
    strategy.tell(X[torch.arange(1000) % 3], torch.zeros(1000))
    sizes, convert, listed = [0], torch.tensor, Tensor.tolist

    def to_tensor(data: Any, **options: Any) -> Tensor:
        sizes.append(len(data) if isinstance(data, list) else 1)
        return convert(data, **options)

    def to_list(self: Tensor) -> Any:
        sizes.append(self.numel())
        return listed(self)

    monkeypatch.setattr(torch, "tensor", to_tensor)
    monkeypatch.setattr(Tensor, "tolist", to_list)
    for _ in range(3):
        batch = strategy.ask()
        strategy.tell(batch.ids[:2], [0.5, 0.5])
        strategy.tell(batch.ids[2:], [0.5, 0.5])
        strategy.history.best()
    assert 1 < max(sizes) < 100


def test_sums_by_point_are_those_of_all_feedback() -> None:
    """Also after a fork was not kept, and of the first evaluations alone."""
    g = torch.Generator().manual_seed(0)
    point = torch.randint(7, (60,), generator=g)
    values = torch.randn(60, generator=g, dtype=torch.float64)
    domain = domain_of(torch.rand(7, 2, generator=g, dtype=torch.float64), {})
    owner = SimpleNamespace(record=RunRecord(domain))
    history = History(owner)
    trials = [Trial(i, p, 0) for i, p in enumerate(point.tolist())]
    for start, stop in ((0, 5), (5, 33)):
        owner.record.append(trials[start:stop], values[start:stop, None])
    kept = owner.record
    owner.record = kept.fork()
    owner.record.append(trials[33:], values[33:, None])
    for size in (60, 33):
        owner.record = owner.record if size == 60 else kept
        for n in (size, 20):
            folded = owner.record.folded(n)
            first = list(dict.fromkeys(point[:n].tolist()))
            assert folded.point.tolist() == first
            assert folded.counts.tolist() == [
                int((point[:n] == p).sum()) for p in first
            ]
            means = torch.stack([values[:n][point[:n] == p].mean() for p in first])
            torch.testing.assert_close(folded.Y, means, rtol=1e-12, atol=1e-14)
        assert history.num_unique == len(set(point[:size].tolist()))
        assert history.was_told(size - 1) and not history.was_told(size)
    owner.record.append(trials[33:], values[33:, None])
    other = owner.record.of_state(owner.record.state_dict())
    assert torch.equal(other.folded().Y, owner.record.folded().Y)


def test_batches_are_records_made_when_read() -> None:
    """As a list of them is; what is read is no part of it, and forks grow alone."""
    batches, records = Batches(), []
    for size in range(40):
        records.append(
            BatchRecord(size, 2 * size, 0.1 * size, 1.0, selection_seconds=1.5)
        )
        batches.append(records[-1])
    assert len(batches) == 40 and batches == records and list(batches) == records
    assert batches[3] == records[3] and batches[-1] == records[-1]
    assert batches[-3:] == records[-3:] and batches[5:1:-2] == records[5:1:-2]
    assert batches[7:7] == [] and repr(batches[:2]) == repr(records[:2])
    assert [type(v) for v in astuple(batches[3])] == [int, int, *5 * [float]]
    with pytest.raises(IndexError):
        batches[40]
    batches[3].size = 100
    assert batches[3].size == 3
    assert batches.column("num_inducing").tolist() == list(range(0, 80, 2))
    assert batches.column("num_inducing").dtype == torch.long
    fork = batches.fork()
    fork.append(BatchRecord(1))
    assert len(batches) == 40 and len(fork) == 41 and batches != fork
    batches.change(-2, tell_seconds=2.5, num_inducing=7)
    assert (batches[38].tell_seconds, batches[38].num_inducing) == (2.5, 7)
    assert batches[39] == records[39] and batches[37] == records[37]
    again = Batches()
    again.load_state_dict(batches.state_dict())
    assert again == batches
    unknown, longer = Batches(), Batches()
    for some in (unknown, longer, longer):
        some.append(BatchRecord(1))  # beta is NaN
    assert unknown == unknown.fork() == [BatchRecord(1)] and unknown[0] == unknown[0]
    assert unknown != longer


def test_a_state_has_no_python_number_for_each_evaluation() -> None:
    """Those were pickled one by one: at 80,000 evaluations in 0.4 s a batch."""
    strategy = RandomSearch(torch.rand(50, 2), batch_size=1)
    strategy.run(lambda X: X.sum(-1), 200, progress=False)

    def longest(value: Any) -> int:
        if isinstance(value, dict):
            return max(map(longest, value.values()), default=0)
        if isinstance(value, list | tuple):
            return max([len(value), *map(longest, value)])
        return 0

    state = strategy.state_dict()
    assert longest(state) < 200
    assert all(len(column) == 200 for column in state["history"]["batches"].values())
