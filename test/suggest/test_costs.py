"""Costs, a budget, and the rows at the start, on the command line."""

import pytest
from laboratory import HEADER, NUM, Laboratory, lines, measured

pytest.importorskip("pandas")

from botorch_sparse.suggest.reasons import DRAWN, FIRST, SPREAD

PRICE = [f"{1 + 3 * (i % 2)}" for i in range(NUM)]


@pytest.fixture
def priced(lab: Laboratory) -> Laboratory:
    """The pool with a price: rows of even numbers cost 1 EUR, others 4."""
    header, *rows = lab.pool.read_text().split("\n")
    priced = [f"{row},{price} EUR" for row, price in zip(rows, PRICE, strict=False)]
    lab.write("pool.csv", "|".join([f"{header},price", *priced]))
    return lab


def test_a_cost_is_no_feature_and_cheap_rows_come_first(priced: Laboratory) -> None:
    """Of rows that are alike but for their price, few dear ones are proposed."""
    results = priced.write("m.csv", [*measured(8), ["c20", "failed"]])
    plain = priced("--results", results, "--batch", 5, "--ignore", "price")
    answer = priced("--results", results, "--batch", 5, "--cost", "price")
    assert "read: 'price': the cost, numbers from 1 to 4 EUR." in answer.said
    assert "unlike" in str(answer.rows) and "price" not in answer.rows[0]["reason"]

    def dear(ids: list[str]) -> int:
        return sum(int(each[1:]) % 2 for each in ids)

    assert dear(answer.ids) < dear(plain.ids)
    spent = sum(int(PRICE[i]) for i in (*range(8), 20))
    new = sum(int(PRICE[int(each[1:])]) for each in answer.ids)
    assert f"cost: {spent} spent so far, {new} for these rows." in answer.said


def test_a_budget_is_kept(priced: Laboratory) -> None:
    """Over rounds, with a state, until no row can be paid."""
    rows: list[str] = []
    words = ["--cost", "price", "--budget", 40, "--batch", 6, "--state", priced.state]
    for _ in range(20):
        table = [["id", "loss"], *([each, float(each[1:])] for each in rows[:-2])]
        told = priced.write("m.csv", table if rows else "")
        answer = priced("--results", told, *words)
        if not answer.ids:
            break
        rows += answer.ids
        spent = sum(int(PRICE[int(each[1:])]) for each in rows)
        assert spent <= 40 and f"{40 - spent} of 40 left" in answer.said
    assert "NO ROW IS PROPOSED: no row that is left can be paid" in answer.said
    left = {f"c{i}" for i in range(NUM)} - {*rows}
    assert min(int(PRICE[int(each[1:])]) for each in left) > 40 - spent


def test_costs_beside_the_pool_and_of_failures_count(priced: Laboratory) -> None:
    header = ",".join([*HEADER, "price", "loss"])
    beside = "old,40,oil,0,1.5,7,3|older,41,oil,0,1.5,,3"
    rows = "c1,,,,,4,failed|c2,,,,,5,2|c4,,,,,1,2"
    told = priced.write("m.csv", f"{header}|{beside}|{rows}")
    words = ["--results", told, "--cost", "price", "--batch", 2, "--budget"]
    answer = priced(*words, 101)
    note = (
        "1 results have another 'price' than {}, such as '5' and not 1 in line 5 (key"
    )
    assert note.format(priced.pool) in answer.said
    told = priced.write("m.csv", f"{header}|{beside}|c1,,,,,,failed|c2,,,,,,2")
    answer = priced(*words, 100)
    assert "another 'price'" not in answer.said
    # 1 for c2, 4 for c1, 7 for old, and the mean for older
    assert "cost: 14.5 spent so far, " in answer.said
    assert "(1 results beside it at the mean cost)." in answer.said
    assert priced(*words, 15.6).ids and not priced(*words, 15.4).ids
    assert not priced(*words, 3).ids


def test_failed_repeats_and_those_of_no_row_are_paid(priced: Laboratory) -> None:
    """Each failure once, though a later file has it too."""
    header = ",".join([*HEADER, "price", "loss"])
    rows = "c2,,,,,,2|c2,,,,,,failed|c2,,,,,,failed|gone,40,oil,0,1,7,failed"
    told = priced.write("m.csv", f"{header}|{rows}")
    words = ["--cost", "price", "--batch", 2, "--results"]
    # three times 1 for c2, and 7
    said = priced(*words, told).said
    assert "cost: 10 spent so far, " in said and ", 2 failed repeats; " in said
    later = priced.write("later.csv", "id,loss|c2,failed|c1,failed|c2,failed|c2,failed")
    said = priced(*words, told, later).said
    assert "cost: 15 spent so far, " in said and ", 1 failed, 3 failed repeats" in said
    assert "note: 2 of the results are in an earlier file too" in said
    assert not priced(*words, told, "--budget", 10.5).ids


REFUSED = [
    (["--budget", "3"], "--budget needs --cost"),
    (["--cost", "price", "--budget", "-3"], "'-3' is not a number above 0"),
    (["--cost", "prize"], "has no column 'prize', the --cost"),
    (
        ["--cost", "solvent"],
        "line 2 (key 'c0'), column 'solvent': 'water' is no number",
    ),
    (["--cost", "id"], "Both --key and --cost name 'id'"),
    (["--cost", "price", "--ignore", "price"], "Both --cost and --ignore name 'price'"),
    (["--cost", "price", "--strategy", "bbkb"], "--strategy bbkb takes no --cost"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_bad_costs_are_refused(
    priced: Laboratory, words: list[str], message: str
) -> None:
    assert message in priced.refused(*words)


def test_a_cost_is_positive(lab: Laboratory) -> None:
    rows = "id,x,price|a,1,2 €|b,2,3 €|c,3,4 €|d,4,5 $|e,5,1 €|f,6,1 €"
    lab.write("pool.csv", rows)
    line = lab.refused("--cost", "price")
    assert "line 5 (key 'd'), column 'price': '5 $' is not in '€', as most" in line
    lab.write("pool.csv", "id,x,price|a,1,2|b,2,0")
    line = lab.refused("--cost", "price")
    assert (
        "line 3 (key 'b'), column 'price': '0' is no cost; it has to be above" in line
    )


@pytest.mark.parametrize(
    ("design", "reason"), [(["--design", "random"], FIRST), ([], SPREAD)]
)
def test_the_first_rows_have_a_number(
    lab: Laboratory, design: list[str], reason: str
) -> None:
    words = [*design, "--first", 8, "--state", lab.state]
    answer = lab(*words, "--batch", 20)
    ids = answer.ids
    assert len(ids) == 8
    assert {row["reason"] for row in answer.rows} == {reason}
    told = lab.write("m.csv", [["id", "loss"], *([each, 1] for each in answer.ids[:3])])
    answer = lab(*words, "--batch", 20, "--results", told)
    assert len(answer.ids) == 20  # eight are measured or wait
    assert not any(row["reason"] == DRAWN for row in answer.rows)
    answer = lab(*design, "--first", 8, "--batch", 3)
    assert len(answer.ids) == 3
    rows = [[each, i] for i, each in enumerate(ids[:6])] + [[ids[6], "failed"]]
    told = lab.write("m.csv", [["id", "loss"], *rows, [ids[7], "failed"]])
    answer = lab(*design, "--first", 8, "--batch", 3, "--results", told)
    assert len(answer.ids) == 3  # those that failed are not asked for anew
    assert not any(row["reason"] == DRAWN for row in answer.rows)


def test_a_design_covers_the_table(lab: Laboratory) -> None:
    """Of a crowd and five far rows the far ones come, where random rows miss them."""
    crowd = lines("id,x", "c{0},0.00{0}", 90, 10)
    lab.write("pool.csv", crowd + "|a,1|b,2|c,3|d,4|e,5")
    words = ["--first", 6, "--batch", 6]
    assert {*lab(*words).ids} >= {*"abcde"}
    assert not {*lab(*words, "--design", "random").ids} >= {*"abc"}
