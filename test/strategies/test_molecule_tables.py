"""Tables of molecules: named, encoded, and learned from."""

import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import MaternKernel

pytest.importorskip("rdkit")

from botorch_sparse.kernels import TanimotoKernel
from botorch_sparse.molecules import canonical_smiles, morgan_counts
from botorch_sparse.pools.compact_rows import CompactRows
from botorch_sparse.strategies import BBKB, CandidateTable, ThompsonSampling
from botorch_sparse.strategies.data.candidate_table import points_frame

# Chains and rings with a head: the target counts carbons of the tail.
HEADS = ["O", "N", "Cl", "c1ccccc1", "C(=O)O", "S", "Br", "C#N"]
SMILES = ["C" * size + head for size in range(1, 13) for head in HEADS]
SIZES = torch.tensor([size for size in range(1, 13) for _ in HEADS]).double()


def test_results_name_molecules_in_any_spelling() -> None:
    """In a column, as a file has it: they are keys and features at once."""
    pd = pytest.importorskip("pandas")
    table = CandidateTable.from_smiles(["C", "CCO", "CCN"])
    strategy = ThompsonSampling(table)
    strategy.tell(pd.DataFrame({"smiles": ["OCC", "C"]}), [1.0, 2.0])
    strategy.tell(["CCN"], [3.0])
    assert strategy.history.indices.tolist() == [1, 0, 2]
    assert strategy.history.to_frame().index.tolist() == ["CCO", "C", "CCN"]


def test_rows_have_canonical_names_and_counts() -> None:
    spelled = ["OCC", "C(Cl)C", "c1ccccc1"]
    table = CandidateTable.from_smiles(spelled)
    assert table.keys == ("CCO", "CCCl", "c1ccccc1")
    assert table.key_names == ("smiles",)
    assert isinstance(table.X, CompactRows) and table.X.shape == (3, 2048)
    np.testing.assert_array_equal(table.X[:].numpy(), morgan_counts(spelled))
    assert table.rows(["CCCl"]).tolist() == [1]
    assert torch.equal(table.encode({"smiles": ["CCO"]}), table.X[:1])
    assert table.fingerprints == (slice(0, 2048),)


def test_reactions_with_other_features() -> None:
    pandas = pytest.importorskip("pandas")
    acids, amines = ["CC(=O)O", "OC(=O)CC"], ["NC", "NCC"]
    table = CandidateTable.from_smiles(
        {"acid": acids, "amine": amines}, {"heat": [20, 60], "base": ["K", "Na"]}
    )
    assert table.keys == (("CC(=O)O", "CN"), ("CCC(=O)O", "CCN"))
    assert table.X.dtype == torch.float64 and table.X.shape == (2, 2 * 2048 + 3)
    assert table.X[:, 4096].tolist() == [20.0, 60.0]
    np.testing.assert_array_equal(table.X[:, 2048:4096], morgan_counts(amines))
    assert table.fingerprints == (slice(0, 2048), slice(2048, 4096))
    frame = table.frame(torch.tensor([1]))
    assert frame.index.tolist() == [("CCC(=O)O", "CCN")]
    assert frame.columns.tolist() == ["heat", "base"]
    assert frame.iloc[0].tolist() == [60, "Na"]
    assert isinstance(frame, pandas.DataFrame)


def test_a_frame_has_the_molecules_as_they_were_written() -> None:
    """Where another column names the rows; those beside the table have none."""
    table = CandidateTable.from_columns(
        {"id": ["a", "b"], "molecule": ["OCC", "CCN"], "heat": [20, 60]},
        key="id",
        smiles=["molecule"],
    )
    frame = table.frame(torch.tensor([1, 0]))
    assert frame["molecule"].tolist() == ["CCN", "OCC"]
    assert frame.columns.tolist() == ["molecule", "heat"]
    rows = torch.tensor([0, -1])
    beside = points_frame(table.X[[0, 1]], rows, table)
    assert beside["molecule"].isna().tolist() == [False, True]
    assert beside.index.tolist() == ["a", None]
    same = table.in_columns_of(table)
    assert torch.equal(same.X, table.X)


def test_refuses_what_is_no_molecule_and_molecules_twice() -> None:
    with pytest.raises(InputDataError, match=r"row 1 \(from 0\), column 'smiles'"):
        CandidateTable.from_smiles(["CCO", "solvent"])
    with pytest.raises(InputDataError, match=r"'CCO'.* come more than once"):
        CandidateTable.from_smiles(["CCO", "OCC"])
    with pytest.raises(InputDataError, match="as many in each"):
        CandidateTable.from_smiles({"a": ["CCO", "C"], "b": ["CCO"]})
    with pytest.raises(InputDataError, match="'a' are in smiles and in columns; need"):
        CandidateTable.from_smiles({"a": ["C", "O"]}, {"a": ["CCO", "CCN"]})


def test_a_molecule_with_other_features_has_a_row_of_its_own() -> None:
    """The error says by which name; rows have no keys there."""
    columns = {"a": ["CC", "CC"], "h": [1, 2]}
    match = r"molecules 'CC' come.*from_columns\(columns, smiles=\['a'\]\)"
    with pytest.raises(InputDataError, match=match):
        CandidateTable.from_smiles({"a": columns["a"]}, {"h": columns["h"]})
    table = CandidateTable.from_columns(columns, smiles=["a"])
    assert table.X.shape == (2, 2049) and table.keys is None


def test_a_frame_of_molecules_is_read_by_its_columns() -> None:
    pd = pytest.importorskip("pandas")
    molecules, heat = {"a": ["C", "O"], "b": ["CC", "CCC"]}, {"heat": [20, 30]}
    table = CandidateTable.from_smiles(
        pd.DataFrame(molecules, index=["x", "y"]), pd.DataFrame(heat)
    )
    known = CandidateTable.from_smiles(molecules, heat)
    assert table.keys == known.keys == (("C", "CC"), ("O", "CCC"))
    assert table.feature_names == known.feature_names
    assert torch.equal(table.X[:], known.X[:])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("build", [ThompsonSampling, BBKB])
def test_finds_the_best_molecule(build: type) -> None:
    """The kernel is Tanimoto's, the rest is learned."""
    table = CandidateTable.from_smiles(SMILES)
    values = dict(zip(table.keys, SIZES.tolist(), strict=True))
    strategy = build(table, batch_size=4, seed=0)
    for _ in range(8):
        batch = strategy.ask(4)
        strategy.tell(batch, [values[key] for key in batch.keys])
    assert float(strategy.history.best().value) >= 11
    assert strategy.history.best().key in values
    kernel = strategy.surrogate.view.prior.covar_module.base_kernel
    assert type(kernel) is TanimotoKernel and not list(kernel.parameters())


def test_a_reaction_has_a_weight_for_each_molecule() -> None:
    """One that does not matter is found; other features have lengthscales."""
    heads = [a for a in HEADS for _ in HEADS]
    tails = ["CCCC" + b for _ in HEADS for b in HEADS]
    heat = torch.linspace(0, 1, 64).flip(0)
    chains = ["CC" + head for head in heads]
    table = CandidateTable.from_smiles({"a": chains, "b": tails}, {"heat": heat})
    effect = torch.tensor([HEADS.index(head) for head in heads]).double().sin()
    Y = 3 * effect + 0.01 * heat
    strategy = ThompsonSampling(table, seed=0)
    rows = torch.randperm(64, generator=torch.Generator().manual_seed(0))[:50]
    strategy.tell(table.X[rows], Y[rows])
    modules = [*strategy.surrogate.view.prior.covar_module.modules()]
    weights = next(m for m in modules if isinstance(m, TanimotoKernel)).weight
    lengthscale = next(m for m in modules if isinstance(m, MaternKernel)).lengthscale
    assert weights[0] > 0.5 > weights[1] and lengthscale > 0.3
    left = sorted({*range(64)} - {*rows.tolist()})
    mean, _ = strategy.predict(table.X[left])
    assert torch.corrcoef(torch.stack([mean, Y[left]]))[0, 1] > 0.9


def test_names_are_those_of_rdkit() -> None:
    table = CandidateTable.from_smiles(SMILES)
    assert [*table.keys] == canonical_smiles(SMILES)
