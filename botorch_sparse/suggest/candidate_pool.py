"""The candidates that can be measured: read from their file, and found again."""

import re
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations, product
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from numpy.typing import NDArray

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.command_line.csv_cells import (
    NONE,
    cells_agree,
    is_blank,
    number,
    spelling_difference,
    spelling_form,
)
from botorch_sparse.molecules import canonical_smiles, faults_in
from botorch_sparse.strategies import CandidateTable, RowIndex
from botorch_sparse.suggest.csv_reader import TextTable, read_table
from botorch_sparse.suggest.outcome_options import Outcome, column_names, kind_of
from botorch_sparse.suggest.written_numbers import check_marks, check_one_unit

Cells: TypeAlias = Mapping[str, Sequence[str]]
Matrix: TypeAlias = NDArray[np.float64]
# In so few rows a text of its own in each is no surprise.
MANY_ROWS = 20
# A column of text with so many different texts for each row names the rows.
NAMES_SHARE = 0.9

# What stands for the cell above.
DITTO = frozenset(["dito", "ditto", "idem", "do.", '"', "''", "\u2033", "\u3003"])
# What spreadsheets write for a formula without a value, in some languages.
FORMULA_ERROR = re.compile(r"#[A-Z\u00c4-\u00dc/0]+[!?]|#(N/A|NV|N/D)|Err:\d+")
# Names of lines that spreadsheets put below a table, in small letters alone.
SUMMARIES = frozenset(
    "mean average avg max maximum min minimum sum total subtotal median std stdev "
    "stddev sd rsd sem cv variance standarddeviation standardabweichung stabw "
    "mittelwert mittel durchschnitt summe gesamt gesamtsumme moyenne somme grandtotal "
    "gesamtergebnis ergebnis spec speclimit speclimits specification limit limits lsl "
    "usl \u00f8 \u03c3 \u5e73\u5747 \u5e73\u5747\u5024 \u5408\u8a08 "
    "\u6700\u5927 \u6700\u5c0f \u6a19\u6e96\u504f\u5dee".split()
)
# And of those that count them; a letter alone may be a key among others.
NUM_LINES = re.compile(r"[nN]\s*=\s*\d+|n")


@dataclass(frozen=True, eq=False)
class Pool:
    """The candidates.

    Attributes:
        text: The cells of the file.
        features: `A` numbers or texts of each feature by its name.
        table: The features as a strategy takes them.
        key: The column that names the rows; None if their features do.
        outcomes: What is measured: columns of the results.
        left_out: Why columns of the file are no features, by their names.
        cost: `A` costs of the rows; None if they are all the same.
        cost_column: Where these are from.
        smiles: Features that are molecules, as SMILES.
    """

    text: TextTable
    features: dict[str, Matrix | list[str]]
    table: CandidateTable
    key: str | None
    outcomes: tuple[Outcome, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    cost: Matrix | None = None
    cost_column: str | None = None
    smiles: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def outcome_columns(self) -> list[str]:
        """The columns of the results with the outcomes."""
        return column_names(self.outcomes)

    @cached_property
    def categories(self) -> dict[str, dict[str, int]]:
        """The categories of features of text, numbered in order of appearance."""
        return {
            name: {text: i for i, text in enumerate(dict.fromkeys(values))}
            for name, values in self.features.items()
            if isinstance(values, list)
        }

    @cached_property
    def forms(self) -> dict[str, dict[Hashable, str]]:
        """The categories of features of text by what all their spellings share.

        Without molecules: C1CC1 is another one than c1cc1.
        """
        return {
            name: {spelling_form(kind): kind for kind in kinds}
            for name, kinds in self.categories.items()
            if name not in self.smiles
        }

    @cached_property
    def row_of_key(self) -> dict[str, int]:
        """The row of each key; empty without a key."""
        keys = [] if self.key is None else self.text.columns[self.key]
        return {key: row for row, key in enumerate(keys)}

    @cached_property
    def matrix(self) -> Matrix:
        """The features as `A x p` numbers, and places of categories."""
        parts = [
            values
            if name not in self.categories
            else [self.categories[name][text] for text in values]
            for name, values in self.features.items()
        ]
        return np.array(parts, dtype=np.float64).T

    @cached_property
    def row_index(self) -> RowIndex:
        """The rows by their features."""
        return RowIndex(torch.from_numpy(self.matrix))

    def rows_with(self, points: Matrix) -> list[int]:
        """The first row that equals each of `k x p` points, -1 for none."""
        found = self.row_index.equal(torch.from_numpy(points))
        return [rows[0] if rows else -1 for rows in found]

    @cached_property
    def twins(self) -> list[list[int]]:
        """Rows with the same features under several keys, together. Cost: O(A p)."""
        frame = pd.DataFrame(self.matrix)
        frame = frame[frame.duplicated(keep=False)]
        groups = frame.groupby(list(frame), sort=False).indices.values()
        return [frame.index[places].tolist() for places in groups]

    @cached_property
    def values(self) -> dict[int, tuple[Matrix, NDArray[np.int64]]]:
        """The different numbers in columns of these, by place, and their counts."""
        return {
            i: np.unique(self.matrix[:, i], return_counts=True)
            for i, name in enumerate(self.features)
            if name not in self.categories
        }

    @cached_property
    def _shares(self) -> dict[tuple[int, int], float]:
        return {}

    def share_of_short(self, column: int, decimals: int) -> float:
        """The share of a column's different numbers with so few decimals."""
        place = column, decimals
        if place not in self._shares:
            values, _ = self.values[column]
            is_short = np.round(values, decimals) == values
            self._shares[place] = float(is_short.mean())
        return self._shares[place]

    @cached_property
    def names(self) -> list[str]:
        """Columns that are no features, and have another text in each row."""
        columns = self.text.columns
        return [x for x in self.left_out if len(set(columns[x])) == len(self)]

    def name(self, row: int) -> str:
        """A row in messages: its key, or its number from 1 on, and its line."""
        name = f"line {self.text.lines[row]} of {self.text.name}"
        if self.key is None:
            return f"row {row + 1} ({name})"
        return f"{short_repr(self.text.columns[self.key][row])} ({name})"

    def encode(self, columns: Cells, rows: Iterable[int]) -> tuple[list[int], Matrix]:
        """The rows with all features, of known categories, and a matrix of these.

        Of `k` rows it is `k x p`: numbers, and the places of categories.
        """
        wanted = list(rows)
        parts = []
        for name in self.features:
            cells = columns.get(name)
            read = number
            if name in self.categories:
                read = partial(self._place, name)
            parts.append([None if cells is None else read(cells[i]) for i in wanted])
        Z = np.array(parts, dtype=np.float64).T  # None is NaN
        is_known = ~np.isnan(Z.sum(axis=1))
        return [i for i, known in zip(wanted, is_known, strict=True) if known], Z[
            is_known
        ]

    def _place(self, name: str, cell: str) -> int | None:
        """The place of a category."""
        return self.categories[name].get(self.spelled(name, cell))

    def spelled(self, name: str, cell: str) -> str:
        """A text as the features have it: molecules are one in all their spellings."""
        if name in self.smiles and not faults_in(as_smiles([cell])):
            return canonical_smiles(as_smiles([cell]))[0]
        return cell

    def agrees(self, cell: str, name: str, row: int) -> bool:
        """Whether a cell means a row's feature; a spreadsheet may have rounded it."""
        values = self.features[name]
        if name in self.smiles and isinstance(values, list):
            return self._place(name, cell) == self.categories[name][values[row]]
        return cells_agree(cell, self.text.columns[name][row])

    def unfit(
        self, columns: Cells, i: int, *, any_category: bool = False
    ) -> tuple[str, str] | None:
        """The first feature that row `i` of some cells lacks, and why; or None."""
        for name in self.features:
            if name not in columns:
                return name, "there is no such column"
            cell = columns[name][i]
            kinds = self.categories.get(name)
            if kinds is None and number(cell) is None:
                return name, f"{short_repr(cell)} is no number"
            if name in self.smiles and (fault := faults_in(as_smiles([cell]))):
                return name, fault[0]
            is_known = kinds is None or self._place(name, cell) is not None
            if kinds is not None and not (cell if any_category else is_known):
                known = short_list(kinds)
                return name, f"{short_repr(cell)} is none of its categories, {known}"
        return None

    def has_features(self, columns: Cells, i: int) -> bool:
        """Whether row `i` of some cells has all features, with any categories."""
        return self.unfit(columns, i, any_category=True) is None

    def with_points(self, points: Sequence[Mapping[str, str]]) -> CandidateTable:
        """The table with more rows behind its own, and then without keys."""
        if not points:
            return self.table
        columns: dict[str, Matrix | list[str]] = {}
        for name, values in self.features.items():
            more = [point[name] for point in points]
            if isinstance(values, list):
                known = as_smiles(more) if name in self.smiles else more
                columns[name] = [*values, *known]
            else:
                columns[name] = np.concatenate([values, np.array(more, dtype=float)])
        return _table(columns, self.smiles)


def read_pool(
    path: Path,
    key: str | None,
    outcomes: tuple[Outcome, ...],
    as_text: Sequence[str] = (),
    ignored: Sequence[str] = (),
    *,
    cost: str | None = None,
    decimal: str | None = None,
    smiles: Sequence[str] = (),
) -> Pool:
    """The candidates of a file.

    Columns without any value are no features, nor is text that differs in nearly
    each row, nor the `cost`. Outcomes are columns of the results, and ignored here.

    Raises:
        InputDataError: If the file or the options cannot be used.
    """
    _check_options(key, outcomes, as_text, smiles, ignored, cost)
    unread = {*as_text, *smiles, *ignored, *column_names(outcomes)}
    text = read_table(
        path,
        key=key,
        decimal=decimal,
        unitless=[*as_text, *smiles],
        numeric=[] if cost is None else [cost],
        may_be_dates=lambda column: column not in unread,
        may_have_commas=lambda column: column not in unread,
    )
    if not len(text):
        raise InputDataError(
            f"{text.name} is empty: a header row and candidates are needed."
        )
    text.need([key] if key is not None else [], "the --key")
    text.need([cost] if cost is not None else [], "the --cost")
    text.need(as_text, "which --text names")
    text.need(smiles, "which --smiles names")
    without = {key, cost, *column_names(outcomes), *ignored}
    labels = [name for name in text.columns if name not in without]
    text.check_cells([key, cost, *labels])
    check_summaries(text, [] if key is None else [key], range(len(text)))
    features, left_out = _features(text, labels, [*as_text, *smiles])
    check_molecules(text, smiles)
    features |= {x: canonical_smiles(as_smiles(text.columns[x])) for x in smiles}
    if key is not None:
        text.different(key)
    names = [name for name in text.columns if name not in features]
    check_summaries(text, names if key is None else [], range(len(text)))
    try:
        table = _table(features, smiles)
    except InputDataError as error:
        raise InputDataError(f"{text.name}: {error}") from error
    costs = None if cost is None else _costs(text, cost)
    molecules = tuple(smiles)
    pool = Pool(text, features, table, key, outcomes, left_out, costs, cost, molecules)
    if key is None:
        _check_no_twins(pool)
    return pool


def _check_options(
    key: str | None,
    outcomes: tuple[Outcome, ...],
    as_text: Sequence[str],
    smiles: Sequence[str],
    ignored: Sequence[str],
    cost: str | None,
) -> None:
    """Check that each column has one role."""
    ignore = ("--ignore", ignored)
    text, molecules = ("--text", as_text), ("--smiles", smiles)
    measured: list[tuple[str, Sequence[str]]] = [
        (f"--{kind_of(each)}", [str(each.name)]) for each in outcomes
    ]
    roles = [*measured, text, molecules, ignore]
    named: list[tuple[str, Sequence[str]]] = [
        (f"--{x}", [n]) for x, n in (("key", key), ("cost", cost)) if n is not None
    ]
    pairs = [*combinations(named, 2), *product(named, roles)]
    pairs += [(text, ignore), *product([molecules], [*measured, text, ignore])]
    for (first, names), (second, others) in pairs:
        if both := next((name for name in names if name in others), None):
            raise InputDataError(
                f"Both {first} and {second} name {short_repr(both)}; keep one of them."
            )


def _costs(text: TextTable, column: str) -> Matrix:
    """The costs of all rows, positive."""
    check_marks(text, column)
    check_one_unit(text, column)
    costs = text.numbers(column)
    if not (costs > 0).all():
        row = int((costs <= 0).argmax())
        reason = f"{short_repr(text.columns[column][row])} is no cost; it has to be"
        raise text.error(row, column, f"{reason} above 0.")
    return costs


def as_smiles(cells: Sequence[str]) -> list[str]:
    """Cells with the word for no molecule in small letters."""
    return [NONE if cell.casefold() == NONE else cell for cell in cells]


def check_molecules(text: TextTable, columns: Sequence[str]) -> None:
    """Check that each cell of some columns is a molecule, or the word for none."""
    for column in columns:
        try:
            faults = faults_in(as_smiles(text.columns[column]))
        except ImportError as error:
            raise InputDataError(str(error)) from error
        for row, reason in faults.items():
            more = f" {len(faults) - 1} more rows fail." if len(faults) > 1 else ""
            need = f"need SMILES, or {NONE} where there is no molecule."
            raise text.error(row, column, f"{reason}; {need}{more}")


def _table(
    features: Mapping[str, Sequence[str] | Matrix], smiles: Sequence[str] = ()
) -> CandidateTable:
    with warnings.catch_warnings():  # the report names columns that look odd
        warnings.simplefilter("ignore", InputDataWarning)
        return CandidateTable.from_columns(features, smiles=smiles)


def check_summaries(
    text: TextTable, columns: Iterable[str], rows: Sequence[int]
) -> None:
    """Check that no line sums up the others, such as a mean below a table.

    A word that comes again in its column is a name of something else, and so may be `n`
    among other letters. Spreadsheets write `R10 Total` below the lines of `R10`.

    Args:
        text: The file.
        columns: Those that may have the name of such a line.
        rows: The places of lines that may be one.
    """
    for column in columns:
        cells = text.columns[column]
        known = {*cells}
        for row in rows:
            first, _, last = cells[row].rpartition(" ")
            word = re.sub(r"[(\[].*|[\W_]", "", last if first in known else cells[row])
            is_one = word.lower() in SUMMARIES or bool(NUM_LINES.fullmatch(cells[row]))
            if cells[row] == "n":
                is_one = sum(len(cell) == 1 for cell in known) == 1
            if is_one and cells.count(cells[row]) == 1:
                reason = (
                    f"{short_repr(cells[row])} looks like a summary of other lines; "
                    "take the line out, or give it another name if it is none."
                )
                raise text.error(row, column, reason)


def _features(
    text: TextTable, labels: Sequence[str], as_text: Sequence[str]
) -> tuple[dict[str, Matrix | list[str]], dict[str, str]]:
    """Features as numbers or text, and why other columns are none, by name."""
    features: dict[str, Matrix | list[str]] = {}
    left_out: dict[str, str] = {}
    for name in labels:
        if name in as_text:
            features[name] = text.values(name, is_text=True)
        elif all(map(is_blank, text.columns[name])):
            left_out[name] = "has no value in any row"
        elif name_rows(values := _values(text, name)):
            left_out[name] = (
                f"has {len(set(values))} different texts in {len(text)} rows, the "
                f"first {short_repr(values[0])}, and a model learns nothing from them. "
                "Write numbers (for dates, days), or keep it with --text "
                f"{short_repr(name)}"
            )
        else:
            _check_spelling(text, name, values)
            features[name] = values
    if left_out and not features:
        name, reason = next(iter(left_out.items()))
        raise InputDataError(
            f"{text.name} has no column to learn from: {short_repr(name)} {reason}."
        )
    return features, left_out


def _values(text: TextTable, name: str) -> Matrix | list[str]:
    """The cells of a feature as numbers or texts, whose numbers are written alike."""
    check_marks(text, name)
    check_one_unit(text, name, may_be_text=True)
    return text.values(name)


def _check_spelling(text: TextTable, name: str, values: Matrix | list[str]) -> None:
    """Check that no category of a column is written in two ways."""
    if not isinstance(values, list):
        return
    seen: dict[Hashable, str] = {}
    for kind in dict.fromkeys(values):
        if kind.casefold() in DITTO:
            reason = f"{short_repr(kind)} stands for the cell above; write it out."
            raise text.error(values.index(kind), name, reason)
        if FORMULA_ERROR.fullmatch(kind):
            reason = f"{short_repr(kind)} is the error of a formula; write the value."
            raise text.error(values.index(kind), name, reason)
        if (other := seen.setdefault(spelling_form(kind), kind)) != kind:
            line = text.lines[values.index(other)]
            in_what = spelling_difference(kind, other)
            reason = (
                f"{short_repr(kind)} is {short_repr(other)} in line {line}{in_what}: "
                "are they one? Then write both alike; if not, keep them as two with "
                f"--text {short_repr(name)}."
            )
            raise text.error(values.index(kind), name, reason)


def name_rows(values: Sequence[str] | Matrix) -> bool:
    """Whether the values of a column are text, and nearly each row has another."""
    if not isinstance(values, list) or len(values) <= MANY_ROWS:
        return False
    return len(set(values)) >= NAMES_SHARE * len(values)


def _check_no_twins(pool: Pool) -> None:
    """Check that no two rows have the same features."""
    text, before = pool.text, pool.rows_with(pool.matrix)
    row = next((i for i, j in enumerate(before) if i != j), None)
    if row is None:
        return
    twin = before[row]
    name = f", as --key {short_repr(pool.names[0])}" if pool.names else ""
    raise InputDataError(
        f"{text.name}, lines {text.lines[twin]} and {text.lines[row]}: the two rows "
        f"have the same features; leave one out, or name rows by a --key{name}."
    )
