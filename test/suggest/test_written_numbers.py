"""Points and commas that may be two marks are asked about."""

import pytest
from laboratory import Laboratory

pytest.importorskip("pandas")

# Cells of a column, and whether points may separate thousands there.
POINTS = [
    (["1.127", "862", "1.702"], True),
    (["-12.127 g", "862 g", "1.702 g"], True),
    (["0.127", "862", "1.702"], False),
    (["1.127", "862.5", "1.702"], False),
    (["1.127", "862", "1.70"], False),
    (["1.127", "1.862", "1.702"], False),
    (["1127", "862", "1702"], False),
    (["1.1274", "862", "1"], False),
    (["1234.127", "862", "1"], False),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("cells", "is_odd"), POINTS)
def test_points_that_may_separate_thousands(
    lab: Laboratory, cells: list[str], is_odd: bool
) -> None:
    """In features and results; not where they are named as decimal marks."""
    rows = [[f"c{i}", cell, i] for i, cell in enumerate(cells)]
    told = lab.write("m.csv", [["id", "loss"], *(row[:2] for row in rows)])
    lab.write("list.csv", [["id", "y"], *([a, c] for a, _, c in rows)])
    lab.write("pool.csv", [["id", "x", "y"], *rows])
    if is_odd:
        number = cells[0].split()[0]
        line = lab.refused()
        assert f"column 'x': '{number}' may be {number.replace('.', '')} or" in line
        assert "beside '862' in line 3" in line and "--decimal ." in line
        lab.pool = lab.folder / "list.csv"
        assert "line 2 (key 'c0'), column 'loss'" in lab.refused("--results", told)
        lab.pool = lab.folder / "pool.csv"
    for words in [["--decimal", "."]] + [[]] * (not is_odd):
        assert "read: 'x': numbers from" in lab(*words).said
        lab.pool = lab.folder / "list.csv"
        assert "3 of them measured" in lab("--results", told, *words).said
        lab.pool = lab.folder / "pool.csv"


def test_points_of_costs(lab: Laboratory) -> None:
    lab.write("pool.csv", "id,x,price|a,1,980|b,2,1.200|c,3,2.100")
    assert "column 'price': '1.200' may be 1200 or 1.2" in lab.refused(
        "--cost", "price"
    )
    said = lab("--cost", "price", "--decimal", ".").said
    assert "the cost, numbers from 1.2 to 980" in said


def test_points_and_commas_in_one_column(lab: Laboratory) -> None:
    lab.write("pool.csv", 'id,x,y|a,12.5,1|b,80,2|c,"1,200",3')
    line = lab.refused("--decimal", ",")
    assert "line 2 (key 'a'), column 'x': '12.5' has a point and '1,200'" in line
    assert "in line 4 a comma" in line and "thousands" in line
    line = lab.refused()
    assert "'1,200' is no number" in line and "points too, such as 12.5" in line
    assert "--decimal" not in line
    lab.write("pool.csv", 'id,x|a,1|b,80|c,"1,200.5"')
    assert "--decimal" not in lab.refused()
    lab.write("pool.csv", 'id,x|a,12|b,80|c,"1,200"')
    assert "--decimal ','" in lab.refused()


def test_thousands_beside_decimal_commas_are_read(lab: Laboratory) -> None:
    lab.write("pool.csv", "id;x|a;1.234,5|b;80|c;1,2")
    assert "numbers from 1.2 to 1234.5." in lab("--decimal", ",").said


# Cells of a column, and its least and greatest number if commas are decimal marks.
COMMAS = [
    (["1,2", "0,85", "3,4"], "0.85 to 3.4"),
    (["1,2 g", "0,85 g", "3 g"], "0.85 to 3 g"),
    (["EUR 1,20", "EUR 0,85", "EUR 3,40"], "0.85 to 3.4 EUR"),
    (["-1,2", "-2", "1200"], "-2 to 1200"),
    (["0,320", "0,125", "1"], "0.125 to 1"),  # no thousands begin with 0
    (["1234,567", "1", "2"], "1 to 1234.57"),
    (["1,2", "1,234", "3"], None),
    (["1,234 g", "1,2 g", "3 g"], None),
    (["1,2", "1,234,567", "3"], None),
    (["1,234", "2,345", "3"], None),
    (["1,2", "1.5", "3"], None),
    (["1,2", "1,234.5", "3"], None),
    (["1,2", "1 234", "3"], None),
]


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("cells", "shown"), COMMAS)
def test_commas_that_separate_no_thousands(
    lab: Laboratory, cells: list[str], shown: str | None
) -> None:
    """In features, costs and results; the line of the column says so."""
    rows = [[f"c{i}", cell, i] for i, cell in enumerate(cells)]
    told = lab.write("m.csv", [["id", "loss"], *(row[:2] for row in rows)])
    lab.write("list.csv", [["id", "y"], *([a, c] for a, _, c in rows)])
    lab.write("pool.csv", [["id", "x", "y"], *rows])
    calls: list[tuple[str, list[object], str]] = [("pool.csv", [], "'x': ")]
    calls += [("list.csv", ["--results", told], "'loss': the target, in 3 results, ")]
    calls += [("pool.csv", ["--cost", "x"], "'x': the cost, ")] * ("-1,2" not in cells)
    for name, words, start in calls:
        lab.pool = lab.folder / name
        if shown is None:
            line = lab.refused(*words)
            assert "thousands" in line and f"column {start[:3]}" in line
        else:
            line = f"read: {start}numbers from {shown} (commas are decimal marks)"
            assert line in lab(*words).said
            assert "is no number" in lab.refused(*words, "--decimal", ".")
    lab.pool = lab.folder / "pool.csv"
    assert "read: 'x': 3 categories" in lab("--text", "x").said


def test_decimal_commas_are_read_and_written_alike(lab: Laboratory) -> None:
    """Rows are found by them, and the batch has the mark of the candidates."""
    lab.write("pool.csv", "x;y|1,5;1|2,5;2|3,5;3|4,5;1|6;2")
    told = lab.write("m.csv", "x;y;loss|1,5;1;0,5|2,5;2;n.d.|4,5;1;failed")
    line = lab.refused("--results", told, key=None)
    assert "line 3, column 'loss': 'n.d.' is no number" in line
    told = lab.write("m.csv", "x;y;loss|1,5;1;0,5|2,5;2;2,5|4,5;1;failed")
    answer = lab("--results", told, key=None)
    assert "2 of them measured, 1 failed; 2 proposed" in answer.said
    assert {row["x"] for row in answer.rows} == {"3,5", "6"}
    assert all("," in row["predicted_mean"] for row in answer.rows)
    lab.write("pool.csv", "id;s;x|a;1,5;1|b;oil;2|c;2,5;3|d;gas;4")
    assert "read: 's': 4 categories, '1,5', 'oil', '2,5'" in lab().said


def test_points_where_other_columns_have_decimal_commas(lab: Laboratory) -> None:
    """They may separate thousands there, although no cell is a whole number."""
    lab.write("pool.csv", "id;x;y|a;1,5;1.127|b;2,5;2.340")
    line = lab.refused()
    assert "line 2 (key 'a'), column 'y': the point in '1.127' may separate" in line
    assert "in column 'x' of" in line and "write 1127, or if it is a decimal" in line
    lab.write("pool.csv", "id;x;y|a;1,5;1.127|b;2,5;2.34")
    assert "read: 'y': numbers from 1.127 to 2.34." in lab().said
    told = lab.write("m.csv", "id;loss|a;1.127|b;2.340")
    assert "m.csv, line 2 (key 'a'), column 'loss': the po" in lab.refused(
        "--results", told
    )
    lab.write("pool.csv", "id;y|a;1.127|b;2.340")
    assert "read: 'loss': the target, in 2 r" in lab("--results", told).said
    told = lab.write("m.csv", "id;loss|a;1,5|b;2,5")
    assert "pool.csv, line 2 (key 'a'), column 'y': the" in lab.refused(
        "--results", told
    )


def test_columns_that_are_not_used_keep_their_commas(lab: Laboratory) -> None:
    lab.write("pool.csv", 'id,place,x|a,"1,2",1.5|b,"1,3",2.5|c,"1,4",3')
    told = lab.write("m.csv", 'id,place,loss|a,"1,2",1.5|b,"1,3",2.5')
    words = ["--results", told, "--ignore", "place"]
    (row,) = lab(*words).rows
    assert row["place"] == "1,4" and "." in row["predicted_mean"]
