"""Runs with a checkpoint that are killed at random moments go on to the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")


def seen_in(num_kills: int, seed: int) -> dict[str, int]:
    """What `kill_runs.py` has seen; a process of its own has not used torch."""
    done = subprocess.run(
        [sys.executable, str(TEST / "kill_runs.py"), str(num_kills), str(seed)],
        env=os.environ
        | {"PYTHONPATH": f"{TEST.parent}{os.pathsep}{TEST}"}
        | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_runs_go_on() -> None:
    assert seen_in(1, seed=0)["kills"] == 1


@pytest.mark.slow
def test_runs_of_all_kinds_go_on_after_a_hundred_kills() -> None:
    """Some of them while a state was half written."""
    seen = seen_in(100, seed=1)
    assert seen["kills"] == 100 and seen["in_save"] > 0
