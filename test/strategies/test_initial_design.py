"""The first rows of a table: one of each cluster, by k-means from k-means++."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from scipy.cluster.vq import kmeans2
from scipy.stats import chisquare

from botorch_sparse.strategies import BBKB, CandidateTable, ThompsonSampling
from botorch_sparse.strategies.data import initial_design
from botorch_sparse.strategies.data.domain import TableDomain
from botorch_sparse.strategies.data.initial_design import (
    ROUNDS,
    _far_rows,
    _middles,
    spread_rows,
)

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


def encoded() -> torch.Tensor:
    """Heat in its range, and each oil with half of the distance between two."""
    rows = [(heat, 0.5**0.5 * (oil == 0), 0.5**0.5 * oil) for heat, oil in SCALED]
    return torch.tensor(rows, dtype=torch.double)


def test_the_table_has_the_distances_of_its_columns() -> None:
    X = encoded()
    for row in range(6):
        for other in range(6):
            distance = (X[row] - X[other]).square().sum()
            torch.testing.assert_close(float(distance), squared(row, other))


def test_molecules_are_directions_and_none_is_one() -> None:
    """Squared distances are one less the cosine of the counts, block by block."""
    pytest.importorskip("rdkit")
    donors, acceptors = ["CCO", "CCCCN", "Br"], ["none", "Cl", "CO"]
    table = CandidateTable.from_smiles({"donor": donors, "acceptor": acceptors})
    X = initial_design._scaled(TableDomain(table), table.X[:])
    for i, j in ((0, 1), (1, 2)):
        expected = 0.0
        for block in table.fingerprints:
            a, b = table.X[:].double()[[i, j], block]
            norm = a.norm() * b.norm()
            expected += 1.0 - float(a @ b / norm) if norm > 0 else 1.0
        squares = float((X[i] - X[j]).square().sum())
        assert squares == pytest.approx(expected)


def test_no_molecule_is_no_nearer_than_others() -> None:
    """By counts the empty row is the nearest one to each middle."""
    pytest.importorskip("rdkit")
    donors = ["c1ccc(P(c2ccccc2)c2ccccc2)cc1", "C1CCC(P(C2CCCCC2)C2CCCCC2)CC1", "CCO"]
    acceptors = ["none", "CC(=O)O", "CCN(CC)CC", "c1ccncc1", "OCCO", "CC(C)(C)C(=O)O"]
    both = [(donor, acceptor) for donor in donors for acceptor in acceptors]
    first, second = map(list, zip(*both, strict=True))
    table = CandidateTable.from_smiles({"donor": first, "acceptor": second})
    found = []
    for seed in range(4):
        g, nothing = torch.Generator().manual_seed(seed), torch.empty(0, 4096)
        found += spread_rows(TableDomain(table), 4, g, (), nothing)
    assert sum(both[row][1] == "none" for row in found) <= 5


def test_starts_are_drawn_by_their_squared_distance() -> None:
    """Counts of the second of two rows; a right code fails one in 10,000 times."""
    generator, X = torch.Generator().manual_seed(0), encoded()
    firsts, num = torch.zeros(6), 6000
    second = torch.zeros(6, 6)
    for _ in range(num):
        first, then = _far_rows(X, 2, generator, X[:0])
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


def test_starts_are_far_from_known_points() -> None:
    generator, X = torch.Generator().manual_seed(1), encoded()
    counts, num = torch.zeros(6), 4000
    for _ in range(num):
        (row,) = _far_rows(X, 1, generator, X[[0, 3]])
        counts[row] += 1
    weights = torch.tensor([min(squared(0, r), squared(3, r)) for r in range(6)])
    is_able = weights > 0
    assert not counts[~is_able].any()
    expected = (weights / weights.sum() * num)[is_able]
    assert chisquare(counts[is_able], expected.numpy()).pvalue > 1e-4


def test_middles_are_those_of_scipy() -> None:
    """From the same centres, and with one that stays: by its definition."""
    X = torch.rand(200, 3, generator=torch.Generator().manual_seed(3)).double()
    found = _middles(X, X[:5], 0)
    expected, _ = kmeans2(X.numpy(), X[:5].numpy(), iter=ROUNDS, minit="matrix")
    torch.testing.assert_close(found, torch.from_numpy(expected))
    found = _middles(X, X[:5], 2)
    assert found[:2].equal(X[:2]) and not torch.isin(found[2:], X).any()
    nearest = ((X[:, None] - found) ** 2).sum(-1).argmin(-1)
    for cluster in (2, 3, 4):
        # within the last round's step, which is small after so many
        middle = X[nearest == cluster].mean(0)
        torch.testing.assert_close(found[cluster], middle, rtol=0, atol=0.02)


def test_a_row_of_each_of_some_clusters_comes() -> None:
    """Clusters that lie far apart, one of them known, and one excluded."""
    g = torch.Generator().manual_seed(4)
    middles = torch.tensor([[0.0, 0], [0, 9], [9, 0], [9, 9], [4, 4]]).double()
    X = (middles[:, None] + torch.rand(5, 40, 2, generator=g)).reshape(-1, 2)
    excluded = range(40, 80)
    for _ in range(9):
        rows = spread_rows(TableDomain(CandidateTable.of(X)), 3, g, excluded, X[:1])
        assert sorted(row // 40 for row in rows) == [2, 3, 4]
        for row in rows:
            own = X[row // 40 * 40 : row // 40 * 40 + 40]
            assert row % 40 == ((own - own.mean(0)) ** 2).sum(-1).argmin()


def test_a_large_table_is_covered_by_some_of_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(initial_design, "MOST_ROWS", 50)
    X = torch.arange(1000.0).double().unsqueeze(-1)
    g = torch.Generator().manual_seed(5)
    rows = spread_rows(TableDomain(CandidateTable.of(X)), 4, g, range(500), X[:0])
    assert [sorted(rows)[i] // 125 for i in range(4)] == [4, 5, 6, 7]


def test_each_row_comes_once_and_all_come() -> None:
    domain, generator = TableDomain(TABLE), torch.Generator().manual_seed(2)
    rows = spread_rows(domain, 99, generator, [4], TABLE.X[:1])
    assert sorted(rows) == [0, 1, 2, 3, 5]
    assert spread_rows(domain, 3, generator, range(6), NONE) == []


@pytest.mark.parametrize("strategy", [ThompsonSampling, BBKB])
def test_a_strategy_begins_with_them(strategy: Any) -> None:
    """On a line with a crowd at one end: the far rows come, not the crowd."""
    crowd = torch.linspace(0, 1e-3, 500, dtype=torch.double)
    far = torch.linspace(0.2, 1, 5, dtype=torch.double)
    X = torch.cat([crowd, far]).unsqueeze(-1)

    def build(design: str = "k-means") -> Any:
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
        ThompsonSampling(bounds=[[0.0], [1.0]], initial_design="k-means")
