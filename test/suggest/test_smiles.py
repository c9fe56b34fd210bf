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


def test_molecules_are_one_in_any_spelling_under_a_key(lab: Laboratory) -> None:
    lab.write("pool.csv", "id,m|1,CCO|2,C1=CC=CC=C1|3,CCC|4,C1CCCCC1|5,CC(=O)O")
    told = lab.write("m.csv", "id,m,loss|1,OCC,50|2,c1ccccc1,40|old,OC(C)=O,3")
    answer = lab("--results", told, "--smiles", "m")
    assert "5 rows, 3 of them measured" in answer.said
    assert sorted(answer.ids) == ["3", "4"]
    told = lab.write("m.csv", "id,m,loss|1,OCC,50|4,c1ccccc1,40")
    line = lab.refused("--results", told, "--smiles", "m")
    assert "'c1ccccc1' is not 'C1CCCCC1', which line 5" in line
    told = lab.write("m.csv", "id,m,loss|1,OCC,50|old,c1ccccn1,40|older,C1CCCCO1,4")
    answer = lab("--results", told, "--smiles", "m")
    assert "5 rows, 1 of them measured, 2 results beside it" in answer.said
    told = lab.write("m.csv", "id,m,loss|1,OCC,50|old,solvent,40")
    line = lab.refused("--results", told, "--smiles", "m")
    assert "'old'" in line and "'solvent' is no molecule" in line
    told = lab.write("m.csv", "m,loss|OCC,50|solvent,40")
    lab.write("pool.csv", "m|CCO|CCC|CCN")
    line = lab.refused("--results", told, "--smiles", "m", key=None)
    assert "line 3, column 'm': 'solvent' is no molecule" in line


def test_aromatic_rings_are_other_molecules_than_saturated_ones(
    lab: Laboratory,
) -> None:
    """Although their letters are the same but for case."""
    lab.write("pool.csv", "id,m|1,CCO|2,c1ccccc1|3,CCC")
    told = lab.write("m.csv", "id,m,loss|1,CCO,50|old,C1CCCCC1,40")
    answer = lab("--results", told, "--smiles", "m")
    assert "1 of them measured, 1 results beside it" in answer.said


def test_a_molecule_may_be_missing(lab: Laboratory) -> None:
    """As an additive: an empty cell is refused, and the word that it names is taken."""
    options = ("--smiles", "m", "--smiles", "add")
    pool = "id,m,add|1,CCO,{0}|2,CCN,CCS|3,CCC,{0}|4,CCCl,CCS|5,CCC,CS"
    lab.write("pool.csv", pool.format(""))
    line = lab.refused(*options)
    assert "line 2 (key '1'), column 'add': the cell is empty" in line
    assert "fill it in (where cells are text, by a word such as none)" in line
    lab.write("pool.csv", pool.format("no"))
    assert "need SMILES, or none where there is no molecule." in lab.refused(*options)
    lab.write("pool.csv", pool.format("None"))
    told = "id,m,add,loss|1,OCC,none,5|2,CCN,CCS,4|old,CCBr,NONE,3|copy,CCC,none,2"
    answer = lab("--results", lab.write("m.csv", told), *options)
    assert "read: 'add': 3 molecules, 'none', 'CCS', 'CS'." in answer.said
    assert "3 of them measured, 1 results beside it" in answer.said
    assert sorted(answer.ids) == ["4", "5"]


def test_rows_that_wait_are_the_same_in_another_spelling(lab: Laboratory) -> None:
    options = ("--smiles", "m", "--state", lab.state, "--batch", 9)
    lab.write("pool.csv", "id,m|1,CCO|2,C1CCCCC1")
    assert sorted(lab(*options).ids) == ["1", "2"]
    lab.write("pool.csv", "id,m|1,OCC|2,C1CCCCC1|3,CCC")
    assert lab(*options).ids == ["3"]
    lab.write("pool.csv", "id,m|1,OCC|2,c1ccccc1|3,CCC")
    assert "another row with the key of '2'" in lab.refused(*options)


def test_excluded_in_any_spelling(molecules: Laboratory) -> None:
    """Both spellings of a molecule are out, whichever of them is named."""
    rows = [["id", "chain"], ["a", "CCO"], ["b", "OCC"], ["c", "CCN"], ["d", "CCCl"]]
    molecules.write("pool.csv", rows)
    for spelled in ("OCC", "C(C)O"):
        answer = molecules("--smiles", "chain", "--exclude", f"chain={spelled}")
        assert sorted(answer.ids) == ["c", "d"]
    refusal = molecules.refused("--smiles", "chain", "--exclude", "chain=CCBr")
    assert "names 'CCBr', which is not in column 'chain'" in refusal


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--smiles", "id"), "Both --key and --smiles name 'id'"),
        (("--smiles", "loss"), "Both --smiles and --target name 'loss'"),
        (("--smiles", "chain", "--text", "chain"), "Both --smiles and --text name"),
        (("--smiles", "chain", "--ignore", "chain"), "Both --smiles and --ignore name"),
    ],
)
def test_a_column_has_one_role(
    molecules: Laboratory, words: tuple[str, ...], message: str
) -> None:
    assert message in molecules.refused(*words)
