"""The next rows on the command line: rounds, states, and bad tables by line."""

import csv
import io
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from botorch_sparse.__main__ import main
from botorch_sparse.strategies import ThompsonSampling
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.suggest import proposed_rows, selection
from botorch_sparse.suggest.candidate_pool import read_pool
from botorch_sparse.suggest.results import Results, read_results
from botorch_sparse.suggest.selection import (
    ADDED,
    DRAWN,
    EXPLOITS,
    EXPLORES,
    FIRST,
    ONLY,
    STRATEGIES,
    explain,
    rebuild,
)

NUM = 30
HEAT = [20 + 60 * math.sin(i) ** 2 for i in range(NUM)]
DOSE = [math.cos(7 * i) for i in range(NUM)]
SOLVENT = ["water", "oil", "gas, wet"]
Suggest = Callable[..., list[dict[str, str]]]


def loss(row: int) -> float:
    """What the laboratory measures; the best row is where heat is 50 in oil."""
    return ((HEAT[row] - 50) / 30) ** 2 + 0.2 * DOSE[row] + 0.5 * (row % 3 != 1)


def write(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """30 rows; numbers with 17 digits, zeros at the end, text with a comma."""
    rows = [
        [f"c{i}", f"{HEAT[i]:.17g}", SOLVENT[i % 3], f"{DOSE[i]:.17g}", f"{i % 4}.50"]
        for i in range(NUM)
    ]
    header = ["id", "heat", "solvent", "dose", "lid"]
    return write(tmp_path / "pool.csv", [header, *rows])


@pytest.fixture
def suggest(pool: Path, capfdbinary: Any) -> Suggest:
    """Calls the command; the rows that it wrote."""

    def suggest(
        *options: object, key: str | None = "id", target: str = "loss"
    ) -> list[dict[str, str]]:
        named = [] if key is None else ["--key", key]
        words = ["--candidates", pool, *named, "--target", target, *options]
        main(["suggest", *map(str, words)])
        out = capfdbinary.readouterr().out.decode()
        return list(csv.DictReader(io.StringIO(out, newline="")))

    return suggest


@pytest.fixture
def refused(suggest: Suggest, capfdbinary: Any) -> Callable[..., str]:
    """Calls the command; its one line on stderr, where nothing is on stdout."""

    def refused(*options: object, **named: Any) -> str:
        with pytest.raises(SystemExit) as caught:
            suggest(*options, **named)
        out, err = capfdbinary.readouterr()
        assert caught.value.code == 2 and not out
        line = err.decode()
        assert line.count("\n") == 1 and line[:-1].isprintable()
        return line

    return refused


def measure(path: Path, rows: list[dict[str, str]]) -> Path:
    """Add the loss of proposed rows to the results."""
    entries = [[row["id"], f"{loss(int(row['id'][1:])):.17g}"] for row in rows]
    with path.open("a", newline="", encoding="utf-8") as file:
        write_row = csv.writer(file).writerow
        if not path.stat().st_size:
            write_row(["id", "loss"])
        for entry in entries:
            write_row(entry)
    return path


def test_the_first_batch_is_drawn_and_keeps_the_users_text(
    suggest: Suggest, pool: Path
) -> None:
    rows = suggest("--batch", 25)
    source = {row["id"]: row for row in read(pool)}
    assert len({row["id"] for row in rows}) == 25
    for row in rows:
        assert [row.pop(name) for name in ADDED] == ["", "", FIRST]
        assert row == source[row["id"]]
    others = suggest("--batch", 25, "--seed", 1)
    assert [row["id"] for row in others] != [row["id"] for row in rows]


def table() -> CandidateTable:
    columns: dict[str, Any] = {
        "id": [f"c{i}" for i in range(NUM)],
        "heat": HEAT,
        "solvent": [SOLVENT[i % 3] for i in range(NUM)],
        "dose": DOSE,
        "lid": [i % 4 + 0.5 for i in range(NUM)],
    }
    return CandidateTable.from_columns(columns, key="id")


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_same_files_give_the_same_rows_and_none_comes_twice(
    suggest: Suggest, tmp_path: Path, name: str
) -> None:
    results, state = tmp_path / "measured.csv", tmp_path / "run.state"
    results.touch()
    options = ["--strategy", name, "--batch", 7, "--minimize", "--state", state]
    proposed: list[str] = []
    for _ in range(3):
        before = state.read_bytes() if state.exists() else None
        rows = suggest(*options, "--results", results)
        after = state.read_bytes()
        if before is not None:
            state.write_bytes(before)
            assert suggest(*options, "--results", results) == rows
            assert state.read_bytes() == after
        measure(results, rows[:5])  # two of them stay pending
        proposed += [row["id"] for row in rows]
    assert len(set(proposed)) == 21
    assert rows[0]["predicted_mean"] and {row["reason"] for row in rows} != {FIRST}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_call_knows_all_that_the_files_hold(pool: Path, name: str) -> None:
    candidates = read_pool(pool, "id", "loss")
    results = Results("m.csv", [3, 4, 3], [1.0, 2.0, 1.5], [9])
    args = SimpleNamespace(strategy=name, batch=3, minimize=True, seed=0)
    strategy = rebuild(args, candidates, results, [7, 2])
    assert strategy.pending.tolist() == [7, 2] and strategy.minimize
    assert strategy.history.indices.tolist() == [3, 4, 3]
    assert strategy.history.Y.tolist() == [1.0, 2.0, 1.5]
    assert set(strategy.excluded_points) == {2, 3, 4, 7, 9}
    others = rebuild(args, candidates, results, [7])
    first = torch.rand(2, generator=strategy.generator)
    assert not torch.equal(first, torch.rand(2, generator=others.generator))


def test_rounds_without_a_state_go_on_until_all_is_measured(
    suggest: Suggest, tmp_path: Path
) -> None:
    results = tmp_path / "measured.csv"
    sizes = []
    for _ in range(3):
        results.touch()
        rows = suggest("--results", results, "--batch", 25, "--minimize")
        measure(results, rows)
        sizes.append(len(rows))
    assert sizes == [25, 5, 0]
    ids = [row["id"] for row in read(results)]
    assert sorted(ids) == sorted(f"c{i}" for i in range(NUM))


def test_messages_are_one_line_and_quiet_leaves_them_out(
    suggest: Suggest, tmp_path: Path, capfdbinary: Any, pool: Path
) -> None:
    command = ["suggest", "--candidates", str(pool), "--key", "id", "--target", "loss"]
    main([*command, "--batch", "3"])
    said = capfdbinary.readouterr().err.decode()
    assert said.endswith("pool.csv: 30 rows, 0 of them measured; 3 proposed now.\n")
    assert said.count("\n") == 1
    main([*command, "--batch", "3", "--quiet"])
    assert capfdbinary.readouterr().err == b""


def test_pending_rows_wait_in_the_state(
    suggest: Suggest, tmp_path: Path, pool: Path, capfdbinary: Any
) -> None:
    state, results = tmp_path / "run.pt", tmp_path / "measured.csv"
    options = ["--state", state, "--batch", 8]
    before = suggest(*options)
    measure(results, before[:5])
    words = ["suggest", "--candidates", pool, "--key", "id", "--target", "loss"]
    main([*map(str, [*words, *options, "--results", results])])
    out, err = capfdbinary.readouterr()
    after = list(csv.DictReader(io.StringIO(out.decode())))
    assert not {row["id"] for row in before} & {row["id"] for row in after}
    assert b"5 of them measured, 3 proposed before wait for results; 8 prop" in err


def test_two_calls_at_once_propose_different_rows(
    suggest: Suggest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins when the first has read the state, and not written it."""
    options = ["--state", tmp_path / "run.state", "--batch", 8]
    monkeypatch.setattr(proposed_rows, "PATIENCE", 0.0)
    propose = selection.propose

    def begin_again(*args: Any) -> Any:
        monkeypatch.setattr(selection, "propose", propose)
        with pytest.raises(SystemExit):
            suggest(*options)
        return propose(*args)

    monkeypatch.setattr(selection, "propose", begin_again)
    first = suggest(*options)
    second = suggest(*options)
    assert not {row["id"] for row in first} & {row["id"] for row in second}
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".run.state.lock",
        "pool.csv",
        "run.state",
    ]


def test_a_call_waits_for_another_one_with_its_state(
    suggest: Suggest,
    refused: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = tmp_path / "run.state"
    bad = write(tmp_path / "bad.csv", [["id", "loss"], ["c1", "x"]])
    assert "is no number" in refused("--state", state, "--results", bad)  # and unlocks
    monkeypatch.setattr(proposed_rows, "PATIENCE", 0.0)
    with proposed_rows.locked(state):
        assert "another call is using" in refused("--state", state)
        assert not state.exists()
        assert suggest("--batch", 2)  # without the state nothing is lost
    assert suggest("--state", state, "--batch", 2) and state.exists()


def test_few_results_leave_draws_that_say_so(suggest: Suggest, tmp_path: Path) -> None:
    results = write(tmp_path / "m.csv", [["id", "loss"], *map(measured, range(3))])
    rows = suggest("--results", results, "--batch", 20)
    reasons = [row["reason"] for row in rows]
    num = reasons.count(DRAWN)
    drawn = ThompsonSampling(table(), unique=True).settings.num_initial - 3
    assert num == drawn and set(reasons[:num]) == {DRAWN}
    assert set(reasons[num:]) <= {EXPLOITS, EXPLORES}


def measured(row: int) -> list[object]:
    return [f"c{row}", loss(row)]


def test_files_may_change_between_calls(
    suggest: Suggest, pool: Path, tmp_path: Path, capfdbinary: Any
) -> None:
    state, results = tmp_path / "run.state", tmp_path / "m.csv"
    before = [row["id"] for row in suggest("--state", state, "--batch", 6)]
    entries = [[name, loss(int(name[1:]))] for name in before[:3]]
    write(results, [["id", "loss"], *entries])
    options = ["--state", state, "--results", results, "--batch", 1]
    suggest(*options)
    entries[1][1] = 7.0  # corrected, in another order, with a repeat
    write(results, [["id", "loss"], entries[1], entries[0], entries[2], entries[0]])
    lines = pool.read_text().splitlines()
    gone = before[4]
    kept = [line for line in reversed(lines[1:]) if not line.startswith(f"{gone},")]
    pool.write_text("\n".join([lines[0], "new,33,ale,0.5,1.5", *kept]) + "\n")
    words = ["suggest", "--candidates", pool, "--key", "id", "--target", "loss"]
    words += [*options[:-1], 30, "--strategy", "bbkb"]
    main([*map(str, words)])
    out, err = capfdbinary.readouterr()
    after = [row["id"] for row in csv.DictReader(io.StringIO(out.decode()))]
    # 30 rows are left: 3 measured, 3 pending, and what was proposed by the second call
    assert "new" in after and len(set(after)) == len(after) == 24
    assert not set(before) & set(after)
    note = f"note: 1 of the rows proposed before are not in {pool}, and wait on in"
    assert f"{note} --state: '{gone}'\n" in err.decode()
    assert b"3 of them measured, 3 proposed before wait for results" in err


def test_pending_rows_are_known_by_their_features(
    suggest: Suggest, pool: Path, tmp_path: Path, capfdbinary: Any
) -> None:
    state = tmp_path / "run.state"
    cells = [["heat", "solvent", "note"], ["1.50", "x", "a"], ["2", "y", "b"]]
    write(pool, [*cells, ["3", "y", "c"], ["4", "x", "d"]])
    before = suggest("--state", state, "--batch", 2, "--text", "note", key=None)
    left = [row["heat"] for row in before]
    cells = [["solvent", "heat"], ["y", "3.0"], ["x", "1.5"], ["x", "4"], ["y", "2"]]
    write(pool, [*cells, ["z", "5"]])
    after = suggest("--state", state, "--batch", 9, key=None)
    heats = {float(row["heat"]) for row in after}
    assert heats == {1.5, 2, 3, 4, 5} - {float(heat) for heat in left}


def test_a_state_of_another_table_is_refused_and_kept(
    suggest: Suggest, refused: Callable[..., str], pool: Path, tmp_path: Path
) -> None:
    state = tmp_path / "run.state"
    write(pool, [["heat", "solvent"], ["1.5", "x"], ["2", "y"]])
    suggest("--state", state, "--batch", 1, key=None)
    whole = state.read_bytes()
    write(pool, [["heat", "dose"], [1, 1], [2, 2]])
    line = refused("--state", state, "--batch", 9, key=None)
    assert "none of the 1 rows that wait for results in" in line
    assert f"{pool}, column 'dose'; the" in line and state.read_bytes() == whole


def test_rows_that_wait_may_all_be_taken_out_of_the_pool(
    suggest: Suggest, pool: Path, tmp_path: Path
) -> None:
    """They wait on, and are not proposed again once they are back."""
    state = tmp_path / "run.state"
    write(pool, [["id", "heat"], ["k1", 1], ["k2", 2], ["k3", 3]])
    (first,) = suggest("--state", state, "--batch", 1)
    write(pool, [["id", "heat"], ["n1", 1], ["n2", 2]])
    assert len(suggest("--state", state, "--batch", 1)) == 1
    write(pool, [["id", "heat"], ["k1", 1], ["k2", 2], ["k3", 3]])
    found = {row["id"] for row in suggest("--state", state, "--batch", 9)}
    assert found == {"k1", "k2", "k3"} - {first["id"]}


@pytest.mark.parametrize("key", ["id", None])
def test_rows_that_are_gone_from_the_pool_wait_on(
    suggest: Suggest, pool: Path, tmp_path: Path, capfdbinary: Any, key: str | None
) -> None:
    """They come back, or their results come; neither is proposed again then."""
    state = tmp_path / "run.state"
    first = 0 if key else 1  # without the key its column is away
    header, *lines = [line.split(",", first)[-1] for line in read_lines(pool)]
    pool.write_text("\n".join([header, *lines]) + "\n")
    rows = suggest("--state", state, "--batch", 3, key=key)
    gone = [row["heat"] for row in rows[:2]]
    pool.write_text("\n".join([header, *(x for x in lines if not has(x, gone))]) + "\n")
    words = [*(["--key", key] if key else []), "--target", "loss", "--batch", "1"]
    words = ["suggest", "--candidates", str(pool), *words, "--state", str(state)]
    main(words)
    note = b"of the rows proposed before are not in"
    assert b"note: 2 %s" % note in capfdbinary.readouterr().err
    told = [f"{header},loss", *(f"{line},1" for line in lines if has(line, gone[:1]))]
    results = tmp_path / "m.csv"
    results.write_text("\n".join(told) + "\n")
    main([*words, "--results", str(results)])
    assert b"note: 1 %s" % note in capfdbinary.readouterr().err
    pool.write_text("\n".join([header, *lines]) + "\n")
    after = suggest("--state", state, "--batch", NUM, key=key)
    assert len(after) == NUM - 5 + 1 and gone[1] not in {row["heat"] for row in after}


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def has(line: str, cells: list[str]) -> bool:
    return any(f",{cell}," in f",{line}" for cell in cells)


def test_rows_are_found_by_features_that_six_digits_are_left_of(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path, pool: Path
) -> None:
    text = pool.read_text().splitlines()
    names = [line.split(",")[0] for line in text]
    pool.write_text("\n".join(line.split(",", 1)[1] for line in text) + "\n")
    results, state = tmp_path / "m.csv", tmp_path / "run.pt"
    rows = [
        [SOLVENT[i % 3], f"{HEAT[i]:.6g}", f"{DOSE[i]:.6g}", i % 4 + 0.5, loss(i), "x"]
        for i in range(12)
    ]
    header = ["solvent", "heat", "dose", "lid", "loss", "note"]
    options = ["--results", write(results, [header, *rows]), "--state", state]
    proposed = suggest(*options, "--batch", 30, key=None)
    assert list(proposed[0])[:2] == ["row", "heat"]
    assert sorted(int(row["row"]) for row in proposed) == list(range(13, 31))
    first = int(proposed[0]["row"])
    assert names[first] == f"c{first - 1}"
    assert proposed[0]["heat"] == f"{HEAT[first - 1]:.17g}"
    rows[4][1] = "55.5"
    options[1] = write(results, [header, *rows])
    assert len(suggest(*options[:2], "--batch", 30, key=None)) == 19
    for name in ("air", "OIL"):  # a category of its own; one that was mistyped
        rows[4][0] = name
        options[1] = write(results, [header, *rows])
        assert len(suggest(*options[:2], "--batch", 30, key=None)) == 19
    line = refused("--results", write(results, [header, rows[4]]), key=None)
    assert "m.csv, line 2, column 'solvent': 'OIL' is none of its categories" in line
    assert "'gas, wet'; no other result can be used either." in line


def test_rows_of_a_column_far_from_zero(suggest: Suggest, pool: Path) -> None:
    """Seconds of an hour; the last digit of a double is another one."""
    times = [1.7e9 + 400 * i for i in range(10)]
    write(pool, [["time"], *([f"{time:.17g}"] for time in times)])
    measured = [[f"{times[i] + 3e-7:.17g}", i] for i in (2, 5)]
    results = write(pool.with_name("m.csv"), [["time", "loss"], *measured])
    left = {float(row["time"]) for row in suggest("--results", results, key=None)}
    assert left <= set(times) - {times[2], times[5]}
    read = read_results([results], read_pool(pool, None, "loss"))
    assert read.rows == [2, 5] and not read.points


def test_rows_alike_within_six_digits_need_a_key(
    refused: Callable[..., str], tmp_path: Path, pool: Path
) -> None:
    results = write(tmp_path / "m.csv", [["a", "loss"], [0.5, 1]])
    write(pool, [["a"], [0.5000001], [0.5000002], [1]])
    line = refused("--results", results, key=None)
    assert "m.csv, line 2: to six digits this is line 2 of" in line and "--key" in line
    write(pool, [["a"], [0.5], [1], [0.5]])
    assert "lines 2 and 4: the two rows have the same features" in refused(key=None)


@pytest.mark.parametrize(
    ("told", "row"),
    [
        *[("5e-6", None), ("1.4e-9", None), ("0.00000", None), ("1e-9", 1)],
        *[("0.33333", 2), ("3.333333e-1", 2), ("0.33332", None)],
        *[("0.30000000000000004", 3), ("0.30001", None)],
    ],
)
def test_a_result_next_to_zero_is_no_other_rows(
    suggest: Suggest, tmp_path: Path, pool: Path, told: str, row: int | None
) -> None:
    write(pool, [["a"], ["0.000000001"], ["0.3333333333"], ["0.3"], ["1"]])
    results = write(tmp_path / "m.csv", [["a", "loss"], [told, 1]])
    rows = suggest("--results", results, key=None)
    measured = set() if row is None else {row}
    assert {1, 2, 3, 4} - {int(row["row"]) for row in rows} == measured


@pytest.mark.parametrize("target", ["--minimize", "--quiet"])
def test_the_reason_is_what_lifts_the_bound(target: str) -> None:
    """Of median mean 0 and sd 1, a row explores if 2 (sd - 1) is above its mean."""
    sign = -1.0 if target == "--minimize" else 1.0
    mean = torch.tensor([0.0, 0.0, 0.0, 3.0, 3.0, -1.0, 0.5, 0.5]).double()
    sd = torch.tensor([1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.2, 1.3]).double()
    strategy = SimpleNamespace(
        history=[0],
        minimize=sign < 0,
        predict=lambda X: (sign * mean[X[:, 0].long()], sd[X[:, 0].long()]),
    )
    X = torch.arange(8.0).unsqueeze(-1)
    explained = explain(strategy, X[[0, 1, 2, 3, 5, 5, 6, 7]], [], 0)
    assert explained == []
    X = torch.tensor([0.0, 1, 2, 0, 1, 2, 0, 3, 4, 5, 6, 7]).unsqueeze(-1)
    explained = explain(strategy, X, [7, 8, 9, 10, 11], 1)
    reasons = [reason for *_, reason in explained]
    assert reasons == [DRAWN, EXPLORES, EXPLORES, EXPLOITS, EXPLORES]
    assert explained[1][:2] == (f"{sign * 3:g}", "3")
    mean[3] = 1e9 / 3
    assert explain(strategy, X, [7], 0)[0][:2] == (f"{sign * 1e9 / 3:.3f}", "1")


def test_columns_of_numbers_can_be_declared_as_text(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path
) -> None:
    results = write(tmp_path / "m.csv", [["id", "loss"], *map(measured, range(6))])
    plain = suggest("--results", results, "--batch", 20)
    declared = suggest("--results", results, "--batch", 20, "--text", "lid")
    assert plain != declared
    assert "no column 'lids', which --text names" in refused("--text", "lids")


@pytest.mark.parametrize("mark", [";", "\t"])
def test_files_with_semicolons_or_tabs_are_read(
    suggest: Suggest, tmp_path: Path, pool: Path, mark: str
) -> None:
    results = write(tmp_path / "m.csv", [["id", "loss"], *map(measured, range(6))])
    before = suggest("--results", results, "--batch", 9)
    results.write_text(results.read_text().replace(",", mark))
    text = pool.read_text().replace('"gas, wet"', "gas wet").replace(",", mark)
    pool.write_text(text.replace("gas wet", "gas, wet"))
    assert suggest("--results", results, "--batch", 9) == before


def test_columns_can_be_ignored(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path, pool: Path
) -> None:
    names = [
        [f"{i}", f"{i % 7}.5", f"name {i % 1001}", f"note {i}"] for i in range(2002)
    ]
    write(pool, [["id", "heat", "name", "note"], *names])
    line = refused("--ignore", "note")
    assert "'name' holds 1001 different values" in line and "--ignore" in line
    ignored = ["--ignore", "name", "--ignore", "note"]
    results = write(tmp_path / "m.csv", [["id", "loss"], ["1", 1], ["2", 2]])
    rows = suggest("--results", results, "--batch", 2, *ignored)
    assert all(row["name"] == f"name {int(row['id']) % 1001}" for row in rows)
    assert "no column 'x', which --ignore names" in refused("--ignore", "x")
    assert "--key and one to --ignore are both 'id'" in refused("--ignore", "id")
    assert "--key and one to --text are both 'id'; a key is" in refused("--text", "id")
    line = refused("--text", "name", *ignored)
    assert "Both --text and --ignore name 'name'; keep one of them." in line
    write(pool, [["heat", "name"], *[[i, f"n{i}"] for i in range(5)]])
    write(results, [["heat", "loss"], [1, 1]])  # ignored features are not needed
    rows = suggest("--results", results, "--ignore", "name", key=None)
    assert sorted(row["heat"] for row in rows) == ["0", "2", "3", "4"]


@pytest.mark.parametrize("key", ["id", None])
def test_results_of_rows_that_were_taken_out_count_beside_the_pool(
    pool: Path, tmp_path: Path, capfdbinary: Any, key: str | None
) -> None:
    """Rows 2, 5, 7 and 8 are used up; of the last one the category went with it.

    That of row 7 is one of the pool's, mistyped.
    """
    first = 0 if key else 1  # without the key its column is away
    header = ["id", "heat", "solvent", "dose", "loss"][first:]
    told = [
        [f"c{i}", HEAT[i], {7: "OIL", 8: "ale"}.get(i, SOLVENT[i % 2]), DOSE[i], -i]
        for i in range(9)
    ]
    told = [row[first:] for row in told]
    kept = [row[:-1] for i, row in enumerate(told) if i not in (2, 5, 7, 8)]
    write(pool, [header[:-1], *kept])
    path = write(tmp_path / "m.csv", [header, *told[1:]])
    read = read_results([path], read_pool(pool, key, "loss"))
    assert read.rows == [1, 2, 3, 4] and read.values == [-1, -3, -4, -6]
    assert [point["solvent"] for point in read.points] == ["water", "oil", "ale"]
    assert read.point_values == [-2.0, -5.0, -8.0]
    args = SimpleNamespace(strategy="thompson", batch=3, minimize=True, seed=0)
    strategy = rebuild(args, read_pool(pool, key, "loss"), read, [0])
    assert strategy.history.Y.tolist() == [-1, -3, -4, -6, -2, -5, -8]
    kinds = {2: [1, 0, 0], 5: [0, 1, 0], 8: [0, 0, 1]}
    beside = [[HEAT[i], *kind, DOSE[i]] for i, kind in kinds.items()]
    assert strategy.history.X[4:].tolist() == beside
    assert strategy.table.columns[1].categories == ("water", "oil", "ale")
    assert strategy.is_finished  # the one row that is left is pending
    named = ["--key", key] if key else []
    words = ["suggest", "--candidates", pool, *named, "--target", "loss"]
    main([*map(str, [*words, "--results", path])])
    out, err = capfdbinary.readouterr()
    rows = list(csv.DictReader(io.StringIO(out.decode())))
    assert [float(row["heat"]) for row in rows] == [HEAT[0]]
    lines = err.decode().splitlines()
    assert len(lines) == 5
    new = lines.pop(2)
    assert new.startswith(f"note: 1 of the results' categories are not in {pool}")
    assert new.endswith("of their own: 'ale' of 'solvent'")
    place = f"'c1' (line 3 of {pool})" if key else f"line 3 of {pool}"
    assert lines[2].startswith(f"best so far: {place}, 'loss': -1; the model's mean")
    main([*map(str, [*words, "--results", path, "--minimize"])])
    place = "line 9 (key 'c8')" if key else "line 9"
    err = capfdbinary.readouterr().err.decode()
    assert f"best so far: {place} of the results, 'loss': -8; the mod" in err
    names = [
        f"line {i + 1} (key 'c{i}')" if key else f"line {i + 1}" for i in (2, 5, 8, 7)
    ]
    assert lines[0].startswith(f"note: 3 of the results are of no row of {pool}")
    assert lines[0].endswith(f"data beside it: {', '.join(names[:3])}")
    assert lines[1].startswith("note: 1 of the results") and "left out" in lines[1]
    assert lines[1].endswith(f": {names[3]}")
    assert lines[3].endswith("4 of them measured, 3 results beside it; 1 proposed now.")


def test_one_row_that_is_left_is_compared_with_those_taken_out(
    suggest: Suggest, tmp_path: Path, pool: Path
) -> None:
    """A column that varies among them alone counts too: the more heat, the better."""
    write(pool, [["id", "heat"], ["left", 10]])
    told = [["id", "heat", "loss"], *([f"c{i}", i, 2.0 * i] for i in range(10))]
    results = write(tmp_path / "m.csv", told)
    (row,) = suggest("--results", results)
    assert row["id"] == "left" and float(row["predicted_mean"]) > 14


def test_unknown_keys_without_features_are_refused(
    refused: Callable[..., str], tmp_path: Path, pool: Path
) -> None:
    rows = [measured(i) for i in range(8)]
    path = write(tmp_path / "m.csv", [["id", "loss"], *rows, ["old", 4.0]])
    line = refused("--results", path)
    assert f"m.csv, line 10 (key 'old'), column 'id': {pool} has no row with" in line


def test_failed_rows_that_are_gone_need_no_features(
    pool: Path, tmp_path: Path, capfdbinary: Any
) -> None:
    """They carry no data; a note says which, as keys may be mistyped."""
    words = ["suggest", "--candidates", pool, "--key", "id", "--target", "loss"]
    for word, more in (("failed", []), ("", ["--skip-empty"])):
        told = [["id", "loss"], *map(measured, range(4)), ["old", word]]
        results = write(tmp_path / "m.csv", told)
        main([*map(str, [*words, "--results", results, *more])])
        err = capfdbinary.readouterr().err.decode()
        assert f"note: 1 of the results are of no row of {pool}, and failed: they" in (
            err
        )
        assert "and are left out: line 6 (key 'old')\n" in err


@pytest.mark.parametrize(
    ("key", "told"),
    [("0007", "7"), ("0007", "7.0"), ("1E3", "1000"), ("7", "007")],
)
def test_keys_that_a_spreadsheet_changed_are_refused(
    refused: Callable[..., str], tmp_path: Path, pool: Path, key: str, told: str
) -> None:
    """With features too: they would count beside the pool, and their row come again."""
    write(pool, [["id", "heat"], ["a", 0], [key, 1], ["b", 2]])
    entries = [["id", "heat", "loss"], ["a", 0, 3], [told, 1, 4]]
    results = write(tmp_path / "m.csv", entries)
    line = refused("--results", results)
    assert f"m.csv, line 3 (key '{told}'), column 'id': {pool} has no row" in line
    assert f"with this key, but one with '{key}'. If a spreadsheet" in line


def test_features_that_contradict_the_key_are_refused(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path, pool: Path
) -> None:
    header = ["id", "heat", "solvent", "lid", "loss"]
    right = ["c1", f"{HEAT[1]:.2f}", "OIL", "1.5", 1]
    results = write(tmp_path / "m.csv", [header, right, ["c2", "", "NA", " ", 2]])
    assert len(suggest("--results", results, "--batch", 50)) == NUM - 2
    for place, cell in [(1, f"{HEAT[1] + 0.1:.2f}"), (2, "water"), (3, "3")]:
        wrong = [*right[:place], cell, *right[place + 1 :]]
        write(results, [header, ["c2", "", "", "", 2], wrong])
        line = refused("--results", results)
        assert f"line 3 (key 'c1'), column '{header[place]}': '{cell}' is not '" in line
        assert f"which line 3 of {pool} has for this key" in line


@pytest.mark.parametrize("form", [".4f", ".3g"])
def test_rounded_results_are_refused_without_a_key(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path, pool: Path, form: str
) -> None:
    """They would count beside the pool, and their rows would be proposed again."""
    rows = [[f"{HEAT[i]:.9g}", SOLVENT[i % 3], f"{DOSE[i]:.9g}"] for i in range(NUM)]
    header = ["heat", "solvent", "dose"]
    write(pool, [header, *rows])
    told = [
        [f"{HEAT[i]:{form}}", SOLVENT[i % 3], f"{DOSE[i]:{form}}", i] for i in (2, 7)
    ]
    results = write(tmp_path / "m.csv", [[*header, "loss"], [*rows[3], 1], *told])
    line = refused("--results", results, key=None)
    assert "m.csv, line 3, column '" in line and "nearest one is line 4, with '" in line
    assert "write all digits; if it was not, zeros behind it; or name rows by" in line
    told = [[*row[:1], "water", *row[2:]] for row in told]  # these are others
    write(results, [[*header, "loss"], [*rows[3], 1], *told])
    assert len(suggest("--results", results, "--batch", 50, key=None)) == NUM - 1


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([f"{20 + i / 10:g}" for i in range(300) if i != 10], ["21", "20.5"]),
        ([f"202401{i:02}" for i in range(3, 31, 4)], ["20240105"]),
        ([f"{1000 + i / 50:g}" for i in range(50)], ["1000.07"]),
    ],
    ids=["zeros dropped", "whole days", "far from zero"],
)
def test_results_with_all_their_digits_are_no_rounded_ones(
    suggest: Suggest, tmp_path: Path, pool: Path, steps: list[str], told: list[str]
) -> None:
    write(pool, [["T"], *[[step] for step in steps]])
    results = write(tmp_path / "m.csv", [["T", "loss"], *[[x, 1] for x in told]])
    assert len(suggest("--results", results, "--batch", 2, key=None)) == 2


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (["c1", "2024-01-05", "80.04"], ["c1", "05/01/2024", "80.0"]),
        (["c1", "red", "123456789012"], ["c1", "-", "1E+11"]),
        (["C1CC1", "red", "1"], ["c1cc1", "red", "1"]),
        (["1.1", "red", "5"], ["1.10", "red", "33"]),
        (["0e12345678901234567890", "red", "1"], ["other", "red", "2"]),
    ],
)
def test_what_spreadsheets_do_to_cells_is_no_contradiction(
    suggest: Suggest, tmp_path: Path, pool: Path, row: list[str], told: list[str]
) -> None:
    header = ["id", "kind", "size"]
    write(pool, [header, row, ["b", "blue", "7"], ["d", "red", "8"]])
    path = write(tmp_path / "m.csv", [[*header, "loss"], [*told, 4], ["b", "", "", 1]])
    assert suggest("--results", path, "--batch", 1)


def test_a_zero_contradicts_another_number(
    refused: Callable[..., str], tmp_path: Path, pool: Path
) -> None:
    write(pool, [["id", "size"], ["a", 5], ["b", 7]])
    results = write(tmp_path / "m.csv", [["id", "size", "loss"], ["a", 0, 1]])
    assert "column 'size': '0' is not '5'" in refused("--results", results)


def test_empty_cells_at_the_end_of_a_line_may_be_left_out(
    suggest: Suggest, pool: Path
) -> None:
    pool.write_text("id,x,loss\na,1,5\nb,2,\nc,3\nd,4\n")
    found = suggest("--results", pool, "--batch", 9)
    assert {row["id"] for row in found} == {"b", "c", "d"}


def test_rows_taken_out_of_a_grid_are_no_rounded_ones(
    suggest: Suggest, tmp_path: Path, pool: Path
) -> None:
    """Its cells are short, and 0 is within half a unit of 0.2."""
    grid = [[f"{0.2 * i:.3g}", f"{0.05 * j:.3g}"] for i in range(6) for j in range(21)]
    left = [row for row in grid if row not in (["0", "0.5"], ["1", "1"], ["0.2", "0"])]
    write(pool, [["a", "b"], *left])
    told = [["a", "b", "loss"], ["0", "0.5", 1], ["1", "1", 2], ["0.2", "0", 3]]
    results = write(tmp_path / "m.csv", told)
    assert len(suggest("--results", results, "--batch", 5, key=None)) == 5


@pytest.mark.parametrize("more", [[], ["--skip-empty"]])
@pytest.mark.parametrize("key", ["id", None])
def test_one_file_may_be_both_candidates_and_results(
    suggest: Suggest, pool: Path, key: str | None, more: list[str]
) -> None:
    header, *rows = list(csv.reader(read_lines(pool)))
    blank = ["", "NA", " ", "nan"]
    told = [[*row, i if i < 6 else blank[i % 4]] for i, row in enumerate(rows)]
    write(pool, [[*header, "loss"], *told])
    proposed = suggest("--results", pool, "--batch", 50, *more, key=key)
    assert sorted(row["id"] for row in proposed) == sorted(row[0] for row in rows[6:])
    assert "loss" not in proposed[0] and proposed[0]["predicted_mean"]


def test_a_call_that_proposes_nothing_says_why(
    pool: Path, tmp_path: Path, capfdbinary: Any
) -> None:
    told = [[f"c{i}", i if i < 6 else "NA"] for i in range(NUM)]
    results = write(tmp_path / "m.csv", [["id", "loss"], *told])
    words = ["suggest", "--candidates", pool, "--key", "id", "--target", "loss"]
    main([*map(str, [*words, "--results", results, "--skip-empty"])])
    err = capfdbinary.readouterr().err.decode()
    assert "note: NO ROW IS PROPOSED: 24 rows failed (the word failed, or no" in err
    write(results, [["id", "loss"], *map(measured, range(NUM))])
    main([*map(str, [*words, "--results", results])])
    err = capfdbinary.readouterr().err.decode()
    assert "note: NO ROW IS PROPOSED: all rows are measured or wait" in err


def test_columns_of_text_in_which_nothing_repeats_are_left_out(
    pool: Path, suggest: Suggest, capfdbinary: Any
) -> None:
    """They would take part in all distances between rows, and say nothing of any."""
    rows = [[i, f"2026-01-{i:02}", f"s{i % 9}", f"{i:03}"] for i in range(1, NUM + 1)]
    write(pool, [["id", "day", "solvent", "plate"], *rows])
    words = ["suggest", "--candidates", pool, "--key", "id", "--target", "loss"]
    main([*map(str, words)])
    line, _ = capfdbinary.readouterr().err.decode().splitlines()
    assert f"note: {pool}: column 'day' is left out: it has 30 different" in line
    assert "30 rows, the first '2026-01-01'" in line and "--text 'day'" in line
    assert read_pool(pool, "id", "loss").table.feature_names[-1] == "plate"
    kept = read_pool(pool, "id", "loss", as_text=["day"]).table
    assert len(kept.columns) == 3 and "2026-01-0" in suggest("--batch", 30)[0]["day"]
    for options in (["--text", "day"], ["--ignore", "day"], ["--quiet"]):
        main([*map(str, words), *options, "--text", "plate"])
        assert b"note" not in capfdbinary.readouterr().err


def test_few_rows_with_a_text_each_are_announced(
    pool: Path, suggest: Suggest, capfdbinary: Any
) -> None:
    rows = [[i, f"2026-01-{i:02}", f"s{i % 9}"] for i in range(1, 19)]
    write(pool, [["id", "day", "solvent"], *rows])
    main(["suggest", "--candidates", str(pool), "--key", "id", "--target", "loss"])
    line = capfdbinary.readouterr().err.decode()
    assert f"note: {pool}, line 2, column 'day': '2026-01-01' is no number" in line
    assert "18 categories in 18 rows" in line


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize(
    ("name", "first", "is_noted"),
    [("Sample no.", 1, True), ("index", 0, True), ("heat", 1, False), ("nr", 9, True)],
)
def test_a_column_that_counts_the_rows_is_noted(
    pool: Path,
    suggest: Suggest,
    capfdbinary: Any,
    name: str,
    first: int,
    is_noted: bool,
    key: str | None,
) -> None:
    order = [(7 * i) % NUM for i in range(NUM)]
    write(pool, [["id", name, "a"], *([f"c{i}", first + i, DOSE[i]] for i in order)])
    named = ["--key", "id"] if key else ["--ignore", "id"]
    main(["suggest", "--candidates", str(pool), "--target", "loss", *named])
    err = capfdbinary.readouterr().err.decode()
    assert (f"column '{name}' counts the rows, and is" in err) == is_noted
    assert ("give it as --key" in err) == (is_noted and key is None)


def test_empty_cells_of_features_cost_no_rows(
    suggest: Suggest, refused: Callable[..., str], pool: Path, capfdbinary: Any
) -> None:
    """To leave out what is not measured yet, as messages said, is no way out."""

    def told(**column: list[str]) -> Path:
        ((name, cells),) = column.items()
        rows = [[f"c{i}", DOSE[i], cell] for i, cell in enumerate(cells)]
        return write(pool, [["id", "a", name], *rows])

    told(notes=["", "NA", " "] * 4)
    main(["suggest", "--candidates", str(pool), "--key", "id", "--target", "loss"])
    assert (
        b"column 'notes' is left out: it has no value" in capfdbinary.readouterr().err
    )
    told(notes=["", "spilled", ""] * 4)
    line = refused()
    assert "are 8 of 12 of the column; leave the column out with --ignore 'no" in line
    assert len(suggest("--ignore", "notes")) == 12
    told(gain=["1", "2.5", "", "3"])
    assert "is empty; fill it in or leave the column out with --ignore 'g" in refused()
    told(solvent=["oil", "water", "", "oil"])
    assert "a word such as none or leave the column out with --ignore" in refused()
    told(lot=["1", "2", "", "3"])
    assert "a word such as none or leave" in refused("--text", "lot")
    write(pool, [["name"], *([f"s{i}"] for i in range(NUM))])
    assert "has no column to learn from: 'name' has 30 different" in refused(key=None)


def test_measured_rows_of_one_file_are_not_ignored(
    suggest: Suggest, refused: Callable[..., str], pool: Path
) -> None:
    rows = [
        ["id", "heat", "loss"],
        *([f"c{i}", i, i if i < 4 else ""] for i in range(9)),
    ]
    write(pool, rows)
    line = refused()
    assert f"{pool}, line 2 (key 'c0'), column 'loss': '0' is a result in the" in line
    assert f"give the file as results too (--results {pool}), or leave" in line
    assert len(suggest("--ignore", "loss")) == 9
    write(pool, [rows[0], *([*row[:2], "failed"] for row in rows[1:3])])
    assert "'failed' is a result in" in refused()
    write(pool, rows)
    assert len(suggest("--results", pool)) == 5
    write(pool, [rows[0], *([*row[:2], ""] for row in rows[1:])])
    assert len(suggest()) == 9


def test_failed_rows_are_not_proposed_again(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path, capfdbinary: Any
) -> None:
    state = tmp_path / "run.state"
    first = [row["id"] for row in suggest("--state", state, "--batch", 3)]
    # the second failed once, and was measured then
    entries = [[first[0], " "], [first[1], ""], [first[1], 1.5]]
    results = write(tmp_path / "m.csv", [["id", "loss"], *entries])
    line = refused("--results", results)
    assert "line 2 (key" in line and "the cell is empty" in line
    assert "write failed, or call with --skip-empty for all" in line
    words = ["suggest", "--candidates", tmp_path / "pool.csv", "--key", "id"]
    words += ["--target", "loss", "--results", results, "--skip-empty", "--batch", 30]
    main([*map(str, [*words, "--state", state])])
    out, err = capfdbinary.readouterr()
    rows = [row["id"] for row in csv.DictReader(io.StringIO(out.decode()))]
    assert sorted([*rows, *first]) == sorted(f"c{i}" for i in range(NUM))
    assert b"1 of them measured, 1 failed, 1 proposed before wait for" in err


def test_a_target_among_the_candidates_is_not_looked_at(
    suggest: Suggest, pool: Path, tmp_path: Path, capfdbinary: Any
) -> None:
    results = write(tmp_path / "m.csv", [["id", "loss"], *map(measured, range(6))])
    before = suggest("--results", results)
    lines = pool.read_text().splitlines()
    more = ["loss", *["secret"] * NUM]
    pool.write_text("".join(f"{a},{b}\n" for a, b in zip(lines, more, strict=True)))
    words = ["suggest", "--candidates", pool, "--key", "id", "--target", "loss"]
    main([*map(str, [*words, "--results", results])])
    out, err = capfdbinary.readouterr()
    assert list(csv.DictReader(io.StringIO(out.decode()))) == before
    assert b"note: the target 'loss' is also a column of" in err


@pytest.mark.parametrize("text", ["", "\n", "id,loss\n"])
def test_results_may_be_empty(suggest: Suggest, tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    assert suggest("--results", path, "--batch", 2) == suggest("--batch", 2)


@pytest.mark.parametrize("state", [True, False])
def test_results_may_be_in_several_files(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path, state: bool
) -> None:
    """One for each round, with the columns of its own; they count as one file does."""
    told = [["id", "loss"], *map(measured, range(8)), ["c1", 2], ["c9", "failed"]]
    whole = write(tmp_path / "m.csv", told)
    first = write(tmp_path / "r1.csv", told[:5])
    rows = [["", *row] for row in told[5:]]
    second = write(tmp_path / "r2.csv", [["heat", "id", "loss"], *rows])
    options = ["--state", tmp_path / "run.state"] if state else []
    expected = suggest("--results", whole, "--batch", 5)
    assert expected == suggest("--results", first, second, "--batch", 5, *options)
    named = ["--results", first, "--results", second]
    assert expected == suggest(*named, "--batch", 5)
    write(second, [["id", "loss"], ["c8", 1], ["c7", "x"]])
    assert "r2.csv, line 3 (key 'c7'), column 'loss': 'x' is" in refused(*named)
    assert "r1.csv' is given twice as --results" in refused(*named, "--results", first)


def test_waiting_rows_without_a_value_wait_on(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path
) -> None:
    """A half-filled `next.csv` is taken where the state knows its rows."""
    state = ["--state", tmp_path / "run.state"]
    first = [row["id"] for row in suggest(*state, "--batch", 6)]
    told = [["id", "loss"], *([key, ""] for key in first[:3])]
    told += [[first[3], "NA"], [first[4], "Failed"], [first[5], 1.5]]
    results = write(tmp_path / "m.csv", told)
    rows = [row["id"] for row in suggest("--results", results, *state, "--batch", 9)]
    assert len(rows) == 9 and not {*rows} & {*first}
    line = refused("--results", results)
    assert "the cell is empty; fill it in" in line and "with that --state" in line
    other = next(f"c{i}" for i in range(NUM) if f"c{i}" not in {*rows, *first})
    write(results, [*told, [other, ""]])
    line = refused("--results", results, *state)
    assert f"m.csv, line 8 (key '{other}'), column 'loss': the cell is empty" in line
    rest = suggest("--results", results, *state, "--batch", 50, "--skip-empty")
    assert {row["id"] for row in rest}.isdisjoint({other, *first, *rows})
    assert len(rest) == NUM - 6 - 9 - 1


def test_the_word_none_is_a_category_and_no_gap(
    suggest: Suggest, refused: Callable[..., str], pool: Path, tmp_path: Path
) -> None:
    """It is what messages advise to write: salt is then another material than none."""
    for word, num in (("none", 0), ("no", 0), ("", 4)):
        write(pool, [["x", "additive"], *([i / 10, word] for i in range(12))])
        told = [["x", "additive", "loss"], *([i / 10, "salt", i] for i in range(4))]
        results = write(tmp_path / "m.csv", told)
        read = read_results([results], read_pool(pool, None, "loss"))
        assert (len(read.rows), len(read.points)) == (num, 4 - num)
    write(pool, [["id", "x", "add"], ["a", 1, "none"], ["b", 2, "salt"], ["c", 3, "s"]])
    write(results, [["id", "add", "loss"], ["b", "None", 1]])
    assert "column 'add': 'None' is not 'salt', which" in refused("--results", results)


def test_values_in_a_blank_column_of_the_pool_are_noted(
    pool: Path, tmp_path: Path, capfdbinary: Any
) -> None:
    write(pool, [["id", "x", "additive"], *([f"c{i}", i, ""] for i in range(9))])
    told = [["id", "additive", "loss"], ["c1", "", 1], ["c2", " salt", 2]]
    results = write(tmp_path / "m.csv", told)
    words = ["suggest", "--candidates", pool, "--key", "id", "--target", "loss"]
    main([*map(str, [*words, "--results", results])])
    err = capfdbinary.readouterr().err.decode()
    assert f"column 'additive' is left out, as {pool} has no value in it, but" in err
    assert f"{results} has 'salt' in it; it is not used\n" in err


def test_names_that_were_left_out_contradict_features(
    suggest: Suggest, refused: Callable[..., str], pool: Path, tmp_path: Path
) -> None:
    """Another material with the features of one: a column may be missing."""

    def files(name: str, told: str) -> list[object]:
        write(pool, [["name", "x"], *([name.format(i), i / 9] for i in range(NUM))])
        rows = [[told.format(i), i / 9, i] for i in range(5)]
        write(tmp_path / "m.csv", [["name", "x", "loss"], *rows])
        return ["--results", tmp_path / "m.csv"]

    line = refused(*files("A{}", "B{}"), key=None)
    assert "m.csv, line 2, column 'name': it has 'B0', and the row with these" in line
    assert f"features, line 2 of {pool}, has 'A0'; name rows by --key 'name', or" in (
        line
    )
    assert suggest(*files("A{}", "B{}"), "--ignore", "name", key=None)
    assert suggest(*files("A{}", " a{}"), key=None)
    assert suggest(*files("A{}", ""), key=None)
    assert suggest(*files("2026-01-{:02}", "{}.1.26"), key=None)
    assert "has '2026-01-00'; name" in refused(
        *files("2026-01-{:02}", "2026-01-07"), key=None
    )


def test_a_result_that_two_files_have_counts_once(
    suggest: Suggest, pool: Path, tmp_path: Path, capfdbinary: Any
) -> None:
    """An export holds what earlier ones did; what one file repeats was repeated."""
    header = ["id", "heat", "solvent", "dose", "lid", "loss"]
    cells = [["", "", "", ""], ["40", "oil", "1", "2"]]
    told = [["c0", *cells[0], "1"], ["c1", *cells[0], 2], ["old", *cells[1], 3]]
    first = write(tmp_path / "r1.csv", [header, *told, ["c2", *cells[0], "failed"]])
    more = [["c0", *cells[0], " 1"], ["c0", *cells[0], "1.5"], ["c3", *cells[0], 1]]
    second = write(tmp_path / "r2.csv", [header, *told, *more])
    read = read_results([first, second], read_pool(pool, "id", "loss"))
    assert read.rows == [0, 1, 0, 0, 3] and read.point_values == [3.0]
    assert read.values == [1.0, 2.0, 1.0, 1.5, 1.0] and read.failed == [2]
    words = ["suggest", "--candidates", pool, "--key", "id", "--target", "loss"]
    main([*map(str, [*words, "--results", first, second])])
    err = capfdbinary.readouterr().err.decode()
    assert "note: 3 of the results are in an earlier file too, with the same" in err
    assert f"belong in one file): line 2 (key 'c0') of {second}, line 3 (key" in err
    assert f"count as data beside it: line 4 (key 'old') of {first}\n" in err
    assert f"best so far: line 4 (key 'old') of {first}, 'loss': 3" in err


def test_a_file_of_several_may_hold_nothing_of_use(
    refused: Callable[..., str], pool: Path, tmp_path: Path
) -> None:
    """It is left out with a note, as its rows in one file with the others are."""
    header = ["id", "heat", "solvent", "dose", "lid", "loss"]
    odd = write(tmp_path / "r1.csv", [header, ["z", 1, "OIL", 1, 1, 3]])
    good = write(tmp_path / "r2.csv", [["id", "loss"], *map(measured, range(3))])
    candidates = read_pool(pool, "id", "loss")
    for paths in ([odd, good], [good, odd]):
        read = read_results(paths, candidates)
        assert read.left_out == [f"line 2 (key 'z') of {odd}"] and len(read) == 3
    write(good, [["id", "loss"]])
    assert "r1.csv, line 2 (key 'z')" in refused("--results", good, odd)


@pytest.mark.parametrize("key", ["id", None])
def test_names_in_few_rows_can_be_ignored_as_messages_say(
    suggest: Suggest,
    refused: Callable[..., str],
    pool: Path,
    tmp_path: Path,
    key: str | None,
) -> None:
    """A pool that shrinks to twenty rows takes as a feature what was left out."""
    told = [["id", "x", "loss"], *([f"c{i}", i / 9, i] for i in range(4))]
    told = told if key else [row[1:] for row in told]
    results = write(tmp_path / "m.csv", told)
    for num in (21, 20):
        rows = [[f"c{i}", f"n{i}", i / 9] for i in range(1, num + 1)]
        rows = [["id", "name", "x"], *rows]
        write(pool, rows if key else [row[1:] for row in rows])
        options = ["--results", results, "--batch", 2]
        if num == 21:
            assert suggest(*options, key=key)
    line = refused(*options, key=key)
    assert "if it names rows, leave it out with --ignore 'name'" in line
    assert suggest(*options, "--ignore", "name", key=key)


@pytest.mark.parametrize("state", [True, False])
def test_an_empty_row_may_have_its_value_in_a_later_file(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path, state: bool
) -> None:
    """It waits no more then, and its empty line is still there in all later calls."""
    options = ["--state", tmp_path / "run.state"] * state
    first = [row["id"] for row in suggest(*options, "--batch", 3)]
    told = [["id", "loss"], [first[0], 1], [first[1], ""], [first[2], 2]]
    before = write(tmp_path / "r1.csv", told)
    late = write(tmp_path / "r2.csv", [["id", "loss"], [first[1], 3]])
    for _ in range(3):
        rows = suggest("--results", before, late, *options, "--batch", 3)
        assert not {row["id"] for row in rows} & {*first}
    assert suggest("--results", late, before, "--batch", 4)
    write(late, [["id", "loss"], ["c9", 3]])
    assert "r1.csv, line 3" in refused("--results", before, late)


def test_a_waiting_row_that_is_gone_may_be_empty(
    suggest: Suggest, pool: Path, tmp_path: Path
) -> None:
    state = ["--state", tmp_path / "run.state"]
    first = suggest(*state, "--batch", 4)
    header = ["id", "heat", "solvent", "dose", "lid"]
    rows = [[row[name] for name in header] for row in first]
    gone = first[0]["id"]
    whole = read_lines(pool)
    left = [line for line in whole if not line.startswith(f"{gone},")]
    pool.write_text("\n".join(left))
    told = [[*row, loss] for row, loss in zip(rows, ["", 1, 2, ""], strict=True)]
    results = write(tmp_path / "m.csv", [[*header, "loss"], *told])
    assert len(suggest("--results", results, *state, "--batch", 9)) == 9
    pool.write_text("\n".join(whole))
    assert len(suggest("--results", results, *state, "--batch", 50)) == NUM - 4 - 9


def test_points_of_thousands_beside_the_pool_are_refused(
    suggest: Suggest, refused: Callable[..., str], pool: Path, tmp_path: Path
) -> None:
    write(pool, [["id", "heat"], *([f"c{i}", f"{i}50,5"] for i in range(1, 9))])
    told = [["id", "heat", "loss"], ["c1", "150,5", "1,5"], ["old", "1.250", "2,5"]]
    results = write(tmp_path / "m.csv", told)
    line = refused("--results", results, "--decimal", ",")
    assert "m.csv, line 3 (key 'old'), column 'heat': with --decimal ','" in line
    assert "write 1250 or 1,250, whichever" in line
    told[2][1] = "1250"
    write(results, told)
    assert suggest("--results", results, "--decimal", ",")


@pytest.mark.parametrize("text", ["", "id,loss\n"])
def test_empty_results_do_not_hide_those_of_the_pool(
    suggest: Suggest, refused: Callable[..., str], pool: Path, text: str, tmp_path: Path
) -> None:
    write(pool, [["id", "heat", "loss"], *([f"c{i}", i, i] for i in range(9))])
    results = tmp_path / "m.csv"
    results.write_text(text)
    line = refused("--results", results)
    assert "line 2 (key 'c0'), column 'loss': '0' is a result in the column" in line
    assert "no results are named, or they are empty; give the file as results" in line
    assert suggest("--results", results, "--ignore", "loss")
    results.write_text("id,loss\nc1,failed\n")
    assert len(suggest("--results", results)) == 8


@pytest.mark.parametrize("word", ["-", "n.d.", "fail"])
def test_a_failed_row_is_marked_by_a_word(
    suggest: Suggest, refused: Callable[..., str], pool: Path, word: str
) -> None:
    """In one file for both empty rows are to be measured, so a word is needed."""
    rows = [["id", "heat", "loss"], *([f"c{i}", i, i] for i in range(6))]
    rows += [["c6", 6, "FAILED "], ["c7", 7, ""], ["c8", 8, ""]]
    write(pool, rows)
    found = suggest("--results", pool)
    assert {row["id"] for row in found} == {"c7", "c8"}
    rows[-1][-1] = word
    line = refused("--results", write(pool, rows))
    assert f"'{word}' is no number; write failed if the measurement failed" in line


def test_decimal_commas_are_read_where_they_are_declared(
    suggest: Suggest, refused: Callable[..., str], pool: Path, tmp_path: Path
) -> None:
    """The user's cells stay as they are, and keys too; points may be thousands'."""
    cells = [f"{HEAT[i]:.3f}" for i in range(NUM)]
    header, told = ["id", "heat"], ["id", "heat", "loss"]

    def files(mark: str, more: list[list[str]] | None = None) -> Path:
        rows = [[f"{i},5", cell.replace(".", mark)] for i, cell in enumerate(cells)]
        write(pool, [header, *rows, *(more or [])])
        losses = [[*rows[i], f"{loss(i):.3f}".replace(".", mark)] for i in range(9)]
        return write(tmp_path / "m.csv", [told, *losses])

    points = suggest("--results", files("."), "--batch", 4)
    results = files(",")
    line = refused("--results", results)
    assert "--decimal ',' reads all commas as" in line
    commas = suggest("--results", results, "--batch", 4, "--decimal", ",")
    assert [row["heat"].replace(",", ".") for row in commas] == [
        row["heat"] for row in points
    ]
    assert "," in commas[0]["heat"] and "," in commas[0]["id"]
    assert [row["predicted_mean"] for row in commas] == [
        row["predicted_mean"] for row in points
    ]
    results = files(",", [["k", "1.037"]])
    line = refused("--results", results, "--decimal", ",")
    assert "column 'heat': with --decimal ',' the point in '1.037'" in line
    assert "write 1037 or 1,037, whichever it is" in line
    write(results := files(","), [told, ["0,5", cells[0].replace(".", ","), "1.037"]])
    line = refused("--results", results, "--decimal", ",")
    assert "m.csv, line 2 (key '0,5'), column 'loss': with --decimal" in line
    results = files(",", [["k", "1.037,5"], ["l", "0.320"]])
    rows = suggest("--results", results, "--decimal", ",", "--batch", 50)
    assert {"1.037,5", "0.320"} <= {row["heat"] for row in rows}


def test_one_row_is_proposed_once(suggest: Suggest, pool: Path, tmp_path: Path) -> None:
    """There is nothing to compare it with."""
    write(pool, [["id", "heat"], ["a", 1]])
    (row,) = suggest()
    assert row["reason"] == ONLY and row["id"] == "a"
    for value in ("2.5", "failed"):
        results = write(tmp_path / "m.csv", [["id", "loss"], ["a", value]])
        assert suggest("--results", results) == []


def test_columns_of_the_output_can_be_ignored(
    suggest: Suggest, refused: Callable[..., str], pool: Path
) -> None:
    rows = [["id", "heat", "reason", "row"], *([f"c{i}", i, "x", i] for i in range(9))]
    write(pool, rows)
    assert "'reason', which the output adds; rename it or leave it out" in refused()
    found = suggest("--ignore", "reason")
    assert [*found[0]] == ["id", "heat", "row", *ADDED] and found[0]["reason"] == FIRST
    options = ["--ignore", "reason", "--ignore", "row", "--ignore", "id"]
    found = suggest(*options, key=None)
    assert [*found[0]] == ["row", "id", "heat", *ADDED]


def test_names_that_were_left_out_may_be_the_key(
    suggest: Suggest, refused: Callable[..., str], pool: Path
) -> None:
    write(pool, [["name", "heat"], *([f"n{i}", i % 9] for i in range(NUM))])
    line = refused(key=None)
    assert "same features; leave one out, or name rows by a --key, as --key 'name'" in (
        line
    )
    assert "'name', which was left out, differs: if it is a feature, keep it" in line
    assert line.endswith(" with --text 'name'.\n")
    assert len(suggest("--text", "name", key=None)) == 20


def test_options_are_given_once(refused: Callable[..., str], pool: Path) -> None:
    for option in ("--candidates", "--target", "--key"):
        assert f"argument {option}: is given twice" in refused(option, pool)
    for option in ("--batch", "--seed"):
        line = refused(option, 20, option, 20)
        assert f"argument {option}: is given twice" in line


def test_results_that_are_named_must_be_there(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    line = refused("--results", tmp_path / "measrued.csv")
    assert "There is no file" in line and "measrued.csv' for --results" in line


POOL = "id,heat,solvent\na,1,x\nb,2,y\nc,3,x\n"
BAD_POOLS = [
    ("", "pool.csv is empty: a header row"),
    ("id,heat\n", "pool.csv is empty: a header row"),
    ("1,2\n3,4\n", "only numbers; it must name the columns"),
    ("heat,heat,id\n1,2,3\n", "repeats the column names 'heat'"),
    ("id,heat\na,1\nb\n", "pool.csv, line 3: there are 1 cells"),
    ("id,heat\na,1\n\nb,\n", "pool.csv, line 4 (key 'b'), column 'heat': the cell is"),
    ("id,heat\na,1\na,2\n", "pool.csv, line 3 (key 'a'), column 'id': line 2 has the"),
    ("id,heat\na,1\n,2\n", "pool.csv, line 3 (key ''), column 'id': the cell is empty"),
    ("id,heat\na,1\nb,2\nc,hot\n", "line 4 (key 'c'), column 'heat': 'hot' is no fin"),
    ("id,heat\na,1\nb,inf\n", "line 3 (key 'b'), column 'heat': 'inf' is no finite"),
    ("name,heat\na,1\n", "pool.csv has no column 'id', the --key; its columns are"),
    ("id;heat, C\na;1,5\n", "no column 'id', the --key; its columns are 'id;heat'"),
    ("id;heat, C\na;1,5\n", "There are semicolons in the names of columns: if cells"),
    ("id;heat\na;1,5\nb;2,5\n", "(key 'a'), column 'heat': '1,5' is no number; write"),
    ("id\na\n", "pool.csv: Got 0 columns besides the key"),
    ("id,loss\na,1\n", "pool.csv: Got 0 columns besides the key"),
    ("id,reason\na,1\n", "has a column 'reason', which the output adds; rename it"),
    ("id,heat\n\x1b[2J,1\n\x1b[2J,2\n", r"(key '\x1b[2J'), column 'id'"),
    ("id,\x1b[2J\na,1\nb,\n", r"column '\x1b[2J': the cell is empty"),
    (b"id,heat\na,1\n\xe9,2\n", "pool.csv, line 3: byte 0xe9 is no UTF-8"),
]
BAD_RESULTS = [
    ("id,loss\n\nd,1\ne,2\n", "m.csv, line 3 (key 'd'), column 'id': "),
    ("id,loss\nd,1\ne,2\n", "pool.csv has no row with this key, and the features of"),
    ("id,loss\nd,1\n", "(column 'heat': there is no such column); correct the key"),
    ("id,heat,solvent,loss\nd,,x,1\n", "(column 'heat': '' is no number); correct"),
    ("id,heat,solvent,loss\nd,1,X,1\n", "'X' is none of its categories, 'x', 'y')"),
    ("id,heat,solvent,loss\nb,2,y,\n", "column 'loss': the cell is empty"),
    ("id,heat,solvent,loss\nb,2,y,n/a\n", "column 'loss': 'n/a' is no number"),
    ("id,gain\na,1\n", "m.csv has no column 'loss', the --target; its columns"),
    ("key,loss\na,1\n", "m.csv has no column 'id', the --key"),
    ("id,loss\na,1\nb,\n", "m.csv, line 3 (key 'b'), column 'loss': the cell is empty"),
    ("id,loss\na,1\nb,n/a\n", "line 3 (key 'b'), column 'loss': 'n/a' is no number"),
    ("id,loss\na,inf\n", "line 2 (key 'a'), column 'loss': 'inf' is no number"),
    ("id,loss\na,1e300\nb,-1e300\nc,1\n", "m.csv: Got feedback as large as 1e+300"),
    ("id,loss\na,1,2\n", "m.csv, line 2: there are 3 cells, but the header has 2"),
    ("id,loss,loss\na,1,2\n", "m.csv repeats the column names 'loss'"),
    ("id,loss\na,\x1b[31m\n", r"'\x1b[31m' is no number"),
    (b"id,loss\na,\xff\n", "m.csv, line 2: byte 0xff is no UTF-8"),
]


@pytest.mark.parametrize(("text", "message"), BAD_POOLS)
def test_a_bad_pool_is_refused_in_one_line(
    refused: Callable[..., str], pool: Path, text: str | bytes, message: str
) -> None:
    pool.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert message in refused()


@pytest.mark.parametrize(("text", "message"), BAD_RESULTS)
def test_bad_results_are_refused_in_one_line(
    refused: Callable[..., str],
    pool: Path,
    tmp_path: Path,
    text: str | bytes,
    message: str,
) -> None:
    pool.write_text(POOL)
    path = tmp_path / "m.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert message in refused("--results", path)


def test_without_a_key_all_features_are_needed(
    refused: Callable[..., str], pool: Path, tmp_path: Path
) -> None:
    pool.write_text("heat,solvent\n1,x\n2,y\n")
    path = tmp_path / "m.csv"
    path.write_text("heat,loss\n1,1\n")
    line = refused("--results", path, key=None)
    assert "m.csv has no column 'solvent', which" in line and "--key" in line
    path.write_text("heat,solvent,loss\n1,x,1\nhot,y,2\n")
    assert "line 3, column 'heat': 'hot' is no number" in refused(
        "--results", path, key=None
    )
    pool.write_text("row,heat\n1,2\n")
    assert "a column 'row', which the output adds; rename it, gi" in refused(key=None)
    assert "or leave it out with --ignore row." in refused(key=None)


def test_wrong_options_are_refused(refused: Callable[..., str], pool: Path) -> None:
    assert "'0' is not a whole number above 0" in refused("--batch", 0)
    assert "'1.5' is not a whole number above 0" in refused("--batch", 1.5)
    assert "'-1' is not a whole number from 0 on" in refused("--seed", -1)
    assert r"unrecognized arguments: \x1b[2J" in refused("\x1b[2J")
    assert "invalid choice" in refused("--strategy", "best")
    assert "The --key and the --target are both 'loss'" in refused(key="loss")
    assert "is given twice" in refused("--output", pool)
    assert "no such folder" in refused("--output", pool.parent / "none" / "next.csv")
    assert "no such folder" in refused("--state", pool.parent)
    pool.unlink()
    assert "There is no file" in refused()


def test_states_that_do_not_fit_are_refused_in_words(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path
) -> None:
    state = tmp_path / "run.state"
    suggest("--state", state, "--batch", 2, "--minimize")
    whole = state.read_bytes()
    line = refused("--state", state)
    assert "was kept with --minimize, and this call is without --minimize." in line
    line = refused("--state", state, "--minimize", target="gain")
    assert "with --target 'loss', and this call is with --target 'gain'." in line
    line = refused("--state", state, "--minimize", key=None)
    assert "with --key 'id', and this call is without --key." in line
    state.write_bytes(whole[: len(whole) // 2])
    assert "torn" in refused("--state", state, "--minimize")
    assert state.read_bytes() == whole[: len(whole) // 2]
    ThompsonSampling(table()).save(state)
    assert "none that this command wrote" in refused("--state", state, "--minimize")


def test_output_goes_to_a_file_as_a_whole(suggest: Suggest, tmp_path: Path) -> None:
    path = tmp_path / "next.csv"
    assert suggest("--output", path, "--batch", 2) == []
    assert read(path) == suggest("--batch", 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["next.csv", "pool.csv"]


def test_a_reader_that_left_costs_one_line_and_no_state(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    state = tmp_path / "run.pt"
    words = ["--candidates", pool, "--key", "id", "--target", "loss", "--state", state]
    with open(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit) as caught:
            main(["suggest", *map(str, words)])
    assert caught.value.code == 2 and not state.exists()
    assert capsys.readouterr().err.endswith(
        "error: the output was closed before all rows were written\n"
    )


@pytest.mark.parametrize("name", ["pandas", "filelock"])
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str
) -> None:
    for module in [m for m in sys.modules if m.startswith("botorch_sparse.suggest.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit) as caught:
        main(["suggest", "--help"])
    line = capsys.readouterr().err
    assert caught.value.code == 2 and line.count("\n") == 1
    assert f"{name} is missing; pip install 'botorch_sparse[suggest]'" in line
