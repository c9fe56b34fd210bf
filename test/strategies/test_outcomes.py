"""Several outcomes: storage, folding, later feedback and frames, by a dense loop."""

from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchTensorDimensionError
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from strategy_table import equal
from torch import Tensor

from botorch_sparse.strategies import RandomSearch
from botorch_sparse.strategies.core.trials import Trial
from botorch_sparse.strategies.data.domain import domain_of
from botorch_sparse.strategies.data.outcomes import Objective, Outcomes
from botorch_sparse.strategies.data.run_record import RunRecord

pd = pytest.importorskip("pandas")

NAN = float("nan")
TWO = Outcomes((Objective("yield"), Objective("cost", minimize=True)))
X = torch.arange(10.0).double().reshape(5, 2)
VALUES = st.sampled_from([NAN, -1.5, 0.25, 3.0, 1e-3])
REPORTS = st.lists(st.tuples(st.integers(0, 4), VALUES, VALUES), max_size=40)


def two_outcomes(**options: Any) -> RandomSearch:
    """A strategy that measures two outcomes."""
    strategy = RandomSearch(X, batch_size=3, unique=True, **options)
    strategy.record = RunRecord(strategy.domain, TWO)
    return strategy


def folded_by_a_loop(
    point: list[int], values: list[float]
) -> tuple[list[int], list[float], list[int]]:
    """Points that were measured in the order of the first report, means, counts."""
    points, means, counts = [], [], []
    for p in dict.fromkeys(point):
        own = [y for q, y in zip(point, values, strict=True) if q == p and y == y]
        if own:
            points.append(p)
            means.append(sum(own) / len(own))
            counts.append(len(own))
    return points, means, counts


@given(REPORTS, st.integers(0, 40), st.integers(0, 40))
def test_each_outcome_is_folded_alone(
    reports: list[tuple[int, float, float]], kept: int, size: int
) -> None:
    """In parts, after a fork that was not kept, and as a prefix."""
    record = RunRecord(domain_of(X, {}), TWO)
    trials = [Trial(i, r[0], 0) for i, r in enumerate(reports)]
    Y = torch.tensor([r[1:] for r in reports], dtype=torch.double).reshape(-1, 2)
    record.append(trials[:kept], Y[:kept])
    record.folded()
    fork = record.fork()
    fork.append([Trial(99, 4, 0)], torch.ones(1, 2).double())
    fork.folded()
    record = record.fork()
    record.append(trials[kept:], Y[kept:])
    points = [r[0] for r in reports]
    for outcome, sign in ((0, 1.0), (1, -1.0)):
        for n in (None, size):
            values = [sign * r[1 + outcome] for r in reports][:n]
            expected = folded_by_a_loop(points[:n], values)
            found = record.folded(n, outcome)
            assert found.point.tolist() == expected[0]
            assert found.Y.tolist() == pytest.approx(expected[1], rel=1e-12)
            assert found.counts.tolist() == expected[2]
    again = record.of_state(record.state_dict())
    assert equal(again.state_dict(), record.state_dict())
    assert equal(again.folded(None, 1).Y, record.folded(None, 1).Y)


def same(A: Tensor, B: Tensor) -> bool:
    return torch.equal(A.nan_to_num(-99.0), B.nan_to_num(-99.0))


def test_an_outcome_that_is_told_later() -> None:
    strategy = two_outcomes()
    batch = strategy.ask()
    strategy.tell(batch, [[1.0, NAN], [2.0, 20.0], [NAN, 30.0]])
    assert len(strategy.pending) == 0 and len(strategy.history) == 3
    for id, row, match in [
        (0, [5.0, 10.0], "outcome of trial 0 that is told already"),
        (1, [NAN, 10.0], "outcome of trial 1 that is told already"),
        (0, [NAN, NAN], "Got 2 values of Y and 0 of X"),
        (0, [NAN, torch.inf], "Got 1 values of Y and 0 of X"),
        (7, [NAN, 1.0], "Trial 7 was never proposed"),
    ]:
        refused(match, strategy.tell, [id], [row])
    more = strategy.ask()
    strategy.tell([2, 0, 3], [[3.0, NAN], [NAN, 10.0], [4.0, NAN]])
    history = strategy.history
    assert history.trial.tolist() == [0, 1, 2, 3] and len(history) == 4
    Y = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, NAN]]).double()
    assert same(history.Y, Y) and same(history.values, Y * torch.tensor([1.0, -1.0]))
    assert torch.equal(history.X, torch.cat([batch.X, more.X[:1]]))
    assert history.to_frame()["cost"].tolist()[:3] == [10.0, 20.0, 30.0]
    assert strategy.pending_ids.tolist() == more.ids.tolist()[1:]
    refused("the same trial twice", strategy.tell, [3, 3], [[NAN, 1.0], [NAN, 1.0]])
    again = two_outcomes()
    again.load_state_dict(strategy.state_dict())
    assert same(again.history.Y, Y) and len(again.history) == 4
    again.tell([3], [[NAN, 40.0]])
    refused("told already", again.tell, [3], [[NAN, 40.0]])


def test_outcomes_by_the_names_of_columns() -> None:
    """In any order of columns and rows, with all of them."""
    strategy = two_outcomes()
    batch = strategy.ask()
    Y = pd.DataFrame({"cost": [3.0, 4.0, NAN], "yield": [1.0, 2.0, 5.0]})
    for wrong in (Y[["cost"]], Y.assign(other=0.0), Y.rename(columns={"cost": "c"})):
        refused("need one column for each", strategy.tell, batch, wrong)
    frame = batch.to_frame()
    strategy.tell(frame, Y.set_axis(frame.index).iloc[::-1])
    expected = torch.tensor([[1.0, 3.0], [2.0, 4.0], [5.0, NAN]]).double()
    assert same(strategy.history.Y, expected)
    with pytest.raises(BotorchTensorDimensionError, match="need `b x 2`"):
        strategy.tell(X[:1], [1.0])
