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
from botorch_sparse.strategies import BBKB, Batch, ThompsonSampling
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.suggest import (
    ADDED,
    DRAWN,
    EXPLOITS,
    EXPLORES,
    FIRST,
    STRATEGIES,
    explain,
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

    def suggest(*options: object, key: str | None = "id") -> list[dict[str, str]]:
        named = [] if key is None else ["--key", key]
        words = ["--candidates", pool, *named, "--target", "loss", *options]
        main(["suggest", *map(str, words)])
        out = capfdbinary.readouterr().out.decode()
        return list(csv.DictReader(io.StringIO(out, newline="")))

    return suggest


@pytest.fixture
def refused(suggest: Suggest, capfdbinary: Any) -> Callable[..., str]:
    """Calls the command; its one line on stderr, where nothing is on stdout."""

    def refused(*options: object, key: str | None = "id") -> str:
        with pytest.raises(SystemExit) as caught:
            suggest(*options, key=key)
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
def test_two_calls_with_a_state_are_one_run(
    suggest: Suggest, tmp_path: Path, name: str
) -> None:
    results, state = tmp_path / "measured.csv", tmp_path / "run.pt"
    options = ["--strategy", name, "--batch", 7, "--minimize", "--state", state]
    proposed = []
    for _ in range(3):
        results.touch()
        rows = suggest(*options, "--results", results)
        measure(results, rows)
        proposed.append(rows)
    kind = {"bbkb": BBKB, "thompson": ThompsonSampling}[name]
    strategy = kind(table(), minimize=True, unique=True)
    for rows in proposed:
        chosen: list[int] = []
        while len(chosen) < 7:
            chosen += strategy.ask(7 - len(chosen)).indices.tolist()
        assert [row["id"] for row in rows] == [f"c{i}" for i in chosen]
        Y = torch.tensor([loss(i) for i in chosen], dtype=torch.float64)
        predicted = strategy.predict(strategy.candidates[chosen])
        if predicted is not None:
            expected = [[f"{v:.6g}" for v in values.tolist()] for values in predicted]
            assert [row["predicted_mean"] for row in rows] == expected[0]
            assert [row["predicted_sd"] for row in rows] == expected[1]
        strategy.tell(Batch(strategy.candidates[chosen], torch.tensor(chosen)), Y)
    assert len({row["id"] for rows in proposed for row in rows}) == 21


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


def test_repeated_measurements_count_one_by_one(
    suggest: Suggest, refused: Callable[..., str], tmp_path: Path
) -> None:
    state, results = tmp_path / "run.pt", tmp_path / "m.csv"
    rows = [["id", "loss"], ["c1", 1.0], ["c2", 2.0], ["c1", 1.5]]
    suggest("--results", write(results, rows), "--state", state, "--batch", 2)
    # in another order, with one more
    rows = [rows[0], ["c1", 1.5], ["c2", 2.0], ["c1", 1.25], ["c1", 1.0]]
    suggest("--results", write(results, rows), "--state", state, "--batch", 2)
    del rows[3]
    line = refused("--results", write(results, rows), "--state", state)
    assert "'c1' (line 3 of" in line and "result 1.25 when the state" in line
    assert "has 1.5, 1 for it now" in line
    rows[2][1] = 7.0
    rows.insert(3, ["c1", 1.25])
    line = refused("--results", write(results, rows), "--state", state)
    assert "'c2' (line 4 of" in line and "result 2 when" in line and "has 7 for" in line
    del rows[2]
    assert "has none for it" in refused(
        "--results", write(results, rows), "--state", state
    )


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
    line = refused("--results", write(results, [header, *rows]), key=None)
    assert "line 6, column 'heat': no row of" in line and "pool.csv." in line
    rows[4][0] = "air"
    line = refused("--results", write(results, [header, *rows]), key=None)
    assert "m.csv, line 6, column 'solvent': 'air' is none of its categories" in line


def test_rows_alike_within_six_digits_need_a_key(
    refused: Callable[..., str], tmp_path: Path, pool: Path
) -> None:
    results = write(tmp_path / "m.csv", [["a", "loss"], [0.5, 1]])
    write(pool, [["a"], [0.5000001], [0.5000002], [1]])
    line = refused("--results", results, key=None)
    assert "m.csv, line 2: to six digits this is line 2 of" in line and "--key" in line
    write(pool, [["a"], [0.5], [1], [0.5]])
    assert "lines 2 and 4: the two rows have the same features" in refused(key=None)


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
    ("heat,heat,id\n1,2,3\n", "repeats the column names heat"),
    ("id,heat\na,1\nb\n", "pool.csv, line 3: there are 1 cells"),
    ("id,heat\na,1\n\nb,\n", "pool.csv, line 4 (key 'b'), column 'heat': the cell is"),
    ("id,heat\na,1\na,2\n", "pool.csv, line 3 (key 'a'), column 'id': line 2 has the"),
    ("id,heat\na,1\n,2\n", "pool.csv, line 3 (key ''), column 'id': the cell is empty"),
    ("id,heat\na,1\nb,2\nc,hot\n", "line 4 (key 'c'), column 'heat': 'hot' is no fin"),
    ("id,heat\na,1\nb,inf\n", "line 3 (key 'b'), column 'heat': 'inf' is no finite"),
    ("name,heat\na,1\n", "pool.csv has no column 'id', the --key; its columns are"),
    ("id;heat\na;1\n", "no column 'id', the --key; its columns are 'id;heat'"),
    ("id\na\n", "pool.csv: Got 0 columns besides the key"),
    ("id,loss\na,1\n", "pool.csv: Got 0 columns besides the key"),
    ("id,reason\na,1\n", "has a column 'reason', which the output adds; rename it"),
    ("id,heat\n\x1b[2J,1\n\x1b[2J,2\n", r"(key '\x1b[2J'), column 'id'"),
    ("id,\x1b[2J\na,\n", r"column '\x1b[2J': the cell is empty"),
    (b"id,heat\na,1\n\xe9,2\n", "pool.csv, line 3: byte 0xe9 is no UTF-8"),
]
BAD_RESULTS = [
    ("id,loss\nc,1\nd,2\n", "m.csv, line 3 (key 'd'), column 'id': "),
    ("id,loss\nc,1\nd,2\n", "pool.csv has no row with this key"),
    ("id,gain\na,1\n", "m.csv has no column 'loss', the --target; its columns"),
    ("key,loss\na,1\n", "m.csv has no column 'id', the --key"),
    ("id,loss\na,1\nb,\n", "m.csv, line 3 (key 'b'), column 'loss': the cell is empty"),
    ("id,loss\na,1\nb,n/a\n", "line 3 (key 'b'), column 'loss': 'n/a' is no number"),
    ("id,loss\na,inf\n", "line 2 (key 'a'), column 'loss': 'inf' is no number"),
    ("id,loss\na,1,2\n", "m.csv, line 2: there are 3 cells, but the header has 2"),
    ("id,loss,loss\na,1,2\n", "m.csv repeats the column names loss"),
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
    assert "a column 'row', which the output adds; rename it or" in refused(key=None)


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
    suggest: Suggest, refused: Callable[..., str], pool: Path, tmp_path: Path
) -> None:
    state = tmp_path / "run.pt"
    suggest("--state", state, "--batch", 2)
    whole = state.read_bytes()
    line = refused("--state", state, "--minimize")
    assert "--state: " in line and "minimize" in line
    pool.write_text(pool.read_text().replace("oil", "ale"))
    suggest("--state", state, "--batch", 2)  # the same encoding
    pool.write_text(pool.read_text().replace("ale", "water"))
    assert "candidates" in refused("--state", state)
    state.write_bytes(whole[: len(whole) // 2])
    assert "torn" in refused("--state", state)
    assert state.read_bytes() == whole[: len(whole) // 2]


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


def test_pandas_is_not_needed(
    suggest: Suggest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    results = write(tmp_path / "m.csv", [["id", "loss"], *map(measured, range(6))])
    assert len(suggest("--results", results, "--batch", 3)) == 3
