"""States in files: whole or refused, and runs that go on from them to the bit."""

import errno
import os
import re
import subprocess
import sys
import threading
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from refusals import refused
from strategy_table import TABLE, equal, objective, without_times

from botorch_sparse.strategies import RandomSearch, Strategy

pd = pytest.importorskip("pandas")


def state_of(strategy: Strategy) -> dict[str, Any]:
    return without_times(strategy.state_dict())


def used(**options: Any) -> RandomSearch:
    """Evaluations, pending trials, one that waits and one that failed."""
    strategy = RandomSearch(torch.arange(40.0).unsqueeze(-1), batch_size=6, **options)
    batch = strategy.ask()
    strategy.tell(batch.ids[:2], [1.0, 2.0])
    strategy.fail(batch.ids[2:3], retry=True)
    strategy.fail(batch.ids[3:4])
    strategy.tell([[99.5]], [3.0])
    return strategy


@pytest.mark.parametrize("name", ["s" * 255, "\u00e4" * 127])
def test_a_name_as_long_as_may_be(name: str, tmp_path: Path) -> None:
    """That of the temporary file beside it is cut."""
    strategy = used()
    path = tmp_path / name
    strategy.run(lambda X: X[:, 0], 14, progress=False, checkpoint=path)
    assert os.listdir(tmp_path) == [name]
    twin = used().resume(path)
    assert equal(twin.state_dict(), strategy.state_dict())


@pytest.mark.parametrize(
    ("name", "said"), [("s" * 256, "too long"), ("half\0other", "null byte")]
)
def test_what_can_be_no_name_is_refused_at_once(
    name: str, said: str, tmp_path: Path
) -> None:
    strategy, path = used(), f"{tmp_path}/{name}"
    before = strategy.state_dict()
    with pytest.raises(InputDataError, match=f"checkpoint=.*{said}.*need"):
        strategy.run(objective, 14, progress=False, checkpoint=path)
    assert equal(strategy.state_dict(), before)
    for step in (strategy.save, strategy.resume):
        with pytest.raises((InputDataError, OSError), match=said):
            step(path)


@pytest.mark.parametrize("step", ["save", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.pt"
    strategy = used()
    strategy.save(path)
    before = path.read_bytes()

    def fail(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    owner = torch if step == "save" else os
    monkeypatch.setattr(owner, step, fail)
    strategy.tell(strategy.pending_ids[:1], [1.0])
    with pytest.raises(OSError, match=r"no space left.*state\.pt"):
        strategy.save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["state.pt"]


def test_the_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)

        def spy(*args: Any, name: str = name, original: Any = original) -> None:
            steps.append(name)
            original(*args)

        monkeypatch.setattr(os, name, spy)
    used().save(tmp_path / "state.pt")
    assert steps == ["fsync", "replace", *["fsync"] * (os.name == "posix")]


def test_threads_that_save_to_one_file(tmp_path: Path) -> None:
    """They have files of their own until these have the name, which is never torn."""
    strategy, path = used(), tmp_path / "state.pt"
    strategies = [strategy, strategy, used(), used()]

    def work(strategy: Strategy) -> None:
        for _ in range(10):
            strategy.save(path)
            used().resume(path)

    with ThreadPoolExecutor(len(strategies)) as executor:
        for done in [executor.submit(work, s) for s in strategies]:
            done.result()
    assert os.listdir(tmp_path) == ["state.pt"]


def test_a_save_in_a_thread_has_the_latest_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one, with feedback that came while it wrote, waits for it."""
    strategy, path, original = used(), tmp_path / "state.pt", os.fsync
    later = threading.Thread(target=lambda: (strategy.tell([[9.5]], [1.0]), save()))

    def save() -> None:
        strategy.save(path)

    def fsync(file: int) -> None:
        monkeypatch.setattr(os, "fsync", original)
        later.start()
        later.join(0.2)
        original(file)

    monkeypatch.setattr(os, "fsync", fsync)
    save()
    later.join()
    assert equal(used().resume(path).state_dict(), strategy.state_dict())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no special files")
def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="no file"):
            used().save(path)
    assert (tmp_path / "pipe").is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    link, file = tmp_path / "link.pt", tmp_path / "other" / "state.pt"
    try:
        link.symlink_to(file)
    except OSError:
        pytest.skip("no links here")
    strategy = used()
    strategy.save(link)
    assert link.is_symlink() and not file.is_symlink()
    assert equal(used().resume(file).state_dict(), strategy.state_dict())


@pytest.mark.skipif(os.name != "posix", reason="no way to ask for a process")
def test_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    """Only what bears the file's own name, and the number of no process."""
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as alive:
        stay = {
            f".state.pt.{alive.pid}.tmp",
            f".state.pt.1{dead.pid}x.tmp",
            f".state.pt.{dead.pid}.tmp2",
            f".statexpt.{dead.pid}.tmp",
            f".other.pt.{dead.pid}.tmp",
            f"state.pt.{dead.pid}.tmp",
        }
        gone = [f".state.pt.{dead.pid}.tmp", f".state.pt.{dead.pid}.12.tmp"]
        for name in [*stay, *gone]:
            (tmp_path / name).write_bytes(b"half of a st")
        used().save(tmp_path / "state.pt")
        assert {*os.listdir(tmp_path)} == stay | {"state.pt"}
        (tmp_path / gone[0]).mkdir()  # which cannot be removed
        used().save(tmp_path / "state.pt")
        assert {*os.listdir(tmp_path)} == stay | {"state.pt", gone[0]}
        alive.communicate(b"\n")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_torn_files(share: float, tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    strategy = used()
    strategy.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    before = strategy.state_dict()
    refused("torn", strategy.resume, path)
    assert equal(strategy.state_dict(), before)


def test_damaged_files(tmp_path: Path) -> None:
    """With a bit flipped they are refused, or have the state that was saved.

    The latter where the bit is of the checksum's mark: it is then not looked for.
    """
    path, strategy, other = tmp_path / "state.pt", used(), used(seed=1)
    strategy.save(path)
    whole, accepted = path.read_bytes(), list[int]()
    mark = whole.rindex(b"sha256:")
    for place in [*range(0, mark, 31), *range(mark - 3, len(whole))]:
        path.write_bytes(flipped(whole, place))
        try:
            other.resume(path)
        except InputDataError as error:
            assert re.search("torn or damaged", str(error))
        else:
            accepted.append(place)
            assert equal(other.state_dict(), strategy.state_dict())
    assert accepted == [*range(mark, mark + len(b"sha256:"))]


def flipped(content: bytes, place: int) -> bytes:
    """Content with one bit changed in a byte."""
    bit = 1 << place % 8
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


def test_other_readers_know_the_file(tmp_path: Path) -> None:
    """PyTorch, also of a file that it maps, and readers of zip archives."""
    path, strategy = tmp_path / "state.pt", used()
    strategy.save(path)
    for mmap in (False, True):
        state = torch.load(path, weights_only=True, mmap=mmap)
        assert equal(state, strategy.state_dict())
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment.startswith(b"sha256:")


def test_a_state_that_torch_saved(tmp_path: Path) -> None:
    """It has no checksum, and is taken as it is."""
    path, strategy = tmp_path / "state.pt", used()
    torch.save(strategy.state_dict(), path)
    resumed = used(seed=1).resume(path)
    assert equal(resumed.state_dict(), strategy.state_dict())


def test_foreign_files(tmp_path: Path) -> None:
    strategy, path = used(), tmp_path / "other"

    def refuse(match: str) -> None:
        refused(match, strategy.resume, path)
        with pytest.raises(InputDataError, match=r"torn or is none|holds a|all of it"):
            strategy.run(lambda X: X[:, 0], 9, progress=False, checkpoint=path)

    with pytest.raises(FileNotFoundError):
        strategy.resume(path)
    path.write_text("id,loss\na,1\n")
    refuse("torn or is none")
    torch.save([1, 2], path)
    refuse("holds a list")
    torch.save(Path("code"), path)  # would need code to be run
    refuse("torn or is none")
    torch.save({"weights": torch.zeros(2)}, path)
    refuse("does not fit this strategy")


def test_a_run_does_not_replace_another(tmp_path: Path) -> None:
    """The script that is started again knows its old results, and not the run."""
    path = tmp_path / "run.pt"

    def started() -> Strategy:
        strategy = TABLE["random"]()
        X = strategy.candidates[:3]
        strategy.tell(X, objective(X))
        return strategy

    strategy = started()
    strategy.run(objective, 12, progress=False, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(InputDataError, match=r"There is a run at .*resume\(path\)"):
        TABLE["random"]().run(objective, 10, progress=False, checkpoint=path)
    other = TABLE["random"](seed=7)
    other.run(objective, 20, progress=False)
    for stranger in (started(), other):
        with pytest.raises(InputDataError, match="does not know all of it"):
            stranger.run(objective, 20, progress=False, checkpoint=path)
    earlier = TABLE["random"]().resume(path)
    strategy.run(objective, 14, progress=False, checkpoint=path)
    assert path.read_bytes() != before
    with pytest.raises(InputDataError, match="does not know all of it"):
        earlier.run(objective, 20, progress=False, checkpoint=path)
    resumed = TABLE["random"]().resume(path)
    assert len(resumed.history) == 14
    ahead = TABLE["random"]().resume(path)
    ahead.ask(2)  # what is out is known to the file alone
    ahead.save(path)
    with pytest.raises(InputDataError, match="does not know all of it"):
        resumed.run(objective, 16, progress=False, checkpoint=path)
    resumed.resume(path)
    resumed.run(objective, 16, progress=False, checkpoint=path)


def test_a_state_is_read_to_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file from another device is read where there is none."""
    used().save(tmp_path / "state.pt")
    load, seen = torch.load, []

    def spy(*args: Any, **options: Any) -> Any:
        seen.append(options.get("map_location"))
        return load(*args, **options)

    monkeypatch.setattr(torch, "load", spy)
    used().resume(tmp_path / "state.pt")
    assert seen == ["cpu"]


@pytest.mark.parametrize("change", ["keys", "key name", "label", "categories"])
def test_a_state_of_a_table_with_other_names(change: str) -> None:
    """The encoded numbers are the same, and what they mean is not."""
    data = {"solvent": ["oil", "water"], "heat": [20, 35]}
    frame = pd.DataFrame(data, index=pd.Index(["a", "b"], name="id"))
    other = frame.copy()
    if change == "keys":
        other.index = pd.Index(["b", "a"], name="id")
    elif change == "key name":
        other.index.name = "code"
    elif change == "label":
        other = other.rename(columns={"heat": "time"})
    else:
        other["solvent"] = ["water", "oil"]
    strategy, stranger = RandomSearch(frame), RandomSearch(other)
    assert torch.equal(strategy.candidates, stranger.candidates)
    refused(r"\['names'\] differ", stranger.load_state_dict, strategy.state_dict())
    RandomSearch(frame.copy()).load_state_dict(strategy.state_dict())


def test_a_table_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving and loading cost no pass over all candidates after the first."""
    seen, checksum = [], zlib.crc32

    def spy(data: Any, *before: int) -> int:
        seen.append(memoryview(data).nbytes)
        return checksum(data, *before)

    monkeypatch.setattr(zlib, "crc32", spy)
    strategy = used(seed=1)
    for _ in range(3):
        strategy.load_state_dict(strategy.state_dict())
    assert seen.count(strategy.candidates.nbytes) == 1


@pytest.mark.parametrize("damage", ["shorter", "elsewhere"])
def test_evaluations_that_do_not_fit_are_refused(damage):
    """A dictionary has no checksum: columns are of one length, and points are there."""
    X = torch.rand(50, 2, dtype=torch.float64)
    strategy, other = (RandomSearch(X, batch_size=5, seed=0) for _ in range(2))
    batch = strategy.ask()
    strategy.tell(batch, batch.X.sum(-1))
    state = strategy.state_dict()
    history = state["history"]
    if damage == "shorter":
        history["Y"] = history["Y"][:-1]
    else:
        history["point"] = history["point"] + 49
    refused("different lengths, or lack points", other.load_state_dict, state)
    assert len(other.history) == 0
