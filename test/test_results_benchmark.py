"""Tables of documents are those of stored runs; the papers' figures run small."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import (
    bbkb_paper,
    bkb_figure,
    boxes,
    gssbo,
    gssbo_default,
    gssbo_figures,
    paper_runs,
    results,
    sbpe_rates,
)
from benchmarks.gssbo_methods import Setting
from benchmarks.gssbo_problems import Problem
from benchmarks.store import Store

TABLES = [
    pytest.param(found["command"], found["table"], id=f"{name}, {found['command']}")
    for name in results.DOCUMENTS
    for found in results.BLOCK.finditer((results.ROOT / name).read_text())
    if "benchmarks.pool" not in found["command"]  # these need the tables
]


@pytest.mark.parametrize("command, table", TABLES)
def test_documents_show_what_is_stored(command, table):
    assert results.printed(command).strip() == table.strip()


@pytest.mark.parametrize(
    "command", ["rm x", "python -m benchmarks.bbkb_paper table1", "python x --report y"]
)
def test_only_reports_are_called(command):
    with pytest.raises(ValueError, match="is no"):
        results.printed(command)


def test_what_a_command_prints_is_kept(tmp_path):
    """With the threads that it ran with, and not those of this process."""
    kept = tmp_path / "printed.json"
    command = """OMP_NUM_THREADS=3 python -c 'print("| 7 |")'"""
    with pytest.raises(ValueError, match="was not run"):
        results.printed(command, kept)
    results.run(command, kept)
    text = results.printed(command, kept)
    assert re.search(r"\n\| 7 \|\n\ncommit .+, 3 threads, torch .+, .+\n$", text or "")


def test_what_leaves_data_out_is_not_kept(tmp_path):
    command = """python -c 'print("x: left out, set BOTORCH_SPARSE_DATA")'"""
    with pytest.raises(RuntimeError, match="nothing is stored"):
        results.run(command, tmp_path / "printed.json")
    assert not [*tmp_path.iterdir()]


def test_regret_of_a_buffer_is_compared_seed_by_seed(tmp_path, capsys):
    """Of those seeds that all methods have."""
    store = Store(tmp_path / "runs.json")
    for name in gssbo_figures.BUFFER_PROBLEMS:
        methods = reversed(gssbo_figures.BUFFER_METHODS)
        for factor, method in enumerate(methods, 1):
            for seed in (0, 3):
                key = gssbo.key(gssbo_figures.BUFFER, name, method, seed)
                store.add(key, {"regret": [factor * 2.0**seed, 0.0], "size": 7})
    alone = gssbo.key(gssbo_figures.BUFFER, "powell50", "Z=2", 1)
    store.add(alone, {"regret": [1e9], "size": 9})
    gssbo_figures.main(["--report", str(store.path)])
    printed = capsys.readouterr().out
    assert printed.count("300 evaluations, 2 seeds") == 2 and "1e+09" not in printed
    assert len(re.findall(r"  Z=2 +27 \+- \S+ +6 \+- 0 +7\n", printed)) == 2


def test_a_buffer_without_common_seeds_is_reported(tmp_path, capsys):
    gssbo_figures.main(["--report", str(tmp_path / "runs.json")])
    printed = capsys.readouterr().out
    assert printed.count("0 seeds") == 2 and "nothing is stored" in printed


def test_regret_of_subsets_is_stored_and_compared_seed_by_seed(
    tmp_path, monkeypatch, capsys
):
    """Under its setting, so that runs of two settings share a file."""
    regrets = {"rssbo": [4.0, 2.0], "gssbo-leverage": [1.0, 2.0]}

    def run(method: str, problem: Problem, setting: Setting) -> dict[str, object]:
        regret = [r * 10**problem.seed for r in regrets[method]]
        return {"regret": regret, "cpu": [1.0, 2.0], "size": setting.size}

    monkeypatch.setattr(gssbo, "run", run)
    path = str(tmp_path / "runs.json")
    options = ["--problems", "levy20", "--methods", *regrets, "--seeds", "2"]
    gssbo.main([*options, "--store", path])
    monkeypatch.setattr(gssbo, "run", pytest.fail)
    gssbo.main([*options, "--store", path])
    capsys.readouterr()
    gssbo.main(["--report", path])
    printed = capsys.readouterr().out
    pattern = r"  gssbo-leverage +16.5 \+- \S+ +0.5 \+- 0 .+ 3 +50, 2 seeds\n"
    assert re.search(pattern, printed)
    gssbo.main(["--report", path, "--total", "300"])
    assert capsys.readouterr().out == "nothing is stored\n"


def test_errors_of_subsets_are_compared_run_by_run(tmp_path, monkeypatch, capsys):
    def errors(dim: int, kind: str, noise: float, seed: int) -> dict[str, list[float]]:
        own = {name: [0.3, 0.3] for name in gssbo_default.SELECTIONS}
        return own | {"leverage": [0.2 if seed else 0.4, 0.1], "random": [0.3, 0.2]}

    monkeypatch.setattr(gssbo_default, "errors", errors)
    store = tmp_path / "errors.json"
    gssbo_default.main(["--store", str(store), "--seeds", "1"])
    gssbo_default.main(["--store", str(store), "--seeds", "3"])
    monkeypatch.setattr(gssbo_default, "errors", pytest.fail)
    gssbo_default.main(["--store", str(store), "--seeds", "2"])
    capsys.readouterr()
    gssbo_default.main(["--report", str(store)])
    printed = capsys.readouterr().out
    assert printed.count("| 2, uniform, 0.1 | 0.300 | 0.200 | 0.300 |") == 1
    for kind in gssbo_default.KINDS:
        counts = f"| {kind}, runs with less than random rows | 0 of 12 |"
        assert printed.count(f"{counts} 8 of 12 ") == 1
        assert printed.count(f"{counts} 12 of 12 ") == 1


def test_time_of_late_evaluations():
    """Over that of early ones, whichever counts are stored."""
    at = [40, 100, 200, 900, 1000]
    steady = {"at": at, "seconds": [0.1 * n for n in at]}
    slower = {"at": at, "seconds": [4.0, 10.0, 20.0, 90.0, 120.0]}
    too_quick = {"at": at, "seconds": [0.0] * 5}
    short = {"at": at[:3], "seconds": [1.0, 2.0, 3.0]}
    assert boxes.slowing([steady], 1000) == "1.00"
    assert boxes.slowing([slower, too_quick, short], 1000) == "3.00"
    assert boxes.slowing([too_quick, short], 1000) == "-"


def test_a_store_says_where_runs_are_from(tmp_path):
    store = Store(tmp_path / "folder" / "runs.json.gz")
    store.add("a", {"x": 1})
    again = Store(store.path)
    assert again.records["a"]["x"] == 1
    assert re.fullmatch(r"commit .+, \d{4}-\d\d-\d\d, .+ threads, .+", again.made("a"))
    assert again.made("b") == "nothing is stored"


def test_a_report_runs_nothing(tmp_path, monkeypatch, capsys):
    path = tmp_path / "runs.json"
    options = ["table1", "--tables", "abalone", "--evaluations", "10", "--seeds", "2"]
    bbkb_paper.main([*options, "--methods", "random", "--output", str(path)])
    assert capsys.readouterr().out.count("not run") == 7
    assert {json.loads(key)["method"] for key in Store(path).records} == {"random"}
    monkeypatch.setattr(paper_runs, "run", pytest.fail)
    bbkb_paper.main([*options, "--report", str(path)])
    printed = capsys.readouterr().out
    assert re.search(r"random +17.5 +2  \d\.\d{3} .+ \d\.\d ", printed)
    assert "BKB " in printed and "not run" in printed


def test_slopes_of_powers_of_the_horizon():
    ends = [10, 100, 1000, 10000]
    bent = [N**0.75 if N >= 1000 else 1.0 for N in ends]
    assert sbpe_rates.slope(ends, bent) == pytest.approx(0.75)


def test_rates_of_small_runs(tmp_path, capsys):
    options = ["--seeds", "1", "--store", str(tmp_path / "runs.json")]
    options += ["--plot", str(tmp_path / "rates.png")]
    sbpe_rates.main(options, [(1, 0.5, 1.0, 40)], horizons=[8, 16, 32])
    printed = capsys.readouterr().out
    assert "S-BPE 0.750, BKB and GP-UCB 1.000" in printed
    for method in sbpe_rates.METHODS:
        assert re.search(rf"{method} +1 +\d", printed)
    assert (tmp_path / "rates.png").stat().st_size > 0


def test_the_functions_have_the_norm_they_are_given():
    job = sbpe_rates.Job(1, 0.5, 1.0, 200, "BBKB", 10, seed=3)
    table = sbpe_rates.function(job)
    K = sbpe_rates.matern(job)(table.X).to_dense()
    norm = (table.Y @ K.inverse() @ table.Y).sqrt()  # of the interpolant: below f's
    assert 0.9 * sbpe_rates.NORM < norm <= sbpe_rates.NORM * (1 + 1e-9)


def test_variances_of_the_figure_do_not_starve(tmp_path):
    shown = bkb_figure.pictures(0, seen_at=(6, 20), num_points=101)
    first, last = shown.values()
    assert len(last.rows) == 20 and last.X[last.rows].max() <= 0.5
    figures = last.figures()
    assert figures["unseen_min"] > 0.9 and figures["regressors_min"] < 1e-3
    assert figures["num_inducing"] <= 20 and first.figures()["num_inducing"] <= 6
    bkb_figure.plot(shown, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0
