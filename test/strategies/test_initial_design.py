"""The first rows of a table, drawn by k-means++."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from scipy.stats import chisquare

from botorch_sparse.strategies import BBKB, CandidateTable, ThompsonSampling
from botorch_sparse.strategies.data.domain import TableDomain
from botorch_sparse.strategies.data.initial_design import spread_rows

NONE = torch.empty(0, 3, dtype=torch.double)
# Heat from 0 to 30, a category; encoded in three columns.
TABLE = CandidateTable.from_columns(
    {"heat": [0.0, 3.0, 12.0, 30.0, 30.0, 0.0], "oil": ["a", "a", "b", "a", "b", "a"]}
)
SCALED = [(0.0, 0), (0.1, 0), (0.4, 1), (1.0, 0), (1.0, 1), (0.0, 0)]


def squared(row: int, other: int) -> float:
    """Of two rows: heat in its range, and one for another category."""
    (x, a), (y, b) = SCALED[row], SCALED[other]
    return (x - y) ** 2 + (a != b)


def test_rows_are_drawn_by_their_squared_distance() -> None:
    """Counts of the second of two rows; a right code fails one in 10,000 times."""
    domain, generator = TableDomain(TABLE), torch.Generator().manual_seed(0)
    firsts, num = torch.zeros(6), 6000
    second = torch.zeros(6, 6)
    for _ in range(num):
        first, then = spread_rows(domain, 2, generator, (), NONE[:, : domain.dim])
        firsts[first] += 1
        second[first, then] += 1
    assert chisquare(firsts).pvalue > 1e-4 / 7
    for first in range(6):
        weights = torch.tensor([squared(first, row) for row in range(6)]).double()
        expected = weights / weights.sum() * firsts[first]
        is_able = weights > 0
        assert not second[first, ~is_able].any()
        found = chisquare(second[first, is_able], expected[is_able].numpy())
        assert found.pvalue > 1e-4 / 7


def test_known_points_are_centres_too() -> None:
    domain, generator = TableDomain(TABLE), torch.Generator().manual_seed(1)
    known = TABLE.X[torch.tensor([0, 3])]
    counts, num = torch.zeros(6), 4000
    for _ in range(num):
        (row,) = spread_rows(domain, 1, generator, [2], known)
        counts[row] += 1
    weights = torch.tensor([min(squared(0, r), squared(3, r)) for r in range(6)])
    weights[2] = 0.0
    is_able = weights > 0
    assert not counts[~is_able].any()
    expected = (weights / weights.sum() * num)[is_able]
    assert chisquare(counts[is_able], expected.numpy()).pvalue > 1e-4


def test_each_row_comes_once_and_all_come() -> None:
    """Also the rows that equal a centre, when no others are left."""
    domain, generator = TableDomain(TABLE), torch.Generator().manual_seed(2)
    rows = spread_rows(domain, 99, generator, [4], TABLE.X[:1])
    assert sorted(rows) == [0, 1, 2, 3, 5] and set(rows[-2:]) == {0, 5}
    assert spread_rows(domain, 3, generator, range(6), NONE) == []


@pytest.mark.parametrize("strategy", [ThompsonSampling, BBKB])
def test_a_strategy_begins_with_them(strategy: Any) -> None:
    """On a line with a crowd at one end: the far rows are drawn, not the crowd."""
    crowd = torch.linspace(0, 1e-3, 500, dtype=torch.double)
    far = torch.linspace(0.2, 1, 5, dtype=torch.double)
    X = torch.cat([crowd, far]).unsqueeze(-1)

    def build(design: str = "k-means++") -> Any:
        return strategy(X, batch_size=3, num_initial=6, seed=5, initial_design=design)

    first = build()
    batch = first.ask()
    first.tell(batch, batch.X)
    rows = [*batch.indices.tolist(), *first.ask().indices.tolist()]
    assert len({*rows}) == 6 and sum(row >= 500 for row in rows) == 5
    second = build()
    second.load_state_dict(first.state_dict())
    assert second.ask().X.equal(first.ask().X)
    with pytest.raises(InputDataError):
        build("random").load_state_dict(first.state_dict())
    random = build("random").ask().indices
    assert int((random < 500).sum()) >= 2


def test_designs_that_there_are_not() -> None:
    X = torch.rand(9, 2)
    with pytest.raises(InputDataError, match="'sobol'; need one of 'random', 'k-m"):
        ThompsonSampling(X, initial_design="sobol")
    with pytest.raises(InputDataError, match=r"with bounds; points .* are Sobol's"):
        ThompsonSampling(bounds=[[0.0], [1.0]], initial_design="k-means++")
