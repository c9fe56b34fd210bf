"""The command line: its table, its plot, and one line for each mistake."""

import builtins
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from botorch_sparse import __main__ as demo
from botorch_sparse.datasets import Table

NAMES = ("BBKB global", "BBKB global-local", "GP-UCB", "random search")


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
    options = ["--evaluations", "30", "--quiet", "--data", str(csv_file)]
    demo.main([*options, "--output", output, *more])


def test_the_demo_prints_a_table_and_writes_the_plot(
    csv_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(csv_file)
    printed = capsys.readouterr().out.splitlines()
    assert "parabola: 81 candidates, 2 features, target 'f'" in printed[0]
    assert "lengthscale 6.25" in printed[0]  # 12.5 sqrt(2 / 8)
    assert printed[1].split()[:2] == ["method", "evaluations"]
    for name, line in zip(NAMES, printed[2:6], strict=True):
        assert line.startswith(name)
        evaluations, *_, regret = line.removeprefix(name).split()
        assert int(evaluations) == 30
        assert 0 <= float(regret) < 3
    png = csv_file.parent / "plots" / "parabola.png"
    assert printed[6] == f"Plot: {png}"
    assert png.read_bytes().startswith(b"\x89PNG")


def test_the_demo_repeats_itself(
    csv_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever its plot goes; `--output` may name the file."""
    tables, png = [], csv_file.parent / "new" / "here.png"
    for options in ([], ["--output", str(png)]):
        run(csv_file, "--seed", "3", *options)
        table, plot = capsys.readouterr().out.split("Plot: ")
        tables.append(re.sub(r"\d+\.\d\d\b", "", table))  # seconds
    assert tables[0] == tables[1]
    assert plot == f"{png}\n" and png.is_file()


def test_the_sparse_strategies_beat_uniform_choice(csv_file: Path) -> None:
    table = demo.load_table(csv_file)
    lengthscale = demo.default_lengthscale(table)
    histories = demo.compare(
        table, num_evaluations=100, lengthscale=lengthscale, progress=False
    )
    for name in NAMES[:3]:
        assert table.regret_ratio(histories[name].indices)[-1] < 0.2, name
        assert table.Y[histories[name].indices].max() > 0.99, name


def test_gp_ucb_stops_when_its_time_is_over(csv_file: Path) -> None:
    table = demo.load_table(csv_file)
    histories = demo.compare(
        table, num_evaluations=9, lengthscale=1.0, gp_seconds=1e-9, progress=False
    )
    counts = {name: len(history.Y) for name, history in histories.items()}
    assert counts["GP-UCB"] == 1
    assert counts["BBKB global"] == counts["random search"] == 9


def test_without_matplotlib_the_table_is_printed(
    csv_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real_import = builtins.__import__

    def without_matplotlib(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "botorch_sparse.plotting":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    run(csv_file)
    printed = capsys.readouterr().out
    assert "random search" in printed
    assert "pip install 'botorch_sparse[plot]'" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "none.csv"], "no file none.csv"),
        (["--data", "nothing"], "no table 'nothing'"),
        (["--target", "rigns"], "no column 'rigns'; its columns are sex"),
        (["--evaluations", "0"], "'0' is not a whole number above 0"),
        (["--evaluations", "2.5"], "'2.5' is not a whole number above 0"),
        (["--lengthscale", "-1"], "'-1' is not a number above 0"),
        (["--lengthscale", "nan"], "'nan' is not a number above 0"),
        (["--gp-seconds", "x"], "'x' is not a number above 0"),
        (["--seed", "-1"], "'-1' is not a whole number from 0 on"),
        (["--device", "gpux"], "no device 'gpux'"),
        (["--output", __file__], "is no folder"),
        (["--unknown", "1"], "unrecognized arguments"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        demo.main(options)
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
    monkeypatch.delitem(sys.modules, demo.__name__)
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
    """lam = noise = 1e-4, F = 1, delta = 1/T, oversampling 2, threshold 2."""
    table, seen = demo.load_table(csv_file), []

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
