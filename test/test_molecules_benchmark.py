"""The benchmark of molecules: its molecules, its peers, and the figures it prints."""

import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[1]))

pytest.importorskip("rdkit")
pytest.importorskip("sklearn")

from rdkit import Chem
from rdkit.Chem import QED, rdFingerprintGenerator

from benchmarks import molecule_peers, molecule_problems, molecules
from benchmarks.measure import installed
from benchmarks.molecule_problems import MoleculeProblem
from benchmarks.molecules import BATCH, METHODS
from benchmarks.store import Record, Store
from botorch_sparse.pools import CompactRows
from botorch_sparse.strategies import CandidateTable

ROWS, TOTAL = 90, 50
PARENTS = [
    "O=C(c1ccc(-c2ccccc2)cc1)N1CCOCC1",
    "CN(C)C(=O)c1cccc(-c2ccncc2)c1",
    "O=C(c1cnc(-c2ccc(F)cc2)nc1)N1CCC[C@H]1C",
    "CN(C)c1ccc(-c2ccncc2)nc1",
]


def small(*, is_packed: bool = False, blocks: int = 1) -> MoleculeProblem:
    """Ninety chains with rings; the value is largest for middle lengths and a ring."""
    texts = ["C" * i + end for i, end in product(range(1, 31), ["O", "N", "c1ccccc1"])]
    columns = [texts, texts[::-1]][:blocks]
    values = [0.3 * ("1" in text) - 0.1 * abs(len(text) - 20) for text in texts]
    problem = molecule_problems.of_columns(columns, list(map(str, values)))
    if not is_packed:
        return problem
    bits = np.packbits(problem.counts(slice(None)) > 0, axis=-1)
    rows = CompactRows.from_packed(bits, sum(problem.blocks))
    return MoleculeProblem(CandidateTable.of(rows), problem.values)


def executed(monkeypatch: Any, method: str, seed: int, **options: Any) -> Record:
    monkeypatch.setattr(molecules, "load_molecules", lambda name: small(**options))
    return molecules.execute("small", method, seed, TOTAL)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("method", installed(METHODS, molecules.NEEDS))
def test_each_method_repeats_its_seed(method, monkeypatch):
    first, again, other = (executed(monkeypatch, method, seed) for seed in (3, 3, 4))
    rows = first["rows"]
    assert rows == again["rows"] != other["rows"]
    assert len(rows) == len({*rows}) == TOTAL and {*rows} <= {*range(ROWS)}
    assert first["of"] == ROWS and len(first["seconds"]) == len(first["at"]) == 1


@pytest.mark.one_in(18)
@pytest.mark.parametrize("options", [{"is_packed": True}, {"blocks": 2}])
@pytest.mark.parametrize("method", installed(METHODS, molecules.NEEDS))
def test_bits_and_several_molecules_are_taken(method, options, monkeypatch):
    rows = executed(monkeypatch, method, 0, **options)["rows"]
    assert len({*rows}) == TOTAL


@pytest.mark.parametrize("method", ["exact-ts", "exact-logei"])
def test_of_a_large_table_a_gp_sees_random_rows(method, monkeypatch):
    monkeypatch.setattr(molecule_peers, "JOINT_ROWS", 25)
    monkeypatch.setattr(molecule_peers, "SCREENED_ROWS", 25)
    assert len({*executed(monkeypatch, method, 0)["rows"]}) == TOTAL


def test_peers_begin_with_the_same_rows(monkeypatch):
    peers = installed(molecules.PEERS, molecules.NEEDS)
    starts = [executed(monkeypatch, m, 7)["rows"][:BATCH] for m in peers]
    assert starts == [starts[0]] * len(starts)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", ["exact-logei", "forest-ucb", "network"])
def test_a_peer_finds_more_than_chance(method, monkeypatch):
    """Of three times the best nine rows, 15 in the mean; 22 in 0.2% of all cases."""
    best = {*np.argsort(-small().values)[:9].tolist()}
    found = [{*executed(monkeypatch, method, seed)["rows"]} for seed in range(3)]
    assert sum(len(best & rows) for rows in found) >= 22


def test_a_believer_is_told_means_one_row_after_the_other():
    """As a GP does that is conditioned on each mean, with all of its inverse."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, dtype=torch.double, generator=generator)
    mean = torch.randn(12, dtype=torch.double, generator=generator)
    K, noise, best = root @ root.mT, torch.tensor(0.3).double(), mean.max() - 0.5
    expected: list[int] = []
    normal = torch.distributions.Normal(0.0, 1.0)
    for _ in range(4):
        told = K[expected][:, expected] + noise * torch.eye(len(expected))
        left = K - K[:, expected] @ torch.linalg.solve(told, K[expected])
        u = (mean - torch.stack([best, *mean[expected]]).max()) / left.diagonal().sqrt()
        scores = left.diagonal().sqrt() * (
            u * normal.cdf(u) + normal.log_prob(u.double()).exp()
        )
        scores[expected] = -1.0
        expected.append(int(scores.argmax()))
    assert molecule_peers.believed(mean, K, noise, best, 4) == expected


def test_expected_improvement_is_the_mean_of_what_is_above():
    u = torch.linspace(-8, 8, 400_001, dtype=torch.double)
    density = (-u.square() / 2).exp() / (2 * torch.pi) ** 0.5
    for mean, sd, best in [(0.3, 1.0, 0.5), (-1.0, 2.0, 1.0), (2.0, 0.5, -1.0)]:
        above = torch.trapezoid((mean + sd * u - best).clamp_min(0) * density, u)
        given = (torch.tensor(x, dtype=torch.double) for x in (mean, sd**2, best))
        found = molecule_peers.improvement(*given)
        torch.testing.assert_close(found, above, rtol=1e-8, atol=1e-8)


def test_figures_are_ranks_and_shares():
    values = np.arange(1_000.0)[::-1]  # row i has rank i + 1
    rows = np.array([500, 40, 3, 9, 12, 0])
    found = molecules.figures(values, rows, [2, 4, 6])
    assert found["ranks"] == [41, 4, 1]
    assert found["found"] == {"1.0%": [0.0, 0.2, 0.3], "0.1%": [0.0, 0.0, 1.0]}


def test_what_is_stored_is_not_run_again(tmp_path, monkeypatch, capsys):
    def here(function: Any, *args: Any) -> tuple[Any, float]:
        return function(*args), 0.25

    monkeypatch.setattr(molecules, "in_fresh_process", here)
    monkeypatch.setattr(molecules, "load_molecules", lambda name: small())
    words = ["--problems", "dye_lasers", "--methods", "random", "--seeds", "2"]
    words += ["--store", str(tmp_path / "runs.json.gz")]
    molecules.main([*words, "--total", "40"])
    capsys.readouterr()

    def run(*args: Any) -> None:
        raise RuntimeError(f"run with {args}")

    monkeypatch.setattr(molecules, "execute", run)
    molecules.main([*words, "--total", "40"])
    assert "| random | 2 |" in capsys.readouterr().out
    assert {*Store(tmp_path / "runs.json.gz").records} == {
        "dye_lasers/random/0",
        "dye_lasers/random/1",
    }
    with pytest.raises(RuntimeError, match="'random', 0, 60"):
        molecules.main([*words, "--total", "60"])


def record(rank: int, share: float, seconds: float) -> Record:
    return {
        "rows": [0] * 300,
        "of": 4_200,
        "at": [100, 300],
        "ranks": [50, rank],
        "found": {"1.0%": [0.0, share], "0.1%": [0.0, 0.5]},
        "seconds": [1.0, seconds],
        "memory": 1.5,
    }


def test_medians_and_the_best_peers_are_printed(tmp_path, capsys):
    store = Store(tmp_path / "runs.json")
    runs = {
        "thompson": [record(4, 0.30, 3.0), record(8, 0.34, 5.0)],
        "bbkb": [record(3, 0.1, 1.0)],
        "exact-ts": [record(5, 0.2, 50.0)],
        "network": [record(9, 0.25, 5.0)],
    }
    for method, each in runs.items():
        for seed, run in enumerate(each):
            store.add(f"lipophilicity/{method}/{seed}", run)
    molecules.main(["--report", str(store.path)])
    printed = capsys.readouterr().out
    assert "### lipophilicity: 4,200 rows" in printed and "dye_lasers" not in printed
    assert (
        "| **thompson** | 2 | 50 | 6 | 32.0% (30% to 34%) | 50.0% | 4 | 1.5 |"
        in printed
    )
    assert (
        "- thompson: rank WORSE than exact-ts's (5), share of the best 1% no worse "
        "than network's (25.0%); 0.080 of the CPU time of exact-ts\n"
    ) in printed
    assert "- bbkb: rank no worse than exact-ts's (5), share of the best 1% WORSE" in (
        printed
    )


def test_products_are_molecules_of_all_their_atoms(monkeypatch):
    monkeypatch.setattr(
        molecule_problems, "text_columns", lambda name: {"smiles": tuple(PARENTS)}
    )
    texts = [*molecule_problems.products(2)]
    assert len(texts) == len({*texts}) == 8
    # Three molecules have the carbonyl group, two the amine and pyridine.
    pieces = ["[1*]C([6*])=O", "[16*]c1ccncc1", "[5*]N(C)C"]
    assert molecule_problems.fragments(PARENTS)[:3] == pieces
    either = {"CN(C)c1ccc(-c2ccncc2)nc1", "CN(C)c1ccc(-c2ccncc2)cn1"}
    assert either & {Chem.CanonSmiles(text) for text in texts}
    mols = [Chem.MolFromSmiles(text) for text in texts]
    assert all(mol is not None and len(Chem.GetMolFrags(mol)) == 1 for mol in mols)
    for part in ("[CH3]N([CH3])c", "C[C@@H]1CCCN1c", "c-c1ccncc1", "c-c1ccc(F)cc1"):
        pattern = Chem.MolFromSmarts(part)
        assert sum(mol.HasSubstructMatch(pattern) for mol in mols) == 4


@pytest.mark.parametrize("piece", ["[5*]N1CCC[C@H]1C", "[5*]N1CC[C@@H](O)C1"])
def test_joining_keeps_what_is_left_and_right(piece):
    """As RDKit joins them, by the labels of their joints."""
    core = "[14*]c1cnc2c(c1)C[C@](F)(Cl)c1cc([16*])ccc1-2"
    ring = "[16*]c1ccc2c(c1)[C@@H](C)CO2"
    start, middle, end = molecule_problems.core_text(core).split("*")
    amine, other = map(molecule_problems.end_text, (piece, ring))
    joined = Chem.CanonSmiles(start + amine + middle + other + end)
    ways = {
        (first, second): Chem.MolToSmiles(
            Chem.molzip(
                Chem.MolFromSmiles(
                    f"{piece.replace('5*', f'*:{first}')}."
                    f"{core.replace('14*', '*:1').replace('16*', '*:2')}."
                    f"{ring.replace('16*', f'*:{second}')}"
                )
            )
        )
        for first, second in ((1, 2), (2, 1))
    }
    assert joined in ways.values()


@pytest.mark.slow
def test_what_was_computed_is_not_computed_again(monkeypatch):
    monkeypatch.setattr(molecule_problems, "CHUNK", 2)
    monkeypatch.setattr(molecule_problems, "PROCESSES", 1)
    texts = ["CCO", "c1ccccc1", "CC(=O)N", "CCN", "CCCC"]
    bits = np.zeros((5, molecule_problems.SIZE // 8), dtype=np.uint8)
    bits[:2] = 1
    values = np.array([0.5, 0.25, np.nan, np.nan, 0.125])  # the last has no bits
    molecule_problems.compute(texts, bits, values)
    expected = [QED.qed(Chem.MolFromSmiles(text)) for text in texts[2:4]]
    np.testing.assert_array_equal(values, [0.5, 0.25, *expected, 0.125])
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    for text, row in zip(texts[2:], bits[2:], strict=True):
        own = generator.GetFingerprintAsNumPy(Chem.MolFromSmiles(text))
        np.testing.assert_array_equal(np.unpackbits(row), own)
    assert (bits[:2] == 1).all()


@pytest.mark.slow
def test_files_of_the_cache_are_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(molecule_problems, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(molecule_problems, "FRAGMENTS", 1)
    monkeypatch.setattr(molecule_problems, "PROCESSES", 1)
    monkeypatch.setattr(molecule_problems, "products", lambda num: ["CCO"])
    first = molecule_problems.enumerated()
    monkeypatch.delattr(molecule_problems, "compute")
    again = molecule_problems.enumerated()
    assert again.values == first.values == QED.qed(Chem.MolFromSmiles("CCO"))
    assert isinstance(again.table.X, CompactRows) and again.table.X.is_packed
    counts = molecule_problems.morgan_counts(["CCO"])
    np.testing.assert_array_equal(again.counts(slice(None)), counts > 0)


def test_problems_that_are_not_here_are_left_out(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("BOTORCH_SPARSE_DATA", str(tmp_path))
    monkeypatch.setattr(molecule_problems, "CACHE", tmp_path)
    molecule_problems.load_molecules.cache_clear()
    names = ["lipophilicity", "enumerated"]
    assert molecules.available(names, molecule_problems.load_molecules) == []
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == names
    assert not [*tmp_path.iterdir()]
