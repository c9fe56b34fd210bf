"""The benchmark of threads starts its neighbours, and ends them."""

import pytest

from benchmarks import threads


@pytest.mark.slow
def test_a_row_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    job = "10 steps of SparseSingleTaskGP, n = 300"
    threads.main(["--jobs", job, "--beside", "alone", "busy", "--repeats", "1"])
    header, titles, _, row, missed = capsys.readouterr().out.splitlines()
    assert "cores" in header and missed.startswith("above 1.3 alone or 2 beside: ")
    assert titles.split("|")[1:4] == [" job ", " alone ", " busy "]
    name, alone, busy = row.split("|")[1:4]
    assert name.strip() == job
    for cell in (alone, busy):
        default, _, one, ratio = cell.split()
        expected = float(default) / float(one)
        assert float(ratio.strip("()")) == pytest.approx(expected, abs=0.3)


@pytest.mark.slow
def test_a_job_that_fails_says_how_to_see_why() -> None:
    with pytest.raises(RuntimeError, match="--work 'no such job'"):
        threads.seconds("no such job", "alone", 1)
