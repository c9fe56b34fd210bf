"""Results of earlier campaigns on the command line."""

import re
from typing import Any

import pytest
import torch
from laboratory import DOSE, HEAT, SOLVENT, Laboratory, loss, measured

from botorch_sparse.strategies import Objective

pytest.importorskip("pandas")

from botorch_sparse.suggest.candidate_pool import read_pool
from botorch_sparse.suggest.results import read_related
from botorch_sparse.suggest.selection import campaign


def earlier(lab: Laboratory, *more: list[Any], name: str = "old.csv") -> Any:
    """A file of the same function at another level, with keys of its own."""
    head = ["id", "heat", "solvent", "dose", "lid", "loss"]
    rows: list[list[Any]] = [
        [f"c{29 - i}", HEAT[i] + 0.5, SOLVENT[i % 3], DOSE[i], 0.5, 40 + 3 * loss(i)]
        for i in range(30)
    ]
    return lab.write(name, [head, *rows, *more])


@pytest.mark.parametrize("sign", [1, -1])
def test_the_next_rows_are_those_that_were_good(lab: Laboratory, sign: int) -> None:
    """In either direction, in the units of this campaign; other rows without it."""
    rows = [[f"c{i}", sign * (7 * i % 10)] for i in range(30)]
    lab.write("m.csv", [["id", "loss"], *rows[:12]])
    head = ["name", "heat", "solvent", "dose", "lid", "loss"]
    features = [[HEAT[i], SOLVENT[i % 3], DOSE[i], f"{i % 4}.50"] for i in range(30)]
    old = [[f"run {i}", *features[i], 40 + 7 * i % 10 / 2] for i in range(30)]
    words = ("--minimize", "--batch", "3", "--results", lab.results)
    best = sorted(range(12, 30), key=lambda i: rows[i][1])[:9]
    alone = lab(*words)
    assert len({f"c{i}" for i in best} & {*alone.ids}) < 3
    answer = lab(*words, "--related", lab.write("old.csv", [head, *old]))
    assert "old.csv: 30 results of an earlier campaign (--related)." in answer.said
    assert {*answer.ids} <= {f"c{i}" for i in best}
    for row in answer.rows:
        assert abs(float(row["predicted_mean"])) < 12


def test_its_points_and_values_are_read(lab: Laboratory) -> None:
    """Rows by their keys, and points beside the pool by their features."""
    outcomes = (Objective("loss"), Objective("gain"))
    pool = read_pool(lab.pool, "id", outcomes)
    by_key = lab.write("k.csv", "id,loss,gain|c4,1,2|c2,3,|c1,5,6|")
    apart = lab.write(
        "a.csv",
        "heat,solvent,dose,lid,loss|30,oil,0.5,1,7|31,water,0.25,2,8|9,x,0,1,9|",
    )
    first, second = read_related([by_key, apart], pool)
    X, Y = campaign(pool.table, first)
    assert torch.equal(X, pool.table.X[torch.tensor([4, 2, 1])])
    assert Y.nan_to_num(-1).tolist() == [[1, 2], [3, -1], [5, 6]]
    X, Y = campaign(pool.table, second)
    assert torch.equal(X[:, [0, -2, -1]], torch.tensor([[30, 0.5, 1], [31, 0.25, 2]]))
    kinds = pool.table.X[:, 1:-2].unique(dim=0)
    assert {*map(tuple, X[:, 1:-2].tolist())} <= {*map(tuple, kinds.tolist())}
    assert torch.equal(X[:, 1:-2], pool.table.X[[1, 0], 1:-2])
    assert Y.nan_to_num(-1).tolist() == [[7, -1], [8, -1]]


def test_first_rows_say_why(lab: Laboratory) -> None:
    """Every other one is from the earlier campaign, also beside rows that are out."""
    first = "first batch, among the best by earlier campaigns"
    old = earlier(lab)
    for more, num in ((), 3), (("--exclude", "solvent=oil"), 3):
        answer = lab("--minimize", "--batch", "6", "--related", old, *more)
        reasons = [row["reason"] for row in answer.rows]
        assert reasons.count(first) == num
        assert reasons.count("first batch, spread over the table") == 3


def test_what_says_nothing_is_left_out(lab: Laboratory) -> None:
    """Categories of no candidate, and measurements without a value."""
    others = ["x", 30.0, "acid", 0.1, 0.5, 1.0], ["y", 31.0, "oil", 0.1, 0.5, ""]
    answer = lab("--related", earlier(lab, *others))
    assert "30 results of an earlier campaign" in answer.said
    note = "old.csv: left out: 1 result with a category that no candidate has."
    assert note in answer.said


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "There is no file .* for --related; check its name"),
        (
            "id,loss|c1,1|c2,1|",
            "old.csv: Got 1 different values",
        ),
        ("id,loss|z1,1|z2,2|", "z1"),
        ("id,loss|", "old.csv has no results, for --related"),
        ("heat,solvent,dose,lid,loss|1,acid,1,1,1|", "categories a candidate has"),
        ("id,gain|c1,1|c2,2|c3,3|", "no column 'loss'"),
    ],
)
def test_what_it_does_not_take(lab: Laboratory, table: Any, words: str) -> None:
    path = lab.folder / "old.csv" if table is None else lab.write("old.csv", table)
    assert re.search(words, lab.refused("--related", path))


def test_a_file_has_one_role(lab: Laboratory) -> None:
    path = lab.write("m.csv", measured(6))
    said = lab.refused("--results", path, "--related", path)
    assert "given twice as --results or --related" in said


def test_odd_values_are_named_as_in_results(lab: Laboratory) -> None:
    """Placeholders, a value a thousand times too large, and features far outside."""
    twice = [["x", 30.0, "oil", 0.1, 0.5, -999], ["y", 31.0, "oil", 0.1, 0.5, -999]]
    large = ["z", 32.0, "oil", 0.2, 0.5, 44_000]
    acid = ["a", 33.0, "acid", 0.2, 0.5, 44_001]  # is left out, and not odd
    said = lab("--related", earlier(lab, acid, *twice, large)).said
    (note,) = [line for line in said.splitlines() if "far from all others" in line]
    assert "old.csv: 'loss' has values" in note
    for each in ("-999 (line 33", "-999 (line 34", "44000 (line 35"):
        assert each in note
    assert "old.csv: 34 results" not in said and "old.csv: 33 results" in said
    head = ["heat", "solvent", "dose", "lid", "loss"]
    rows = [[1e3 + HEAT[i], SOLVENT[i % 3], DOSE[i], 0.5, loss(i)] for i in range(9)]
    said = lab("--related", lab.write("far.csv", [head, *rows])).said
    said = said.replace(f"{lab.folder}/", "")
    assert "far.csv: none of the 9 results is in pool.csv: 'heat' is from 10" in said
    for each in ("results of no row", "nearly the key", "has values far"):
        assert each not in said


def test_a_campaign_that_is_a_copy_of_the_results(lab: Laboratory) -> None:
    """Rows by their keys or features; one that has another value is no copy."""
    lab.write("m.csv", measured(8))
    head = ["heat", "solvent", "dose", "lid", "loss"]
    rows = [[HEAT[i], SOLVENT[i % 3], DOSE[i], i % 4 + 0.5, loss(i)] for i in range(8)]
    copies = {"a.csv": measured(8), "b.csv": [head, *rows[::-1]], "c.csv": measured(5)}
    for name, table in copies.items():
        said = lab("--results", lab.results, "--related", lab.write(name, table)).said
        of_it = f"the {len(table) - 1} results of {name}"
        note = f"note: {of_it} are all in m.csv too, and count twice."
        assert note in said.replace(f"{lab.folder}/", "")
    rows[3][-1] += 0.01
    other = lab.write("d.csv", [head, *rows])
    assert "too, and count twice" not in lab("--related", other).said
    both = ["--results", lab.results, "--related", other]
    assert "too, and count twice" not in lab(*both).said


def test_the_file_that_is_not_taken_is_named_alone(lab: Laboratory) -> None:
    bad = lab.write("b.csv", "id,loss|c1,1|c2,2|")
    line = lab.refused("--related", earlier(lab), bad)
    assert "b.csv: Got 2 different values; need 3" in line
    assert "pool.csv" not in line and "old.csv" not in line and "[1]" not in line
    large = lab.write("b.csv", "id,loss|c1,1|c2,2|c3,1e200|")
    assert "b.csv: Got feedback as large as 1e+200, whose squares" in lab.refused(
        "--related", earlier(lab), large
    )
