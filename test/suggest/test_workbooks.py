"""Cells of workbooks are what the user of a spreadsheet sees, or are named."""

import zipfile
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from laboratory import Laboratory, measured

pytest.importorskip("pandas")
pytest.importorskip("openpyxl")

import openpyxl
from botorch.exceptions import InputDataError
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.comments import Comment
from openpyxl.styles import Font

from botorch_sparse.suggest.csv_reader import read_table

# Values, number formats, and what is read of them.
SHOWN: list[tuple[Any, str, str]] = [
    (0.48, "0%", "48%"),
    (0.07, "0.0%", "7%"),
    (0.1 + 0.2, "0.00%", "30%"),
    (-0.005, "0%;[Red]-0%", "-0.5%"),
    (1, "0%", "100%"),
    (1e-7, "0%", "0.00001%"),
    (48, '0"%"', "48 %"),
    (48, r"0\%", "48 %"),
    (555, '0" mg"', "555 mg"),
    (1.11, '0.00" g";-0.00" g"', "1.11 g"),
    (1950, "[$\u20ac-407]\\ #,##0.00", "1950 \u20ac"),
    (1250.5, "$#,##0.00", "1250.5 $"),
    (12, '_-* #,##0.00\\ "\u20ac"_-', "12 \u20ac"),
    (1600, '#,##0.0,"k\u20ac"', "1.6 k\u20ac"),
    (2_500_000, '0.0,,"M"', "2.5 M"),
    (0, '0.0;-0.0;"not measured"', "not measured"),
    (3.5, '0.0;-0.0;"not measured"', "3.5"),
    (5, '"<"0.0', "<5"),
    (2, '">"0.0" %"', ">2 %"),
    (40, '"\u2013"0', "\u201340"),
    (-40, "0;-0", "-40"),
    (-40, r"0;\-0", "-40"),
    (57, '"ca. "0', "ca. 57"),
    (3, '"A"0', "A3"),
    (3, '"R-"000', "R-003"),
    (3, "00000", "00003"),
    (3.5, "00000", "3.5"),
    (12, '0"00"', "1200"),
    (12, '"EUR "0.00', "EUR 12"),
    (12, '"from "$0', "from 12 $"),
    (0.12, '"ca. "0%', "ca. 12%"),
    (1234.5, '_-* #,##0.00_-;-* #,##0.00_-;_-* "-"??_-', "1234.5"),
    (0, '_-* #,##0.00_-;-* #,##0.00_-;_-* "-"??_-', "0"),
    (150, '[>100]"high";0', "high"),
    (50, '[>100]"high";0', "50"),
    (0.3, '[<0.5]"<LOD";0.0', "<LOD"),
    (0.5, '[<0.5]"<LOD";0.0', "0.5"),
    (1600, '[>=1000]0.0,"k";[<1]"low";0', "1.6 k"),
    (0.5, '[>=1000]0.0,"k";[<1]"low";0', "low"),
    (7, '[>=1000]0.0,"k";[<1]"low";0', "7"),
    (-7, '[>=1000]0;"low";0', "low"),
    (-7, "[>100]0", "-7"),
    (65.4, '0.0"*"', "65.4*"),
    (65.4, r"0.0\†", "65.4†"),
    (0.48, '0%"*"', "48%*"),
    (5e-2, '"<"0%', "<5%"),
    (-58.3, "0.0;[Red]0.0", "-58.3 (shown as 58.3)"),
    (58.3, "0.0;[Red]0.0", "58.3"),
    (-58.3, "0.0;[Red](0.0)", "-58.3"),
    (-58.3, "0.0_);(0.0)", "-58.3"),
    (-58.3, "[Red]0.0", "-58.3"),
    (-58.3, "0.0;-0.0;0", "-58.3"),
    (0, '0.0;"low"', "0"),
    (-7, "[<5]0.0;0.0", "-7"),
    (-7, '[>70]"high";0.0', "-7"),
    (7, "[Red]0;[Blue]-0", "7"),
    (7, r"0\ ;\-0\ ", "7"),
    (7, "0.00E+00", "7"),
    (0.48, "0.00", "0.48"),
    ("48", "0%", "48"),
    (True, "0%", "True"),
    (time(1, 30), "h:mm", "1.5 h"),
    (time(0, 20), "h:mm", "0.333333333 h"),
    (timedelta(days=1, hours=12), "[hh]:mm:ss", "36 h"),
    (datetime(2026, 1, 31), "yyyy-mm-dd", "2026-01-31"),
]


def workbook(path: Path, table: list[list[Any]], **formats: str) -> Path:
    """A workbook of one sheet; number formats of cells by their coordinates."""
    book = openpyxl.Workbook()
    for row in table:
        book.active.append(row)
    for place, number_format in formats.items():
        book.active[place].number_format = number_format
    book.save(path)
    return path


@pytest.mark.parametrize(("value", "number_format", "text"), SHOWN)
def test_cells_are_read_as_they_are_shown(
    tmp_path: Path, value: object, number_format: str, text: str
) -> None:
    path = workbook(tmp_path / "t.xlsx", [["id", "x"], ["a", value]], B2=number_format)
    assert read_table(path, key="id").typed["x"].tolist() == [text]
    table = read_table(path, key="id", decimal=",")
    assert table.typed["x"].tolist() == [text.replace(".", ",")]


def test_percent_is_a_unit(lab: Laboratory, tmp_path: Path) -> None:
    """Limits are in per cent, and cells without it are not in the same unit."""
    table = [["id", "loss", "dirt"], ["c1", 3, 0.065], ["c2", 4, 0.02], ["c3", 5, 0.01]]
    percents = {"C2": "0.0%", "C3": "0%", "C4": "0%"}
    path = workbook(tmp_path / "m.xlsx", table, **percents)
    words = ("--minimize", "--constraint", "dirt<=5", "--results", path)
    answer = lab(*words)
    assert "numbers from 1 to 6.5 %; it has to be at most 5." in answer.said
    assert "best feasible so far: 'c2'" in answer.said
    del percents["C3"]
    workbook(path, table, **percents)
    assert "'0.02' is not in '%', as most cells of the column" in lab.refused(*words)


def test_times_are_hours(lab: Laboratory, tmp_path: Path) -> None:
    table: list[list[Any]] = [["id", "time"]]
    table += [[f"c{i}", timedelta(minutes=90 * i)] for i in range(1, 25)]
    lab.pool = workbook(tmp_path / "pool.xlsx", table)
    answer = lab()
    assert "pool.xlsx: times and durations as hours." in answer.said
    assert "read: 'time': numbers from 1.5 to 36 h." in answer.said


def test_hidden_rows_are_refused(lab: Laboratory, tmp_path: Path) -> None:
    """In candidates and in results, unless they are empty."""
    path = workbook(tmp_path / "m.xlsx", measured(9))
    book = openpyxl.load_workbook(path)
    for line in (3, 5, 40):
        book.active.row_dimensions[line].hidden = True
    book.save(path)
    line = lab.refused("--results", path)
    assert "m.xlsx, sheet 'Sheet', has lines that are hidden by a filter" in line
    assert "by hand: 3, 5. Clear" in line
    lab.pool = path
    assert "by hand: 3, 5. Clear" in lab.refused()
    for line_number in (3, 5):
        book.active.row_dimensions[line_number].hidden = False
    book.save(path)
    assert len(read_table(path)) == 9


def test_hidden_columns_are_named(lab: Laboratory, tmp_path: Path) -> None:
    """Several that are hidden together have one record."""
    table = [["id", "a", "b", "c"], *([f"k{i}", i, i % 3, i % 2] for i in range(5))]
    lab.pool = workbook(tmp_path / "p.xlsx", table)
    book = openpyxl.load_workbook(lab.pool)
    book.active.column_dimensions.group("B", "C", hidden=True)
    book.active.column_dimensions["G"].hidden = True
    book.save(lab.pool)
    said = lab().said
    assert "p.xlsx: columns that are hidden count as the others: 'a', 'b'." in said
    assert "read: 'b': numbers from 0 to 2." in said


def test_the_first_visible_sheet_is_read(lab: Laboratory, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["old"])
    book.active.append([1])
    book.active.sheet_state = "hidden"
    book.create_sheet("empty")
    new = book.create_sheet("new")
    for row in measured(4):
        new.append(row)
    book.save(tmp_path / "m.xlsx")
    said = lab("--results", tmp_path / "m.xlsx").said
    assert "m.xlsx: sheet 'new'." in said and "4 of them measured" in said
    assert (
        "m.xlsx: sheet 'Sheet', which is hidden, is not read; rows with cells: 2."
        in said
    )
    new.sheet_state = "hidden"
    book.save(tmp_path / "m.xlsx")
    line = lab.refused("--results", tmp_path / "m.xlsx")
    assert "all sheets with cells are hidden, 'Sheet', 'new'; show the one" in line


@pytest.mark.parametrize("words", [[], ["--skip-empty"]])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("=1+2", "cell B3 holds a formula without a saved value"),
        ("#DIV/0!", "cell B3 holds the error #DIV/0!; correct the formula"),
        ("#N/A", "cell B3 holds the error #N/A"),
    ],
)
def test_cells_without_a_value_to_read_are_named(
    lab: Laboratory, tmp_path: Path, words: list[str], value: str, said: str
) -> None:
    """In the columns that are used alone, and not as if they were empty."""
    told = measured(5)
    told[2][1] = value
    path = workbook(tmp_path / "m.xlsx", told)
    given = ["--results", path, *words]
    assert f"m.xlsx, column 'loss': {said}" in lab.refused(*given)
    table = [["id", "x", "y"], *([f"d{i}", i, i] for i in range(9))]
    table[2][1] = value
    lab.pool = workbook(tmp_path / "pool.xlsx", table)
    assert f"pool.xlsx, column 'x': {said}" in lab.refused(*given)
    assert "pool.xlsx: 9 rows" in lab("--ignore", "x").said
    told = [["id", "y", "loss"], *([f"d{i}", i, i] for i in range(9)), ["e", 9]]
    told[2][2] = value
    lab.pool = workbook(tmp_path / "pool.xlsx", told)
    one = ["--results", lab.pool, *words]
    assert f"'loss': {said.replace('B3', 'C3')}" in lab.refused(*one)


@pytest.mark.parametrize("is_text", [True, False])
def test_keys_with_more_digits_than_a_number_keeps(
    lab: Laboratory, tmp_path: Path, is_text: bool
) -> None:
    """As text they are whole; as numbers they are refused in keys alone."""
    key = "1000200030004010" if is_text else 1000200030004010
    more = [] if is_text else [[10**16, 2]]
    path = workbook(tmp_path / "m.xlsx", [["id", "loss"], ["c1", 3], [key, 2], *more])
    rows = [["id", "x"], ["c1", 10**15], ["1000200030004010", 7], ["c3", 8]]
    lab.pool = workbook(tmp_path / "pool.xlsx", rows)
    if is_text:
        assert lab("--results", path).ids == ["c3"]
        return
    line = lab.refused("--results", path)
    assert "m.xlsx, column 'id': cell A3 is a number of more than 15 digits" in line
    lab.pool = path
    assert "m.xlsx, column 'id': cell A3 is a number" in lab.refused(target="y")


def test_a_formula_that_gives_an_empty_text_is_empty(tmp_path: Path) -> None:
    """As in a sheet whose formulas wait for cells beside them."""
    written = workbook(
        tmp_path / "w.xlsx", [["id", "x"], ["a", 1], ["b", '=IF(1,"",2)']]
    )
    path = tmp_path / "saved.xlsx"
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(path, "w") as new:
        for part in old.namelist():
            text = old.read(part).decode()
            if part.endswith("sheet1.xml"):
                assert '<c r="B3"><f>' in text
                text = text.replace('<c r="B3"><f>', '<c r="B3" t="str"><f>')
            new.writestr(part, text)
    table = read_table(path)
    assert table.columns["x"] == ["1", ""]
    table.check_cells(["x"])
    with pytest.raises(InputDataError, match="column 'x': cell B3 holds a formula"):
        read_table(written).check_cells(["x"])


def test_units_of_number_formats_are_units(lab: Laboratory, tmp_path: Path) -> None:
    """What is shown in two units is not taken as one."""
    table = [["id", "loss"], ["c1", 555], ["c2", 1.11], ["c3", 480]]
    formats = {"B2": '0" mg"', "B3": '0.00" g"', "B4": '0" mg"'}
    path = workbook(tmp_path / "m.xlsx", table, **formats)
    assert "'1.11 g' is not in 'mg', as most cells" in lab.refused("--results", path)
    workbook(path, table, **{place: '0" mg"' for place in formats})
    assert "numbers from 1.11 to 555 mg" in lab("--results", path).said


def test_struck_out_and_merged_cells(lab: Laboratory, tmp_path: Path) -> None:
    path = workbook(tmp_path / "s.xlsx", [["id", "loss"], ["c1", 3], ["c2", 4]])
    book = openpyxl.load_workbook(path)
    book.active["B3"].font = Font(strike=True)
    book.save(path)
    book.active["B2"].comment = Comment("flask broke, do not use", "me")
    book.save(path)
    said = lab("--results", path).said
    assert "cells that are struck out count as the others: 'B3'; empty" in said
    assert "comments on cells are not read: B2, 'flask broke, do not use'" in said
    book.active.merge_cells("B2:B3")
    book.save(path)
    assert "cells B2:B3 are merged" in lab.refused("--results", path)
    assert "cells B2:B3 are merged" in lab.refused("--results", path, "--skip-empty")


STRUCK, PLAIN = InlineFont(strike=True), InlineFont()


@pytest.mark.parametrize("column", ["id", "solvent", "loss"])
def test_a_part_that_is_struck_out_is_refused(
    lab: Laboratory, tmp_path: Path, column: str
) -> None:
    """Of a key, a feature or a result; where all parts are, the cell is named."""
    table = [["id", "solvent", "loss"], ["c0", "water", 3], ["c1", "oil", 4]]
    path, place = tmp_path / "s.xlsx", f"{'ABC'[table[0].index(column)]}3"
    book = openpyxl.load_workbook(workbook(path, table))
    text = str(book.active[place].value)
    struck = TextBlock(STRUCK, "x"), " ", TextBlock(PLAIN, text)
    book.active[place].value = CellRichText(*struck)
    book.save(path)
    line = lab.refused("--results", path)
    assert f"column '{column}': a part of cell {place}, 'x {text}', is struck out" in (
        line
    )
    book.active[place].value = CellRichText(TextBlock(STRUCK, text), " ")
    book.save(path)
    said = lab("--results", path).said
    assert f"cells that are struck out count as the others: '{place}'" in said


def test_names_and_remarks_of_number_formats(lab: Laboratory, tmp_path: Path) -> None:
    """Keys and categories are as they are shown, and approximate results refused."""
    table = [["id", "ligand", "x"], *([i + 1, i % 3, i * i] for i in range(12))]
    formats = {f"A{i + 2}": '"R"000' for i in range(12)}
    formats |= {f"B{i + 2}": '"L"0' for i in range(12)}
    lab.pool = workbook(tmp_path / "pool.xlsx", table, **formats)
    told = lab.write("m.csv", "id,loss|R001,3|R012,2")
    answer = lab("--results", told, "--exclude", "ligand=L2")
    assert "2 of them measured" in answer.said and "'L0', 'L1', 'L2'" in answer.said
    assert all(row["ligand"] != "L2" and row["id"][0] == "R" for row in answer.rows)
    rows = [["id", "loss"], [1, 3], [12, 2.5]]
    formats = {"A2": '"R"000', "A3": '"R"000', "B3": '"ca. "0.0'}
    path = workbook(tmp_path / "m.xlsx", rows, **formats)
    line = lab.refused("--results", path)
    assert "'ca. 2.5' is no number; write the number alone" in line


@pytest.mark.parametrize("word", ["Mean", "MAX", "Total:", "Summe"])
def test_lines_that_sum_up_are_no_candidates(word: str, lab: Laboratory) -> None:
    lines = lab.pool.read_text().splitlines()
    features = lines[-1].partition(",")[2]
    lab.pool.write_text("\n".join([*lines, f"{word},{features}"]) + "\n")
    assert "looks like a summary of other lines" in lab.refused()


@pytest.mark.parametrize(
    ("keys", "odd"),
    [
        (["R1", "R2", "R10", "R10 Total"], "R10 Total"),
        (["R1", "R2", "R10", "total R10"], None),
        (["R1", "R2", "n"], "n"),
        (["m", "n", "o"], None),
        (["N", "R1", "R2"], None),
        (["R1", "R2", "\u00d8"], "\u00d8"),
    ],
)
def test_names_of_lines_below_a_table(
    lab: Laboratory, keys: list[str], odd: str | None
) -> None:
    """A subtotal has some cells, too; letters may be keys."""
    cells = [[key, i, "" if key == "R10 Total" else i] for i, key in enumerate(keys)]
    lab.write("pool.csv", [["id", "x", "y"], *cells])
    if odd is None:
        assert len(lab().rows) == len(keys)
    else:
        assert f"'{odd}' looks like a summary of other lines" in lab.refused()


def test_a_column_of_another_sheet_is_found(lab: Laboratory, tmp_path: Path) -> None:
    path = workbook(tmp_path / "m.xlsx", [["Project", "Suzuki"], ["by", "me"]])
    book = openpyxl.load_workbook(path)
    book.active.title = "Cover"
    book.create_sheet("Notes")["A1"] = "ask me"
    path = tmp_path / "m.xlsx"
    book.save(path)
    line = lab.refused("--results", path)
    assert (
        "has no column 'loss'" in line and "The first sheet, 'Cover', is read" in line
    )
    assert "if one of 'Notes' is meant, move it to the front." in line
    data = book.create_sheet("Data")
    for row in (["batch 7"], ["id", "loss"], ["c1", 3]):
        data.append(row)
    book.save(path)
    line = lab.refused("--results", path)
    assert "'Cover', is read, and 'Data' has such a column; if 'Data' is meant" in line


def test_names_of_columns_with_a_line_break(lab: Laboratory, tmp_path: Path) -> None:
    rows = [["id", "yield\n(%)"], ["c1", 3], ["c2", 4]]
    path = workbook(tmp_path / "m.xlsx", rows)
    assert "2 of them measured" in lab("--results", path, target="yield (%)").said


def test_raised_digits_are_no_digits(lab: Laboratory, tmp_path: Path) -> None:
    """A footnote's mark makes 4 a text, and not 42."""
    path = workbook(tmp_path / "s.xlsx", [["id", "loss"], ["c1", 3], ["c2", 4]])
    book = openpyxl.load_workbook(path)
    raised = TextBlock(InlineFont(vertAlign="superscript"), "2")
    book.active["B3"].value = CellRichText("4", raised)
    book.save(path)
    assert "'4\u00b2' is no number" in lab.refused("--results", path)
