"""The benchmark of a laboratory's rounds: methods repeat, and figures are true."""

import csv
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import hypergeom

sys.path.append(str(Path(__file__).parents[1]))

pytest.importorskip("optuna")
pytest.importorskip("pandas")

import pandas as pd

from benchmarks import laboratory
from benchmarks.laboratory import BATCH, METHODS, ROUNDS, LaboratoryTable, Run
from benchmarks.store import Store
from botorch_sparse.suggest import suggest_command

ROOT = Path(__file__).parents[1]
ROWS = 60


def small(*, minimize: bool = False) -> LaboratoryTable:
    """Sixty rows of a category and a number, each measured twice."""
    heat = np.arange(ROWS, dtype=float)
    solvent = np.array(["oil", "gas, wet", "water"])[np.arange(ROWS) % 3]
    value = -((heat - 20) ** 2) - 100 * (solvent == "oil")
    measurements = np.stack([value, value + 1], -1)
    features = pd.DataFrame({"heat": heat, "solvent": solvent})
    sign = -1 if minimize else 1
    return LaboratoryTable(features, sign * measurements, "yield", minimize)


@pytest.mark.parametrize("minimize", [False, True])
def test_the_best_row_has_rank_one(minimize: bool) -> None:
    table = small(minimize=minimize)
    # 20 is "water"; 19 and 22 are one and two degrees off, and 21 is "oil".
    assert table.rank([20]) == 1 and table.rank([19, 50]) == 2
    assert table.rank([22, 50]) == 3  # 18 is "oil" too
    assert table.rank([21]) > 10


def test_each_seed_draws_one_measurement_of_a_row() -> None:
    table = small()
    first, again, other = (table.feedback(seed) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    which = first - table.measurements[:, 0]
    assert set(which) == {0.0, 1.0}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in laboratory.NEEDS))
        for name in METHODS
    ],
)
def test_each_method_repeats_its_seed(method: str) -> None:
    if method in laboratory.NEEDS and not find_spec(laboratory.NEEDS[method]):
        pytest.skip("not installed")
    runs = [Run(small(), seed) for seed in (3, 3, 4)]
    for run in runs:
        METHODS[method](run)
        assert len(run.rows) == len({*run.rows}) == ROUNDS * BATCH
        assert {*run.rows} <= {*range(ROWS)} and len(run.seconds) == ROUNDS
    first, again, other = (run.rows for run in runs)
    assert first == again != other
    record = runs[0].record()
    assert record["of"] == ROWS
    assert record["ranks"] == [small().rank(first[: 8 * i]) for i in range(1, 6)]


def test_ours_is_what_a_user_calls(tmp_path: Path) -> None:
    """The second call, on files that are written by hand."""
    table = small(minimize=True)
    run = Run(table, 5)
    METHODS["bbkb"](run)
    rows = [["heat", "solvent"], *table.features.to_numpy().tolist()]
    known = run.rows[: 3 * BATCH]
    measured = [[*rows[1 + row], run.values[row]] for row in known]
    for name, lines in (
        ("pool.csv", rows),
        ("measured.csv", [[*rows[0], "yield"], *measured]),
    ):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    output = tmp_path / "next.csv"
    words = "--strategy bbkb --target yield --minimize --batch 8 --seed 5 --quiet"
    suggest_command.main(
        [
            *words.split(),
            *("--candidates", str(tmp_path / "pool.csv")),
            *("--results", str(tmp_path / "measured.csv")),
            *("--output", str(output)),
        ]
    )
    with output.open(newline="") as file:
        proposed = [int(row["row"]) - 1 for row in csv.DictReader(file)]
    assert proposed == run.rows[3 * BATCH : 4 * BATCH]


def test_what_is_stored_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(laboratory, "load", lambda name: small())
    store = tmp_path / "runs.json.gz"
    words = ["--tables", "redoxmers", "--methods", "random", "--store", str(store)]
    laboratory.main([*words, "--seeds", "2"])
    before, printed = Store(store).records, capsys.readouterr().out
    assert {*before} == {"redoxmers/random/0", "redoxmers/random/1"}
    monkeypatch.delattr(laboratory, "execute")
    laboratory.main([*words, "--seeds", "2"])
    assert Store(store).records == before
    again = capsys.readouterr().out
    assert "| random | 2 |" in again and printed.endswith(again)


def test_figures_are_medians_and_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "runs.json")
    for seed, last in enumerate((2, 3, 4, 9)):
        ranks, seconds = [90, 50, 20, 10, last], [9.0, 0.1, 0.2, 0.3, 0.4]
        found = {"rows": [], "ranks": ranks, "seconds": seconds, "of": 300}
        store.add(f"redoxmers/suggest/{seed}", found)
    laboratory.main(["--report", str(store.path)])
    printed = capsys.readouterr().out
    assert "### redoxmers: 300 rows" in printed and "dye_lasers" not in printed
    assert "| **suggest** | 4 | 90 | 50 | 20 | 10 | 3.5 | 50% | 0.25 |" in printed


def test_random_rows_have_the_ranks_of_draws_without_replacement() -> None:
    """Of a hundred rows 40 hold the best one in 40%, and 8 are beyond k as counted."""
    _, _, *medians, share, _ = laboratory.exactly_random(100)
    assert share == "40%"
    for n, median in zip(laboratory.ENDS, map(int, medians), strict=True):
        none_better = [hypergeom(100, k, n).pmf(0) for k in (median - 1, median)]
        assert none_better[1] <= 0.5 < none_better[0]


def test_tables_that_are_not_here_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BOTORCH_SPARSE_DATA", str(tmp_path))
    laboratory.load.cache_clear()
    assert laboratory.available(["dye_lasers", "sgemm_gpu"], laboratory.load) == []
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == ["dye_lasers", "sgemm_gpu"]


def test_the_page_that_compares_has_the_stored_figures() -> None:
    page = (ROOT / "docs/reference/other_programs.md").read_text()
    store = Store(ROOT / "benchmarks/results/laboratory.json.gz").records
    compared = [(table, 20) for table in laboratory.TABLES] + [("redoxmers", 100)]
    for table, seeds in compared:
        ours, theirs = (
            statistics.median(
                store[f"{table}/{method}/{seed}"]["ranks"][-1] for seed in range(seeds)
            )
            for method in ("suggest", "baybe")
        )
        assert f"{ours:g} to {theirs:g}" in page
