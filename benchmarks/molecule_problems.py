"""The tables of `benchmarks.molecules`: fingerprints, and what is to be maximized.

`enumerated` has 10^6 molecules: an amine, an aromatic core and a second aromatic ring
system, joined as by an amination and a coupling. All of them are fragments of the
molecules of `lipophilicity`, cut by the rules of [Degen2008]_; of each kind it has the
100 that occur most often. The target is the estimate of drug-likeness of
[Bickerton2012]_, a geometric mean of eight desirabilities: the best fragments of one
kind depend on the others. It is computed once, and kept in a folder outside of the
repository.

References:
    .. [Bickerton2012]
        G. R. Bickerton, G. V. Paolini, J. Besnard, S. Muresan and A. L. Hopkins.
        Quantifying the chemical beauty of drugs. Nature Chemistry, 2012.
    .. [Degen2008]
        J. Degen, C. Wegscheid-Gerlach, A. Zaliani and M. Rarey. On the art of compiling
        and using 'drug-like' chemical fragment spaces. ChemMedChem, 2008.
"""

import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.paper_problems import text_columns
from botorch_sparse.molecules import morgan_counts
from botorch_sparse.pools import CompactRows
from botorch_sparse.strategies import CandidateTable

SIZE = 2048  # columns of a molecule
FRAGMENTS = 100  # of each kind
# Labels of the cut bonds in [Degen2008]_: amines, and carbon atoms of aromatic rings.
AMINE, AROMATIC = ["5"], ["14", "16"]
PROCESSES = 2
CHUNK = 2_000  # molecules that a process takes at a time
# Ring closures of a core have numbers from here on: its other rings are written inside.
FIRST_CLOSURE = 50
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
CACHE /= "botorch_sparse"


class MoleculeProblem(NamedTuple):
    """Molecules, or sets of them, of which the best is looked for."""

    table: CandidateTable  # whose rows are counts, or bits eight to a byte
    values: NDArray[np.float64]  # `A`, larger is better

    @property
    def blocks(self) -> tuple[int, ...]:
        """Columns of each molecule of a row."""
        return tuple(block.stop - block.start for block in self.table.fingerprints)

    def counts(self, rows: Tensor | slice) -> NDArray[np.uint8]:
        """`n x d` counts or bits of some rows."""
        held = self.table.X
        assert isinstance(held, CompactRows)
        return held.entries(rows).numpy()

    def chunks(self, size: int) -> Iterator[NDArray[np.uint8]]:
        """The counts of all rows, in parts."""
        for start in range(0, len(self.values), size):
            yield self.counts(slice(start, start + size))


@cache
def load_molecules(name: str) -> MoleculeProblem:
    """A problem by its name.

    Raises:
        InputDataError: If its data are not here.
    """
    return PROBLEMS[name]()


def lipophilicity() -> MoleculeProblem:
    """4,200 molecules; how they distribute between octanol and water."""
    columns = text_columns("lipophilicity")
    return of_columns([columns["smiles"]], columns["log_d"])


def dye_lasers() -> MoleculeProblem:
    """Three fragments, 3,458 of their combinations; the peak score of the dye."""
    columns = text_columns("dye_lasers")
    fragments = [columns[f"frag_{letter}"] for letter in "abc"]
    return of_columns(fragments, columns["peak_score"])


def of_columns(
    smiles: Sequence[Sequence[str]], target: Sequence[str]
) -> MoleculeProblem:
    """Counts of one or several columns of molecules."""
    columns = {f"molecule {i}": column for i, column in enumerate(smiles)}
    table = CandidateTable.from_columns(columns, smiles=[*columns])
    return MoleculeProblem(table, np.array(target, dtype=np.float64))


def enumerated() -> MoleculeProblem:
    """10^6 products of fragments, bits; their drug-likeness."""
    start, num = CACHE / f"enumerated_{FRAGMENTS}", FRAGMENTS**3
    bits, values = Path(f"{start}_stereo_{SIZE}.npy"), Path(f"{start}_values.npy")
    if not _are_complete(bits, values):
        smiles = [*products(FRAGMENTS)]
        held = _opened(bits, np.uint8, (num, SIZE // 8))
        compute(smiles, held, _opened(values, float, (num,)))
    table = CandidateTable.of(CompactRows.from_packed(bits, SIZE))
    return MoleculeProblem(table, np.load(values))


def _are_complete(bits: Path, values: Path) -> bool:
    """Whether both files are there, and filled in to the end."""
    if not (bits.is_file() and values.is_file()):
        return False
    return bool(
        np.load(bits, mmap_mode="r")[-1].any() and not np.isnan(np.load(values)).any()
    )


def _opened(path: Path, dtype: type, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array in a file of the cache, to be written; a new one is NaN or 0."""
    if path.is_file():
        return np.load(path, mmap_mode="r+")
    path.parent.mkdir(parents=True, exist_ok=True)
    array = open_memmap(path, "w+", np.dtype(dtype), shape)
    if dtype is float:
        array[:] = np.nan
    return array


def compute(
    smiles: list[str], bits: NDArray[np.uint8], values: NDArray[np.float64]
) -> None:
    """Fill in what is missing, rows of zeros and NaN, by several processes."""
    parts = [slice(i, i + CHUNK) for i in range(0, len(smiles), CHUNK)]
    is_known = ~np.isnan(values) & bits.any(-1)
    todo = [part for part in parts if not is_known[part].all()]
    context = multiprocessing.get_context("spawn")
    with context.Pool(PROCESSES) as pool:
        known = [(smiles[part], values[part].copy()) for part in todo]
        for part, found in zip(todo, pool.imap(_computed, known), strict=True):
            bits[part], values[part] = found


def _computed(
    known: tuple[list[str], NDArray[np.float64]],
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Bits of molecules, and their values where these are NaN."""
    from rdkit.Chem import QED, MolFromSmiles

    smiles, values = known
    for row in np.isnan(values).nonzero()[0]:
        values[row] = QED.qed(MolFromSmiles(smiles[row]))
    return morgan_counts(smiles, size=SIZE, packed=True), values


def products(num: int) -> Iterator[str]:
    """SMILES of all products of `num` amines, cores and ring systems."""
    pieces = fragments(text_columns("lipophilicity")["smiles"])
    amines = [end_text(piece) for piece in pieces if _labels(piece) == AMINE]
    rings, cores = (
        [
            write(piece)
            for piece in pieces
            if len(_labels(piece)) == joints and {*_labels(piece)} <= {*AROMATIC}
        ]
        for joints, write in ((1, end_text), (2, core_text))
    )
    kinds = [[*dict.fromkeys(kind)][:num] for kind in (amines, cores, rings)]
    for amine, core, ring in product(*kinds):
        start, middle, end = core.split("*")
        yield start + amine + middle + ring + end


def fragments(smiles: Sequence[str]) -> list[str]:
    """Fragments by [Degen2008]_, those that occur most often first."""
    from rdkit.Chem import BRICS, GetMolFrags, MolFromSmiles, MolToSmiles

    counts = Counter[str]()
    for text in smiles:
        parts = GetMolFrags(BRICS.BreakBRICSBonds(MolFromSmiles(text)), asMols=True)
        counts.update(map(MolToSmiles, parts))
    return sorted(counts, key=lambda text: (-counts[text], text))


def _labels(piece: str) -> list[str]:
    return re.findall(r"\[(\d+)\*\]", piece)


def end_text(piece: str) -> str:
    """A fragment with one joint, written from there on, without it."""
    return _rooted(piece, at_joint=True).removeprefix("*")


def core_text(piece: str) -> str:
    """A fragment with two joints, `*`, after its first atom."""

    def closure(found: re.Match[str]) -> str:
        return f"%{FIRST_CLOSURE + int(found[0])}" if found[0].isdigit() else found[0]

    return re.sub(r"\[[^\]]*\]|%\d\d|\d", closure, _rooted(piece, at_joint=False))


def _rooted(piece: str, *, at_joint: bool) -> str:
    """A fragment without labels, from its joint on or from the atom beside it."""
    from rdkit.Chem import MolFromSmiles, MolToSmiles

    mol = MolFromSmiles(re.sub(r"\[\d+\*\]", "*", piece))
    joint = next(atom for atom in mol.GetAtoms() if atom.GetAtomicNum() == 0)
    root = joint if at_joint else joint.GetNeighbors()[0]
    return str(MolToSmiles(mol, rootedAtAtom=root.GetIdx()))


PROBLEMS: dict[str, Callable[[], MoleculeProblem]] = {
    "lipophilicity": lipophilicity,
    "dye_lasers": dye_lasers,
    "enumerated": enumerated,
}
