"""What people's files hold is read as they mean it, or named by line."""

import io
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from laboratory import NUM, Laboratory, lines, measured
from numpy.typing import NDArray

pytest.importorskip("pandas")
pytest.importorskip("openpyxl")

import openpyxl

from botorch_sparse.command_line.csv_cells import days_of
from botorch_sparse.suggest.csv_reader import read_table
from botorch_sparse.suggest.odd_values import repeats_apart, values_apart

DAY_ZERO = datetime(1899, 12, 30)
# Cells, and the dates that they are; None where that cannot be told.
DATES: list[tuple[list[str], list[tuple[int, ...]] | None]] = [
    (["2026-01-03", "2025-12-31"], [(2026, 1, 3), (2025, 12, 31)]),
    (["2026/1/3"], [(2026, 1, 3)]),
    (["3.1.2026", "31.12.2025"], [(2026, 1, 3), (2025, 12, 31)]),
    (["03.01.26"], [(2026, 1, 3)]),
    (["1/3/2026", "1/31/2026"], [(2026, 1, 3), (2026, 1, 31)]),
    (["3/1/2026", "31/1/2026"], [(2026, 1, 3), (2026, 1, 31)]),
    (["5/5/2026"], [(2026, 5, 5)]),
    (["3 Jan 2026", "31-Dec-2025"], None),
    (["3 January 2026"], [(2026, 1, 3)]),
    (["Jan 3, 2026"], [(2026, 1, 3)]),
    (["2026-01-03T06:00", "2026-01-03 18:30"], [(2026, 1, 3, 6), (2026, 1, 3, 18, 30)]),
    (["1/3/2026", "2/3/2026"], None),
    (["2026-01-03", "2026-02-30"], None),
    (["64-17-5", "67-56-1"], None),  # substances by their registry numbers
    (["10-10-10"], None),  # a fertilizer
    (["", "failed"], None),
]


@pytest.mark.parametrize(("cells", "dates"), DATES)
def test_dates_are_days(cells: list[str], dates: list[tuple[int, ...]] | None) -> None:
    days = days_of(cells)
    if dates is None:
        assert days is None
    else:
        expected = [datetime(*date) - DAY_ZERO for date in dates]  # type: ignore[arg-type]
        assert days is not None
        assert list(map(float, days)) == pytest.approx(
            [each.total_seconds() / 86400 for each in expected], rel=1e-9
        )


def test_days_are_those_of_spreadsheets() -> None:
    assert days_of(["2026-01-01", "NA"]) == ["46023", "NA"]


def test_a_column_of_dates_is_a_number_in_all_files(lab: Laboratory) -> None:
    """The results may write them in another form, or as a spreadsheet's number."""
    lab.write("pool.csv", lines("made,x", "2026-01-{0:02},{0}", 20, 1))
    told = lab.write("m.csv", "made,x,loss|03.01.2026,3,1|13.01.2026,13,2")
    then = lab.write("n.csv", "made,x,loss|46027,5,1")
    answer = lab("--results", told, then, "--batch", 99, key=None)
    assert "read: 'made': dates from 2026-01-01 to 2026-01-20, as days." in answer.said
    rows = {int(row["row"]) for row in answer.rows}
    assert rows == {*range(1, 21)} - {3, 13, 5}
    assert answer.rows[0]["made"].startswith("2026-01-")


def test_dates_that_may_be_two_are_refused(lab: Laboratory) -> None:
    lab.write("pool.csv", lines("id,made", "c{0},0{0}/02/2026", 9, 1))
    line = lab.refused()
    assert "line 2 (key 'c1'), column 'made': '01/02/2026' looks like a date" in line
    assert "--text" in line
    assert "read: 'made': 9 categories" in lab("--text", "made").said
    assert (
        "left out (--ignore)" in lab("--ignore", "made", "--text", "id", key=None).said
    )


def test_one_category_in_two_spellings_is_asked_about(lab: Laboratory) -> None:
    lab.write("pool.csv", lines("id,s,x", "c{0},THF,{0}", 9) + "|d,thf,3|e,oil,4")
    line = lab.refused()
    assert "line 11 (key 'd'), column 's': 'thf' is 'THF' in line 2: are they" in line
    assert "read: 's': 3 categories" in lab("--text", "s").said


def test_workbooks_are_read(lab: Laboratory, tmp_path: Path) -> None:
    """As the CSV file with the same cells, and their dates."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["id", "heat", "made", "solvent"])
    sheet.append([None] * 4)
    for i in range(9):
        sheet.append(
            [f"c{i}", i / 3, datetime(2026, 1, 1 + i), "oil" if i % 2 else "x"]
        )
    book.create_sheet("plan").append(["later"])
    book.save(tmp_path / "pool.xlsx")
    table = read_table(tmp_path / "pool.xlsx", key="id")
    heat = table.columns["heat"]
    assert heat[:7:3] == ["0", "1", "2"]
    assert list(map(float, heat)) == pytest.approx([i / 3 for i in range(9)])
    assert list(table.dates) == ["made"] and table.columns["made"][0] == "46023"
    assert list(table.lines) == [*range(3, 12)]
    lab.pool = tmp_path / "pool.xlsx"
    results = openpyxl.Workbook()
    for row in (["id", "loss"], ["c1", 2], ["c2", 1.5], ["c3", "failed"]):
        results.active.append(row)
    results.save(tmp_path / "m.xlsx")
    answer = lab("--results", tmp_path / "m.xlsx", "--batch", 9)
    assert set(answer.ids) == {"c0", "c4", "c5", "c6", "c7", "c8"}
    assert "pool.xlsx: sheet 'Sheet'." in answer.said
    note = "pool.xlsx: sheet 'plan' is not read; rows with cells: 1."
    assert note in answer.said
    assert (
        "read: 'loss': the target, in 2 results, numbers from 1.5 to 2; large"
        in answer.said
    )


def test_workbooks_that_are_none(lab: Laboratory, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.save(tmp_path / "empty.xlsx")
    lab.pool = tmp_path / "empty.xlsx"
    assert "empty.xlsx is empty: a header row and" in lab.refused()
    data = io.BytesIO()
    book.save(data)
    lab.pool = lab.write("torn.xlsx", data.getvalue()[:900])
    assert "torn.xlsx is an archive, and no .xlsx that can be read" in lab.refused()


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("cp1252", "the encoding of Windows, cp1252"), ("utf-16", "UTF-16")],
)
def test_encodings_of_spreadsheets(lab: Laboratory, encoding: str, said: str) -> None:
    text = lines("id,Größe,T", "c{0},{0},{0}5 °C", NUM).replace("|", "\n")
    lab.write("pool.csv", text.encode(encoding))
    answer = lab()
    assert f"pool.csv: {said}." in answer.said
    assert "read: 'T': numbers from 5 to 295 °C." in answer.said
    assert "Größe" in answer.rows[0]


NORMAL = [40.0, 95.0, 60.0, 71.5, 55.0, 80.0, 62.0, 58.0, 77.0, 90.0]
APART = [
    ([*NORMAL, 6740.0], [10]),
    ([-6740.0, *NORMAL], [0]),
    ([*NORMAL, 300.0], [10]),
    ([*NORMAL, 220.0], []),  # 125 beyond a range of 55
    ([*NORMAL, -999.0, *NORMAL, -999.0], [10, 21]),
    ([*NORMAL, 6740.0, *NORMAL, -999.0], [10, 21]),
    ([*NORMAL, 999.0], [10]),
    ([*NORMAL, 99.0], []),
    ([*(value / 2 for value in NORMAL), 99.0], [10]),
    ([*NORMAL, 99.0, 98.0, 101.0], []),
    ([*NORMAL, float("nan"), 6740.0], [11]),
    ([5.0] * 20 + [7.0], []),
    ([0.0, 1.0] * 10, []),
    ([10.0**k for k in range(8)] * 10, []),
    # Placeholders among few values, and those that repeat.
    ([40.0, 55.0, -999.0, 95.0], [2]),
    ([45.0, -9999.0], [1]),
    ([45.0, 9999.0], [1]),
    ([-99.0, 45.0, 71.0], [0]),
    ([4000.0, 5500.0, -999.0, 9500.0], [2]),
    ([-4000.0, 5500.0, -999.0, 9500.0], []),
    ([-4000.0, -999.0, 1500.0], []),
    ([700.0, 999.0, 850.0], []),
    ([45.0, 62.0, 99.0], []),
    ([5.0, 6.0, 99.0, 99.0, 99.0], []),
    ([*NORMAL[:8], -999.0, -999.0], [8, 9]),
    ([*NORMAL, *[-999.0] * 6], [10, 11, 12, 13, 14, 15]),
    ([*NORMAL, *[9999.0] * 3], [10, 11, 12]),
    ([-999.0, 40.0, 55.0, 6740.0, 95.0], [0, 3]),
    ([-999.0, 40.0, 9999.0, 55.0], [0, 2]),
    ([999.0, 999.0], []),
    ([], []),
    # Far above a few others.
    ([40.0, 55.0, 6740.0, 95.0], [2]),
    ([40.0, 55.0, 61.0, 95.0, 6740.0], [4]),
    ([1.0, 2.0, 3.0, 4.0, 1000.0], [4]),
    ([40.0, 6740.0, 95.0], []),  # beside two values
    ([*NORMAL[:8], 6740.0, 6800.0], [8, 9]),
    ([6800.0, 40.0, 55.0, 6740.0, 95.0], [0, 3]),
    ([*NORMAL[:8], 6740.0, 6740.0], []),  # as levels of a design
    ([*NORMAL[:8], 6740.0, 6800.0, 7100.0], []),
    ([40.0, 55.0, 95.0, 1850.0], []),  # less than 20 times
    ([40.0, 55.0, 95.0, 1950.0], [3]),
    ([0.1, 0.2, 0.15, 45.0], []),  # a yield beside failures
    ([95.1, 95.3, 95.2, 2.0], []),
    ([40.0, 40.0, 40.0, 6740.0], []),
    ([0.0, 55.0, 95.0, 6740.0], []),
    ([1.0, 10.0, 100.0, 1000.0], []),  # over decades
    ([1.0, 10.0, 100.0, 9000.0], []),
    ([5.0, 55.0, 95.0, 6740.0], []),
]


@pytest.mark.parametrize(("values", "expected"), APART)
def test_values_far_from_all_others(values: list[float], expected: list[int]) -> None:
    assert values_apart(values) == expected


SPREADS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "lognormal": lambda g, num: np.exp(g.normal(5, 1, num)),
    "exponential": lambda g, num: g.exponential(500, num),
    "two decades": lambda g, num: 10 ** g.uniform(1, 3, num),
    "yields": lambda g, num: 100 * g.beta(0.4, 1, num),
}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("num", [4, 5])
def test_few_values_are_rarely_far_by_chance(spread: str, num: int) -> None:
    """At most in 3% of 500 samples."""
    g = np.random.default_rng(0)
    found = [values_apart(SPREADS[spread](g, num).tolist()) for _ in range(500)]
    assert sum(map(bool, found)) <= 15


def test_repeats_that_differ_by_far_too_much() -> None:
    points = [0, 1, 2, 3, 4, 5, 0, 1, 2]
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.1, 2.1, 3.1]
    assert repeats_apart(points, values) == []
    assert repeats_apart([*points, 3], [*values, 5.2]) == [(3, 9)]
    assert repeats_apart([*points, 3], [*values, 4.9]) == []
    # Of the only repeats half of the spread of all rows, 2.5 here, decides.
    assert repeats_apart(points[:7], [*values[:6], 3.2]) == []
    assert repeats_apart(points[:7], [*values[:6], 5.0]) == [(0, 6)]


def test_odd_values_are_named_by_line_and_taken(lab: Laboratory) -> None:
    table = [*measured(12), ["c12", 6740], ["c3", 9.9]]
    answer = lab("--results", lab.write("m.csv", table), "--batch", 3)
    assert "'loss' has values far from all others" in answer.said
    assert "6740 (line 14 (key 'c12'))" in answer.said
    assert "between measurements of one row: " in answer.said
    assert "(line 5 (key 'c3'), line 15 (key 'c3'))" in answer.said
    assert "13 of them measured" in answer.said
    lab.write("pool.csv", lines("id,x,y", "c{0},{0},7", NUM) + "|d,4000,7")
    answer = lab()
    assert (
        "pool.csv: 'x' has values far from all others, which are from 0" in answer.said
    )
    assert "4000 (line 32 (key 'd'))" in answer.said


def test_odd_values_of_few_results_are_named(lab: Laboratory) -> None:
    told = lab.write("m.csv", "id,loss|c1,40|c2,55|c3,-999|c4,95|c5,6740")
    said = lab("--results", told).said
    assert "which are from 40 to 95: -999 (line 4 (key 'c3')), 6740 (line 6" in said


def test_a_placeholder_is_named_once(lab: Laboratory) -> None:
    """Not as the limit of an instrument too."""
    cells = [40, 55, 61, 95, 71, 88, -999, -999, -999]
    told = [["id", "loss"], *([f"c{i}", cell] for i, cell in enumerate(cells))]
    said = lab("--results", lab.write("m.csv", told)).said
    assert "-999 (line 8 (key 'c6'))" in said and "an instrument" not in said


def test_a_row_that_is_gone_needs_its_features(lab: Laboratory) -> None:
    line = lab.refused("--results", lab.write("m.csv", "id,loss|C12,3|c1,2"))
    assert "Did you mean 'c12'?" in line
    assert "gone from the candidates, keep its features in the results" in line


def test_a_key_with_an_end_is_meant_for_the_one_without(lab: Laboratory) -> None:
    """Not for c21, which is as near by its letters."""
    line = lab.refused("--results", lab.write("m.csv", "id,loss|c12-1,3|c1,2"))
    assert "Did you mean 'c12'?" in line
    line = lab.refused("--results", lab.write("m.csv", "id,loss|c1-12,3|c1,2"))
    assert "Did you mean 'c1'?" in line


def test_a_key_without_zeros_is_meant_for_the_one_with_them(lab: Laboratory) -> None:
    """Not for C21, which is as near by its letters."""
    lab.write("pool.csv", lines("id,x", "C0{0},{0}", 9, 1) + "|C21,30")
    line = lab.refused("--results", lab.write("m.csv", "id,loss|C1,3"))
    assert "Did you mean 'C01'?" in line


def test_a_second_header_is_no_key(lab: Laboratory) -> None:
    """It has names of columns of the results, or of the candidates."""
    for header in ("loss,mean", "heat,mean"):
        told = lab.write("m.csv", f"id,loss|c1,3|{header}|20,3")
        line = lab.refused("--results", told)
        assert f"m.csv, line 3 (key '{header[:4]}')" in line
        assert "is the name of a column, as in a second header; take" in line


def test_a_line_of_units_among_results(lab: Laboratory) -> None:
    line = lab.refused("--results", lab.write("m.csv", "id,loss|,%|c1,3|c2,4"))
    assert "line 2 (key ''), column 'id': the cell is empty, and the line looks" in line


def test_words_of_another_encoding_are_refused(lab: Laboratory) -> None:
    """Cyrillic ones, which the encoding of Windows reads as letters with accents."""
    text = "id,solvent,x\na,\u0442\u043e\u043b\u0443\u043e\u043b,1\nb,oil,2\n"
    lab.write("pool.csv", text.encode("cp1251"))
    line = lab.refused()
    assert "pool.csv, line 2: the file is not in UTF-8" in line
    assert "'\u0442\u043e\u043b\u0443\u043e\u043b', in cp1251" in line
    western = "id,solvent,x\na,\u00c4thyl\u00e4ther,1\nb,cr\u00e9\u00e9e,2\n"
    lab.write("pool.csv", western.encode("cp1252"))
    assert len(lab().rows) == 2
