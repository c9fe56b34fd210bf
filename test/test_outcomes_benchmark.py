"""The benchmark of several outcomes: methods run and repeat, and figures are true."""

import gzip
import math
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from botorch.test_functions import Ackley
from botorch.test_functions.multi_objective import DTLZ2

sys.path.append(str(Path(__file__).parents[1]))

pytest.importorskip("optuna")  # the peers' file of benchmarks.pools needs it

from benchmarks import outcome_methods, outcome_problems, outcomes
from benchmarks.outcome_methods import METHODS, Run, best_place, limits_of
from benchmarks.store import Store
from botorch_sparse.strategies import Constraint, Objective
from botorch_sparse.strategies.data.outcomes import Outcomes

ROWS, TOTAL = 50, 25
UP, DOWN, LIMIT = (
    Objective("up"),
    Objective("down", minimize=True),
    Constraint("limit", lower=0.2, upper=1.5),
)


def small_table(*parts):
    """Fifty rows of two features; of the three outcomes those that are named."""
    X = torch.rand(ROWS, 2, generator=torch.Generator().manual_seed(0)).double()
    columns = {
        UP: -(X - 0.3).square().sum(-1),
        DOWN: (X - 0.8).square().sum(-1),
        LIMIT: X.sum(-1),
    }
    return outcome_problems.table(X, {part: columns[part] for part in parts})


def limited_box():
    """A box with one objective and two constraints."""

    def values(X):
        return torch.stack([function(X), X.mean(-1), X.norm(dim=-1)], -1)

    function = Ackley(dim=3, bounds=[(-5.0, 10.0)] * 3)
    parts = (
        Objective("ackley", minimize=True),
        Constraint("mean", upper=0.0),
        Constraint("norm", upper=5.0),
    )
    return outcome_problems.box(function, *parts, values=values)


PROBLEMS = {
    "objectives": lambda: small_table(UP, DOWN),
    "both": lambda: small_table(UP, DOWN, LIMIT),
    "constraint": lambda: small_table(UP, LIMIT),
    "box": lambda: outcome_problems.box(DTLZ2(dim=3)),
    "limited box": limited_box,
}
CASES = [
    (problem, method)
    for problem, make in PROBLEMS.items()
    for method in METHODS
    if METHODS[method].suits(make())
    and not (METHODS[method].is_ours and "box" in problem)  # seconds a point
]


def test_methods_run_where_they_can():
    assert {problem for problem, _ in CASES} == set(PROBLEMS)
    assert ("box", "scbo") not in CASES and ("box", "qlognehvi") not in CASES
    assert ("constraint", "qlognparego") not in CASES


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the peers' own libraries
@pytest.mark.parametrize("problem, method", CASES)
def test_a_method_repeats_its_seed(problem, method, monkeypatch):
    package = outcomes.NEEDS.get(method)
    if package and not find_spec(package):
        pytest.skip(f"{package} is not installed")
    monkeypatch.setattr(outcome_methods, "FIRST_ROWS", 10)
    monkeypatch.setattr(outcome_methods, "NUM_TREES", 5)
    monkeypatch.setattr(outcome_methods, "POPULATION", 20)
    first, second = (Run(PROBLEMS[problem](), TOTAL, 3) for _ in range(2))
    METHODS[method].run(first)
    METHODS[method].run(second)
    points = torch.cat(first.points)
    assert torch.equal(points, torch.cat(second.points))
    assert len(first.values) == len(first.seconds) >= TOTAL
    if first.problem.X is not None:
        assert len(set(points.tolist())) == len(points) == TOTAL
        return
    low, high = first.bounds
    assert bool(((points >= low) & (points <= high)).all())


def test_a_run_ends_when_its_time_is_spent():
    run = Run(small_table(UP, DOWN), TOTAL, 0, limit=0.0)
    METHODS["random"].run(run)
    assert len(run.values) == outcome_methods.BATCH_SIZE


def test_measures_of_known_values():
    """The quartiles are (0, 0); (1, 3) and (3, 1) are feasible, (2, 2) is not."""
    columns = {
        UP: torch.tensor([0.0, 0.0, 1.0, 2.0, 3.0]).double(),
        DOWN: torch.tensor([0.0, 0.0, -3.0, -2.0, -1.0]).double(),
        LIMIT: torch.tensor([1.0, 1.0, 1.0, 9.0, 1.0]).double(),
    }
    X = torch.arange(5.0).double().unsqueeze(-1)
    problem = outcome_problems.table(X, columns)
    assert problem.reference.tolist() == [0.0, 0.0] and problem.unit == 5.0
    expected = {(2,): 0.6, (3,): 0.0, (2, 3): 0.6, (2, 3, 4): 1.0, (0, 1): 0.0}
    for rows, share in expected.items():
        assert problem.measure(problem.values(torch.tensor(rows))) == share
    free = outcome_problems.table(X, {UP: columns[UP], DOWN: columns[DOWN]})
    assert free.unit == 6.0


def test_one_objective_is_measured_by_its_best_feasible_value():
    problem = limited_box()
    Y = torch.tensor([[3.0, 0.0, 5.0], [2.0, -1.0, 4.0], [1.0, 0.1, 4.0]]).double()
    assert problem.reference is None
    assert problem.measure(Y) == 2.0 and problem.measure(Y[:1]) == 3.0
    assert problem.measure(Y[2:]) == math.inf


def test_a_hundredth_of_the_limited_rows_is_feasible():
    problem = outcome_problems.limited(5_000)
    Y = problem.values(torch.arange(5_000))
    is_feasible = problem.outcomes.violations(Y) <= 0
    assert int(is_feasible.sum()) == 50
    assert problem.measure(Y) == Y[is_feasible, 0].max() < 3.3
    assert problem.measure(Y[~is_feasible]) == -math.inf


def test_tables_of_names_are_one_hot(tmp_path, monkeypatch):
    text = "a,b,abs_lam_diff,ered,gsol\nx,C#N,1,2,3\ny,CC,2,1,3\ny,C#N,0,0,0\n"
    with gzip.open(tmp_path / "redoxmers.csv.gz", "wt") as file:
        file.write(text)
    monkeypatch.setenv("BOTORCH_SPARSE_DATA", str(tmp_path))
    problem = outcome_problems.redoxmers()
    assert problem.X.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 1, 0]]
    assert problem.values(torch.tensor([0])).tolist() == [[1.0, 2.0, 3.0]]
    assert problem.outcomes.minimize == (True, True, True)


def test_limits_are_negative_within():
    outcomes = Outcomes((UP, LIMIT, Constraint("top", upper=3.0)))
    Y = torch.tensor([[7.0, 0.5, 4.0]])
    below, above, top = (float(limit(Y)) for limit in limits_of(outcomes))
    assert (below, above, top) == pytest.approx((-0.3, -1.0, 1.0))
    assert limits_of(Outcomes((UP, DOWN))) is None


def test_feasible_points_are_the_best():
    values = torch.tensor([5.0, 1.0, 2.0])
    assert best_place(values, torch.tensor([0.1, 0.0, 0.0])) == 2
    assert best_place(values, torch.tensor([0.3, 0.1, 0.2])) == 1


def stored(at, best, seconds, limit=None):
    return {"at": at, "best": best, "seconds": seconds, "limit": limit}


def test_what_is_stored_is_not_run_again(tmp_path, monkeypatch, capsys):
    ran = []

    def execute(problem, method, seed, total, limit):
        ran.append((problem, method, seed))
        num = 100 if method == "nsga2" else total
        return stored([50, num], [0.1, 0.2], [1.0, 2.0], limit if num < total else None)

    monkeypatch.setattr(outcomes, "execute", execute)
    monkeypatch.setattr(outcomes, "NEEDS", {})
    path = tmp_path / "runs.json.gz"
    options = ["--store", str(path), "--problems", "dtlz2", "--seeds", "2"]
    methods = ["--methods", "random", "nsga2", "qlognehvi"]  # the last has no boxes
    outcomes.main([*options, *methods, "--total", "200", "--limit", "5"])
    runs = [("dtlz2", method, seed) for seed in (0, 1) for method in methods[1:3]]
    assert ran == runs
    outcomes.main([*options, *methods, "--total", "200", "--limit", "4"])
    assert ran == runs
    outcomes.main([*options, *methods, "--total", "200", "--limit", "9"])
    assert ran == [*runs, runs[1], runs[3]]  # those that were broken off
    outcomes.main([*options, "--methods", "random", "--total", "300"])
    assert ran[-2:] == [runs[0], runs[2]] and len(Store(path).records) == 4
    capsys.readouterr()
    outcomes.main([*options, "--total", "200", "--limit", "0"])
    printed = capsys.readouterr().out
    dtlz2 = outcome_problems.load_outcomes("dtlz2")
    others = [m for m in METHODS if METHODS[m].suits(dtlz2) and m not in methods]
    assert ran[8:] == [("dtlz2", m, seed) for seed in (0, 1) for m in others]
    outcomes.main(["--report", str(path), "--total", "200"])
    assert capsys.readouterr().out == printed[printed.index("### dtlz2") :]


def test_a_report_has_medians_and_says_where_a_peer_is_better(tmp_path, capsys):
    store = Store(tmp_path / "runs.json")
    at, seconds = [50, 100, 200, 500], [1.0, 2.0, 4.0, 9.0]
    for seed, last in enumerate([0.9, 0.6, 0.8]):
        key = outcomes.key_of("redoxmers", "thompson", seed)
        store.add(key, stored(at, [0.1, 0.2, 0.5, last], seconds))
    key = outcomes.key_of("redoxmers", "qlognehvi", 0)
    store.add(key, stored([50, 100], [0.1, 0.3], [10.0, 20.0], limit=20.0))
    key = outcomes.key_of("redoxmers", "random", 0)
    store.add(key, stored(at, [0.1, 0.1, 0.50049, 0.7], [0.0] * 4))
    for method, best in {"thompson": 7.0, "random": 8.0}.items():
        key = outcomes.key_of("ackley20", method, 0)
        store.add(key, stored([50, 100, 200], [math.inf, best, best], [1.0] * 3))
    outcomes.main(["--report", str(store.path)])
    printed = capsys.readouterr().out
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for line in reversed(printed.splitlines())
        if len(cells := line.split("|")) > 2
    }
    ends = ["0.100 (1 s)", "0.200 (2 s)", "0.500 (4 s)", "0.800 (9 s)", "-"]
    assert rows["**thompson**"] == ["3", *ends]
    assert rows["qlognehvi"] == ["1", "0.100 (10 s)", "0.300 (20 s)", "-", "-", "100"]
    assert (
        "at 100: WORSE than qlognehvi (0.300); at 200: no worse than random (0.500); "
        "at 500: no worse than random (0.700); 0.200 of the CPU time of qlognehvi "
        "at 100" in printed
    )
    assert "at 100: no worse than random (8.000); at 200" in printed
    assert "thompson, tables: no worse than the best peer at all three on 0 of 1" in (
        printed
    )
    assert "thompson, boxes: no worse than the best peer at all three on 1 of 1" in (
        printed
    )
    assert "what is advised, tables: no worse than the best peer at all three on 0" in (
        printed
    )
    assert "what is advised, boxes" not in printed  # that is trust-region
    assert "inf (1 s)" in printed


def test_what_is_not_reached_is_no_draw(tmp_path, capsys):
    store = Store(tmp_path / "runs.json")
    short = stored([50, 100], [0.5, 0.6], [1.0, 2.0], limit=2.0)
    store.add(outcomes.key_of("dtlz2", "thompson", 0), short)
    outcomes.main(["--report", str(store.path)])
    assert "no worse" not in capsys.readouterr().out  # there is no peer
    long = stored([50, 100, 200], [0.1, 0.2, 0.3], [1.0] * 3)
    store.add(outcomes.key_of("dtlz2", "random", 0), long)
    outcomes.main(["--report", str(store.path)])
    printed = capsys.readouterr().out
    assert "at 100: no worse than random (0.2000); at 200: not reached" in printed
    assert "on 0 of 1" in printed


@pytest.mark.slow
def test_batches_are_timed_with_each_number_of_outcomes(monkeypatch):
    problem = outcome_problems.limited(300)
    monkeypatch.setattr(outcomes, "load_outcomes", lambda name: problem)
    monkeypatch.setattr(outcomes, "BATCHES_AFTER", (20, 30))
    monkeypatch.setattr(outcomes, "BATCHES", 1)
    before = torch.get_num_threads()
    lines = outcomes.batch_seconds().splitlines()
    assert torch.get_num_threads() == before
    rows = [line.split("|")[1:-1] for line in lines[2:]]
    assert [int(row[1]) for row in rows] == [20, 30] * 2
    assert all(row[2].strip().endswith("s (1.00)") and len(row) == 6 for row in rows)
