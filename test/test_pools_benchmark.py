"""The benchmark of tables: each peer runs, a store is resumed, and ranks are true."""

import json
import math
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1]))

pytest.importorskip("optuna")
pytest.importorskip("sklearn")

from benchmarks import pool_peers, pool_runs, pool_tables, pools

ROWS, EVALUATIONS, BATCH = 60, 12, 4
PLAIN = pool_peers.PEERS.keys() - {"svgp-ts", "qlogei"}
SMALL = ["--seeds", "1", "--evaluations", str(EVALUATIONS), "--batch", str(BATCH)]


@pytest.fixture
def table(tmp_path):
    """A CSV file: a quadratic of two columns, each row in it twice."""
    X = torch.rand(ROWS // 2, 2, generator=torch.Generator().manual_seed(0))
    X = X.repeat(2, 1)
    Y = -(X - 0.5).square().sum(-1)
    lines = [f"{a:.6f},{b:.6f},{y:.6f}" for (a, b), y in zip(X, Y, strict=True)]
    path = tmp_path / "hill.csv"
    path.write_text("\n".join(["a,b,height", *lines]))
    return str(path)


# Rows that are there twice make joint covariances singular: GPyTorch adds jitter.
@pytest.mark.one_in(10)
@pytest.mark.filterwarnings("ignore:A not p.d.")
@pytest.mark.parametrize(
    "method, options",
    [
        *((method, {}) for method in sorted(PLAIN)),
        ("exact-ts", {"joint_rows": 10}),
        ("qlogei", {"choices": 5}),
        ("qlogei", {"choices": 5, "screened_rows": 10}),
        ("svgp-ts", {"num_inducing": 10, "steps": 2}),
    ],
)
def test_each_peer_evaluates_a_row_once_and_repeats_its_seed(method, options, table):
    methods = {method: partial(pools.METHODS[method], **options)}
    first, second = (
        pools.run(table, method, 3, EVALUATIONS, BATCH, methods) for _ in range(2)
    )
    assert first.rows == second.rows
    assert len(set(first.rows)) == EVALUATIONS
    assert all(0 <= row < ROWS for row in first.rows)
    assert 0 <= first.cpu_seconds and 0 <= first.wall_seconds
    random = pools.run(table, "random", 3, EVALUATIONS, BATCH).rows
    assert first.rows[:BATCH] == random[:BATCH]
    assert method == "random" or first.rows != random


def test_what_is_stored_is_not_run_again(table, tmp_path, monkeypatch, capsys):
    store = tmp_path / "sub" / "store.json"
    arguments = ["--tables", table, "--output", str(store), *SMALL]
    pools.main([*arguments, "--methods", "random,forest-greedy"])
    text, printed = store.read_text(), capsys.readouterr().out
    assert [path.name for path in store.parent.iterdir()] == ["store.json"]

    ran: list[str] = []
    run = pools.run

    def counted(table: str, method: str, *rest: int) -> pool_runs.Run:
        ran.append(method)
        return run(table, method, *rest)

    monkeypatch.setattr(pools, "run", counted)
    pools.main([*arguments, "--methods", "random,forest-greedy"])
    assert not ran and store.read_text() == text
    assert capsys.readouterr().out == printed
    pools.main([*arguments, "--methods", "random,forest-greedy,tpe"])
    assert ran == ["tpe"]
    assert json.loads(text).items() < json.loads(store.read_text()).items()
    pools.main(["--report", str(store), "--tables", table])
    assert ran == ["tpe"] and "tpe" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["store.json", "store.json.gz"])
def test_two_processes_may_write_one_store(tmp_path, name):
    path = tmp_path / name
    one, other = pool_runs.Store([path]), pool_runs.Store([path])
    one.add(("a/b.csv", "random", 0), pool_runs.Run([1], 0.5, 1.0, {}))
    other.add(("a/b.csv", "random", 1), pool_runs.Run([2], 0.25, 2.0, {"torch": "2"}))
    assert pool_runs.Store([path]).runs == one.runs | other.runs
    assert [run.rows for run in pool_runs.Store([path]).seeds("a/b.csv", "random")] == [
        [1],
        [2],
    ]
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    assert list(tmp_path.iterdir()) == [path]


def test_figures_of_a_known_run():
    Y = torch.tensor([0.0, 1.0, 0.5, 1.0, 0.7])
    assert pool_runs.ranks_of(Y, [0, 2, 4]) == pytest.approx(
        [math.nan, math.nan, 3.0], nan_ok=True
    )
    assert pool_runs.ranks_of(Y, [2, 3])[-1] == 1.0  # tied with the best
    early = pool_runs.ranks_of(Y, [0] * 99 + [2] + [4] * 200 + [1])
    assert early == [4.0, 3.0, 1.0]


def test_report_holds_medians_and_says_where_a_peer_wins(table, capsys, tmp_path):
    Y = pool_tables.load_pool(table).table.Y
    order = Y.argsort(descending=True).tolist()[::2]  # each row is there twice
    found = {
        ("bbkb", 0): (order[1], 1.0),
        ("thompson", 0): (order[0], 2.0),
        ("random", 0): (order[5], 0.1),
        ("exact-ts", 0): (order[0], 10.0),
        ("exact-ts", 1): (order[0], 30.0),
        ("exact-ts", 2): (order[8], 20.0),
    }
    store = pool_runs.Store([tmp_path / "store.json"])
    for (method, seed), (best, cpu) in found.items():
        store.add((table, method, seed), pool_runs.Run([order[9], best], cpu, cpu, {}))
    text = pool_runs.report(
        pool_runs.Store(store.paths), [table], tuple(pools.PEERS), tuple(pools.OURS)
    )
    lines = {
        line.split("|")[1].strip(): line for line in text.splitlines() if "|" in line
    }
    cells = [cell.strip() for cell in lines["exact-ts"].split("|")]
    assert cells[2:6] == ["3", "-", "-", "1"] and cells[-2] == "20"
    assert "bbkb: median rank 3, WORSE than the best peer (exact-ts, 1)" in text
    assert "thompson: median rank 1, no worse" in text and "0.100 of the CPU" in text
    assert "thompson is no worse than the best peer on 1 of 1 tables." in text
    assert "bbkb is no worse than the best peer on 0 of 1 tables." in text


def test_a_quarter_wave_layer_and_an_absent_one_reflect_by_the_closed_form():
    n, glass = pool_tables.HIGH_INDEX, pool_tables.GLASS
    quarter = torch.tensor([[600.0 / 4 / n]], dtype=torch.float64)
    known = ((glass - n**2) / (glass + n**2)) ** 2
    value = float(pool_tables.reflectance(quarter, 600.0))
    assert value == pytest.approx(known, rel=1e-12)
    # Pairs of quarter waves: the admittance grows by (n_H / n_L)^2 with each.
    pair = torch.tensor([[600 / 4 / n, 600 / 4 / pool_tables.LOW_INDEX] * 3])
    Y = (n / pool_tables.LOW_INDEX) ** 6 * glass
    value = float(pool_tables.reflectance(pair.double(), 600.0))
    assert value == pytest.approx(((1 - Y) / (1 + Y)) ** 2, rel=1e-6)
    bare = float(pool_tables.reflectance(torch.zeros(1, 4, dtype=torch.float64), 500.0))
    assert bare == pytest.approx(((1 - glass) / (1 + glass)) ** 2, rel=1e-12)


def test_filters_have_noise_of_a_hundredth_and_a_range_of_one():
    table = pool_tables.edge_filter(500)
    assert table.X.min() >= 30 and table.X.max() <= 120
    assert (table.Y.min(), table.Y.max()) == (0.0, 1.0)
    problem = pool_tables.with_normal_noise(table)
    rows = torch.arange(500)
    noise = problem.feedback(0)(rows) - table.Y
    # Its variance is chi-squared: six standard deviations are false once in 1e9.
    assert abs(float(noise.square().mean()) / 1e-4 - 1) < 6 * math.sqrt(2 / 500)
    assert not torch.equal(problem.feedback(1)(rows), table.Y + noise)
