"""Molecules as text: their canonical names and their fingerprints, by RDKit.

`pip install "botorch_sparse[molecules]"` has RDKit. It is imported when a function is
called. Compare fingerprints by `botorch_sparse.kernels.TanimotoKernel`.

The text `none`, which is no SMILES, stands for no molecule, as in a reaction without an
additive: it is its own canonical name, and its fingerprint has no counts.

References:
    .. [Rogers2010]
        D. Rogers and M. Hahn. Extended-connectivity fingerprints. Journal of Chemical
        Information and Modeling, 2010.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from botorch.exceptions import InputDataError
from numpy.typing import NDArray

from botorch_sparse.argument_checks import (
    check_flag,
    check_whole,
    short_list,
    short_repr,
)

__all__ = ["canonical_smiles", "faults_in", "morgan_counts"]

NO_MOLECULE = "none"
MOST_COUNT = 255  # of a fragment: the largest number in one byte
BYTE = 8  # bits


def canonical_smiles(smiles: Sequence[str], label: str = "smiles") -> list[str]:
    """RDKit's canonical SMILES: one text for all spellings of a molecule.

    Args:
        smiles: `A` texts, such as a column of a table.
        label: The column's name, for messages.

    Returns:
        `A` texts. Each different spelling is parsed once.

    Raises:
        InputDataError: If one is empty, no text, or no molecule.
        ImportError: If RDKit is not installed.

    Example:
        >>> canonical_smiles(["OCC", "C(O)C"])
        ['CCO', 'CCO']
    """
    texts = _as_list(smiles, label)
    chem = _rdkit().Chem
    names = {text: chem.MolToSmiles(mol) for text, mol in _checked(texts, label)}
    return [names[text] or NO_MOLECULE for text in texts]


def morgan_counts(
    smiles: Sequence[str],
    *,
    radius: int = 2,
    size: int = 2048,
    packed: bool = False,
    label: str = "smiles",
) -> NDArray[np.uint8]:
    """Morgan fingerprints [Rogers2010]_: how often each kind of neighbourhood occurs.

    Stereoisomers are told apart by the neighbourhoods of their stereocentres.

    Args:
        smiles: `A` texts, such as a column of a table.
        radius: Bonds from an atom to the edge of its neighbourhood, from 0 on.
        size: Number of columns. Neighbourhoods that fall into one are added up.
        packed: Whether to return only which columns are not zero, eight in a byte,
            as `numpy.packbits` has them; `size` is a multiple of 8 then.
        label: The column's name, for messages.

    Returns:
        `A x size` counts, at most 255 each, or `A x size / 8` bytes of bits. Memory:
        O(A size). Each different spelling is parsed once.

    Raises:
        InputDataError: If one is empty, no text, or no molecule; for sizes that are
            none.
        ImportError: If RDKit is not installed.

    Example:
        >>> morgan_counts(["CCO", "c1ccccc1"]).sum(-1).tolist()
        [6, 18]
        >>> left, right = morgan_counts(["C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O"])
        >>> bool((left == right).all())
        False
    """
    check_whole("radius", radius, least=0)
    check_whole("size", size)
    check_flag("packed", packed)
    if packed and size % BYTE:
        raise InputDataError(
            f"Got size={size} with packed=True; need a multiple of {BYTE}."
        )
    generators = _rdkit().Chem.rdFingerprintGenerator
    generator = generators.GetMorganGenerator(
        radius=radius, fpSize=size, includeChirality=True
    )
    texts = _as_list(smiles, label)
    places = reversed([*enumerate(texts)])
    first = {text: row for row, text in places if isinstance(text, str)}
    rows = np.zeros((len(texts), size // BYTE if packed else size), dtype=np.uint8)
    for text, mol in _checked(texts, label):
        if packed:
            found = np.packbits(generator.GetFingerprintAsNumPy(mol))
        else:
            found = generator.GetCountFingerprintAsNumPy(mol).clip(max=MOST_COUNT)
        rows[first[text]] = found
    for row, text in enumerate(texts):
        if first[text] != row:
            rows[row] = rows[first[text]]
    return rows


def faults_in(smiles: Sequence[str]) -> dict[int, str]:
    """Why some texts are no molecules, by their rows; empty where all are.

    Raises:
        ImportError: If RDKit is not installed.

    Example:
        >>> faults_in(["CCO", "solvent", "C(C)(C)(C)(C)C"]).keys()
        dict_keys([1, 2])
    """
    faults = dict[int, str]()
    for _ in _molecules(_as_list(smiles, "smiles"), faults):
        pass
    return faults


def _as_list(smiles: Sequence[str], label: str) -> list[Any]:
    if isinstance(smiles, str) or not isinstance(smiles, Iterable):
        raise InputDataError(f"Got {label}={short_repr(smiles)}; need a list of texts.")
    return list(smiles)


def _checked(texts: list[Any], label: str) -> Iterator[tuple[str, Any]]:
    """The molecule of each different text, in their order; then refuses what is none.

    Raises:
        InputDataError: At the end, with the rows of all that are none.
    """
    faults = dict[int, str]()
    yield from _molecules(texts, faults)
    if faults:
        raise _refusal(faults, label)


def _molecules(texts: list[Any], faults: dict[int, str]) -> Iterator[tuple[str, Any]]:
    """The molecule of each different text; notes the reasons for others by row."""
    seen = dict[Any, str | None]()  # reasons by text, None for molecules
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            faults[row] = f"got {short_repr(text)}"
        elif text not in seen:
            mol, seen[text] = _parsed(text.strip())
            if mol is not None:
                yield text, mol
        if isinstance(text, str) and (reason := seen.get(text)) is not None:
            faults[row] = f"{short_repr(text)} is no molecule ({reason})"


def _parsed(text: str) -> tuple[Any, str | None]:
    """The molecule of a text, or None and the reason why it is none."""
    rdkit = _rdkit()
    chem = rdkit.Chem
    if text == NO_MOLECULE:
        return chem.Mol(), None
    how = chem.SmilesParserParams()
    how.parseName = False
    with rdkit.rdBase.BlockLogs():
        mol = chem.MolFromSmiles(text, how)
        if mol is not None and mol.GetNumAtoms() > 0:
            return mol, None
        how.sanitize = False
        raw = chem.MolFromSmiles(text, how) if mol is None else None
        problems = [] if raw is None else chem.DetectChemistryProblems(raw)
    if problems:
        return None, " ".join(problems[0].Message().split()).rstrip(".")
    if mol is not None:
        return None, "no atoms"
    if len(text.split()) > 1:
        return None, "more text after a blank"
    return None, "RDKit can't read it"


def _refusal(faults: dict[int, str], label: str) -> InputDataError:
    """The error of the first row that holds no molecule, with all other such rows."""
    row, *others = faults
    words = (
        f"In row {row} (from 0), column {label!r}: {faults[row]}; need the SMILES of a "
        f"molecule, or {NO_MOLECULE} for no molecule. Correct it, or leave out the row."
    )
    if others:
        rows = "row fails" if len(others) == 1 else "rows fail"
        words += f" {len(others)} more {rows} as well: {short_list(others)}."
    return InputDataError(words)


def _rdkit() -> Any:
    """RDKit, with the modules that are used here.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        import rdkit
        import rdkit.Chem.rdFingerprintGenerator
        import rdkit.rdBase
    except ImportError as error:
        raise ImportError(
            'Molecules need RDKit: pip install "botorch_sparse[molecules]".'
        ) from error
    return rdkit
