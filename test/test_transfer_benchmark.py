"""The benchmark of earlier campaigns, small."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

pytest.importorskip("optuna")

from benchmarks import transfer
from benchmarks.store import Store

CASE = "correlation 0.9"


@pytest.fixture
def small(monkeypatch):
    """Two rounds of four rows of sixty."""
    for name, value in {"ROWS": 60, "RELATED": 30, "ROUNDS": 2, "BATCH": 4}.items():
        monkeypatch.setattr(transfer, name, value)
    monkeypatch.setattr(transfer, "ENDS", range(4, 9, 4))


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", transfer.METHODS)
def test_each_method_takes_different_rows(method, monkeypatch):
    own, other = transfer.load(CASE, 0)
    rows = transfer.METHODS[method](own, other, 0)
    assert len({*rows}) == 8 and {*rows} <= {*range(60)}
    found = transfer.execute(CASE, method, 0)
    assert found["ranks"][1] == 1 + int((own[1] > own[1][rows].max()).sum())
    assert found["of"] == 60


@pytest.mark.usefixtures("small")
def test_runs_are_kept_and_shown(tmp_path, capsys):
    path = tmp_path / "store.json"
    words = ["--cases", CASE, "--methods", "random", "--seeds", "2"]
    transfer.main([*words, "--store", str(path)])
    kept = Store(path).records
    assert {*kept} == {f"{CASE}/random/0", f"{CASE}/random/1"}
    ranks = [run["ranks"][-1] for run in kept.values()]
    capsys.readouterr()
    transfer.main([*words, "--report", str(path)])
    shown = capsys.readouterr().out
    assert f"### {CASE}: 60 rows" in shown
    assert "| random | 2 | " in shown
    assert f" {sum(ranks) / 2:g} | {(ranks[0] * ranks[1]) ** 0.5:.3g} |" in shown
