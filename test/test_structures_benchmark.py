"""The benchmark of structures prints a row for each, and the memory of a pool."""

import re

import pytest

from benchmarks import structures


@pytest.mark.slow
def test_rows_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    structures.main(["--sizes", "30", "--pool", "5000"])
    titles, _, *rows, _, last = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in (titles, *rows)]
    assert [row[1] for row in cells[1:]] == [
        *("matern", "default", "two outputs", "list of two"),
        *("category", "tasks", "fidelity", "sum", "warped, own noise"),
    ]
    for row in cells[1:]:
        assert float(row[2].removesuffix(" s")) > 0 and float(row[3]) > 0
        assert row[5] == ("30 and 30" if row[1] == "list of two" else "30")
        assert row[1] == "fidelity" or float(row[6].removesuffix(" s")) > 0
    found = re.search(r"of 5,000 points, .*; (.+) GiB in all", last)
    assert found is not None and 0 < float(found[1]) < 5
