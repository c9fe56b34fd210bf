"""The benchmark of lists of models prints a row for each."""

import pytest

from benchmarks import model_outcomes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # BoTorch's, of outcomes as they are
def test_rows_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    model_outcomes.main(["--sizes", "30", "40", "--exact", "30", "--starts", "2"])
    titles, _, *rows = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in (titles, *rows)]
    assert [tuple(row[:2]) for row in cells[1:]] == [
        ("30", "sparse"),
        ("30", "exact"),
        ("40", "sparse"),
    ]
    for row in cells[1:]:
        assert len(row) == len(cells[0])
        assert all(float(cell.removesuffix(" s")) >= 0 for cell in row[2:5])
        assert row[5] == ", ".join([row[0]] * 3) and 0 < float(row[6]) < 2
