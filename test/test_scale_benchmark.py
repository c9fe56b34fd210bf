"""The benchmarks of scale, soak and the authors' code run on small problems."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import authors, boundary, scale, soak
from botorch_sparse.demo.datasets import load_table
from botorch_sparse.strategies import BBKB

SMALL = scale.Problem(rows=300, dim=2, lengthscale=0.5, T=60, batch_size=5)

# A stand-in for the authors' module: it goes through the rows, seven at a time.
LIBRARY = """
import numpy

class Batch_BKB:
    def __init__(self, *, dot, **options):
        self.dot, self.row = dot, 0

    def initialize(self, arms, rows, feedback):
        assert self.dot(arms[:3]).shape == (3, 3) and len(rows) == len(feedback) == 2

    def predict(self):
        self.row += 7
        return numpy.arange(self.row - 7, self.row), None

    def update(self, rows, feedback, random):
        assert len(rows) == len(feedback)
"""
UTILS = """
class FastMixinKernel:
    def __init__(self, small, large):
        self.small = small

    def __call__(self, X):
        return self.small(X)
"""


def test_a_run_that_is_interrupted_goes_on_to_the_same_rows(tmp_path):
    whole = scale.run(SMALL, tmp_path / "whole", [SMALL.T])
    scale.run(SMALL, tmp_path / "parts", [20])
    parts = scale.run(SMALL, tmp_path / "parts", [20, SMALL.T])
    assert torch.equal(parts.history.indices, whole.history.indices)
    assert [*parts.memory] == [20, SMALL.T] and min(parts.memory.values()) > 0


def test_a_run_out_of_time_is_kept(tmp_path):
    outcome = scale.run(SMALL, tmp_path, [SMALL.T], max_seconds=0.0)
    assert 0 < len(outcome.history) < SMALL.T
    assert [*outcome.memory] == [len(outcome.history)]


def test_figures_of_scale(tmp_path, monkeypatch, capsys):
    options = ["--folder", str(tmp_path), "--evaluations", "40"]
    scale.main(options, {"small": SMALL})
    first = capsys.readouterr().out
    assert first.startswith("300 x 2, global-local, T = 40 of 40")
    assert "up to 40" in first and ", m = " in first.splitlines()[1]
    monkeypatch.setattr(BBKB, "run", ran)  # the run is there already
    scale.main(options, {"small": SMALL})
    assert capsys.readouterr().out == first
    with pytest.raises(RuntimeError, match="it ran"):
        scale.main([*options, "--anew"], {"small": SMALL})


def ran(*_: object, **__: object) -> None:
    raise RuntimeError("it ran")


def test_seconds_are_those_of_the_later_half(tmp_path):
    history = scale.run(SMALL, tmp_path, [SMALL.T]).history
    for number, batch in enumerate(history.batches):
        assert batch.size == 5
        history.batches.change(number, ask_seconds=float(number), tell_seconds=0.5)
    few, many = (scale.num_inducing(history, end) for end in (1, 60))
    assert few == history.batches[0].num_inducing
    assert many == history.batches[-1].num_inducing > few
    late = [number + 0.5 for number in range(4, 8)]
    assert scale.per_evaluation(history, 40) == pytest.approx(sum(late) / 20)


def test_a_boundary_chooses_alike_with_bounds_and_without(tmp_path, capsys):
    options = ["--rows", "700", "--num-inducing", "20", "--repeats", "1"]
    options += ["--sample", "200", "--folder", str(tmp_path)]
    boundary.main(options, SMALL)
    printed = capsys.readouterr().out
    assert printed.startswith("700 x 2, m = ") and "the same choices" in printed


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["bbkb/clustered", "random/float32", "rssbo/cube"])
def test_a_soak_that_is_out_of_time_goes_on(name, tmp_path, capsys):
    problem = replace(SMALL, T=400)
    store = tmp_path / "results" / "soak.json"
    soak.run(name, tmp_path, store, 0.0, problem)
    (reached,) = map(int, soak.read(store)[name])
    assert 0 < reached < 400
    for _ in range(2):  # the second time all is there
        soak.run(name, tmp_path, store, 60.0, problem)
    known = soak.read(store)[name]
    assert {*known} == {"4", "40", "400"} and known["400"]["resident_mib"] > 0
    assert known["40"]["cpu_seconds"] <= known["400"]["cpu_seconds"]
    soak.main(["--report", "--store", str(store)], problem)
    assert f"| {name} | " in capsys.readouterr().out
    marks = json.loads((tmp_path / f"{name.replace('/', '-')}.json").read_text())
    assert marks["done"][0] == (398 if "cube" in name else 0)


def test_seconds_of_a_soak_are_those_of_the_later_half():
    meter = soak.Meter(done=[0, 30, 60, 90, 120], seconds=[0.0, 5.0, 9.0, 10.0, 12.0])
    assert meter.per_evaluation() == pytest.approx(3 / 60)


def test_the_authors_code_is_left_out_without_it(capsys):
    authors.main([])
    assert "luigicarratino/batch-bkb" in capsys.readouterr().out


def test_both_sides_start_from_the_same_rows(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    (tmp_path / "bkb_lib.py").write_text(LIBRARY)
    (tmp_path / "utils.py").write_text(UTILS)
    for name in ("bkb_lib", "utils"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    table = load_table("abalone")
    setting = authors.Setting(table, 17.5, "global", seed=1, T=20)
    theirs, batches = authors.Authors(tmp_path, "fast").run(setting)
    for name in ("bkb_lib", "utils"):
        monkeypatch.delitem(sys.modules, name)
    assert theirs.tolist() == [*setting.first.tolist(), *range(18)] and batches == 4
    mine, batches = authors.ours(setting)
    assert torch.equal(mine[:2], setting.first) and len(mine) == 20 and batches > 0
