"""Names and fingerprints of molecules are RDKit's, and what is no molecule is named."""

import builtins
import sys
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError

pytest.importorskip("rdkit")

from rdkit import Chem
from rdkit.Chem import AllChem

from botorch_sparse.kernels import TanimotoKernel
from botorch_sparse.molecules import canonical_smiles, faults_in, morgan_counts

SMILES = [
    "CCO",
    "c1ccccc1C(=O)O",
    "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "[Na+].[Cl-]",
    "OCC",
    "N[C@@H](C)C(=O)O",
    "CCO",
    "C" * 300,
]


def counts_of(text: str, radius: int, size: int) -> np.ndarray:
    """One molecule's counts, by RDKit's older function."""
    found = AllChem.GetHashedMorganFingerprint(
        Chem.MolFromSmiles(text), radius, nBits=size, useChirality=True
    )
    counts = np.zeros(size, dtype=int)
    for place, number in found.GetNonzeroElements().items():
        counts[place] = min(number, 255)
    return counts


@pytest.mark.parametrize("radius, size", [(2, 2048), (3, 64), (0, 10)])
def test_counts_are_rdkits_of_each_molecule(radius, size):
    counts = morgan_counts(SMILES, radius=radius, size=size)
    assert counts.dtype == np.uint8 and counts.shape == (len(SMILES), size)
    expected = [counts_of(text, radius, size) for text in SMILES]
    np.testing.assert_array_equal(counts, expected)
    assert counts.max() == 255  # of 298 equal neighbourhoods in the chain


@pytest.mark.parametrize("size", [2048, 64])
def test_packed_bits_say_which_counts_are_not_zero(size):
    packed = morgan_counts(SMILES, size=size, packed=True)
    assert packed.dtype == np.uint8 and packed.shape == (len(SMILES), size // 8)
    expected = np.packbits(morgan_counts(SMILES, size=size) > 0, axis=-1)
    np.testing.assert_array_equal(packed, expected)


def test_two_spellings_are_one_molecule():
    names = canonical_smiles(["OCC", "C(O)C", " CCO ", "C1=CC=CC=C1", "c1ccccc1"])
    assert names == ["CCO"] * 3 + ["c1ccccc1"] * 2
    assert names == [Chem.CanonSmiles(name) for name in names]
    same = torch.from_numpy(morgan_counts(["OCC", "C(O)C"])).double()
    assert TanimotoKernel()(same).to_dense().min() == 1.0


def test_mirror_images_have_different_names():
    left, right = canonical_smiles(["N[C@@H](C)C(=O)O", "N[C@H](C)C(=O)O"])
    assert left != right


def test_each_different_text_is_parsed_once(monkeypatch):
    seen = []
    parse = Chem.MolFromSmiles

    def counted(text: str, *options: Any) -> Any:
        seen.append(text)
        return parse(text, *options)

    monkeypatch.setattr(Chem, "MolFromSmiles", counted)
    morgan_counts(["CC", "CO", "CC", "CC"])
    canonical_smiles(["CC", "CO", "CC", "CC"])
    assert seen == ["CC", "CO"] * 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("C1CC", r"'C1CC' is no molecule \(RDKit can't read it\)"),
        ("", "got ''"),
        (" \t", r"got ' \\t'"),
        (None, "got None"),
        (float("nan"), "got nan"),
        (7, "got 7"),
        ("|$$|", r"'\|\$\$\|' is no molecule"),
        ("CC aspirin", r"'CC aspirin' is no molecule \(more text after a blank\)"),
        (
            "CN(C)(C)(C)C",
            r"no molecule \(Explicit valence for atom # 1 N, 5, is greater than "
            r"permitted\)",
        ),
        ("c1cccc1", r"no molecule \(Can't kekulize mol. Unkekulized atoms: 0 1 2 3 4"),
        ("x" * 200, r"'x{57}\.\.\.' is no molecule"),
    ],
)
@pytest.mark.parametrize("read", [canonical_smiles, morgan_counts])
def test_what_is_no_molecule_is_shown_with_its_row(read, text, shown, capfd):
    where = rf"^In row 1 \(from 0\), column 'drug': .*{shown}"
    with pytest.raises(InputDataError, match=where) as caught:
        read(["CC", text, "CO"], label="drug")
    assert str(caught.value).endswith("Correct it, or leave out the row.")
    assert capfd.readouterr().err == ""  # of RDKit's log


def test_text_that_extends_smiles_is_read():
    assert canonical_smiles(["CCO |$;;a$|"]) == ["CCO"]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (["C1"], r"1 more row fails as well: 4\.$"),
        ([None, "CC", "C1", "C1"], r"3 more rows fail as well: 4, 6, 7\.$"),
        (["C1"] * 8, r"8 more rows fail as well: 4, 5, 6, 7, 8 and 3 more\.$"),
    ],
)
def test_other_rows_that_fail_are_named_too(others, said):
    with pytest.raises(InputDataError, match=rf"^In row 3 .*'C1'.*{said}"):
        canonical_smiles(["CC", "CO", "CC", "C1", *others])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"radius": -1}, "radius=-1"),
        ({"size": 0}, "size=0"),
        ({"size": 2.5}, "size=2.5"),
        ({"packed": 1}, "packed=1"),
        ({"packed": True, "size": 100}, "size=100 with packed=True; need a multiple"),
    ],
)
def test_sizes_that_are_none_are_refused(options, match):
    with pytest.raises(InputDataError, match=match):
        morgan_counts(["CC"], **options)


@pytest.mark.parametrize("given", ["CCO", 5, None])
def test_one_text_is_no_list(given):
    with pytest.raises(InputDataError, match="need a list of texts"):
        canonical_smiles(given)


def test_no_molecules_have_no_rows():
    assert canonical_smiles([]) == []
    assert morgan_counts([], size=16).shape == (0, 16)


@pytest.mark.parametrize("read", [canonical_smiles, morgan_counts])
def test_without_rdkit_it_says_what_to_install(read, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "rdkit"]:
        monkeypatch.delitem(sys.modules, name)
    original = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "rdkit":
            raise ModuleNotFoundError("No module named 'rdkit'", name="rdkit")
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    need = r'Molecules need RDKit: pip install "botorch_sparse\[molecules\]"'
    with pytest.raises(ImportError, match=need):
        read(["CC"])


def test_the_word_none_is_no_molecule():
    """Its fingerprint has no counts; two such are equal, and like no molecule."""
    assert canonical_smiles(["none", "OCC"]) == ["none", "CCO"]
    assert faults_in(["none", "None", ""]).keys() == {1, 2}
    counts = morgan_counts(["none", "CCO", "none"])
    assert not counts[[0, 2]].any() and counts[1].any()
    assert not morgan_counts(["none"], packed=True).any()
    K = TanimotoKernel()(torch.from_numpy(counts).double()).to_dense()
    expected = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    torch.testing.assert_close(K, expected.double())


@pytest.mark.parametrize(
    "pair",
    [("C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O"), ("C/C=C/CO", "C/C=C\\CO")],
)
def test_stereoisomers_are_told_apart(pair: tuple[str, str]) -> None:
    """They have most of their neighbourhoods in common, but not all."""
    counts = torch.from_numpy(morgan_counts(pair)).double()
    alike = TanimotoKernel()(counts).to_dense()[0, 1]
    assert 0.3 < alike < 1.0
