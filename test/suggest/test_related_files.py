"""Results of earlier campaigns on the command line."""

import re
from typing import Any

import pytest
from laboratory import DOSE, HEAT, SOLVENT, Laboratory, loss, measured

pytest.importorskip("pandas")

BEST = sorted(range(30), key=loss)[:3]


def earlier(lab: Laboratory, *more: list[Any], name: str = "old.csv") -> Any:
    """A file of the same function at another level, with keys of its own."""
    head = ["id", "heat", "solvent", "dose", "lid", "loss"]
    rows: list[list[Any]] = [
        [f"c{29 - i}", HEAT[i] + 0.5, SOLVENT[i % 3], DOSE[i], 0.5, 40 + 3 * loss(i)]
        for i in range(30)
    ]
    return lab.write(name, [head, *rows, *more])


def test_the_best_rows_are_found_sooner(lab: Laboratory) -> None:
    """Also where small values are wanted: the sign is the user's."""
    lab.write("m.csv", measured(6))
    words = ("--minimize", "--batch", "3", "--results", lab.results)
    answer = lab(*words, "--related", earlier(lab))
    assert "old.csv: 30 results of an earlier campaign (--related)." in answer.said
    assert {f"c{row}" for row in BEST} & {*answer.ids}
    for row in answer.rows:  # in the units of this campaign
        assert -3 < float(row["predicted_mean"]) < 5


def test_first_rows_say_why(lab: Laboratory) -> None:
    old = earlier(lab)
    reasons = [
        row["reason"]
        for row in lab("--minimize", "--batch", "6", "--related", old).rows
    ]
    assert reasons.count("first batch, among the best by earlier campaigns") >= 1
    assert "first batch, spread over the table" in reasons


def test_keys_name_rows_where_there_are_no_features(lab: Laboratory) -> None:
    by_key = [[f"c{i}", 40 + 3 * loss(i)] for i in range(30)]
    first = lab.write("by_key.csv", [["id", "loss"], *by_key])
    lab.write("m.csv", measured(6))
    words = ("--minimize", "--batch", "3", "--results", lab.results, "--related")
    assert {f"c{row}" for row in BEST} & {*lab(*words, first).ids}
    both = lab(*words, first, earlier(lab))
    assert "old.csv: 30 results" in both.said and "by_key.csv: 30" in both.said


def test_what_says_nothing_is_left_out(lab: Laboratory) -> None:
    """Categories of no candidate, and measurements without a value."""
    others = ["x", 30.0, "acid", 0.1, 0.5, 1.0], ["y", 31.0, "oil", 0.1, 0.5, ""]
    answer = lab("--related", earlier(lab, *others))
    assert "30 results of an earlier campaign" in answer.said
    note = "old.csv: 1 more have a category that no candidate has"
    assert note in answer.said


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "There is no file .* for --related; check its name"),
        (
            "id,loss|c1,1|c2,1|",
            "old.csv: In related.0.: Got 1 different values",
        ),
        ("id,loss|z1,1|z2,2|", "z1"),
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
