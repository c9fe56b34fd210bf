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
