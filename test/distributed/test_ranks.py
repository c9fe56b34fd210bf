"""What ranks agree on, and what they say when one is gone."""

import pickle
import signal
from pathlib import Path

import pytest
import torch
from botorch.exceptions import InputDataError
from rank_processes import DEVICE_WORLDS, ended_ranks

from botorch_sparse.distributed import Ranks, joined_ranks, own_device
from botorch_sparse.distributed.process_ranks import ProcessRanks

PROGRAM = """
import os, signal, torch
from botorch.exceptions.errors import InputDataError
from botorch_sparse.distributed import RankError, joined_ranks

with joined_ranks() as ranks:
    r = ranks.rank
    assert ranks.size == 3 and torch.get_num_threads() == 1
    assert ranks.gather(("rank", r)) == [("rank", i) for i in range(3)]
    assert ranks.once(lambda: r) == 0 and ranks.once(lambda: None) is None

    assert ranks.argmax([1.0, 3.0, 2.0][r], 10 * r) == 10
    assert ranks.argmax([3.0, 1.0, 3.0][r], 9 - r) == 7
    assert ranks.argmax([float("nan"), -1.0, -torch.inf][r], r) == 1
    large = 2**53 - 5
    assert ranks.argmax(0.0, large + r) == large

    here = torch.arange(3.0).double() * (torch.arange(3) == r)
    assert ranks.sum(here).tolist() == [0.0, 1.0, 2.0]
    assert ranks.min(torch.tensor([r, -r])).tolist() == [0, -2]
    assert ranks.max(torch.tensor([r, -r])).tolist() == [2, 0]
    mine = torch.tensor([float(r)])
    assert ranks.from_owner(mine, 2).item() == 2.0 and mine.item() == r

    generator = torch.Generator().manual_seed(7)
    draw = ranks.once_drawing(generator, lambda: torch.randn(3, generator=generator))
    alone = torch.Generator().manual_seed(7)
    assert torch.equal(draw, torch.randn(3, generator=alone))
    assert torch.equal(generator.get_state(), alone.get_state())

    def fails():
        raise InputDataError("rank 0 alone")
    try:
        ranks.once(fails)
    except InputDataError as error:
        assert str(error) == "rank 0 alone"
    else:
        raise AssertionError("an error was lost")
    def fails_here():
        raise ValueError("cannot be sent", lambda: None)
    try:
        ranks.once(fails_here)
    except RankError as error:
        assert "Rank 0 failed: ValueError('cannot be sent'" in str(error)
    else:
        raise AssertionError("an error that can't be sent was lost")
    ranks.require_equal("seed", lambda: 3)
    try:
        ranks.require_equal("seed", lambda: r // 2)
    except InputDataError as error:
        assert "Ranks [2] have another seed than rank 0: 1 and 0" in str(error)
    else:
        raise AssertionError("ranks differ")
    print("agreed", flush=True)
    if r == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        ranks.argmax(0.0, r)
"""


def test_ranks_agree_and_survivors_say_that_one_is_gone() -> None:
    first, killed, last = ended_ranks(3, "-c", PROGRAM)
    for one in (first, killed, last):
        assert one.out == "agreed\n", one.err
    assert killed.status == -signal.SIGKILL
    for rank, survivor in ((0, first), (2, last)):
        assert survivor.status == 1
        assert f"Rank {rank} of 3 lost the others: a process has died" in survivor.err
        assert "resume" in survivor.err


STOPPED = """
import os, signal
from datetime import timedelta
from torch.distributed import TCPStore
from botorch_sparse.distributed import joined_ranks

# Who has imported this waits for the other, however long that takes.
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
store.set("imported/" + os.environ["RANK"], "")
store.wait(["imported/0", "imported/1"], timedelta(days=1))
with joined_ranks(timeout=timedelta(seconds=5)) as ranks:
    ranks.argmax(0.0, ranks.rank)
    print("agreed", flush=True)
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    ranks.argmax(0.0, ranks.rank)
"""


@pytest.mark.slow
def test_a_rank_that_gives_no_answer_is_waited_for_until_the_timeout() -> None:
    survivor, asleep = ended_ranks(2, "-c", STOPPED, asleep=[1])
    assert survivor.out == asleep.out == "agreed\n"
    assert survivor.status == 1
    assert "Rank 0 of 2 lost the others" in survivor.err
    assert "gave no answer" in survivor.err and "resume" in survivor.err


def test_one_process_alone_has_what_all_have() -> None:
    with joined_ranks() as ranks:
        assert (ranks.rank, ranks.size) == (0, 1)
    x = torch.randn(3)
    assert torch.equal(ranks.from_owner(x, 0), x)
    assert torch.equal(ranks.sum(x), x) and torch.equal(ranks.max(x), x)
    assert ranks.argmax(0.5, 7) == 7 and ranks.once(lambda: 3) == 3
    ranks.require_equal("seed", lambda: 1)
    with pytest.raises(ZeroDivisionError):
        ranks.once(lambda: 1 / 0)


def test_a_copy_in_another_process_is_alone() -> None:
    assert pickle.loads(pickle.dumps(ProcessRanks(1, 4))) == Ranks()


def test_each_process_of_a_machine_takes_its_own_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert own_device("cuda") == torch.device("cuda")
    assert own_device("cuda:3") == torch.device("cuda:3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    names = {"TORCHELASTIC_RUN_ID": "test", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert own_device("cuda") == torch.device("cuda:1")
    assert own_device("cpu") == torch.device("cpu")
    with pytest.raises(InputDataError, match=r"cuda:0 for 2 processes.*give cuda"):
        own_device("cuda:0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(InputDataError, match="3 processes on a machine with 2 CUDA"):
        own_device("cuda")
    with pytest.raises(InputDataError, match="3 processes"), joined_ranks("cuda"):
        pass
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert own_device("cuda:0") == torch.device("cuda:0")


# What ranks agree on by tensors of a device, and by values with such in them.
TENSORS = """
import sys
sys.path.insert(0, sys.argv[1])
from contextlib import nullcontext
import torch
from simulated_device import accelerator
from botorch_sparse.distributed import joined_ranks
from botorch_sparse.distributed.process_ranks import ProcessRanks

place = accelerator() if sys.argv[2].startswith("sim") else nullcontext()
with place, joined_ranks(sys.argv[2]) as joined:
    # One rank alone exchanges too.
    ranks = ProcessRanks(joined.rank, joined.size, joined.device)
    r, own = ranks.rank, {"dtype": torch.float64, "device": ranks.device}
    x = torch.tensor([r, r + 1.0], **own)
    every = ranks.stack(x)
    assert every.device == x.device
    assert every.tolist() == [[i, i + 1.0] for i in range(ranks.size)]
    assert ranks.stack(x[0]).tolist() == list(range(ranks.size))
    last = ranks.from_owner(x, ranks.size - 1)
    assert last.device == x.device and x.tolist() == [r, r + 1.0]
    assert last.tolist() == [ranks.size - 1.0, ranks.size]
    assert ranks.max(x.long()).tolist() == [ranks.size - 1, ranks.size]
    assert ranks.argmax(float(r), r) == ranks.size - 1  # on the host
    module, both = ranks.once(lambda: (torch.nn.Linear(2, 2).to(x), [x, x.cpu()]))
    assert module.weight.device == both[0].device == x.device
    assert both[1].device.type == "cpu" and both[1].tolist() == [0.0, 1.0]
    print("agreed", ranks.device, flush=True)
"""


@pytest.mark.parametrize("device, size", DEVICE_WORLDS)
def test_tensors_of_a_device_travel(device: str, size: int) -> None:
    """By NCCL from GPU to GPU, and through the host where nothing else is."""
    arguments = ("-c", TENSORS, str(Path(__file__).parent.parent), device)
    for rank, one in enumerate(ended_ranks(size, *arguments)):
        own = f"cuda:{rank}" if device == "cuda" else device
        assert (one.status, one.out) == (0, f"agreed {own}\n"), one.err
