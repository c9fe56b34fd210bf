"""Rows that may not be measured now: `--exclude solvent=water`, `"temperature>80"`."""

import operator
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from botorch.exceptions import InputDataError
from numpy.typing import NDArray

from botorch_sparse.argument_checks import near_hint, short_list, short_repr
from botorch_sparse.command_line.csv_cells import (
    days_of,
    floats_of,
    number,
    unit_of,
    with_minus,
    with_point,
    without_unit,
)
from botorch_sparse.suggest.candidate_pool import Pool
from botorch_sparse.suggest.csv_reader import BY_THOUSANDS
from botorch_sparse.suggest.written_numbers import named_unit

MARK = re.compile(r"<=|>=|!=|=|<|>")
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


def excluded_rows(
    pool: Pool, conditions: Sequence[str], decimal: str | None
) -> dict[str, list[int]]:
    """The rows of the pool that each condition holds for, ascending.

    A condition is a column of the candidates, a mark and a value. Numbers are compared
    as numbers, texts by `=` and `!=` alone.

    Raises:
        InputDataError: If a condition cannot be read, or no row has its value.
    """
    holds = {each: _rows_of(pool, each, decimal) for each in conditions}
    if holds and np.any([*holds.values()], axis=0).all():
        raise InputDataError("--exclude leaves no row; take one of its conditions out.")
    return {each: np.flatnonzero(rows).tolist() for each, rows in holds.items()}


def repeated_rows(
    pool: Pool, known: Collection[int], excluded: Collection[int]
) -> list[int]:
    """Rows whose features a row has that is known, or that can be proposed for them.

    Of rows with the same features the cheapest one can be proposed, and of these the
    first; none if one is `known`, as it was measured, failed or waits for a result.
    """
    repeated = []
    for rows in pool.twins:
        free = [row for row in rows if row not in known and row not in excluded]
        if free and not any(row in known for row in rows):
            best = 0 if pool.cost is None else int(pool.cost[free].argmin())
            del free[best]
        repeated += free
    return repeated


def _rows_of(pool: Pool, condition: str, decimal: str | None) -> NDArray[np.bool_]:
    column, mark, text = _read(pool, condition)
    what, compare = f"--exclude: {short_repr(condition)}", COMPARED[mark]
    values = pool.features.get(column)
    if values is None and column != pool.key:  # left out, or the cost
        values = floats_of(pool.text.columns[column])
    if isinstance(values, np.ndarray):
        value = _value(pool, column, text, what, decimal)
        holds: NDArray[np.bool_] = compare(values, value)
        if not holds.any() and mark == "=":
            raise InputDataError(
                f"{what} is true of no row: column {short_repr(column)} is from "
                f"{values.min():g} to {values.max():g}, without this number."
            )
        return holds
    if mark not in ("=", "!="):
        raise InputDataError(
            f"{what} compares texts of column {short_repr(column)}; write = or != for "
            "these, once for each."
        )
    cells = pool.text.columns[column]
    text = without_unit(text) if column in pool.text.units else text
    if column in pool.smiles and isinstance(values, list):
        cells, text = values, pool.spelled(column, text)
    if text not in cells:
        known = dict.fromkeys(cells)
        raise InputDataError(
            f"{what} names {short_repr(text)}, which is not in column "
            f"{short_repr(column)}; it has {short_list(known)}.{near_hint(text, known)}"
        )
    return np.array([compare(cell, text) for cell in cells], dtype=bool)


def _value(pool: Pool, column: str, text: str, what: str, decimal: str | None) -> float:
    """The number of a condition, in the unit of the column; of a date its day."""
    own, unit = pool.text.units.get(column) or named_unit(column), unit_of(text)
    if own and unit and unit != own:
        raise InputDataError(
            f"{what} is in {short_repr(unit)}, and column {short_repr(column)} in "
            f"{short_repr(own)}; write the number in {short_repr(own)}."
        )
    is_date = column in pool.text.dates
    if is_date and (days := days_of([text])) is not None:
        return float(days[0])
    cell = with_minus(without_unit(text) if own else text)
    is_clear = column in pool.text.commas and not BY_THOUSANDS.fullmatch(cell)
    value = number(with_point(cell) if decimal == "," or is_clear else cell)
    if value is None:
        kinds = ("dates", "date; write it as 2026-01-31")
        kind, other = kinds if is_date else ("numbers", "number")
        raise InputDataError(
            f"{what} compares the {kind} of column {short_repr(column)} with "
            f"{short_repr(text)}, which is no {other}."
        )
    return value


def _read(pool: Pool, condition: str) -> tuple[str, str, str]:
    """The column, the mark and the value; names of columns may hold marks."""
    parts = [
        (condition[: found.start()].strip(), found[0], condition[found.end() :].strip())
        for found in MARK.finditer(condition)
    ]
    for column, mark, value in parts:
        if column in pool.text.columns and value:
            return column, mark, value
    if parts and all(parts[0]):
        pool.text.need([parts[0][0]], "which --exclude names")
    raise InputDataError(
        f"--exclude: {short_repr(condition)} cannot be read; write COLUMN=VALUE, or "
        '"COLUMN>NUMBER" in quotes.'
    )
