"""Trials: ids, feedback by id, key or rounded value, failures, the user's sign."""

from dataclasses import replace
from functools import partial
from typing import Any

import box_table
import pytest
import sbpe_problems
import strategy_table
import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
)
from finish_runs import OBJECTIVES, TABLES
from interrupted import Trace
from refusals import refused
from strategy_table import TABLE, are_alike, equal, objective
from torch import Tensor

from botorch_sparse.strategies import Batch, RandomSearch, Strategy

pd = pytest.importorskip("pandas")

BOUNDS = torch.tensor([[0.0, -5.0], [1.0, 5.0]], dtype=torch.float64)
all_strategies = pytest.mark.parametrize("name", TABLE)


def on_box(batch_size: int = 7, **options: Any) -> RandomSearch:
    return RandomSearch(bounds=BOUNDS, batch_size=batch_size, **options)


def rounded(X: Tensor, digits: int = 6) -> Tensor:
    """What a file with so many significant digits holds."""
    text = [[f"{value:.{digits}g}" for value in x] for x in X.tolist()]
    return torch.tensor([[float(v) for v in x] for x in text], dtype=torch.float64)


def test_trials_that_are_not_out() -> None:
    strategy = TABLE["random"]()
    batch = strategy.ask(4)
    strategy.tell([2], [1.0])
    swapped = replace(batch, indices=batch.indices.flip(0))
    strategy.withdraw([3])
    before = strategy.state_dict()
    bad: list[tuple[Any, list[float], str]] = [
        ([2], [1.0], "Trial 2 is told already"),
        (batch, [0.0] * 4, "Trial 2 is told already"),
        ([3], [1.0], "Trial 3 was given up"),
        ([4], [1.0], "Trial 4 was never proposed"),
        ([1, 1], [1.0, 1.0], "same trial twice"),
        (swapped, [0.0] * 4, "Trial|not those of its trials"),
    ]
    for X, Y, match in bad:
        refused(match, strategy.tell, X, Y)
    refused("never proposed", strategy.withdraw, [8])
    assert equal(strategy.state_dict(), before)


def test_a_batch_of_another_strategy() -> None:
    X = strategy_table.make_candidates(200)
    ours, theirs = RandomSearch(X, seed=1), RandomSearch(X, seed=2)
    ours.ask(5)
    batch = theirs.ask(5)
    refused("another strategy proposed it", ours.tell, batch, torch.zeros(5))
    for call in (ours.withdraw, ours.fail, partial(ours.fail, retry=True)):
        refused("another strategy proposed it", call, batch)
    assert len(ours.pending) == 5 and len(ours.history) == 0
    assert not ours.excluded_points
    assert ours.ask(2).ids.tolist() == [5, 6]  # none is to be tried again


def test_rows_that_were_put_together() -> None:
    """Without ids a batch says its rows."""
    X = torch.arange(20.0).reshape(10, 2)
    strategy = RandomSearch(X, batch_size=2)
    rows = torch.tensor([7, 8])
    strategy.tell(Batch(X[rows], rows), [1.0, 2.0])
    strategy.tell(Batch(X[rows].long()), [1.0, 2.0])
    assert strategy.history.indices.tolist() == [7, 8, 7, 8]


def test_candidates_that_were_written_to() -> None:
    """A tensor is not copied; the message says what may have happened."""
    X = strategy_table.make_candidates(50)
    strategy = RandomSearch(X, batch_size=3)
    batch = strategy.ask()
    X.mul_(3.0)
    refused("candidates were written to since", strategy.tell, batch, torch.zeros(3))
    strategy.tell(batch.ids, torch.zeros(3))


def test_rounding_is_relative_to_column_or_value() -> None:
    """Columns over decades are told apart by digits, columns with offset by range."""
    rates = 10.0 ** torch.arange(-9, 1).double()
    X = torch.stack([rates * 1.23456789, 1000 + rates], -1)
    strategy = RandomSearch(X)
    told = rounded(X)
    strategy.tell(told, torch.zeros(10))
    assert strategy.history.indices.tolist() == list(range(10))
    # 2e-5 of the range, and of the value: another point.
    strategy.tell(X[-1:] * (1 + 2e-5), [0.0])
    assert strategy.history.indices[-1] == -1


@pytest.mark.parametrize("name", ["table", "box"])
def test_several_points_within_rounding(name: str) -> None:
    if name == "table":
        X = torch.tensor([[0.5, 0.0], [0.5 + 4e-6, 0.0], [0.0, 1.0]]).double()
        X = torch.cat([X, X[:1]])  # equal rows are one point
        strategy = RandomSearch(X)
    else:
        strategy = on_box()
        X = BOUNDS.mean(0) + torch.tensor([[0.0, 0.0], [4e-6, 0.0]]).double()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(strategy.box), "sample", lambda self, num, seed: X)
            strategy.ask()
    between = X[:1] + torch.tensor([[2e-6, 0.0]]).double()
    before = strategy.state_dict()
    refused("within rounding of 2 different points", strategy.tell, between, [0.0])
    assert equal(strategy.state_dict(), before)
    strategy.tell(X[1:2], [0.0])  # exactly
    assert torch.equal(strategy.history.X, X[1:2])


def test_outside_of_the_bounds() -> None:
    strategy = on_box()
    refused("outside of the bounds", strategy.tell, [[1.001, 0.0]], [0.0])
    assert strategy.history.num_extra == 0
    strategy.tell([[1 + 1e-9, 0.0]], [0.0])  # by rounding: in the box
    assert torch.equal(strategy.history.X, torch.tensor([[1.0, 0.0]]).double())


def frame() -> pd.DataFrame:
    data = {"solvent": ["water", "oil", "oil"], "heat": [20, 30, 40]}
    return pd.DataFrame(data, index=pd.Index(["a", "b", "c"], name="id"))


def test_rows_by_key() -> None:
    strategy = RandomSearch(frame(), batch_size=2, minimize=True)
    batch = strategy.ask()
    sheet = batch.to_frame()
    assert sheet.columns.tolist() == ["solvent", "heat", "trial"]
    assert sheet["trial"].tolist() == [0, 1]
    expected = frame().iloc[batch.indices.tolist()]
    pd.testing.assert_frame_equal(sheet.drop(columns="trial"), expected)
    strategy.tell(sheet, [3.0, 2.0])
    strategy.tell(frame().loc[["c", "a"]], [1.5, 4.0])
    history = strategy.history
    assert history.indices.tolist() == [*batch.indices.tolist(), 2, 0]
    assert history.trial.tolist() == [0, 1, -1, -1]
    refused("'z'", strategy.tell, frame().iloc[:1].rename(index={"a": "z"}), [0.0])
    assert len(history) == 4


def test_keys_of_a_batch() -> None:
    """Of a shuffled index of whole numbers, where `indices` are positions."""
    index = pd.Index([3, 0, 4, 1, 2], name="id")
    table = pd.DataFrame({"heat": [1.0, 2.0, 3.0, 4.0, 5.0]}, index=index)
    strategy = RandomSearch(table, batch_size=4)
    batch = strategy.ask()
    assert table.loc[batch.keys, "heat"].tolist() == batch.X[:, 0].tolist()
    assert batch.to_frame().index.tolist() == batch.keys
    strategy.tell(batch, batch.X[:, 0])
    assert strategy.history.last_batch().keys == batch.keys
    pairs = pd.MultiIndex.from_product([["p"], range(5)], names=["plate", "well"])
    batch = RandomSearch(table.set_index(pairs)).ask(2)
    assert batch.keys == [pairs[i] for i in batch.indices.tolist()]
    assert RandomSearch(table.to_numpy()).ask(2).keys is None
    assert on_box().ask().keys is None
    assert replace(batch, indices=torch.tensor([-1, 1])).keys == [None, ("p", 1)]


def test_rows_by_features() -> None:
    """Without keys the columns of a DataFrame say which rows are meant."""
    table = frame().reset_index(drop=True)
    strategy = RandomSearch(table)
    strategy.tell(table.iloc[[2, 0]], [1.0, 2.0])
    assert strategy.history.indices.tolist() == [2, 0]
    box = on_box()
    batch = box.ask(3)
    box.tell(batch.to_frame(), [1.0, 2.0, 3.0])
    assert len(box.pending) == 0


@pytest.mark.parametrize("name", ["bbkb-global", "bkb", "thompson", "random"])
def test_retries_are_among_the_points_of_a_batch(name: str) -> None:
    """Where their size was asked for; also if more is, or all of them failed."""
    strategy = TABLE[name](batch_size=4)
    strategy.run(objective, 8, progress=False)
    batch = strategy.ask()
    strategy.fail(batch.ids[:3], retry=True)
    last = int(batch.ids[-1])
    again = strategy.ask(50)
    assert again.ids.tolist() == [*batch.ids[:3].tolist(), last + 1]
    assert strategy.pending_batch().ids.tolist() == strategy.pending_ids.tolist()
    strategy.fail(strategy.pending_ids, retry=True)
    assert strategy.ask().ids.tolist() == batch.ids.tolist()
    assert strategy.ask().ids.tolist() == [last + 1, *range(last + 2, last + 5)]


def test_rows_that_failed_are_readmitted() -> None:
    strategy = RandomSearch(frame(), batch_size=3, unique=True)
    strategy.tell(frame().loc[["c"]], [1.0])
    batch = strategy.ask()
    strategy.fail(batch)
    assert strategy.is_finished and sorted(batch.indices.tolist()) == [0, 1]
    twin = RandomSearch(frame(), batch_size=3, unique=True)
    twin.load_state_dict(strategy.state_dict())
    for s in (strategy, twin):
        refused("rows=2, which have not failed", s.readmit, [0, 2])
        s.readmit(s.table.rows(["b"]))
        again = s.ask()
        assert again.keys == ["b"] and s.is_finished
        s.withdraw(again)
    strategy.readmit()
    twin.load_state_dict(strategy.state_dict())
    for s in (strategy, twin):
        assert sorted(s.ask().keys) == ["a", "b"]  # and not what was told
        refused("Trial 0 was given up", s.tell, [0], [1.0])


@pytest.mark.parametrize("name", ["bbkb-global", "gpucb", "thompson"])
def test_a_readmitted_row_is_chosen_as_any_other(name: str) -> None:
    """The run is that of a strategy in which it was withdrawn."""
    strategy, twin = TABLE[name](), TABLE[name]()
    for s, give_up in ((strategy, Strategy.fail), (twin, Strategy.withdraw)):
        s.run(objective, 12, progress=False)
        give_up(s, s.ask(3))
        s.readmit()
        s.run(objective, 24, progress=False)
    assert are_alike(strategy, twin)


@pytest.mark.parametrize("name", ["table", "box"])
def test_a_round_that_fails(name: str) -> None:
    """What failed for good is missing in its round, and what is retried is not."""
    strategy = sbpe_problems.TABLE[name]()
    f = sbpe_problems.objective
    batch = strategy.ask()
    strategy.fail(batch.ids[:2], retry=True)
    strategy.tell(batch.ids[2:], f(batch.X[2:]))
    assert strategy.round_number == 0
    again = strategy.ask()
    assert again.ids.tolist() == batch.ids[:2].tolist()
    strategy.tell(again.ids[:1], f(again.X[:1]))
    assert strategy.round_number == 0
    strategy.fail(again.ids[1:])
    assert strategy.round_number == 1
    assert strategy.history.rounds[0].num_evaluations == len(batch) - 1


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    "domain, name",
    [
        ("table", "random"),
        ("box", "random"),
        ("box", "bbkb-global"),
        ("box", "gpucb-inferred"),
        ("box", "gssbo"),
        ("box", "regions"),
        ("box", "regions-two"),
        ("sbpe", "table"),
    ],
)
def test_minimize_is_the_other_sign(domain: str, name: str) -> None:
    """The same choices as maximizing minus the values; all that is shown has ours."""
    build, f = TABLES[domain][name], OBJECTIVES[domain]
    small, large = build(minimize=True), build()
    ours = small.run(lambda X: -f(X), 12, progress=False)
    theirs = large.run(f, 12, progress=False)
    assert torch.equal(ours.X, theirs.X)
    assert torch.equal(ours.values, theirs.values)
    assert torch.equal(ours.Y, -theirs.Y) and ours.minimize
    assert ours.best().value == -theirs.best().value
    if domain == "box" and name not in ("random", "gssbo"):
        X = box_table.BOUNDS
        (mean, sd), (other, width) = (s.predict(X) for s in (small, large))
        assert torch.equal(mean, -other) and torch.equal(sd, width)
    if name in ("bbkb-global", "gpucb-inferred"):
        assert small.confidence_gap() == large.confidence_gap()
    refused("'minimize'", large.load_state_dict, small.state_dict())


@pytest.mark.parametrize("how", ["ids", "points", "rounded"])
def test_telling_looks_at_no_other_trials(how: str) -> None:
    """Whatever is pending, in whatever order: a look at all of it is quadratic."""

    def lines(num: int) -> int:
        strategy, trace = on_box(batch_size=num), Trace(None)
        batch = strategy.ask()
        X = batch.X * (1 + 1e-9) if how == "rounded" else batch.X
        given = (batch.ids if how == "ids" else X).flip(0)
        with trace.on():
            for i in range(3):
                strategy.tell(given[i : i + 1], [0.5])
            strategy.tell(given[3:10], [0.5] * 7)
        assert strategy.history.trial.tolist() == batch.ids.flip(0)[:10].tolist()
        return sum(trace.lines.values())

    # Rounded points have an index of what is pending, made by each call.
    assert lines(4000) < lines(40) + (5 * 4000 if how == "rounded" else 40)


@pytest.mark.parametrize("name", ["random", "thompson"])
def test_restored_trials_are_those_of_the_process_before(name: str) -> None:
    """A strategy that is built anew from files of proposals and results."""
    first, again = TABLE[name](), TABLE[name]()
    first.tell([[0.5, 0.5]], [1.0])
    first.learn()
    batch = first.ask(3)
    first.fail(batch.ids[2:])
    rows = [] if batch.indices is None else batch.indices.tolist()
    restored = again.restore_trials(rows[:2], failed=rows[2:])
    assert restored.ids is not None and restored.ids.tolist() == [0, 1]
    assert torch.equal(restored.X, batch.X[:2])
    assert again.excluded_points == {rows[2]}
    again.tell([[0.5, 0.5]], [1.0])
    again.learn()
    assert torch.equal(again.pending, first.pending)
    for strategy in (first, again):
        strategy.tell(strategy.pending_batch(), [2.0, 3.0])
    assert torch.equal(first.history.Y, again.history.Y)
    assert torch.equal(first.history.point, again.history.point)
    assert again.history.batches[0].size == 2


def test_restored_points_of_a_box() -> None:
    strategy = RandomSearch(bounds=[[0.0, 0.0], [1.0, 1.0]])
    batch = strategy.restore_trials([[0.5, 0.25], [0.125, 1.0]])
    assert batch.X.tolist() == [[0.5, 0.25], [0.125, 1.0]] and len(strategy.ask(3)) == 3
    strategy.tell([[0.125, 1.0]], [1.0])
    assert strategy.history.trial.tolist() == [1]
    assert len(strategy.restore_trials([])) == 0


@pytest.mark.parametrize("given", [([50],), ([-1],), ([], [50]), ([0.5],), ([[50.0]],)])
def test_restored_trials_of_no_row_are_refused(given: tuple[Any, ...]) -> None:
    strategy = RandomSearch(torch.arange(40.0).unsqueeze(-1))
    before = strategy.state_dict()
    with pytest.raises((InputDataError, BotorchTensorDimensionError)):
        strategy.restore_trials(*given)
    assert equal(strategy.state_dict(), before)
