"""Numbers with a unit in each cell are numbers, and the unit is said."""

import pytest
from laboratory import NUM, Laboratory, lines

pytest.importorskip("pandas")

from botorch_sparse.command_line.csv_cells import shared_unit, without_unit

SHARED: list[tuple[list[str], str | None]] = [
    (["65 °C", "70°C", "-3.5 °C"], "°C"),
    (["12 %", "0.5%"], "%"),
    (["1,2 g", "3 g"], "g"),
    (["1e-3 mL/min", "2 mL/min"], "mL/min"),
    (["3 h", "", "failed", "NA"], "h"),
    (["1 mL", "2 g"], None),
    (["65", "70 °C"], None),
    (["65 °C", "warm"], None),
    (["1", "2"], None),
    (["2026-01-01", "2026-01-02"], None),
    (["10-20 g", "30 g"], None),
    (["A1", "A2"], None),
    (["1e5", "2e5"], None),
    (["", ""], None),
    (["45 %", "n.d.", "31 %"], "%"),
    (["<1 %", "45 %", "31 %", "failed"], "%"),
    (["45 %", "n.d.", "31 %", "3"], None),
    (["45 %", "n.d.", "31 %", "3 g"], None),
    (["1a", "oil", "2a"], None),
    (["1 200,00 €", "9,50 €"], "€"),
]


@pytest.mark.parametrize(("cells", "unit"), SHARED)
def test_a_unit_is_shared_by_all_cells(cells: list[str], unit: str | None) -> None:
    assert shared_unit(cells) == unit


@pytest.mark.parametrize(
    ("cell", "rest"),
    [
        ("65 °C", "65"),
        ("-78\u2103", "-78"),
        ("1,2g", "1,2"),
        ("1 200,00 €", "1 200,00"),
        ("CHF 1'200", "1'200"),
        ("2 50 g", "2 50 g"),
        ("NA", "NA"),
        ("oil", "oil"),
    ],
)
def test_without_its_unit(cell: str, rest: str) -> None:
    assert without_unit(cell) == rest


def test_columns_with_units(lab: Laboratory) -> None:
    """Features and targets are numbers; the user's cells come back as they were."""
    lab.write("pool.csv", lines("id,T,x", "c{0},{0}5 °C,{0}", NUM, 1))
    told = lines("id,T,loss", "c{0},{0}5 °C,{0}.5 %", 9, 3)
    answer = lab("--results", lab.write("m.csv", told), "--batch", 5)
    assert "read: 'T': numbers from 15 to 305 °C." in answer.said
    assert "best so far: 'c11'" in answer.said and "'loss': 11.5" in answer.said
    assert all(row["T"] == f"{row['id'][1:]}5 °C" for row in answer.rows)
    for condition in ("T>20", "T>20 °C"):
        assert lab("--exclude", condition, "--batch", 9).ids == ["c1"]


def test_prices_with_a_currency_before_them(lab: Laboratory) -> None:
    for form, unit in (
        ("EUR {}.50", "EUR"),
        ("\u20ac{}.50", "\u20ac"),
        ("$ {}.50", "$"),
    ):
        cells = [[f"c{i}", i, form.format(i + 1)] for i in range(9)]
        lab.write("pool.csv", [["id", "x", "price"], *cells])
        said = lab("--cost", "price").said
        assert f"'price': the cost, numbers from 1.5 to 9.5 {unit}." in said
    lab.write("pool.csv", [["id", "x", "p"], ["a", 1, "$ 1,200.00"], ["b", 2, "$9.50"]])
    assert "the cost, numbers from 9.5 to 1200 $." in lab("--cost", "p").said
    lab.write("pool.csv", [["id", "x", "p"], ["a", 1, "$ 1,200"], ["b", 2, "$9.50"]])
    assert "'1,200' is no number" in lab.refused("--cost", "p")
    lab.write("pool.csv", "id,p|a,$5|b,6|c,$7")
    assert "column 'p': '6' is not in '$', as most" in lab.refused()
    lab.write("pool.csv", [["id", "x", "p"], ["a", 1, "CAT 12"], ["b", 2, "CAT 9"]])
    assert "read: 'p': 2 categories" in lab().said


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "cell", "is_noted"),
    [
        ("T (\u00b0C)", "338 K", True),
        ("T/\u00baC", "338 K", True),
        ("m [mg]", "0.65 g", True),
        ("V [\u00b5L]", "65 mL", True),
        ("V [\u00b5L]", "65 ul", False),
        ("T [\u00b0C]", "65 \u2103", False),
        ("t (hours)", "3 h", False),
        ("T in the oil (bath)", "65 \u00b0C", False),
        ("T", "338 K", False),
        ("T (\u00b0C)", "338", False),
    ],
)
def test_a_unit_in_the_name_of_a_column(
    lab: Laboratory, name: str, cell: str, is_noted: bool
) -> None:
    """Cells in another one are named, of candidates and of results."""
    number, *unit = cell.split(" ")
    cells = [[f"c{i}", " ".join([number + str(i), *unit])] for i in range(9)]
    told = lab.write("m.csv", [["id", name], *cells[:3]])
    assert (
        "its name ends with" in lab("--results", told, target=name).said
    ) == is_noted
    lab.write("pool.csv", [["id", name], *cells])
    assert (f"the cells of column '{name}' are in" in lab().said) == is_noted


def test_one_cell_in_another_unit_is_named(lab: Laboratory) -> None:
    """Where most have one; a column of as many units as kinds is one of categories."""
    lab.write("pool.csv", lines("id,time,x", "c{0},{0} h,{0}", NUM) + "|d,30 min,3")
    line = lab.refused()
    assert "line 32 (key 'd'), column 'time': '30 min' is not in 'h', as most" in line
    assert "read: 'time': 31 categories" in lab("--text", "time").said
    lab.write("pool.csv", lines("id,time,x", "c{0},{0} h,{0}", NUM) + "|d,over night,3")
    assert "'over night' is no number, but most cells of the" in lab.refused()


def test_units_that_differ_are_refused(lab: Laboratory) -> None:
    lab.write("pool.csv", lines("T,x", "{0}5 °C,{0}", NUM, 1))
    told = lab.write("m.csv", lines("T,x,loss", "{0}5 K,{0},1", 9, 3))
    line = lab.refused("--results", told, key=None)
    assert "column 'T' is in 'K', and in '°C' in" in line
    first = lab.write("a.csv", lines("T,x,loss", "{0}5 °C,{0},1 g", 3, 3))
    then = lab.write("b.csv", lines("T,x,loss", "{0}5,{0},1 mg", 3, 9))
    line = lab.refused("--results", first, then, key=None)
    assert "b.csv: column 'loss' is in 'mg', and in 'g' in" in line


def test_text_keeps_its_unit(lab: Laboratory) -> None:
    lab.write("pool.csv", lines("id,T,x", "c{0},{0}5 °C,{0}", 4, 1))
    said = lab("--text", "T").said
    assert "read: 'T': 4 categories, '15 °C'," in said


def test_units_that_are_categories_stay_so(lab: Laboratory) -> None:
    """Although the results happen to have a single one of them."""
    lab.write("pool.csv", "dose,x|1 mL,1|2 g,2|1 mL,3|2 g,4|1 mL,5")
    told = lab.write("m.csv", "dose,x,loss|1 mL,1,3|1 mL,3,4")
    answer = lab("--results", told, key=None)
    assert "read: 'dose': 2 categories, '1 mL', '2 g'." in answer.said
    assert "5 rows, 2 of them measured" in answer.said


def test_decimal_commas_with_units(lab: Laboratory) -> None:
    lab.write("pool.csv", "id;x|a;0,5 g|b;1,5 g|c;2,5 g")
    assert "numbers from 0.5 to 2.5 g." in lab("--decimal", ",").said
    assert "0.5 to 2.5 g (commas are decimal marks)." in lab().said
    assert "its comma" in lab.refused("--decimal", ".")


def test_a_unit_in_one_file_alone_is_refused(lab: Laboratory) -> None:
    """Results of a target, where 0.48 may be 48 %; features keep the list's unit."""
    first = lab.write("a.csv", "id,loss|c1,failed|c2,49.0 %|c3,51 %")
    then = lab.write("b.csv", "id,loss|c4,|c5,0.48|c6,0.4")
    for files in ((first, then), (then, first)):
        line = lab.refused("--results", *files, "--skip-empty")
        assert "a.csv, line 3 (key 'c2'), column 'loss': '49.0 %' has a unit" in line
        assert "'0.48' in line 3 (key 'c5') of" in line and "b.csv has none" in line
    none = lab.write("b.csv", "id,loss|c4,failed|c5,0.48 %")
    assert "3 of them measured" in lab("--results", first, none).said


def test_a_result_without_the_unit_of_the_others_is_named(lab: Laboratory) -> None:
    told = lab.write("m.csv", "id,loss|c1,49 %|c2,50 %|c3,51|c4,failed")
    line = lab.refused("--results", told)
    assert "line 4 (key 'c3'), column 'loss': '51' is not in '%', as most" in line
    assert "--text" not in line


def test_words_among_numbers_with_a_unit(lab: Laboratory) -> None:
    """As among numbers without one; labels of substances are no numbers."""
    lab.write("pool.csv", "id,T|a,reflux|b,50 °C|c,25 °C")
    assert "line 2 (key 'a'), column 'T': 'reflux' is no number, but" in lab.refused()
    lab.write("pool.csv", "id,T|a,water|b,1a|c,2a")
    assert "read: 'T': 3 categories" in lab().said
    lab.write("pool.csv", "id,T|a,water|b,1 a|c,oil|d,2 a")
    assert "read: 'T': 4 categories" in lab().said


@pytest.mark.parametrize(
    "cells", ["50 °C|80ºC|-5˚C", "5 µL|6 μL|7µL", "\u22125 h|\u20136h|7 h"]
)
def test_signs_that_look_alike_are_one(lab: Laboratory, cells: str) -> None:
    first, *rest = cells.split("|")
    lab.write("pool.csv", f"id,x|a,{first}|b,{rest[0]}|c,{rest[1]}")
    said = lab().said
    assert "read: 'x': numbers from -" in said or "from 5 to 7 µL" in said


@pytest.mark.parametrize(
    ("cell", "advice"),
    [
        ("n.d.", "'n.d.' is no number; write a number, where nothing was found 0"),
        ("trace", "or failed if the measurement failed"),
        ("<1 %", "'<1 %' is no number; write the number alone, for a limit"),
        (">99 %", "for a limit the limit itself: 99."),
        ("ca. 80 mol%", "for a limit the limit itself: 80."),
        ("85 \u00b1 2 %", "; write the number alone: 85."),
        ("45 / 47 %", "; write one number, and give each measurement a line"),
        ("\uff15\uff17\uff0e\uff14\uff05", "write it in plain signs: 57.4%."),
        ("1 200,00 %", "take out the marks that separate thousands: 1200,00;"),
        ("1\u00a0200,00 %", "take out the marks that separate thousands: 1200,00;"),
        ("51", "'51' is not in '%', as most cells of the column are"),
        ("0.3 g", "'0.3 g' is not in '%', as most cells of the column are"),
    ],
)
def test_what_is_no_number_among_results_with_a_unit(
    lab: Laboratory, cell: str, advice: str
) -> None:
    """The advice is that among numbers without one."""
    told = lab.write("m.csv", f'id,loss|c1,45 %|c2,"{cell}"|c3,31 %')
    line = lab.refused("--results", told)
    assert "line 3 (key 'c2'), column 'loss': " in line and advice in line


def test_words_among_few_results_with_a_unit(lab: Laboratory) -> None:
    """A target has numbers, however many of its cells are none."""
    told = lab.write("m.csv", "id,loss|c1,45 %|c2,n.d.|c3,trace|c4,oil")
    assert "(key 'c2'), column 'loss': 'n.d.' is no number" in lab.refused(
        "--results", told
    )


@pytest.mark.parametrize("space", ["\u00a0", "\u202f"])
def test_thousands_with_a_currency(lab: Laboratory, space: str) -> None:
    price = f"1{space}200,00 \u20ac"
    lab.write("pool.csv", f"id;x;p|a;1;{price}|b;2;9,50 \u20ac|c;3;8,50 \u20ac")
    line = lab.refused("--cost", "p", "--decimal", ",")
    assert "'1 200,00' is no number" in line and "thousands: 1200,00" in line
    lab.write("pool.csv", "id,x,p|a,1,on request|b,2,9.50 \u20ac|c,3,8.50 \u20ac")
    assert "'on request' is no number; a finite one is" in lab.refused("--cost", "p")
