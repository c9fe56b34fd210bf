"""The command line on several ranks, and one that dies in the middle."""

import signal
from pathlib import Path

import numpy as np
import pytest
from rank_processes import DEVICE_WORLDS, ended_ranks

from botorch_sparse.demo import demo_command as command
from botorch_sparse.pools.shard import RANK_TILE

ROWS = 4 * RANK_TILE - 300
OPTIONS = "--methods bbkb --batch 8 --evaluations 45 --quiet --output".split()

# Rank 1 dies while it learns from the second batch.
DIES = """
import os, signal, sys
from botorch_sparse import __main__ as command
from botorch_sparse.strategies import BBKB

learn = BBKB._learn
def dies(strategy):
    if os.environ["RANK"] == "1" and len(strategy.history) > 20:
        os.kill(os.getpid(), signal.SIGKILL)
    learn(strategy)
BBKB._learn = dies
command.main(sys.argv[1:])
"""


@pytest.fixture
def data(tmp_path):
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, size=(ROWS, 2))
    np.save(tmp_path / "big.npy", np.c_[X, np.sin(3 * X).sum(1)])
    return str(tmp_path / "big.npy")


@pytest.mark.slow
def test_a_rank_dies_and_the_run_goes_on_with_others(data, tmp_path, capsys):
    """Two ranks, then four, choose what one process does; rank 0 alone prints."""
    whole, parts, state = (str(tmp_path / name) for name in ("whole", "parts", "state"))
    arguments = ["--data", data, *OPTIONS, str(tmp_path)]
    command.main([*arguments, "--choices", whole])
    printed = capsys.readouterr().out
    several = [*arguments, "--choices", parts, "--checkpoint", state]

    survivor, killed = ended_ranks(2, "-W", "ignore", "-c", DIES, *several)
    assert killed.status == -signal.SIGKILL and survivor.status == 1
    assert "Rank 0 of 2 lost the others: a process has died" in survivor.err
    assert survivor.err.count("\n") == 1, survivor.err  # no traceback
    assert Path(state).is_file() and not Path(parts).exists()

    first, *others = ended_ranks(4, "-m", "botorch_sparse", *several)
    assert first.status == 0, first.err
    assert first.out.splitlines()[0] == printed.splitlines()[0]
    for other in others:
        assert (other.status, other.out) == (0, ""), other.err
    assert Path(parts).read_text() == Path(whole).read_text()


def test_ranks_with_other_arguments_are_refused(data, tmp_path):
    seeds = "import os, sys; from botorch_sparse import __main__ as command; "
    seeds += "command.main([*sys.argv[1:], '--seed', os.environ['RANK']])"
    arguments = ["--data", data, *OPTIONS, str(tmp_path)]
    first, second = ended_ranks(2, "-W", "ignore", "-c", seeds, *arguments)
    assert first.status == second.status == 2 and second.err == ""
    assert "Ranks [1] have another command than rank 0" in first.err


# The command, where a simulated device is there.
COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from contextlib import nullcontext
from simulated_device import accelerator
from botorch_sparse import __main__ as command

is_simulated = any(argument.startswith("sim") for argument in sys.argv)
with accelerator() if is_simulated else nullcontext():
    command.main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("device, size", DEVICE_WORLDS)
def test_ranks_on_devices_choose_what_one_process_does(device, size, data, tmp_path):
    """One GPU each; a single process has the whole table on one."""
    arguments = ["--data", data, *OPTIONS, str(tmp_path), "--device", device]
    program = ("-c", COMMAND, str(Path(__file__).parent), *arguments, "--choices")
    chosen = [str(tmp_path / f"rows-{number}") for number in (1, size)]
    for number, rows in zip((1, size), chosen, strict=True):
        for one in ended_ranks(number, *program, rows):
            assert one.status == 0, one.err
    alone, together = (Path(rows).read_text() for rows in chosen)
    assert alone == together and len(alone.splitlines()) == 45
