"""One category in two spellings, and columns that may mean something else."""

from datetime import datetime, time

import pytest
from laboratory import Laboratory, lines

pytest.importorskip("pandas")

from botorch_sparse.command_line.csv_cells import cells_agree, spelling_form

# Spellings of one text, and what is said of their difference.
SPELLINGS = [
    ("THF", "thf", ""),
    ("Pd  1", "Pd 1", " but for blanks"),
    ("D\u041cF", "DMF", " but for signs that look alike (U+041C, U+004D)"),
    ("Pd(OAc)\u2082", "Pd(OAc)2", "alike (U+2082, U+0032)"),
    ("Ni\u20131", "Ni-1", "alike (U+2013, U+002D)"),
    ("Pd \u03bc", "Pd \u00b5", "alike (U+03BC, U+00B5)"),
]


@pytest.mark.parametrize(("cell", "other", "difference"), SPELLINGS)
def test_one_category_in_two_spellings(
    lab: Laboratory, cell: str, other: str, difference: str
) -> None:
    """Refused within the list, and in results that go by their features."""
    assert spelling_form(cell) == spelling_form(other) and cells_agree(cell, other)
    pool = lines("id,s,x", "c{0}," + other + ",{0}", 9)
    lab.write("pool.csv", f"{pool}|d,{cell},3|e,oil,4")
    line = lab.refused()
    assert "line 11 (key 'd'), column 's': '" in line and "in line 2" in line
    assert f"{difference}: are they one?" in line
    assert "read: 's': 3 categories" in lab("--text", "s").said
    lab.write("pool.csv", f"{pool}|e,oil,4")
    for key, header, row in (
        (None, "s,x,loss", f"oil,4,1|{cell},3,1"),
        ("id", "id,s,x,loss", f"e,oil,4,1|gone,{cell},99,1"),
    ):
        told = lab.write("m.csv", f"{header}|{row}")
        words = ["--ignore", "id"] * (key is None)
        line = lab.refused("--results", told, *words, key=key)
        assert "m.csv, line 3" in line and f"{difference}; write it as there" in line
    told = lab.write("m.csv", f"id,s,loss|c3,{cell},1")
    assert "1 of them measured" in lab("--results", told).said


def test_numbers_that_are_texts_are_compared_as_numbers(lab: Laboratory) -> None:
    lab.write("pool.csv", "s,x|2,1|3,2|2,4")
    told = lab.write("m.csv", "s,x,loss|3,2,1|2.0,9,1")
    line = lab.refused("--results", told, "--text", "s", key=None)
    assert f"'2.0' is '2' in {lab.pool} as a number; write it as there" in line


def test_texts_that_differ_are_two(lab: Laboratory) -> None:
    assert spelling_form("Pd2") != spelling_form("Pd1")
    lab.write("pool.csv", "id,s|a,C\u2082|b,C1|c,\u0411|d,B")
    assert "read: 's': 4 categories" in lab().said


def test_numbers_in_several_units_are_named(lab: Laboratory) -> None:
    lab.write("pool.csv", "id,T|a,353 K|b,80 °C|c,25 °C|d,298 K")
    note = "numbers in column 'T' have different units, 'K', '°C'; the column was"
    assert note in lab().said and note not in lab("--text", "T").said
    for cells in (
        "1a|b,1b|c,2a|d,2b",
        "oil|b,1 K|c,ale|d,2 °C",
        "oil|b,ale|c,2 °C|d,x",
    ):
        lab.write("pool.csv", f"id,T|a,{cells}")
        assert "different units" not in lab().said


@pytest.mark.parametrize(
    ("name", "cells", "is_code"),
    [
        ("Catalyst", [1, 2, 3], True),
        ("solvents", [0, 1, 2], True),
        ("equivalents", [1, 2, 3], False),
        ("catalyst loading", [1, 2, 3], False),
        ("base", [1, 2, 4], False),
        ("base", [0, 1, 1], False),
        ("base", [2, 3, 4], False),
    ],
)
def test_numbers_that_may_be_codes_are_named(
    lab: Laboratory, name: str, cells: list[int], is_code: bool
) -> None:
    rows = [[f"c{i}", cell, i] for i, cell in enumerate(cells)]
    lab.write("pool.csv", [["id", name, "x"], *rows])
    note = f"column '{name}' is taken as a number. If its numbers are codes"
    assert (note in lab().said) == is_code and note not in lab("--text", name).said


def test_results_in_another_unit_are_named(lab: Laboratory) -> None:
    """Where none of them is in the list: all of a number lie above it, or below."""
    lab.write("pool.csv", lines("T,x", "{0}5,{0}", 9, 1))
    told = lab.write("m.csv", "T,x,loss|288,1,1|298,2,2|308,3,3")
    said = lab("--results", told, key=None).said
    assert "none of the 3 results is in" in said
    assert "'T' is from 288 to 308 in the results, and from 15 to 95 there. Is" in said
    for rows in ("288,1,1|298,2,2|15,1,3", "288,1,1", "94,1,1|288,2,2"):
        told = lab.write("m.csv", f"T,x,loss|{rows}")
        assert "none of the" not in lab("--results", told, key=None).said


UNITS, TOTAL = (
    "the line looks like one of units",
    "the line looks like a total or a rem",
)
# Lists with a line that is no candidate, or an empty cell, and what is said of it.
EMPTY = [
    ("id,s,T|,,°C|a,x,1|b,y,2", f"line 2 (key ''), column 's': {{}}, and {UNITS}"),
    ("id,s,T,n,m|a,x,1,1,1|S,,,,3", f"line 3 (key 'S'), column 's': {{}}, and {TOTAL}"),
    (
        "id,s,T|S,,|a,x,1|b,y,2",
        "line 2 (key 'S'), column 's': the line has 'S' alone, as",
    ),
    ("id,s,T|1,,|2,x,1|3,y,2", "line 2 (key '1'), column 's': {}, as are 1 of 3"),
    (
        "id,s,T|a,x,1|b,,2|c,y,1|d,,2",
        "(by the value above it, if it means that, as cel",
    ),
    ("id,s,T|a,x,1|b,,2|c,x,1|d,,2", "are 2 of 4 of the column; fill it in (where ce"),
    ("id,s,T|a,x,1|b,,2|c,y,1|d,z,2", "are 1 of 4 of the column; fill it in (where ce"),
    ("id,s,T|a,x,1|b,,2|c,x,1", "line 3 (key 'b'), column 's': {}, as are 1 of 3"),
    ("id,s,T|a,x,1|b,y,", "column 'T': {}, as are 1 of 2 of the column; fill it in"),
]


@pytest.mark.parametrize(("pool", "message"), EMPTY)
def test_lines_that_are_no_candidates(lab: Laboratory, pool: str, message: str) -> None:
    lab.write("pool.csv", pool)
    assert message.format("the cell is empty") in lab.refused()


@pytest.mark.parametrize("cell", [">99", "<99", "\u2265 99 %", "~99"])
def test_limits_of_an_instrument(lab: Laboratory, cell: str) -> None:
    told = lab.write("m.csv", f"id,loss|c1,3|c2,{cell}")
    advice = "is no number; write the number alone, for a limit the limit itself: 99."
    assert advice in lab.refused("--results", told)


def test_candidates_that_do_not_differ(lab: Laboratory) -> None:
    lab.write("pool.csv", "id,x|a,1|b,1|c,1")
    assert "pool.csv: no feature differs between the rows" in lab.refused()


def test_rows_that_no_model_chooses_are_said(lab: Laboratory) -> None:
    told = lab.write("m.csv", "id,loss|c1,3|c2,1")
    said = lab("--results", told, "--first", 8, "--batch", 3).said
    assert "note: 3 of the next 3 rows are not chosen by the results" in said
    assert "once 8 rows are measured (--first)" in said
    assert "not chosen" not in lab("--results", told, "--first", 2).said


def test_spaces_that_do_not_break_are_plain(lab: Laboratory) -> None:
    lab.write("pool.csv", "id,T\u00a0C,s|a,1,di\u202foxane|b,2,di oxane|\u200bc,3,oil")
    told = lab.write("m.csv", "id,lo\ufeffss|c,1")
    said = lab("--results", told).said
    assert "read: 'T C': numbers" in said and "'s': 2 categories" in said
    assert "1 of them measured" in said


@pytest.mark.parametrize("cell", ["1\u00a0234", "1'234", "1\u2019234"])
def test_marks_between_thousands_are_named(lab: Laboratory, cell: str) -> None:
    advice = "take out the marks that separate thousands: 1234"
    lab.write("pool.csv", f"id,x|a,{cell}|b,{cell[0]}{cell[1]}300|c,900")
    assert advice in lab.refused()
    lab.write("pool.csv", "id,x|a,1|b,2")
    told = lab.write("m.csv", f"id,loss|a,{cell}")
    assert advice in lab.refused("--results", told)


# Two categories, in how many of 12 rows the second one is, and if they may be one.
TWINS = [
    ("RuPhos", "Ruphos?", 6, True),
    ("MeTHF", "MeTHF (dry)", 6, True),
    ("MeTHF (wet)", "MeTHF (dry)", 6, False),
    ("Pd(OAc)2", "Pd(dba)2", 6, False),
    ("A/B", "b / a", 6, True),
    ("SPhos + Pd", "Pd/SPhos", 6, True),
    ("1/2", "2/1", 6, False),
    ("tBuXPhos", "t-BuXPhos", 6, True),
    ("(R)-BINAP", "R-BINAP", 6, True),
    ("PEG 400", "PEG400", 6, True),
    ("(+)-BINAP", "(-)-BINAP", 6, False),
    ("PEG 4 00", "PEG 400", 6, False),
    ("R1-1", "R11", 6, False),
    ("toluene", "tolune", 2, True),
    ("toluene", "tolune", 3, False),  # not rare
    ("toluene", "toluenes", 1, True),
    ("toluene", "tolueme", 1, True),
    ("toluene", "toleune", 1, True),
    ("toluene", "tolueen", 1, True),
    ("toluene", "tolun", 1, False),
    ("methanol", "ethanol", 1, False),
    ("ligand A1", "ligand A2", 1, False),
    ("dppe", "dppf", 1, False),  # short
]
# Two categories, in how many rows each is beside three others, and if they may be one.
FEW_TWINS = [
    ("water", "watr", 2, 1, True),
    ("Water", "Watr", 5, 1, True),
    ("water", "watr", 1, 1, False),
    ("water", "watr", 2, 2, False),
    ("water", "wter", 2, 1, True),
    ("water", "wafer", 2, 1, False),  # another letter
    ("toluene", "tolune", 2, 1, True),
    ("DMF", "DFM", 2, 1, True),
    ("DMF", "DFM", 5, 1, True),
    ("DMF", "DFM", 1, 1, False),
    ("DMF", "DFM", 3, 3, False),
    ("DCM", "DMC", 2, 1, False),  # dichloromethane, dimethyl carbonate
    ("DCM", "dmc", 2, 1, False),
    ("DMC", "DCM", 5, 1, False),
    ("DIPEA", "DIPA", 2, 1, False),
    ("dppbz", "dppb", 2, 1, False),
    ("THF", "DMF", 2, 1, False),
    ("THF", "TFH", 2, 1, True),
    ("EtOH", "MeOH", 2, 1, False),
    ("DMSO", "DMS", 2, 1, False),
    ("DMA", "DMAc", 2, 1, False),
    ("Pd", "Pt", 2, 1, False),
    ("Co", "oC", 2, 1, False),
    ("L1", "L2", 2, 1, False),
    ("A12", "A21", 2, 1, False),
    ("AB1", "AB2", 2, 1, False),
    ("cat A", "cat B", 2, 1, False),
    ("ligand A", "ligand B", 2, 1, False),
    ("hexane", "hexene", 2, 1, False),
    ("HATU", "HBTU", 2, 1, False),
    ("K2CO3", "KCO3", 2, 1, False),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("one", "two", "num", "is_noted"), TWINS)
def test_categories_that_may_be_one(
    lab: Laboratory, one: str, two: str, num: int, is_noted: bool
) -> None:
    cells = [[f"c{i}", i * i, two if i < num else one] for i in range(12)]
    lab.write("pool.csv", [["id", "x", "s"], *cells])
    note = f"column 's' has '{two}' and '{one}', which are taken as two"
    assert (note in lab().said) == is_noted
    assert note not in lab("--text", "s").said


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("one", "two", "num", "rare", "is_noted"), FEW_TWINS)
def test_categories_of_few_rows_that_may_be_one(
    lab: Laboratory, one: str, two: str, num: int, rare: int, is_noted: bool
) -> None:
    kinds = [one] * num + [two] * rare + ["oil", "gas", "air"]
    cells = [[f"c{i}", i * i, kind] for i, kind in enumerate(kinds)]
    lab.write("pool.csv", [["id", "x", "s"], *cells])
    note = f"column 's' has '{one}' and '{two}', which are taken as two"
    assert (note in lab().said) == is_noted


@pytest.mark.parametrize(
    ("word", "is_noted"),
    [
        ("R7 (DO NOT RUN)", True),
        ("don't use", True),
        ("explosive!", True),
        ("THF (peroxides!)", True),
        ("THF (expired)", True),
        ("nicht verwenden", True),
        ("hydrogen peroxide", False),
        ("stopper", False),
        ("Natrium", False),
    ],
)
def test_words_that_forbid_a_row(lab: Laboratory, word: str, is_noted: bool) -> None:
    """In keys and in categories."""
    for key, kind in ((word, "a"), ("k", word)):
        rows = [[key, 1, kind], ["r", 5, "b"], ["s", 9, "b"]]
        lab.write("pool.csv", [["id", "x", "s"], *rows])
        note = "may say that rows are not to be measured"
        assert (note in lab().said) == is_noted


@pytest.mark.parametrize(
    ("kinds", "is_noted"),
    [(["min", "h"], True), (["C", "F"], True), (["min", "x"], False)],
)
def test_a_column_of_units(lab: Laboratory, kinds: list[str], is_noted: bool) -> None:
    rows = [[f"c{i}", i * i, kinds[i % 2]] for i in range(9)]
    lab.write("pool.csv", [["id", "time", "unit"], *rows])
    note = f"cells of column 'unit', '{kinds[0]}', '{kinds[1]}', are units"
    assert (note in lab().said) == is_noted


@pytest.mark.parametrize(
    ("name", "cell", "is_noted"),
    [
        ("time", "{} h", True),
        ("barcode", "40063810000{}", True),
        ("x", "{}.5", True),
        ("x", "{}0", False),
        ("made", "2026-01-{}", False),
    ],
)
def test_a_column_in_steps_of_one(
    lab: Laboratory, name: str, cell: str, is_noted: bool
) -> None:
    """In the order of the file, and beside others: a spreadsheet may have filled it."""
    rows = [[f"c{i}", i % 3, cell.format(i + 10)] for i in range(12)]
    lab.write("pool.csv", [["id", "y", name], *rows])
    note = f"column '{name}' counts the rows"
    assert (note in lab().said) == is_noted
    assert note not in lab("--ignore", "y").said
    lab.write("pool.csv", [["id", "y", name], *([key, 7, x] for key, _, x in rows)])
    assert note not in lab().said
    lab.write("pool.csv", [["id", "y", name], *rows[::2], *rows[1::2]])
    assert note not in lab().said


def test_twelve_categories_are_printed(lab: Laboratory) -> None:
    for num, more in ((12, ""), (13, " and 1 more")):
        rows = [[f"c{i}", f"kind {i % num:02}"] for i in range(60)]
        lab.write("pool.csv", [["id", "s"], *rows])
        assert f"'kind 11'{more}." in lab().said


@pytest.mark.parametrize(
    ("name", "cells", "is_noted"),
    [
        ("ratio A:B", [(1, 2), (1, 5), (1, 10), (1, 20)], True),
        ("a", [(1, 2), (1, 3), (2, 1), (3, 2)], True),
        ("duration", [(0, 30), (1, 0), (1, 30), (2, 0)], False),
        ("duration", [(0, 47), (1, 2), (1, 34), (2, 12)], False),
    ],
)
def test_ratios_that_a_spreadsheet_takes_for_times(
    lab: Laboratory, name: str, cells: list[tuple[int, int]], is_noted: bool
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["id", "x", name])
    for i in range(8):
        book.active.append([f"c{i}", i * i, time(*cells[i % 4])])
    lab.pool = lab.folder / "pool.xlsx"
    book.save(lab.pool)
    note = f"column '{name}' has times, such as {cells[0][0]}:{cells[0][1]:02}, which"
    assert (note in lab().said) == is_noted


@pytest.mark.parametrize(
    ("name", "is_noted"),
    [("equivalents", True), ("c (mol/L)", True), ("made", False), ("delivery", False)],
)
def test_numbers_that_a_spreadsheet_takes_for_dates(
    lab: Laboratory, name: str, is_noted: bool
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["id", "x", name])
    for i in range(8):
        book.active.append([f"c{i}", i * i, datetime(2026, 1 + i % 4, 1)])
    lab.pool = lab.folder / "pool.xlsx"
    book.save(lab.pool)
    note = f"column '{name}' has dates, such as 2026-01-01, which spreadsheets make"
    assert (note in lab().said) == is_noted


@pytest.mark.parametrize(
    ("cells", "units"),
    [
        (["1h30", "30 min", "2h", "1h"], "'h', 'min'"),
        (["1h30", "2 h 15 min", "1h", "3h45m"], "'h', 'min'"),
        (["1h30", "oil", "water", "gas"], None),
        (["1h", "2h", "4h", "8h"], None),
        (["H2O", "1a", "1h", "2h3"], None),
    ],
)
def test_hours_and_minutes_in_a_cell(
    lab: Laboratory, cells: list[str], units: str | None
) -> None:
    rows = [[f"c{i}", i * i, cells[i % 4]] for i in range(8)]
    lab.write("pool.csv", [["id", "x", "t"], *rows])
    said = lab().said
    assert ("numbers in column 't' have" in said) == (units is not None)
    assert units is None or f"column 't' have different units, {units};" in said


def test_many_rows_with_the_same_features_are_named_in_groups(lab: Laboratory) -> None:
    rows = [[f"c{i}", i % 5] for i in range(15)]
    lab.write("pool.csv", [["id", "x"], *rows])
    said = lab().said
    assert "line 2 (key 'c0'), line 7 (key 'c5') and 1 other; line 3 (key" in said
    assert "line 9 (key 'c7') and 1 other; and 2 more groups. One of them" in said
