"""Which point is meant: on columns far from zero, dense ones, and next to trials."""

import itertools
from typing import Any

import pytest
import torch
from refusals import refused
from torch import Tensor

from botorch_sparse.strategies import RandomSearch, RowIndex

UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
NARROW = torch.tensor([[1550.0], [1550.01]], dtype=torch.float64)
HOUR = torch.tensor([[1.7e9], [1.7e9 + 3600]], dtype=torch.float64)


def proposing(x: list[float], bounds: Tensor) -> RandomSearch:
    """A strategy on a box that waits for one point."""
    strategy = RandomSearch(bounds=bounds, batch_size=1)
    propose(strategy, x)
    return strategy


def propose(strategy: RandomSearch, x: list[float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        point = torch.tensor([x]).to(strategy.box.bounds)
        patch.setattr(type(strategy.box), "sample", lambda self, num, seed: point)
        assert torch.equal(strategy.ask().X, point)


def tell(strategy: RandomSearch, *X: Any) -> list[int]:
    """The trials that points were taken for, -1 for none."""
    for x in X:
        strategy.tell(x if isinstance(x, Tensor) else [x], [0.0])
    return strategy.history.trial.tolist()


@pytest.mark.parametrize(
    ("bounds", "pending", "told"),
    [
        (NARROW, 1550.0038, 1550.009),
        (NARROW, 1550.0038, 1550.01),
        (HOUR, 1.7e9 + 1368.957, 1.7e9 + 600),
        (HOUR, 1.7e9 + 1368.957, 1.7e9 + 3600),
    ],
)
def test_far_from_zero_the_width_decides(
    bounds: Tensor, pending: float, told: float
) -> None:
    strategy = proposing([pending], bounds)
    assert tell(strategy, [told]) == [-1] and len(strategy.pending) == 1
    assert strategy.history.X.tolist() == [[told]]


@pytest.mark.parametrize("bounds", [NARROW, HOUR, UNIT[:, :1]])
def test_outside_is_judged_by_the_width(bounds: Tensor) -> None:
    (low, high), width = bounds.squeeze(-1), bounds[1] - bounds[0]
    strategy = RandomSearch(bounds=bounds)
    for share in (1.0, 0.1, 1e-3):
        for x in (high + share * width, low - share * width):
            refused("outside of the bounds", tell, strategy, x.tolist())
    for x in (high + 1e-7 * width, torch.nextafter(low, low - 1).unsqueeze(0)):
        tell(strategy, x.tolist())
    assert torch.equal(strategy.history.X, bounds.flip(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_far_from_zero(dtype: torch.dtype) -> None:
    """One ulp, float32, and digits that are left of what the width leaves."""
    ulp = torch.finfo(dtype).eps * 1050
    for pending, told in [
        (1000 + 37.1234567, 1037.12),
        (1000 + 37.1234567, 1000 + 37.1234567 + ulp),
        (1000.5, 1000.5 - ulp),
    ]:
        strategy = proposing([pending], torch.tensor([[1000.0], [1100.0]]).double())
        assert tell(strategy, torch.tensor([[told]], dtype=dtype)) == [0]
    strategy = proposing([1037.1234567], torch.tensor([[1000.0], [1100.0]]).double())
    refused("near trial 0", tell, strategy, [1037.1])


def test_rows_of_a_narrow_column() -> None:
    X = torch.linspace(0.0, 3600.0, 10, dtype=torch.float64).unsqueeze(-1) + 1.7e9
    strategy = RandomSearch(X)
    strategy.tell(torch.nextafter(X, X + 1), torch.zeros(10))
    strategy.tell(X.float().double()[3:4], [0.0])  # exactly what it is: another point
    strategy.tell(X.float()[3:4], [0.0])  # by its type: the row
    strategy.tell(X[3:4] + 10, [0.0])
    strategy.tell(X[-1:] + 400, [0.0])
    assert strategy.history.indices.tolist() == [*range(10), -1, 3, -1, -1]
    strategy.ask(1)
    refused("nearest one is row 3", strategy.tell, X[3:4] + 11, [0.0])
    strategy.tell(X[-1:] + 700, [0.0])
    assert strategy.history.indices[-1] == -1


@pytest.mark.parametrize(("value", "told"), [(0.0, 1e-3), (1550.123456, 1551.0)])
def test_columns_of_one_value(value: float, told: float) -> None:
    strategy = RandomSearch(torch.full((4, 1), value).double(), batch_size=2)
    strategy.ask()
    strategy.tell([[float(f"{value:.6g}")], [told]], [0.0, 0.0])
    assert strategy.history.trial.tolist() == [0, -1]


def test_the_nearest_of_a_dense_column_is_meant() -> None:
    """2,000 rows within 1e-5 of the range: one ulp off is clear, a third is not."""
    X = torch.cat([torch.linspace(0.5, 0.500009, 2_000), torch.tensor([0.0, 1.0])])
    X = X.double().unique().unsqueeze(-1)
    strategy = RandomSearch(X)
    some = torch.arange(1, len(X) - 1, 7)
    strategy.tell(torch.nextafter(X[some], X[some] + 1), torch.zeros(len(some)))
    assert torch.equal(strategy.history.indices, some)
    third = (2 * X[100:101] + X[101:102]) / 3
    refused(r"within rounding of \d+ different", strategy.tell, third, [0.0])


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
def test_few_digits_of_a_pending_point_are_refused(digits: int) -> None:
    """As on tables: where all columns are nearer than 1e-2 of the range."""
    pending = [0.38026589155, 0.01329469494]
    told = [round(value, digits) for value in pending]
    strategy = proposing(pending, UNIT)
    before = len(strategy.history)
    if digits == 1:
        assert tell(strategy, told) == [-1] and len(strategy.pending) == 1
        return
    match = r"near trial 0, .*that is pending: column \d .*instead of .*withdrawn"
    refused(match, tell, strategy, told)
    assert len(strategy.history) == before and len(strategy.pending) == 1
    strategy.withdraw([0])
    assert tell(strategy, told) == [-1]


def test_own_points_besides_the_pending_ones() -> None:
    """Near in some columns only, near a trial that is told, and told exactly again."""
    pending = [0.38026589155, 0.01329469494]
    strategy = proposing(pending, UNIT)
    near, far = [0.381, 0.0133], [0.381, 0.0333]
    assert tell(strategy, far) == [-1]
    assert tell(strategy, far, pending, near) == [-1, -1, 0, -1]
    # Another trial is pending: none of these is near it.
    propose(strategy, [0.75, 0.25])
    assert tell(strategy, [v + 1e-3 for v in near])[-1] == -1


def test_the_grid_of_a_box_while_trials_are_pending() -> None:
    """Few of a user's own points are near one of ten pending ones in 4 columns."""
    bounds = UNIT[:, [0, 1, 0, 1]]
    strategy = RandomSearch(bounds=bounds, batch_size=10)
    strategy.ask()
    grid = list(itertools.product([0.0, 0.5, 1.0], repeat=4))
    assert tell(strategy, *map(list, grid)) == [-1] * 81


def test_an_index_finds_what_a_scan_of_all_rows_finds():
    g = torch.Generator().manual_seed(0)
    X = torch.randint(9, (300, 3), generator=g).double() / 8
    index = RowIndex(X)
    for x in X[:20] + 0.06 * torch.randn(20, 3, generator=g).double():
        tolerance = torch.rand(3, generator=g).double() / 4 + 1e-9
        is_near = ((X - x).abs() <= tolerance).all(-1)
        assert index.within(x, tolerance) == is_near.nonzero().squeeze(-1).tolist()
        assert index.equal(x.unsqueeze(0)) == [[]]
    for row, found in enumerate(index.equal(X)):
        assert found == (X == X[row]).all(-1).nonzero().squeeze(-1).tolist()


def test_the_nearest_within_tolerances_is_meant_where_others_are_far():
    X = torch.tensor([[0.0, 1.0], [1e-3, 1.0], [0.0, 2.0]], dtype=torch.float64)
    tolerance, index = torch.full_like(X[0], 1e-2), RowIndex(X)
    assert index.within(X[1] - 9e-6, tolerance) == [1]
    assert index.within(X[1] - 2e-5, tolerance) == [0, 1]
    digits = index.six_digits(torch.tensor([0.0, 1.5], dtype=torch.float64))
    assert 0 < digits[0] < 1e-15 and digits[1] == pytest.approx(1e-5, rel=1e-3)
