"""The command line: its table, its plot, and one line for each mistake."""

import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import InputDataError
from gpytorch.means import ZeroMean

from botorch_sparse.demo import comparison_run as demo
from botorch_sparse.demo import demo_command as command
from botorch_sparse.demo.datasets import Table, load_table

NAMES = ("BBKB", "Thompson sampling", "GP-UCB", "random search")
PAPER_NAMES = ("BBKB global", "BBKB global-local", "GP-UCB", "random search")

needs_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="needs matplotlib"
)


@pytest.fixture
def csv_file(tmp_path: Path) -> Path:
    """A parabola on a grid of 9 x 9 points."""
    grid = [(i / 4 - 1, j / 4 - 1) for i in range(9) for j in range(9)]
    rows = [f"{a},{b},{1 - a**2 - (b - 0.5) ** 2}" for a, b in grid]
    path = tmp_path / "parabola.csv"
    path.write_text("\n".join(["a,b,f", *rows]))
    return path


def run(csv_file: Path, *more: str) -> None:
    output = str(csv_file.parent / "plots")
    options = ["--evaluations", "12", "--quiet", "--data", str(csv_file)]
    command.main([*options, "--output", output, *more])


@needs_matplotlib
@pytest.mark.parametrize(
    ("options", "names", "setting"),
    [
        (["--batch", "9"], NAMES, "no kernel given"),
        (["--paper"], PAPER_NAMES, "lengthscale 6.25"),  # 12.5 sqrt(2 / 8)
    ],
    ids=["main", "paper"],
)
def test_the_demo_prints_a_table_and_writes_the_plot(
    options: list[str],
    names: tuple[str, ...],
    setting: str,
    csv_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(csv_file, *options)
    printed = capsys.readouterr().out.splitlines()
    assert "parabola: 81 candidates, 2 features, target 'f'" in printed[0]
    assert setting in printed[0] and printed[0].endswith("seed 0")
    head = "method evaluations seconds rounds inducing best rank regret"
    assert printed[1].split() == head.split()
    for name, line in zip(names, printed[2:6], strict=True):
        assert line.startswith(name)
        evaluations, *_, rank, regret = line.removeprefix(name).split()
        assert int(evaluations) == 12
        assert 1 <= int(rank) < 81 and 0 <= float(regret) < 3
    png = csv_file.parent / "plots" / "parabola.png"
    assert printed[6] == f"Plot: {png}"
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@needs_matplotlib
def test_the_demo_repeats_itself(
    csv_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever its plot goes; `--output` may name the file."""
    tables, png = [], csv_file.parent / "new" / "here.png"
    for options in ([], ["--output", str(png)]):
        run(csv_file, "--seed", "3", "--gp-seconds", "1000", *options)
        table, plot = capsys.readouterr().out.split("Plot: ")
        tables.append(re.sub(r"\d+\.\d\d\b", "", table))  # seconds
    assert tables[0] == tables[1]
    assert plot == f"{png}\n" and png.is_file()


@pytest.fixture(scope="module")
def found() -> demo.Histories:
    """The main job on 81 rows, 40 evaluations in batches of 10."""
    return demo.find_best(parabola(), num_evaluations=40, batch_size=10, progress=False)


def parabola() -> Table:
    grid = torch.linspace(-1, 1, 9, dtype=torch.float64)
    X = torch.cartesian_prod(grid, grid)
    Y = -X[:, 0].square() - (X[:, 1] - 0.5).square()
    Y = (Y - Y.min()) / (Y.max() - Y.min())
    return Table("parabola", X, Y, ("a", "b"), "f")


def test_the_main_job_finds_the_best_row_and_takes_each_once(
    found: demo.Histories,
) -> None:
    table = parabola()
    assert tuple(found) == NAMES
    for name, history in found.items():
        assert len(history) == history.num_unique == 40
        if name != "random search":
            assert table.best_rank(history.indices)[-1] == 1, name


def test_batches_have_the_size_that_was_asked_for(found: demo.Histories) -> None:
    """GP-UCB's first rows, before there is a model, are a batch: 2 d, at least 5."""
    sizes = {name: [b.size for b in h.batches] for name, h in found.items()}
    for name in ("BBKB", "Thompson sampling", "random search"):
        assert sizes[name] == [10] * 4, name
    assert sizes["GP-UCB"] == [5] + [1] * 35


@pytest.mark.slow
def test_several_seeds_give_medians_and_the_ranks_of_each(
    csv_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(csv_file, "--seeds", "3", "--seed", "1", "--evaluations", "6")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("medians of seeds 1 to 3")
    ranks = {}
    for name, line in zip(NAMES, printed[7:11], strict=True):
        ranks[name] = [int(rank) for rank in line.removeprefix(name).split()]
        median = sorted(ranks[name])[1]
        row = next(line for line in printed[2:6] if line.startswith(name))
        assert int(row.split()[-2]) == median
    better = [
        f"{name} on {sum(map(int.__lt__, ranks[name], ranks['random search']))}"
        for name in NAMES[:3]
    ]
    of = "better than random search, of 3 seeds: "
    assert printed[11] == of + ", ".join(better)


@pytest.mark.slow
def test_on_every_seed_ours_beat_random_search_on_the_table_of_the_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the README says of `make demo`."""
    methods = ["bbkb", "thompson", "random"]
    options = ["--seeds", "5", "--quiet", "--output", str(tmp_path)]
    command.main([*options, "--methods", *methods])
    better = "BBKB on 5, Thompson sampling on 5"
    (last,) = [
        x for x in capsys.readouterr().out.splitlines() if x.startswith("better")
    ]
    assert last == f"better than random search, of 5 seeds: {better}"


def test_an_outcome_is_that_of_the_values_without_noise() -> None:
    """Rows of values 0, 1/2 and 1; the second is evaluated, then the first."""
    Y = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    table = Table("small", torch.eye(3, dtype=torch.float64), Y, ("a",) * 3, "b")
    strategy = demo.RandomSearch(table.X, unique=True)
    batch = strategy.ask(1)
    strategy.withdraw(batch)
    strategy.tell(table.X[[1, 0]], torch.tensor([9.0, 8.0]))
    outcome = demo.Outcome.of(strategy.history, table)
    assert (outcome.evaluations, outcome.rounds, outcome.inducing) == (2, 1, 0)
    assert (outcome.best, outcome.rank) == (0.5, 2)
    assert outcome.regret == pytest.approx(1.5)  # (0.5 + 1) / (2 * 0.5)
    other = replace(outcome, rank=8, seconds=outcome.seconds + 2)
    both = demo.Outcome.median([outcome, other])
    assert (both.rank, both.seconds) == (5, pytest.approx(outcome.seconds + 1))


def test_the_papers_strategies_beat_uniform_choice(csv_file: Path) -> None:
    table = load_table(csv_file)
    lengthscale = demo.default_lengthscale(table)
    histories = demo.compare(
        table, num_evaluations=100, lengthscale=lengthscale, progress=False
    )
    for name in PAPER_NAMES[:3]:
        assert table.regret_ratio(histories[name].indices)[-1] < 0.2, name
        assert table.Y[histories[name].indices].max() > 0.99, name


def test_gp_ucb_stops_when_its_time_is_over(csv_file: Path) -> None:
    """In the main job after its first rows: 2 d, at least 5."""
    table = load_table(csv_file)
    histories = demo.compare(
        table, num_evaluations=9, lengthscale=1.0, gp_seconds=1e-9, progress=False
    )
    counts = {name: len(history.Y) for name, history in histories.items()}
    assert counts["GP-UCB"] == 1
    assert counts["BBKB global"] == counts["random search"] == 9
    histories = demo.find_best(
        table, num_evaluations=9, gp_seconds=1e-9, progress=False
    )
    assert [len(history) for history in histories.values()] == [9, 9, 5, 9]


def test_without_matplotlib_the_table_is_printed(
    csv_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "botorch_sparse.plotting", None)
    run(csv_file)
    printed = capsys.readouterr()
    assert "random search" in printed.out
    assert "pip install 'botorch_sparse[plot]'" in printed.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--data none.csv", "no file none.csv"),
        ("--data nothing", "no table 'nothing'"),
        ("--target rigns", "no column 'rigns'; its columns are 'sex'"),
        ("--evaluations 0", "'0' is not a whole number above 0"),
        ("--evaluations 2.5", "'2.5' is not a whole number above 0"),
        ("--seeds 0", "'0' is not a whole number above 0"),
        ("--lengthscale 3", "--lengthscale belongs to --paper"),
        ("--paper --batch 3", "--batch does not go with --paper"),
        ("--lengthscale -1", "'-1' is not a number above 0"),
        ("--lengthscale nan", "'nan' is not a number above 0"),
        ("--gp-seconds x", "'x' is not a number above 0"),
        ("--seed -1", "'-1' is not a whole number from 0 on"),
        ("--device gpux", "no device 'gpux'"),
        (f"--output {__file__}", "is no folder"),
        ("--unknown 1", "unrecognized arguments"),
        ("--methods bkb", "no 'bkb' without --paper; choose from bbkb, thompson"),
        ("--paper --methods thompson", "no 'thompson' with --paper"),
        ("--choices rows.txt", "--choices is of one run; got 4 strategies"),
        ("--methods bbkb --seeds 2 --checkpoint s", "and 2 seeds"),
        ("--methods bbkb --choices .", "can't be written to"),
        ("--methods bbkb --choices no_folder/rows.txt", "can't be written to"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_2(
    options: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is run."""
    monkeypatch.setattr(command, "find_best", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(SystemExit) as caught:
        command.main(options.split())
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1 and captured.out == ""


def test_wrong_data_ends_the_process_with_status_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `python -m botorch_sparse` does it."""
    path = tmp_path / "text.csv"
    path.write_text("a,b\n1,2\nx,4\n")
    monkeypatch.setattr(sys, "argv", ["botorch_sparse", "--data", str(path)])
    monkeypatch.delitem(sys.modules, "botorch_sparse.__main__", raising=False)
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("botorch_sparse", run_name="__main__", alter_sys=True)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.endswith("(the header is not counted as a row).\n")
    assert captured.err.count("\n") == 1 and captured.out == ""


def test_feedback_is_the_target_plus_noise(double: dict[str, Any]) -> None:
    Y = torch.linspace(0, 1, 5000, **double)
    table = Table("line", Y.unsqueeze(-1), Y, ("x",), "y")
    indices = torch.arange(5000, device=double["device"])
    noise = demo.noisy_rows(table, seed=0)(indices) - Y
    # Mean within 5 and variance within 5 standard errors: false alarm below 2e-6.
    assert abs(noise.mean().item()) < 5 * 0.01 / 5000**0.5
    assert abs(noise.var().item() / 1e-4 - 1) < 5 * (2 / 5000) ** 0.5
    again = demo.noisy_rows(table, seed=0)(indices) - Y
    assert torch.equal(noise, again)


@pytest.mark.parametrize(
    ("name", "d", "expected"),
    [("abalone", 8, 17.5), ("california_housing", 8, 12.5), ("other", 2, 6.25)],
)
def test_default_lengthscale(name: str, d: int, expected: float) -> None:
    table: Any = SimpleNamespace(name=name, X=torch.zeros(3, d))
    assert demo.default_lengthscale(table) == expected


def test_the_setting_is_that_of_the_papers(
    csv_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lam = noise = 1e-4, mean 0, F = 1, delta = 1/T, oversampling 2, threshold 2."""
    table, seen = load_table(csv_file), []

    class Seen(Exception):
        """Raised once the arguments are known."""

    def spy(**arguments: Any) -> None:
        seen.append(arguments)
        if len(seen) == 2:
            raise Seen

    monkeypatch.setattr(demo, "BBKB", spy)
    with pytest.raises(Seen):
        demo.compare(table, num_evaluations=50, lengthscale=3.0, seed=4)
    for arguments, termination in zip(seen, ("global", "global-local"), strict=True):
        kernel = arguments.pop("covar_module")
        assert kernel.lengthscale.item() == pytest.approx(3.0)
        assert isinstance(arguments.pop("mean_module"), ZeroMean)
        assert torch.equal(arguments.pop("candidates"), table.X)
        assert arguments == {
            "lam": 1e-4,
            "noise_variance": 1e-4,
            "norm_bound": 1.0,
            "delta": 1 / 50,
            "oversampling": 2.0,
            "ratio_threshold": 2.0,
            "termination": termination,
            "seed": 4,
        }


def test_the_noise_of_a_run_that_goes_on_is_that_of_one_that_did_not_stop() -> None:
    table, sizes = parabola(), [5, 20, 4]
    objective = demo.noisy_rows(table, seed=0)
    values = [objective(torch.arange(size)) for size in sizes]
    told = torch.repeat_interleave(torch.arange(2), torch.tensor(sizes[:2]))
    going_on = demo.noisy_rows(table, seed=0, told=told)
    assert torch.equal(going_on(torch.arange(4)), values[2])


@pytest.fixture
def npy_file(csv_file: Path) -> Path:
    """The same table without names."""
    path = csv_file.with_suffix(".npy")
    np.save(path, np.genfromtxt(csv_file, delimiter=",", skip_header=1))
    return path


@needs_matplotlib
def test_one_method_writes_the_rows_that_it_chose(
    npy_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = npy_file.parent / "rows.txt"
    run(npy_file, "--batch", "5", "--methods", "bbkb", "--choices", str(rows))
    printed = capsys.readouterr().out.splitlines()
    assert "parabola: 81 candidates, 2 features, target 'y'" in printed[0]
    assert "random search" not in printed[0]
    assert printed[2].startswith("BBKB ") and printed[3].startswith("Plot: ")
    chosen = [int(line) for line in rows.read_text().splitlines()]
    assert len(chosen) == len(set(chosen)) == 12 and max(chosen) < 81


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["thompson", "bbkb"])
def test_a_run_goes_on_from_its_checkpoint(npy_file: Path, method: str) -> None:
    """The same rows as those of a run that was not interrupted."""
    whole, parts = npy_file.parent / "whole.txt", npy_file.parent / "parts.txt"
    state = str(npy_file.parent / "state.pt")
    options = ["--batch", "4", "--methods", method, "--choices"]
    run(npy_file, *options, str(whole))
    first = [*options, str(parts), "--checkpoint", state]
    run(npy_file, *first, "--evaluations", "8")  # two batches
    run(npy_file, *first)
    assert parts.read_text() == whole.read_text()


def interrupt(*args: Any, **options: Any) -> Any:
    """Ctrl-C."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_ctrl_c_prints_what_was_finished(
    seeds: int,
    csv_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes in random search, the last one, of the first seed; or before any."""
    owner, name = (demo.RandomSearch, "ask") if seeds else (command, "load_table")
    monkeypatch.setattr(owner, name, interrupt)
    with pytest.raises(SystemExit) as caught:
        run(csv_file, "--methods", "bbkb", "random", "--seeds", str(seeds or 1))
    assert caught.value.code == 130
    said = capsys.readouterr()
    assert bool(re.search(r"^BBKB +12 ", said.out, re.M)) == (seeds > 0)
    assert "random" not in said.out[90:]
    assert said.err.count("\n") == 1 and "interrupted" in said.err


@pytest.mark.one_in(2)
@needs_matplotlib
@pytest.mark.parametrize(("suffix", "begin"), [(".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_the_plot_is_of_the_kind_that_its_name_says(
    csv_file: Path, suffix: str, begin: bytes
) -> None:
    path = csv_file.parent / f"plot{suffix}"
    run(csv_file, "--methods", "random", "--output", str(path))
    assert path.read_bytes().startswith(begin)


@needs_matplotlib
def test_a_name_with_an_escape_sequence_does_not_reach_the_terminal(
    csv_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = csv_file.read_text()
    steering = csv_file.with_name("a\x1b[31mb.csv")
    steering.write_text(text.replace("a,b,f", "a,\x1b[2Jb,\x1b]0;f"))
    run(steering, "--methods", "random")
    run(steering, "--methods", "random", "--target", "\x1b[2Jb")
    with pytest.raises(SystemExit):
        run(steering, "--target", "c")
    said = capsys.readouterr()
    shown_paths = [line for line in said.out.splitlines() if line.startswith("Plot")]
    assert len(shown_paths) == 2
    rest = said.out + said.err
    assert "\x1b" not in rest and r"\x1b[2Jb" in rest


def test_a_header_of_many_columns_is_read_in_one_pass(tmp_path: Path) -> None:
    """Each name is looked at a few times, however many there are."""
    path, n, calls = tmp_path / "wide.csv", 40_000, 0
    rows = [[f"c{i}" for i in range(n)], ["1"] * n, ["2"] * n]
    path.write_text("\n".join(map(",".join, rows)))

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        table = load_table(path)
    finally:
        sys.setprofile(None)
    assert table.X.shape == (2, n - 1) and calls < 40 * n
    with pytest.raises(InputDataError, match="'c0', 'c1'") as caught:
        load_table(path, target="d")
    assert len(str(caught.value)) < 1000


EARLY = """
import runpy, signal, sys
module = sys.argv.pop(1)
class Finder:
    def find_spec(self, name, *rest):
        if name == module:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("botorch_sparse", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="no such signal")
@pytest.mark.parametrize(
    "module, arguments", [("torch", []), ("botorch_sparse.suggest", ["suggest"])]
)
def test_ctrl_c_during_imports(module: str, arguments: list[str]) -> None:
    """It comes when a module is looked for."""
    ended = subprocess.run(
        [sys.executable, "-c", EARLY, module, *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 130 and ended.stdout == ""
    assert ended.stderr.count("\n") == 1 and "interrupted" in ended.stderr
