"""The benchmark of `make gpu` runs, and its tables are whole, on every device."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import gpu

SMALL = ["--scale", "2e-4", "--repeats", "1"]
ROWS = {"embed": 2, "batch": 2, "warm posterior": 1, "objective": 1}
ROWS |= {"condition on 1 point": 1, "S-BPE": 1, "BBKB, one": 1, "GSSBO": 2}
ROWS |= {"BBKB, 1": 1, "Thompson": 1}


@pytest.mark.slow_sim
def test_tables_are_whole(device, tmp_path, capsys):
    file = tmp_path / "gpu.md"
    gpu.main([*SMALL, "--device", str(device), "--output", str(file)])
    lines = file.read_text().splitlines()
    assert capsys.readouterr().out.splitlines() == lines
    tables = [line.strip("|").split("|") for line in lines if line.startswith("|")]
    for name, count in ROWS.items():
        rows = [cells for cells in tables if cells[0].strip().startswith(name)]
        assert len(rows) == count
        assert all(float(cells[1].split()[0]) > 0 for cells in rows)
    for table in "\n".join(lines).split("\n\n"):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_a_table_that_fails_is_named_and_the_others_are_printed(capsys):
    def models(run: gpu.Run) -> list[str]:
        raise RuntimeError("out of memory")

    tables = (gpu.title, gpu.title, models, gpu.title)
    with pytest.raises(SystemExit, match="failed: models"):
        gpu.main([*SMALL, "--device", "cpu"], tables)
    out = capsys.readouterr().out
    assert "No table of models: RuntimeError" in out
    assert out.count("A copy moves") == 3
