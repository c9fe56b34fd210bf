"""The benchmark of the start runs fresh interpreters, and compares them with a peer."""

import csv
from pathlib import Path

import pytest

from benchmarks import start


def test_tables_have_one_line_for_each_row(tmp_path: Path) -> None:
    start.write_tables(tmp_path)
    pool, results = (
        [*csv.reader((tmp_path / name).read_text().splitlines())]
        for name in ("pool.csv", "results.csv")
    )
    assert (len(pool), len(results)) == (1 + start.ROWS, 1 + start.MEASURED)
    assert [line[:-1] for line in results] == pool[: len(results)]


@pytest.mark.slow
def test_a_line_for_each_interpreter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["start", "--repeats", "1"])
    start.main()
    *lines, slow = capsys.readouterr().out.splitlines()
    rows = {line.split("|")[1].strip(" `"): line.split("|") for line in lines[2:]}
    assert float(rows[start.PEER][3]) == 1.0 and slow.startswith("slower than")
    for line in (*start.OTHERS, *start.IMPORTS):
        cpu, ratio = float(rows[line][2]), float(rows[line][3])
        assert ratio == pytest.approx(cpu / float(rows[start.PEER][2]), abs=0.02)
