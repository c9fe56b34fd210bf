"""Several outcomes on the command line: options, partial results, what is best."""

# ruff: noqa: E501 (a case is one line)

import csv
import json
import math
import random
import shlex
from argparse import ArgumentParser, Namespace
from typing import Any

import pytest
import torch
from laboratory import DEFAULTS, HEAT, NUM, Laboratory, Table, lines, loss

pytest.importorskip("pandas")

from botorch_sparse.strategies import Constraint, Objective
from botorch_sparse.suggest.candidate_pool import read_pool
from botorch_sparse.suggest.outcome_options import add_outcome_options, outcomes_of
from botorch_sparse.suggest.reasons import SPREAD
from botorch_sparse.suggest.results import read_results
from botorch_sparse.suggest.selection import ADDED, rebuild

NAN = math.nan
TWO = "--minimize loss --target gain --minimize gain"
LIMITED = "--minimize --constraint gain<=0.3"
FEASIBLE_FIRST = ["bbkb", "thompson"]  # strategies that order by feasibility
BOTH = (Objective("loss", minimize=True), Objective("gain", minimize=True))


def gain(row: int) -> float:
    """What is to be small too; it is smallest where heat is 20."""
    return (HEAT[row] - 20) / 60


def told(rows: Any, without: Any = ()) -> list[list[Any]]:
    """Results of rows, some of them without a gain."""
    cells = [[f"c{i}", loss(i), "" if i in without else gain(i)] for i in rows]
    return [["id", "loss", "gain"], *cells]


# Each case: candidates, results, options, and parts of the one line.
FULL = lines("id,x,gain", "c{0},{0},1", 9)
REFUSED: list[tuple[Table | None, Table | None, str, str]] = [
    # options that name no outcome, or one twice
    (None, None, "--target loss", "--target names 'loss' twice; keep one"),
    (None, None, "--target gain --minimize", "--minimize names none of the 2 targets; say which, such as --minimize 'gain'"),
    (None, None, "--minimize cost", "--minimize names 'cost', which is no --target; these are 'loss'"),
    (None, None, "--target gain --constraint 'gain<=1'", "Both --target and --constraint name 'gain'"),
    (None, None, "--constraint 'loss>=1'", "Both --target and --constraint name 'loss'; keep one"),
    (None, None, "--constraint 'id<=1'", "Both --key and --constraint name 'id'"),
    (None, None, "--constraint 'heat<=1' --text heat --ignore heat", "Both --text and --ignore"),
    # limits and thresholds that cannot be read
    *[
        (None, None, f"--constraint {text!r}", f"--constraint: {text!r} cannot be read; write COLUMN<=NUMBER or >= in quotes")
        for text in ("gain", "gain<1", "gain=1", "<=1", "gain<=", "gain<=low", "gain<=inf", "gain<=nan", "gain<=0,05", "gain<=5%")
    ],
    (None, None, "--constraint 'gain<=500 ppm'", "is a decimal point, and without its unit 'ppm'."),
    (None, None, "--constraint 'gain<=1.250' --decimal ,", "whose only mark is a decimal comma"),
    (None, None, "--constraint 'a<=1' --constraint 'a <= 2'", "gives 'a' two limits with <=; keep"),
    (None, None, "--constraint 'a<=1' --constraint 'a>=2'", "allows no value of 'a': it would have to be at least 2 and at most 1"),
    (None, None, "--threshold gain=1", "--threshold names 'gain', which is no --target"),
    (None, None, "--threshold loss=1 --threshold loss=2", "--threshold names 'loss' twice"),
    (None, None, "--threshold loss", "--threshold: 'loss' cannot be read; write COLUMN=NUMBER"),
    # results
    (None, "id,loss|c1,1", "--target gain", "m.csv has no column 'gain', the --target; its col"),
    (None, "id,loss|c1,1", "--constraint 'gain<=1'", "m.csv has no column 'gain', the --constraint"),
    (None, "id,loss,gain|c1,1,2|c2,,2|c3,1,low", "--target gain", "line 4 (key 'c3'), column 'gain': 'low' is no number; write a number"),
    (None, "id,loss,gain|c1,1,2|c2,2 kg,1", "--target gain", "column 'loss': '2 kg' is no number"),
    (None, "id;loss;gain|c1;1;1.250", "--constraint 'gain<=1,5' --decimal ,", "column 'gain': with --decimal"),
    (None, "id,loss,gain|c1,1,2|c2,,", "--target gain", "column 'loss': the cell is empty, as in 'gain'; fill"),
    (None, "id,loss,gain|c1,1,2|zz,,1", "--target gain", "column 'id': {pool} has no row with this key"),
    # columns of the candidates
    (FULL, None, "--constraint 'gain<=1'", "{pool} has a number in each row of 'gain', but not of all outcomes"),
    (FULL, "id,loss,gain|c1,1,1", "--target gain", "what is known before a measurement is none"),
    ("id,x|a,1|b,2", None, "--target gain --ignore gain", "has no column 'gain', which --ignore"),
    ("id,x,loss,gain|a,1,,|b,2,,3", None, "--target gain", "'3' is a result in the column of the target"),
    ("id,x,gain|a,1,|b,2,3", None, "--constraint 'gain>=1'", "'3' is a result in the column of the constraint"),
    ("id,predicted_sd_gain|a,1", None, "--target gain", "has a column 'predicted_sd_gain', which the output adds"),
]  # fmt: skip


@pytest.mark.parametrize(("pool", "results", "options", "message"), REFUSED)
def test_a_bad_call_is_refused_in_one_line(
    lab: Laboratory,
    pool: Table | None,
    results: Table | None,
    options: str,
    message: str,
) -> None:
    if pool is not None:
        lab.write("pool.csv", pool)
    given = [] if results is None else ["--results", lab.write("m.csv", results)]
    line = lab.refused(*shlex.split(options), *given)
    assert message.format(pool=lab.pool) in line


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--target a", [Objective("a")]),
        ("--target a --minimize", [Objective("a", minimize=True)]),
        ("--minimize a --target a", [Objective("a", minimize=True)]),
        ("--target a --target b --minimize b", [Objective("a"), Objective("b", True)]),
        (
            "--target a --constraint 'b, %>=-1e-2' --constraint 'c <= 4' --constraint 'b, %<=2'",
            [Objective("a"), Constraint("b, %", -0.01, 2.0), Constraint("c", upper=4.0)],
        ),
        ("--target a --constraint 'x<=1<=.5'", [Objective("a"), Constraint("x<=1", upper=0.5)]),
        ("--target a=b --threshold a=b=2", [Objective("a=b", threshold=2.0)]),
        ("--target a --constraint 'b<=0,5' --decimal ,", [Objective("a"), Constraint("b", upper=0.5)]),
    ],
)  # fmt: skip
def test_options_are_outcomes(options: str, expected: list[Any]) -> None:
    parser = ArgumentParser()
    add_outcome_options(parser)
    parser.add_argument("--decimal", default=".")
    assert [*outcomes_of(parser.parse_args(shlex.split(options)))] == expected


def front_of(rows: list[int]) -> set[int]:
    """Rows that no other is at least as good as in both, by a loop."""
    return {
        i
        for i in rows
        if not any(loss(j) <= loss(i) and gain(j) <= gain(i) and j != i for j in rows)
    }


def test_the_front_and_its_hypervolume_are_reported(lab: Laboratory) -> None:
    """Rows without a gain are in no front; the volume is added up in strips."""
    rows = [*range(0, NUM, 2)]
    path = lab.write("m.csv", told(rows, without=[4, 8]))
    limits = "--threshold loss=1.4 --threshold gain=0.9"
    answer = lab("--results", path, *TWO.split(), *limits.split(), "--batch", 4)
    front = front_of([i for i in rows if i not in (4, 8)])
    said = answer.notes
    assert said[0] == f"front so far: {len(front)} of 15 rows are not dominated."
    shown = sorted(front, key=loss)
    for line, i in zip(said[1 : 1 + len(front)], shown, strict=True):
        values = f"'loss': {loss(i):.6g}, 'gain': {gain(i):.6g}"
        assert line == f"front: 'c{i}' (line {i + 2} of {lab.pool}), {values}."
    volume, right = 0.0, 1.4
    for i in sorted(front, key=loss, reverse=True):
        if loss(i) < 1.4 and gain(i) < 0.9:
            volume += (right - loss(i)) * (0.9 - gain(i))
            right = loss(i)
    last = f"hypervolume so far: {volume:.6g}, with the reference point"
    point = "'loss': 1.4 (the threshold), 'gain': 0.9 (the threshold)."
    assert said[1 + len(front)] == f"{last} {point}" and volume > 0
    assert "15 of them measured, 2 with outcomes that are missing; 4 prop" in said[-1]
    answer = lab("--results", path, *TWO.split(), "--threshold", "loss=1.4")
    assert "'loss': 1.4 (the threshold), 'gain': " in answer.said
    assert "(inferred)." in answer.said


def test_predictions_have_columns_for_each_outcome(lab: Laboratory) -> None:
    """They are the models' own; an outcome without any value has none."""
    names = [f"{part}_{name}" for name in ("loss", "gain") for part in ADDED[:2]]
    path = lab.write("m.csv", told(range(12)))
    answer = lab("--results", path, *TWO.split(), "--batch", 5)
    assert [*answer.rows[0]][-5:] == [*names, "reason"]
    pool = read_pool(lab.pool, "id", BOTH)
    options = Namespace(strategy="improvement", batch=5, **DEFAULTS)
    strategy = rebuild(options, pool, read_results([path], pool), [])
    rows = [int(key[1:]) for key in answer.ids]
    mean, sd = strategy.predict(strategy.candidates[rows]) or ()
    expected = torch.stack([mean, sd], dim=-1).reshape(5, 4)
    found = torch.tensor([[float(row[name]) for name in names] for row in answer.rows])
    assert torch.allclose(found.double(), expected, rtol=1e-5)
    for lost, kept in (("gain", "loss"), ("loss", "gain")):
        text = [
            [k, "" if lost == "loss" else y, "" if lost == "gain" else c]
            for k, y, c in told(range(12))[1:]
        ]
        path = lab.write("m.csv", [["id", "loss", "gain"], *text])
        answer = lab("--results", path, *TWO.split(), "--batch", 5)
        assert {row[f"predicted_mean_{lost}"] for row in answer.rows} == {""}
        assert all(float(row[f"predicted_sd_{kept}"]) > 0 for row in answer.rows)
        assert "best so far: none; no row has all of 'loss', 'gain'." in answer.said
    first = lab(*TWO.split(), "--batch", 2).rows
    assert all(
        [row[name] for name in (*names, "reason")] == [""] * 4 + [SPREAD]
        for row in first
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("has_state", [True, False])
def test_cells_may_be_filled_in_later(lab: Laboratory, has_state: bool) -> None:
    """A row with some outcomes is measured: not proposed again, nor waiting."""
    state = ["--state", lab.state] * has_state
    words = [*TWO.split(), *state]
    first = lab(*words, "--batch", 6).ids
    rows = [int(key[1:]) for key in first]
    path = lab.write("m.csv", told(rows[:4], without=rows[:3]))
    answer = lab("--results", path, *words, "--batch", 5)
    waiting = {*first[4:]} if has_state else set()
    assert not {*answer.ids} & {*first[:4], *waiting}
    assert "4 of them measured, 3 with outcomes that are missing" in answer.said
    assert ("2 proposed before wait for results;" in answer.said) == has_state
    lab.write("m.csv", told(rows[:4]))
    later = lab("--results", path, *words, "--batch", 5)
    assert "4 of them measured" in later.said and "missing" not in later.said
    if has_state:
        assert not {*later.ids} & {*answer.ids, *first}
    more = [["id", "loss", "gain"], [first[0], "failed", ""], [first[1], 1, "failed"]]
    lab.write("m.csv", [*more, [first[2], "", ""]])
    taken = lab("--results", path, *words, "--skip-empty", "--batch", NUM)
    assert not {*taken.ids} & {*first[:3]}
    assert (
        "1 of them measured, 1 with outcomes that are missing, 2 failed" in taken.said
    )


def test_a_value_that_two_files_have_counts_once(lab: Laboratory) -> None:
    """A later export has the outcomes that were missing, and the others again."""
    header = ["id", "loss", "gain"]
    first = lab.write("r1.csv", [header, ["c0", 1, ""], ["c1", 2, 5], ["c2", "", 7]])
    second = [header, ["c0", 1, 4], ["c1", 2, 5], ["c2", 7, 8], ["c2", 3, "failed"]]
    paths = [first, lab.write("r2.csv", second)]
    pool = read_pool(lab.pool, "id", BOTH)
    read = read_results(paths, pool)
    assert read.rows == [0, 1, 2, 0, 2, 2] and read.failed == []
    expected = [[1, NAN], [2, 5], [NAN, 7], [NAN, 4], [7, 8], [3, NAN]]
    assert torch.equal(
        torch.tensor(read.values).nan_to_num(-1), torch.tensor(expected).nan_to_num(-1)
    )
    assert [m.text.place(m.place) for m in read.doubles] == ["line 3 (key 'c1')"]
    assert read.doubles[0].text.name == str(paths[1])
    strategy = rebuild(
        Namespace(strategy="thompson", batch=3, **DEFAULTS), pool, read, []
    )
    folded = [strategy.record.folded(None, outcome) for outcome in (0, 1)]
    assert [f.Y.tolist() for f in folded] == [[-1, -2, -5], [-4, -5, -7.5]]
    said = lab("--results", *paths, *TWO.split()).said
    assert (
        f"front so far: 1 of 3 rows are not dominated.\nfront: 'c0' (line 2 of {lab.pool}), 'loss': 1, 'gain': 4."
        in said
    )


def test_the_best_row_keeps_to_its_limits(lab: Laboratory) -> None:
    """Else it is nearest to them; rows without the constraint's value count for nothing."""
    rows = [*range(20)]
    path = lab.write("m.csv", told(rows))
    feasible = [i for i in rows if gain(i) <= 0.3]
    best = min(feasible, key=loss)
    assert loss(best) > min(map(loss, rows))
    said = lab("--results", path, *LIMITED.split()).said
    values = f"'loss': {loss(best):.6g}, 'gain': {gain(best):.6g}"
    assert (
        f"best feasible so far: 'c{best}' (line {best + 2} of {lab.pool}), {values}; the model's"
        in said
    )
    lab.write("m.csv", told(rows, without=[best]))
    second = min((i for i in feasible if i != best), key=loss)
    said = lab("--results", path, *LIMITED.split()).said
    assert f"best feasible so far: 'c{second}' " in said
    wide = [*LIMITED.split(), "--constraint", "gain>=0.299"]
    near = min(
        (i for i in rows if i != best),
        key=lambda i: max(gain(i) - 0.3, 0.299 - gain(i)),
    )
    said = lab("--results", path, *wide).said
    assert f"nearest to feasible so far: 'c{near}' " in said
    none = ["--target", "gain", "--constraint", "lid<=0", "--ignore", "lid"]
    lab.write(
        "m.csv", [["id", "loss", "gain", "lid"], *([*r, 1] for r in told(rows)[1:])]
    )
    said = lab("--results", path, *none).said
    assert (
        "front so far: 0 of 20 rows are feasible and not dominated.\nhypervolume so far: 0,"
        in said
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", FEASIBLE_FIRST)
def test_proposals_keep_to_the_limits_once_they_are_learned(
    lab: Laboratory, name: str
) -> None:
    """Of the rows that are left, those with a gain far above the limit come last."""
    path = lab.write("m.csv", told(range(18)))
    left = range(18, NUM)
    inside = {f"c{i}" for i in left if gain(i) <= 0.3}
    words = ["--results", path, "--strategy", name]
    assert {*lab(*words, *LIMITED.split(), "--batch", len(inside)).ids} == inside
    lower = ["--constraint", "gain>=0.3", "--batch", len(left) - len(inside)]
    assert not {*lab(*words, *lower).ids} & inside


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(2))
def test_rounds_in_which_cells_are_filled_in(lab: Laboratory, seed: int) -> None:
    """Cells of rows that were proposed get values, fail or stay empty, at random.

    No row comes twice, the counts are right, and the front is of the complete rows.
    """
    draw, cells = random.Random(seed), dict[int, list[Any]]()
    name = FEASIBLE_FIRST[seed]
    words = [*TWO.split(), "--state", lab.state, "--strategy", name]
    for _ in range(5):
        rows = [[f"c{i}", *pair] for i, pair in cells.items()]
        path = lab.write("m.csv", [["id", "loss", "gain"], *rows])
        answer = lab("--results", path, *words, "--batch", 6)
        new = [int(key[1:]) for key in answer.ids]
        assert len({*new}) == len(new) and not {*new} & cells.keys()
        has_value = {i: [isinstance(c, float) for c in p] for i, p in cells.items()}
        some = [i for i, pair in has_value.items() if any(pair)]
        whole = [i for i in some if all(has_value[i])]
        failed = [i for i in cells if i not in some and "failed" in cells[i]]
        num_waiting = len(cells) - len(some) - len(failed)
        parts = [f"{len(some)} of them measured"]
        for num, what in [
            (len(some) - len(whole), "with outcomes that are missing"),
            (len(failed), "failed"),
            (num_waiting, "proposed before wait for results"),
        ]:
            parts += [f"{num} {what}"] * (num > 0)
        assert f"30 rows, {', '.join(parts)}; {len(new)} proposed" in answer.said
        shown = [line for line in answer.notes if line.startswith("front: ")]
        assert len(shown) == len(front_of(whole))
        for i in front_of(whole):
            assert sum(f"front: 'c{i}' (" in line for line in shown) == 1
        cells |= {i: ["", ""] for i in new}
        for i, pair in cells.items():
            for place, value in enumerate((loss(i), gain(i))):
                if pair[place] == "":
                    pair[place] = draw.choice([value, value, "failed", "", ""])


def test_states_know_the_outcomes(lab: Laboratory) -> None:
    """Columns have to be as before; limits and thresholds may change, and the order."""
    words = ["--state", lab.state, "--batch", 2]
    kept = [*TWO.split(), "--constraint", "lid<=1", "--ignore", "lid"]
    first = lab(*words, *kept).ids
    for options, message in [
        ("--minimize --constraint lid<=1", "was kept with --target 'gain', 'loss', and this call is with --target 'loss'."),
        (f"{TWO} --target dose --ignore dose --constraint lid<=1", "with --target 'dose', 'gain', 'loss'."),
        ("--target gain --minimize gain --constraint lid<=1", "was kept with --minimize 'gain', 'loss', and this call is with --minimize 'gain'."),
        ("--target gain --constraint lid<=1", "and this call is without --minimize."),
        (TWO, "was kept with --constraint 'lid', and this call is without --constraint."),
        (f"{TWO} --constraint lid<=1 --constraint dose<=1 --ignore dose", "is with --constraint 'dose', 'lid'."),
    ]:  # fmt: skip
        assert message in lab.refused(*words, *options.split(), "--ignore", "lid")
    other = "--target gain --minimize gain --minimize loss --constraint lid>=0.25"
    second = lab(*words, *other.split(), "--threshold", "loss=2", "--ignore", "lid").ids
    assert not {*first} & {*second}
    assert len(json.loads(lab.state.read_text())["rows"]) == 4


def test_states_of_before_know_no_constraints(lab: Laboratory) -> None:
    words = ["--state", lab.state, "--batch", 2]
    first = lab(*words).ids
    state = json.loads(lab.state.read_text())
    assert state.pop("--constraint") == [] and state["--target"] == "loss"
    lab.state.write_text(json.dumps(state))
    line = lab.refused(*words, *"--constraint gain<=1".split())
    assert (
        "was kept without --constraint, and this call is with --constraint 'gain'"
        in line
    )
    assert not {*first} & {*lab(*words).ids}


def test_one_file_of_candidates_and_results(lab: Laboratory) -> None:
    """Rows with any outcome are measured; what is known of all rows is no outcome."""
    with lab.pool.open(newline="") as file:
        header, *rows = csv.reader(file)
    cells = [
        [loss(i), ""] if i < 9 else ["", gain(i)] if i < 12 else ["", ""]
        for i in range(NUM)
    ]
    table = [
        [*header, "loss", "gain"],
        *([*r, *c] for r, c in zip(rows, cells, strict=True)),
    ]
    path = lab.write("pool.csv", table)
    answer = lab("--results", path, *TWO.split(), "--batch", NUM)
    assert sorted(answer.ids) == sorted(f"c{i}" for i in range(12, NUM))
    assert (
        "12 of them measured, 12 with outcomes that are missing; 18 prop" in answer.said
    )
    for i, row in enumerate(table[1:]):
        row[-1] = gain(i)
    lab.write("pool.csv", table)
    message = f"{path} has a number in each row of 'gain', but not of all outcomes"
    for more in ([], ["--ignore", "gain"]):
        assert message in lab.refused("--results", path, *TWO.split(), *more)


def test_results_beside_the_pool_may_lack_outcomes(lab: Laboratory) -> None:
    header = "id,heat,solvent,dose,lid,loss,gain"
    path = lab.write(
        "m.csv", f"{header}|old,40,oil,1,2,3,|older,41,oil,1,2,,4|c1,,,,,1,1"
    )
    read = read_results([path], read_pool(lab.pool, "id", BOTH))
    assert torch.tensor(read.point_values).nan_to_num(-1).tolist() == [[3, -1], [-1, 4]]
    answer = lab("--results", path, *TWO.split(), "--batch", 3)
    assert "count as data beside it: line 2 (key 'old'), line 3" in answer.said
    assert f"front: 'c1' (line 3 of {lab.pool}), 'loss': 1, 'gain': 1." in answer.said
    lab.write("m.csv", f"{header}|old,40,oil,1,2,3,0")
    said = lab("--results", path, *TWO.split()).said
    assert "front: line 2 (key 'old') of the results, 'loss': 3, 'gain': 0." in said
