"""Rows that may not be measured now, and what is said of the columns."""

import csv
from typing import Any

import pytest
from laboratory import DOSE, HEAT, NUM, SOLVENT, Laboratory, lines, loss, measured

pytest.importorskip("pandas")

KINDS = [SOLVENT[i % 3] for i in range(NUM)]
# Conditions, and which rows they leave.
LEFT: list[tuple[list[str], list[bool]]] = [
    (["solvent=water"], [kind != "water" for kind in KINDS]),
    (["solvent!=oil"], [kind == "oil" for kind in KINDS]),
    (["solvent=gas, wet", "heat>60"], [
        kind != "gas, wet" and heat <= 60
        for kind, heat in zip(KINDS, HEAT, strict=True)
    ]),
    (["dose <= 0", "heat<30"], [
        dose > 0 and heat >= 30 for dose, heat in zip(DOSE, HEAT, strict=True)
    ]),
    (["lid=1.5"], [i % 4 != 1 for i in range(NUM)]),
    (["id=c3"], [i != 3 for i in range(NUM)]),
    (["price>=9"], [2 * i < 9 for i in range(NUM)]),
    (["price=8.0"], [2 * i != 8 for i in range(NUM)]),
]  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("conditions", "is_left"), LEFT)
@pytest.mark.parametrize("num_told", [0, 12])
def test_excluded_rows_are_not_proposed(
    lab: Laboratory, conditions: list[str], is_left: list[bool], num_told: int
) -> None:
    """Their results count, and all others are proposed."""
    rows = lab.pool.read_text().splitlines()
    priced = [f"{row},{2 * i - 2}" for i, row in enumerate(rows)]
    lab.write("pool.csv", "|".join([f"{rows[0]},price", *priced[1:]]))
    words: list[Any] = [word for text in conditions for word in ("--exclude", text)]
    if num_told:
        words += ["--results", lab.write("m.csv", measured(num_told))]
    answer = lab(*words, "--ignore", "price", "--batch", NUM)
    left = [f"c{i}" for i in range(num_told, NUM) if is_left[i]]
    assert sorted(answer.ids) == sorted(left)
    num_out = NUM - num_told - len(left)
    out = f", {num_out} excluded" if num_out else ""
    assert f"{out}; {len(left)} proposed now" in answer.said
    if num_told:
        best = min(range(num_told), key=lambda i: -loss(i))
        assert f"best so far: 'c{best}'" in answer.said


def test_for_one_round(lab: Laboratory) -> None:
    """What is excluded comes back with the option left out; what waits, waits on."""
    state = "--state", lab.state
    first = lab(*state, "--batch", 4)
    out = lab(*state, "--batch", 4, "--exclude", "solvent=water")
    assert not {*first.ids} & {*out.ids}
    assert all(row["solvent"] != "water" for row in out.rows)
    rest = lab(*state, "--batch", NUM)
    assert len({*first.ids, *out.ids, *rest.ids}) == NUM


def test_all_that_is_left_is_excluded(lab: Laboratory) -> None:
    told = [["id", "loss"], *([f"c{i}", 1.0 + i] for i in range(NUM) if i % 3)]
    said = lab("--results", lab.write("m.csv", told), "--exclude", "solvent=water").said
    assert "NO ROW IS PROPOSED: all rows that are left, 10, are excluded" in said
    lab.write("pool.csv", "id,x|a,1")
    assert "excludes" not in lab().said
    assert "leaves no row" in lab.refused("--exclude", "x>0")


REFUSED = [
    ("water", "cannot be read; write COLUMN=VALUE"),
    ("=water", "cannot be read"),
    ("solvent=", "cannot be read"),
    ("solvant=water", "has no column 'solvant', which --exclude names"),
    ("solvent=Water", "Did you mean 'water'?"),
    ("solvent=ether", "which is not in column 'solvent'; it has 'water', 'oil'"),
    ("solvent>water", "write = or !="),
    ("heat>hot", "'hot', which is no number"),
    ("heat=1000", "is true of no row: column 'heat' is from 20"),
    ("heat>0", "leaves no row"),
]


@pytest.mark.parametrize(("condition", "message"), REFUSED)
def test_bad_conditions(lab: Laboratory, condition: str, message: str) -> None:
    assert message in lab.refused("--exclude", condition)


def test_decimal_commas(lab: Laboratory) -> None:
    lab.write("pool.csv", "id;x|a;0,5|b;1,5|c;2,5")
    rows = lab("--decimal", ",", "--exclude", "x>=1,5").ids
    assert rows == ["a"]
    # Without the option as the cells of the column, but for what may be thousands.
    for value in ("1,5", "1.5"):
        assert lab("--exclude", f"x>={value}").ids == ["a"]
    assert "'1,500', which is no number" in lab.refused("--exclude", "x>=1,500")


def test_names_of_columns_may_hold_marks(lab: Laboratory) -> None:
    lab.write("pool.csv", "id,T>,T>=|a,1,5|b,2,6|c,3,7")
    assert lab("--exclude", "T>>2", "--exclude", "T>==5").ids == ["b"]


def test_what_was_read_is_said(lab: Laboratory) -> None:
    said = lab().said
    assert "read: 'heat': numbers from 20" in said
    assert "read: 'solvent': 3 categories, 'water', 'oil', 'gas, wet'." in said
    assert "read: 'id': names the rows (--key)." in said
    assert not lab("--quiet").said
    lab.write("pool.csv", lines("id,x,y", "c{0},{0},7", 9))
    assert "read: 'y': the number 7 in all rows." in lab().said
    wide = ",".join(f"f{i}" for i in range(40))
    rows = [f"c{j}," + ",".join(str(i * j) for i in range(40)) for j in range(9)]
    lab.write("pool.csv", "|".join([f"id,{wide}", *rows]))
    said = lab().said
    assert "read: and 10 more features." in said and "'f35'" not in said


def test_one_of_the_rows_with_the_same_features_is_proposed(lab: Laboratory) -> None:
    """None of them where one was measured, failed or waits; the cheapest one else."""
    rows = [*csv.reader(lab.pool.read_text().splitlines())]
    twins = [[f"t{row[0][1:]}", *row[1:]] for row in rows[1:6]]
    rows = [[*row, "price" if row[0] == "id" else "5"] for row in [*rows, *twins]]
    rows[-1][-1] = "4"  # t4
    lab.write("pool.csv", [*rows, ["u4", *rows[-1][1:]]])
    told = lab.write("m.csv", [["id", "loss"], ["c0", 1], ["t1", "failed"]])
    options = ["--results", told, "--batch", 99]
    answer = lab(*options, "--cost", "price", "--state", lab.state)
    others = {f"c{i}" for i in range(5, NUM)}
    assert {*answer.ids} == {"c2", "c3", "t4"} | others
    assert (
        "line 2 (key 'c0') and line 32 (key 't0'); line 3 (key 'c1') and line 33 (key "
        "'t1'); line 4 (key 'c2') and line 34 (key 't2'); and 2 more groups. One of"
        in answer.said
    )
    assert "1 of them measured, 1 failed, 6 excluded" in answer.said
    answer = lab(*options, "--cost", "price", "--state", lab.state)
    assert not answer.rows and "NO ROW IS PROPOSED: all rows that are" in answer.said
    ids = lab(*options, "--exclude", "id=c4", "--ignore", "price").ids
    assert {*ids} & {"c4", "t4", "u4"} == {"t4"}


def test_results_under_other_keys_are_of_the_rows_with_their_features(
    lab: Laboratory,
) -> None:
    """As of replicates with names of their own: their row is measured."""
    lab.write("pool.csv", "id,x,solvent|R1,1,oil|R2,5,oil|R3,2,oil|R4,0.1234567,oil")
    told = [
        *("R1-1,1,oil,45", "R1-2,1.0,oil,46", "R2-1,5,oil,failed"),
        *("R4-1,0.123457,oil,52", "old,7,oil,50"),
    ]
    (lab.folder / "more").mkdir()
    first = lab.write("m.csv", "|".join(["id,x,solvent,loss", *told]))
    answer = lab("--results", first, "--state", lab.state)
    assert answer.ids == ["R3"]
    assert "4 rows, 2 of them measured, 1 results beside it, 1 failed;" in answer.said
    assert "best so far: 'R4' (line 5" in answer.said
    rows = "line 2 (key 'R1-1') has those of 'R1' (line 2 of "
    assert "note: 4 of the results have keys that" in answer.said
    assert rows in answer.said
    # Another replicate with the same value is no copy of the first.
    then = lab.write("more/m.csv", "id,x,solvent,loss|R1-3,1,oil,45")
    said = lab("--results", first, then).said
    assert "count once" not in said
    assert f"line 2 (key 'R1-1') of {first} has those" in said


def test_waiting_rows_get_results_under_other_keys(lab: Laboratory) -> None:
    lab.write("pool.csv", "id,x|R1,1|R2,5|R3,2|R4,9")
    ids = lab("--state", lab.state, "--batch", 1).ids
    x = {"R1": 1, "R2": 5, "R3": 2, "R4": 9}[ids[0]]
    told = lab.write("m.csv", f"id,x,loss|again,{x},45")
    said = lab("--results", told, "--state", lab.state, "--batch", 1).said
    assert "1 of them measured, 1 proposed before" not in said
    assert "1 of them measured; 1 proposed now" in said
