"""Columns of molecules on the command line."""

import pytest
from laboratory import Laboratory

pytest.importorskip("pandas")
pytest.importorskip("rdkit")

HEADS = ["O", "N", "Cl", "C#N", "S"]
# Chains with a head; the longer, the better.
CHAINS = ["C" * size + head for size in range(1, 9) for head in HEADS]
OPTIONS = ("--smiles", "chain", "--batch", "3", "--results")


def gain(smiles: str) -> float:
    return float(len(smiles.rstrip("#NOClS")) + smiles.count("C"))


@pytest.fixture
def molecules(lab: Laboratory) -> Laboratory:
    rows = [[f"m{i}", chain, i % 3] for i, chain in enumerate(CHAINS)]
    lab.write("pool.csv", [["id", "chain", "heat"], *rows])
    known = [[f"m{i}", gain(CHAINS[i])] for i in range(0, 40, 3)]
    lab.write("m.csv", [["id", "loss"], *known])
    return lab


def test_long_chains_are_proposed_and_named(molecules: Laboratory) -> None:
    answer = molecules(*OPTIONS, molecules.results)
    assert "read: 'chain': 40 molecules, 'CO', 'CN', 'CCl', 'CC#N'" in answer.said
    assert not answer.notes or "categories" not in "".join(answer.notes)
    lengths = sorted(map(len, CHAINS))
    proposed = [len(row["chain"]) for row in answer.rows]
    assert sum(proposed) / 3 > sum(lengths) / len(lengths)
    for row in answer.rows:
        assert "nearest measured: m" in row["reason"]


def test_the_nearest_measured_is_the_most_alike(molecules: Laboratory) -> None:
    """By Tanimoto similarity, where heat does not count."""
    pool = [["id", "chain"], *([f"m{i}", chain] for i, chain in enumerate(CHAINS))]
    molecules.write("pool.csv", pool)
    answer = molecules(*OPTIONS, molecules.results)
    for row in answer.rows:
        nearest = row["reason"].rsplit("measured: ", 1)[1].split(", ")[0]
        assert abs(len(CHAINS[int(nearest[1:])]) - len(row["chain"])) <= 4
        assert "unlike" not in row["reason"]


def test_molecules_are_one_in_any_spelling(molecules: Laboratory) -> None:
    """Results by features: `OCC` is the row of `CCO`."""
    rows = [["chain", "heat", "loss"]]
    for i in range(0, 40, 3):
        head = "O" if CHAINS[i].endswith("O") else ""
        spelled = head + CHAINS[i].removesuffix("O") if head else CHAINS[i]
        rows.append([spelled, i % 3, gain(CHAINS[i])])
    molecules.write("m.csv", rows)
    own = [[chain, i % 3] for i, chain in enumerate(CHAINS)]
    molecules.write("pool.csv", [["chain", "heat"], *own])
    answer = molecules(*OPTIONS, molecules.results, key=None)
    assert "40 rows, 14 of them measured" in answer.said


def test_what_is_no_molecule_is_refused_by_its_line(molecules: Laboratory) -> None:
    rows = [[f"m{i}", chain] for i, chain in enumerate(CHAINS)]
    rows[4][1], rows[9][1] = "solvent", "C(C)(C)(C)(C)C"
    molecules.write("pool.csv", [["id", "chain"], *rows])
    said = molecules.refused(*OPTIONS, molecules.results)
    assert "pool.csv, line 6 (key 'm4'), column 'chain': 'solvent'" in said
    assert "1 more row" in said


def test_a_report_says_that_molecules_count(molecules: Laboratory) -> None:
    page = molecules.folder / "report.html"
    molecules(*OPTIONS, molecules.results, "--report", page)
    assert "depends on the parts of the molecule" in page.read_text(encoding="utf-8")
